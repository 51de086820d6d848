# SPDX-License-Identifier: BSD-3-Clause
"""Described features on disk: appended once, memory-mapped as one array ever after.

**Found by** what they were computed from: the digest of an image file's bytes and the signature of the feature (class,
version, parameters).  A renamed file is found, an edited one and a changed parameter are not.  Digests are kept by
path, size and time of modification, so that a file that has not changed is not read again; one that was modified in
the last seconds is, for the clocks of file systems are coarse.

**Layout.**  A feature has one shard, in which images described in one go lie in their order::

    features-1.sqlite           files (path, size, modified, digest)
                                shards (id, signature, dtype, dimension, rows, stamp, used)
                                entries (shard, digest, first, size, crc)
    shard-7/values.bin          (rows, dimension) descriptors, image after image
    shard-7/positions.bin       (rows, 2) float32

**Safe.**  Rows are written behind those that the index counts, and flushed before their entries are committed, in a
SQLite transaction that lets one writer in at a time: whoever is killed leaves bytes that nothing refers to, which the
next writer overwrites.  Rows are never changed and shards never numbered twice, so that maps stay good.  Of a shard
whose files have not the size and time that the index remembers every entry is checked by its CRC-32, of another one a
few; what is damaged is forgotten and described again.

**Bounded** by ``$PATCHBAG_CACHE_SIZE`` ("500M", "20G", "0" to store nothing), else 20 GB.  Where a collection would not
fit, the features unused for longest are dropped, then other images from its own shard.  If it cannot fit at all,
nothing is dropped and the collection is not kept.

The folder is that of the runtime's context, else ``$PATCHBAG_CACHE``, else the platform's cache folder of the user.
"""

import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from patchbag.collection.files import COARSEST_CLOCK, content_digest, file_status
from patchbag.collection.shard import Entry, Images, Shard, checksum
from patchbag.runtime import parallel_map, store_folder

INDEX = "features-1.sqlite"
DEFAULT_SIZE = "20G"
SAMPLE = 16  # images of a shard that are checked whenever it is used
SCHEMA = """
CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, size INTEGER, modified INTEGER, digest BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS shards (id INTEGER PRIMARY KEY AUTOINCREMENT, signature TEXT UNIQUE, dtype TEXT,
    dimension INTEGER, rows INTEGER, stamp TEXT, used REAL);
CREATE TABLE IF NOT EXISTS entries (shard INTEGER, digest BLOB, first INTEGER, size INTEGER, crc INTEGER,
    PRIMARY KEY (shard, digest)) WITHOUT ROWID;
"""


class StoreInfo(NamedTuple):
    """What a store holds."""

    folder: Path
    entries: int
    bytes: int
    max_bytes: int


def parse_bytes(text: str) -> int:
    """A number of bytes from "500M", "4G", "1.5 GB" or "123456".

    >>> parse_bytes("1.5 GB")
    1500000000
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?)B?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f'a cache size is a number with an optional k, M, G or T, such as "4G"; got {text!r}')
    return int(float(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " "))


class Store:
    """Described features in a folder; what it holds is reached inside ``with store.opened():``.

    Parameters
    ----------
    folder : by default as above; made when it is first opened
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder).expanduser() if folder else store_folder()
        self.max_bytes = parse_bytes(os.environ.get("PATCHBAG_CACHE_SIZE") or DEFAULT_SIZE)

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """The store with its index open."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.folder / INDEX, timeout=60, isolation_level=None)) as self._index:
            self._index.execute("PRAGMA journal_mode=WAL")
            self._index.executescript(SCHEMA)
            yield self

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction; one at a time, whoever else has the store open."""
        self._index.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._index.execute("COMMIT")
        finally:
            if self._index.in_transaction:
                self._index.execute("ROLLBACK")

    def info(self) -> StoreInfo:
        """Count what is stored."""
        if not (self.folder / INDEX).exists():
            return StoreInfo(self.folder, 0, 0, self.max_bytes)
        try:
            with self.opened():
                (entries,) = self._index.execute("SELECT count(*) FROM entries").fetchone()
                return StoreInfo(self.folder, entries, sum(shard.nbytes for shard in self._shards()), self.max_bytes)
        except sqlite3.Error as error:
            raise ValueError(f"{self.folder / INDEX} cannot be used: {error}; clear the store") from error

    def clear(self) -> int:
        """Forget everything and report how many entries that were; nothing else in the folder is touched."""
        try:
            entries = self.info().entries
        except ValueError:
            self.remove()
            return 0
        if entries:
            with self.opened(), self._writing():
                self._index.execute("DELETE FROM files")
                self._drop(self._shards())
        return entries

    def remove(self) -> None:
        """Delete the files of the store, whatever state they are in."""
        for path in (*self.folder.glob(f"{INDEX}*"), *self.folder.glob("shard-*")):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def digests(self, paths: Sequence[str], n_jobs: int | None = None) -> list[tuple[Any, bytes | None]]:
        """Status and digest of every file; None for what cannot be read."""
        keys = [os.fsencode(os.path.abspath(path)) for path in paths]
        status = [file_status(path) for path in paths]
        query = "SELECT size, modified, digest FROM files WHERE path = ?"
        rows = [self._index.execute(query, (key,)).fetchone() for key in keys]
        digests = [row[2] if row and row[:2] == now else None for row, now in zip(rows, status)]
        unread = [i for i, now in enumerate(status) if now and digests[i] is None]
        for i, digest in zip(unread, parallel_map(content_digest, [paths[i] for i in unread], n_jobs, near=True)):
            digests[i] = digest
        old = time.time_ns() - COARSEST_CLOCK
        known = [(keys[i], *now, digests[i]) for i in unread if (now := status[i]) and now[1] < old and digests[i]]
        if known:
            with self._writing():
                self._index.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", known)
        return list(zip(status, digests))

    # --- reading -----------------------------------------------------------------------------------------------------

    def find(self, signature: str, digests: Iterable[bytes]) -> tuple[Shard | None, dict[bytes, Entry]]:
        """The shard of a feature, and its entries for those of the images that it has."""
        with self._writing():
            shard = self._shard(signature)
            if shard is None:
                return None, {}
            if shard.look() != shard.stamp or self._damaged(shard, SAMPLE):
                damaged = [(shard.id, digest) for digest in self._damaged(shard)]
                self._index.executemany("DELETE FROM entries WHERE shard = ? AND digest = ?", damaged)
                query = "SELECT max(first + size) FROM entries WHERE shard = ?"
                (end,) = self._index.execute(query, (shard.id,)).fetchone()
                if end is None:
                    self._drop([shard])
                    return None, {}
                self._close(shard._replace(rows=end))
            self._index.execute("UPDATE shards SET used = ? WHERE id = ?", (time.time(), shard.id))
            return shard, self._entries(shard, digests)

    def _entries(self, shard: Shard, digests: Iterable[bytes]) -> dict[bytes, Entry]:
        query = "SELECT first, size, crc FROM entries WHERE shard = ? AND digest = ?"
        rows = ((digest, self._index.execute(query, (shard.id, digest)).fetchone()) for digest in digests)
        found = {digest: Entry(*row) for digest, row in rows if row}
        return {digest: entry for digest, entry in found.items() if entry.inside(shard.rows)}

    def _damaged(self, shard: Shard, most: int = -1) -> list[bytes]:
        """Images of a shard whose checksum is wrong, among all of them or a random sample."""
        query = "SELECT digest, first, size, crc FROM entries WHERE shard = ? ORDER BY random() LIMIT ?"
        arrays = shard.map()
        rows = self._index.execute(query, (shard.id, most)).fetchall()
        entries = ((digest, Entry(*row)) for digest, *row in rows)
        return [
            digest
            for digest, entry in entries
            if not entry.inside(len(arrays[0])) or checksum(shard.signature, digest, entry.rows(arrays)) != entry.crc
        ]

    def _shards(self) -> list[Shard]:
        """All shards, the one unused for longest first."""
        query = "SELECT id, signature, dtype, dimension, rows, stamp FROM shards ORDER BY used"
        found = [Shard(self.folder, *row) for row in self._index.execute(query)]
        return [shard if shard.sound else shard._replace(dtype="uint8", rows=0, dimension=0) for shard in found]

    def _shard(self, signature: str) -> Shard | None:
        shard = next((shard for shard in self._shards() if shard.signature == signature), None)
        if shard is not None and not shard.sound:
            self._drop([shard])
            return None
        return shard

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(
        self, signature: str, images: Images, known: dict[bytes, Entry], number: int, coming: int = 0
    ) -> tuple[Shard, dict[bytes, Entry]]:
        """Add images to the shard of a feature; returns it, and the entries of known and new images.

        Parameters
        ----------
        images : values and positions by digest
        known, number : entries of further images of the collection, and the shard that they belong to
        coming : how many images will be added after these, for which there must be room too
        """
        with self._writing():
            like = next(iter(images.values()))[0]
            shard = self._shard(signature) or self._new_shard(signature, like)
            if known and shard.id != number:
                raise OSError("another process has rewritten them")
            for values, _ in images.values():
                if (values.dtype.name, values.shape[1]) != (shard.dtype, shard.dimension):
                    raise ValueError(
                        f"got descriptors of {values.shape[1]} numbers of {values.dtype}, but {shard.dimension} of "
                        f"{shard.dtype} are stored: the version of a feature must be raised when it changes"
                    )
            shard, entries = self._make_room(shard, known, images, coming)
            entries |= self._entries(shard, images)  # what another writer has added meanwhile
            missing = {digest: rows for digest, rows in images.items() if digest not in entries}
            shard, added = self._write(shard, missing)
        return shard, entries | added

    def _write(self, shard: Shard, images: Images) -> tuple[Shard, dict[bytes, Entry]]:
        entries = shard.append(images)
        rows = [(shard.id, digest, *entry) for digest, entry in entries.items()]
        self._index.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", rows)
        shard = shard._replace(rows=shard.rows + sum(entry.size for entry in entries.values()))
        self._close(shard)
        return shard, entries

    def _close(self, shard: Shard) -> None:
        """Record in the index how many rows count, and size and time of the files."""
        row = (shard.rows, shard.look(), shard.id)
        self._index.execute("UPDATE shards SET rows = ?, stamp = ? WHERE id = ?", row)

    def _new_shard(self, signature: str, like: np.ndarray) -> Shard:
        row = (signature, like.dtype.name, like.shape[1], 0, "")
        query = "INSERT INTO shards (signature, dtype, dimension, rows, stamp, used) VALUES (?, ?, ?, ?, ?, ?)"
        number = self._index.execute(query, (*row, time.time())).lastrowid or 0
        return Shard(self.folder, number, *row).create()

    def _make_room(
        self, shard: Shard, known: dict[bytes, Entry], images: Images, coming: int
    ) -> tuple[Shard, dict[bytes, Entry]]:
        batch = shard.row_bytes * sum(len(values) for values, _ in images.values())
        needed = batch + coming * batch // len(images)
        own = shard.row_bytes * sum(entry.size for entry in known.values())
        if own + needed > self.max_bytes:
            raise OSError(
                f"they take about {(own + needed) / 1e9:.2g} GB, more than the {self.max_bytes / 1e9:.2g} GB of "
                "$PATCHBAG_CACHE_SIZE"
            )
        others = [other for other in self._shards() if other.id != shard.id]
        while others and shard.nbytes + needed + sum(other.nbytes for other in others) > self.max_bytes:
            self._drop([others.pop(0)])
        if shard.nbytes + needed <= self.max_bytes:
            return shard, dict(known)
        arrays = shard.map()
        self._drop([shard])
        kept = {digest: entry.rows(arrays) for digest, entry in known.items()}
        shard, entries = self._write(self._new_shard(shard.signature, arrays[0]), kept)
        if any(entry.crc != known[digest].crc for digest, entry in entries.items()):
            raise OSError("they are damaged")
        return shard, entries

    def _drop(self, shards: Iterable[Shard]) -> None:
        """Forget shards; whoever has mapped one keeps it."""
        for shard in shards:
            self._index.execute("DELETE FROM entries WHERE shard = ?", (shard.id,))
            self._index.execute("DELETE FROM shards WHERE id = ?", (shard.id,))
        known = {shard.place for shard in self._shards()}
        for folder in self.folder.glob("shard-*"):  # also those that a killed process did not get to know
            if folder not in known:
                shutil.rmtree(folder, ignore_errors=True)  # what is mapped has to stay, under Windows
