# SPDX-License-Identifier: BSD-3-Clause
"""What an index knows of a folder, and how it keeps up with it.

``update`` walks the folder and compares names, sizes and times with those of the index.  A file that is new or changed
is known by the digest of its bytes: where the index has these bytes under another name (a file that was moved, copied
or touched), nothing is computed.  Else it is described, by way of the store of features.  What was learned from the
images (mixtures, axes) is kept until their number has doubled or halved, then learned anew.

From ``LARGE`` images on, or where it is asked for, the vectors are compressed as well
(:mod:`patchbag.search.compressed`): a search reads the codes, and of the vectors those of a few candidates.

An index is kept in the folder of the store, one file per folder and representation (:mod:`patchbag.search.index_file`),
not among the images; what is learned beside it, in a file that the index names and that is never changed.
"""

import os
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from patchbag import __version__
from patchbag.collection.files import COARSEST_CLOCK, DIGEST, content_digest, file_status, folder_digest
from patchbag.collection.folder import CollectionError, no_images, scan_status
from patchbag.runtime import store_folder
from patchbag.search.encoder import Described, Encoder, Progress, describe
from patchbag.search.index_file import read_index, write_index
from patchbag.search.representations import find_representation

FOLDER = "indexes"
LARGE = 200_000  # images: below, all products take less time from the shell than to import the compiler


class Changes(NamedTuple):
    """Result of an update: numbers of images described, renamed and gone, and whether models were learned anew."""

    new: int = 0
    moved: int = 0
    gone: int = 0
    relearned: bool = False

    def __bool__(self) -> bool:
        return any(self)


class FolderIndex:
    """The images of a folder as vectors; see :class:`~patchbag.search.index.SearchIndex`."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        by: str = "deep",
        n_jobs: int | None = None,
        compress: bool | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.representation = find_representation(by)
        self.n_jobs = n_jobs
        if compress and self.representation.metric != "cosine":
            raise ValueError(f"images by {by!r} have no vectors that could be compressed")
        self.compress = compress
        self.path = store_folder() / FOLDER / f"{folder_digest(self.folder)}-{by}.safetensors"
        self.remarks: list[str] = []  # on sub-folders that the last update could not read
        self._open()

    def _open(self) -> None:
        found = read_index(self.path)
        self.built = found is not None and found[0].get("signature") == self._signature
        facts, arrays = found if found is not None and self.built else ({}, {})
        source = facts.get("learned")
        if source and not (self.path.parent / source).is_file():
            self.built, facts, arrays = False, {}, {}
        self._facts = facts
        self.names: list[str] = facts.get("names", [])
        self._left_out: dict[str, list[Any]] = facts.get("failures", {})
        self._status = arrays.get("status", np.empty((0, 2), np.int64))
        self._digests = arrays.get("digests", np.empty((0, DIGEST), np.uint8))
        self.vectors: np.ndarray = arrays.get("vectors", np.empty((0, 0), np.float32))
        self.compressed: Any = _read_codes(arrays)
        self._encoder: Encoder | None = None
        if self.built and self.names:
            place = self.path.parent / source if source else None
            self._encoder = Encoder.from_arrays(self.representation, arrays, place)

    @property
    def _signature(self) -> str:
        one = self.representation
        return f"{__version__} {one.name} {one.version}"

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"SearchIndex({str(self.folder)!r}, by={self.representation.name!r}, {len(self)} images)"

    @property
    def paths(self) -> list[str]:
        return [os.path.join(self.folder, name) for name in self.names]

    @property
    def failures(self) -> dict[str, str]:
        return {name: entry[2] for name, entry in self._left_out.items()}

    @property
    def digests(self) -> list[bytes]:
        """Digests of the images' bytes."""
        return [digest.tobytes() for digest in np.asarray(self._digests)]

    @cached_property
    def _rows(self) -> dict[bytes, int]:
        """Row of the index by digest of the file."""
        return {digest: row for row, digest in reversed([*enumerate(self.digests)])}

    def update(self, progress: Progress | None = None) -> Self:
        """Bring the index up to what the folder holds now; CollectionError where it has no image that can be read."""
        self.changes = self._update(progress)
        if not self.names:
            why = "; ".join(f"{name}: {message}" for name, message in list(self.failures.items())[:3])
            raise CollectionError(f"{self.folder}: no image can be read ({why})")
        return self

    def _update(self, progress: Progress | None) -> Changes:
        looked = time.time_ns()
        files, self.remarks = scan_status(self.folder)
        if not files:
            raise no_images(self.folder)
        # a file that was written while it was looked at may have changed since without a trace
        sure = self._facts.get("looked", 0) - COARSEST_CLOCK
        known = dict(zip(self.names, map(tuple, self._status.tolist())))
        known |= {name: tuple(entry[:2]) for name, entry in self._left_out.items()}
        as_asked = self._compresses(len(self)) == (self.compressed is not None)
        if self.built and files == known and as_asked and max(modified for _, modified in files.values()) < sure:
            return Changes()
        names, status = list(files), list(files.values())
        place = {name: row for row, name in enumerate(self.names)}
        same = [known.get(name) == now for name, now in files.items()]
        rows = [place.get(name, -1) if unchanged else -1 for name, unchanged in zip(names, same)]
        open_questions = [i for i, (_, modified) in enumerate(status) if not same[i] or modified >= sure]
        return self._take_up(names, status, rows, open_questions, looked, progress)

    def _take_up(
        self,
        names: list[str],
        status: list[tuple[int, int]],
        rows: list[int],
        open_questions: list[int],
        looked: int,
        progress: Progress | None,
    ) -> Changes:
        before = set(self.names)
        digests = dict(zip(open_questions, self._digest([names[i] for i in open_questions])))
        failures = {names[i]: self._left_out[names[i]] for i, row in enumerate(rows) if row < 0 and i not in digests}
        for i, digest in digests.items():
            rows[i] = self._rows.get(digest, -1) if digest else -1
        missing = [i for i in digests if rows[i] < 0]
        described = self._describe([names[i] for i in missing], progress)
        for index, _, message in described.failures:
            failures[names[missing[index]]] = [*status[missing[index]], message]
        fresh = [missing[i] for i in described.kept]
        count = sum(row >= 0 for row in rows) + len(fresh)
        learned_from = self._facts.get("learned_from", 0)
        relearn = count > 0 and (self._encoder is None or count >= 2 * learned_from or 2 * count <= learned_from)
        kept = [i for i in range(len(names)) if rows[i] >= 0]
        order = [*kept, *fresh]
        vectors = np.asarray(self.vectors)[[rows[i] for i in kept]]
        if relearn:
            if kept:
                described = self._describe([names[i] for i in order], progress)
                order = [order[i] for i in described.kept]  # a file can have gone meanwhile
            if order:
                self._encoder, vectors = Encoder.fit(self.representation, described.parts)
        elif fresh and self._encoder is not None:
            vectors = np.vstack([vectors, self._encoder.encode(described.parts)])
        place = np.argsort(order, kind="stable")
        order = [order[i] for i in place]
        unread = bytes(DIGEST)
        found = [digests[i] or unread if i in digests else self._digests[rows[i]].tobytes() for i in order]
        new = {names[i] for i in fresh}
        now = {names[i] for i in order}
        changes = Changes(len(new & now), len(now - before - new), len(before - now), bool(relearn))
        vectors = np.ascontiguousarray(vectors[place], np.float32)
        self._compress(vectors, np.array([-1 if relearn else rows[i] for i in order], np.int64))
        self._write(
            [names[i] for i in order],
            np.array([status[i] for i in order], np.int64).reshape(-1, 2),
            np.frombuffer(b"".join(found), np.uint8).reshape(-1, DIGEST),
            vectors,
            failures,
            {"looked": looked, "learned_from": count if relearn else learned_from},
        )
        return changes

    def _compresses(self, n: int) -> bool:
        """Whether an index of n images is to have codes: as asked for, else if it is large or has them already."""
        large = n >= LARGE and self.representation.metric == "cosine"
        return (large or self.compressed is not None) if self.compress is None else self.compress

    def _compress(self, vectors: np.ndarray, rows: np.ndarray) -> None:
        """Codes of vectors, of which those at ``rows`` have been there before."""
        if not self._compresses(len(vectors)) or not vectors.size:
            self.compressed = None
        elif self.compressed is None or (rows < 0).all():
            from patchbag.search.compressed import CompressedVectors

            self.compressed = CompressedVectors.fit(vectors)
        else:
            self.compressed = self.compressed.renewed(rows, vectors)

    def _describe(self, names: Sequence[str], progress: Progress | None) -> Described:
        paths = [os.path.join(self.folder, name) for name in names]
        return describe(self.representation, paths, self.n_jobs, progress)

    def _digest(self, names: Sequence[str]) -> list[bytes | None]:
        paths = [os.path.join(self.folder, name) for name in names]
        import sqlite3  # which a folder that has not changed does not need

        from patchbag.collection.store import Store

        store = Store()
        if len(paths) > 8 and store.max_bytes > 0:  # it keeps them by path, and has several workers read
            with suppress(sqlite3.Error, OSError), store.opened():  # a full disk is no reason to stop
                return [digest for _, digest in store.digests(paths)]
        return [content_digest(path) if file_status(path) else None for path in paths]

    def _write(
        self,
        names: list[str],
        status: np.ndarray,
        digests: np.ndarray,
        vectors: np.ndarray,
        failures: dict[str, list[Any]],
        facts: dict[str, Any],
    ) -> None:
        facts |= {"signature": self._signature, "folder": os.path.abspath(self.folder), "names": names}
        facts |= {"failures": failures, "learned": None}
        self.__dict__.pop("_rows", None)
        self.names, self._status, self._digests, self.vectors = names, status, digests, vectors
        self._left_out, self._facts, self.built = failures, facts, True
        from patchbag.collection.store import Store

        if Store().max_bytes <= 0:  # nothing is to be kept
            return
        try:
            self._keep(facts, {"vectors": vectors, "status": status, "digests": digests})
        except OSError as error:  # a full disk is no reason to stop
            warnings.warn(f"the index is not kept in {self.path.parent}: {error.strerror or error}", stacklevel=2)

    def _keep(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write the file of the index, and what was learned beside it; files that it names no more are deleted."""
        encoder = self._encoder
        stem = self.path.stem
        if encoder is not None and encoder.learned:
            if encoder.source is None:
                encoder.save_pipelines(self.path.with_name(f"{stem}-{facts['looked']}.model"))
            facts["learned"] = encoder.source.name if encoder.source else None
        arrays |= {} if self.compressed is None else self.compressed.arrays()
        write_index(self.path, facts, arrays | (encoder.arrays() if encoder is not None and self.names else {}))
        for model in self.path.parent.glob(f"{stem}-*.model"):
            if model.name != facts["learned"]:
                with suppress(OSError):
                    model.unlink()


def _read_codes(arrays: dict[str, np.ndarray]) -> Any:
    if "codes" not in arrays:
        return None
    from patchbag.search.compressed import CompressedVectors  # compiled loops: slow to import

    return CompressedVectors.from_arrays(arrays)


def list_indexes() -> list[Path]:
    """The files of all indexes in the folder of the store."""
    return sorted((store_folder() / FOLDER).glob("*.safetensors"))


def clear_indexes() -> int:
    """Delete all indexes in the folder of the store, and say how many there were."""
    place, found = store_folder() / FOLDER, list_indexes()
    for path in (*found, *place.glob("*.model"), *place.glob(".*.partial")):
        path.unlink(missing_ok=True)
    return len(found)
