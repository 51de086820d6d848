# SPDX-License-Identifier: BSD-3-Clause
"""The index of a folder: which image is most like this one?

    index = SearchIndex("photos/").update()
    for match in index.search("query.jpg", top=5):
        print(match.distance, match.image)

A query is one product of its vector with those of all images, exact; of large collections with their codes, and exact
among the candidates (:mod:`patchbag.search.compressed`).  An image whose bytes the index knows is not described again.

What is found can be ranked again: by diffusion (:mod:`patchbag.search.diffusion`), by what the first results have in
common (query expansion: Chum et al. 2007), by local features that agree on one view
(:mod:`patchbag.search.verification`).
"""

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from patchbag.collection.files import DIGEST, content_digest, file_status
from patchbag.collection.folder import CollectionError
from patchbag.images.decoders import ImageError
from patchbag.search.diffusion import CANDIDATES
from patchbag.search.diffusion import diffuse as diffuse_weight
from patchbag.search.encoder import Described, describe
from patchbag.search.folder_index import FolderIndex
from patchbag.search.ranking import compare, nearest
from patchbag.search.ranking import expand as expanded

PRESELECTED = 50  # images that sets of patches are compared with, after a sample of them has ranked all


class Match(NamedTuple):
    """An image that was found, by its path, and how far it is from the query; by angles 0 for the same, at most 2.

    ``points`` are the local features that agree, where they were looked at.
    """

    image: str
    distance: float
    points: int | None = None


class SearchIndex(FolderIndex):
    """The images of a folder, to be searched by example.

    Parameters
    ----------
    folder : walked with all its sub-folders
    by : what images are compared by, one of ``REPRESENTATIONS``: "deep", "fisher", "color", "words", …
    n_jobs : workers that describe images, None for those of the context, -1 for all cores
    compress : keep codes of four bits per axis beside the vectors; None from 200,000 images on

    Attributes
    ----------
    names : paths of the images from the folder, with slashes
    vectors : (n, d) of the images
    failures : {name: message} of files that cannot be used
    remarks : lines on sub-folders that the last update could not read

    >>> SearchIndex("photos/").update().search("query.jpg", top=1)      # doctest: +SKIP
    [Match(image='photos/beach/7.jpg', distance=0.21)]
    """

    def search(self, image: Any, top: int = 10, **options: Any) -> list[Match]:
        """The ``top`` images that are most like this one, nearest first; ImageError where it cannot be read.

        ``image`` is a path, the bytes of a file, a Pillow image or an array.  A file of the folder is not found itself,
        copies of it are.  Options are those of ``search_many``.
        """
        (found,) = self.search_many([image], top, **options)
        if isinstance(found, ImageError):
            raise found
        return found

    def search_many(
        self,
        images: Sequence[Any],
        top: int = 10,
        *,
        crop: Sequence[float] | None = None,
        diffuse: bool | None = None,
        expand: int = 0,
        verify: int = 0,
    ) -> list[list[Match] | ImageError]:
        """The same for several images at once; in place of matches the error where an image cannot be read.

        Parameters
        ----------
        images : paths, bytes, Pillow images or arrays
        top : matches per image
        crop : part of the images to search by: left, top, right, bottom, as shares of width and height
        diffuse : rank by diffusion among the nearest images (:mod:`patchbag.search.diffusion`); distances are then 0
            for the best match and at most 1; None where the representation says so: by hand-crafted features, for which
            it is worth most
        expand : search again by the query and the so many first results together, of those that are verified if there
            is a ``verify``
        verify : of so many first results put those first whose local features agree with the query
        """
        if self._encoder is None:
            raise CollectionError(f"{self.folder} has no index yet, or it is empty: call update() first")
        if diffuse or expand:
            self.representation.require_angles()
        diffuse = self.representation.diffuse if diffuse is None else diffuse
        same = [self._same_bytes(image) for image in images]
        vectors, errors = self._queries(images, same, crop)
        patches = self._describe(self.names, None) if self.representation.metric == "smp" else None
        results: list[list[Match] | ImageError] = []
        for i, image in enumerate(images):
            if i in errors:
                results.append(errors[i])
                continue
            own, wanted = self._itself(image, same[i]), max(top, verify)
            shown = _cut(image, crop) if verify else image
            if patches is not None:
                rows, distances = self._by_patches(vectors[i], patches, wanted, own)
            else:
                reach = max(wanted, expand, min(CANDIDATES, len(self)) if diffuse else 0)
                vector = vectors[i]
                rows, distances = self._nearest(vector, reach, own)
                if expand:
                    vector = self._expanded(vector, rows[:expand], distances[:expand], shown if verify else None)
                    rows, distances = self._nearest(vector, reach, own)
                if diffuse:
                    distances = 1.0 - diffuse_weight(np.asarray(self.vectors[rows]), vector)
                    order = np.argsort(distances, kind="stable")
                    rows, distances = rows[order], distances[order]
            found = [Match(os.path.join(self.folder, self.names[i]), float(d)) for i, d in zip(rows, distances)]
            if verify:
                found = self._verified(shown, found, verify)
            results.append(found[:top])
        return results

    def _nearest(self, query: np.ndarray, n: int, own: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the n nearest images, the query's own left out, and their distances."""
        if self.compressed is None:
            distances = compare(self.vectors, query, self.representation.metric)
            distances[own] = np.inf
            rows = nearest(distances, n)
            return rows, distances[rows]
        rows, products = self.compressed.search(query, self.vectors, n + len(own))
        kept = ~np.isin(rows, own)
        return rows[kept][:n], np.maximum(1.0 - products[kept][:n].astype(np.float64), 0.0)

    def _by_patches(
        self, query: np.ndarray, described: Described, top: int, own: list[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        from patchbag.similarity.smp import two_step_divergences

        distances = np.full(len(self), np.inf)  # a file can have gone meanwhile
        near = max(PRESELECTED, 2 * (top + len(own)))
        distances[described.kept] = two_step_divergences(query, list(described.parts[0]), near)[0]
        distances[own] = np.inf
        rows = nearest(distances, top)
        return rows, distances[rows]

    def _expanded(self, query: np.ndarray, rows: np.ndarray, distances: np.ndarray, image: Any) -> np.ndarray:
        """The query expanded by its results; only by verified ones where the query's image is given."""
        if image is not None:
            from patchbag.search.verification import LEAST, count_matches

            points = np.array(count_matches(image, [self.paths[row] for row in rows], self.n_jobs))
            rows, distances = rows[points >= LEAST], distances[points >= LEAST]
        return expanded(query, self.vectors[rows], distances)

    def _verified(self, image: Any, found: list[Match], verify: int) -> list[Match]:
        """The first results again, those whose local features agree with the query first."""
        from patchbag.search.verification import count_matches, verified_first

        points = count_matches(image, [match.image for match in found[:verify]], self.n_jobs)
        looked_at = [match._replace(points=number) for match, number in zip(found, points)]
        return [looked_at[i] for i in verified_first(points)] + found[verify:]

    def _same_bytes(self, image: Any) -> list[int]:
        """Rows of the index whose files have the bytes of this one."""
        if (digest := _digest_of(image)) is None:
            return []
        equal = (np.asarray(self._digests) == np.frombuffer(digest, np.uint8)).all(axis=1)
        return [int(row) for row in np.flatnonzero(equal)]

    def _itself(self, image: Any, same: list[int]) -> list[int]:
        """Those of the rows that are the query's own file."""
        if not isinstance(image, str | os.PathLike):
            return []
        return [row for row in same if os.path.samefile(image, os.path.join(self.folder, self.names[row]))]

    def _queries(
        self, images: Sequence[Any], same: list[list[int]], crop: Sequence[float] | None
    ) -> tuple[dict[int, np.ndarray], dict[int, ImageError]]:
        """Vectors of queries: those of the index where it knows the bytes, else of the images as they are described."""
        assert self._encoder is not None
        vectors: dict[int, np.ndarray] = {}
        errors: dict[int, ImageError] = {}
        unknown: list[tuple[int, Any]] = []
        for i, image in enumerate(images):
            if crop is None and self.vectors.shape[1] and same[i]:
                vectors[i] = np.asarray(self.vectors[same[i][0]])
                continue
            try:
                image = os.fspath(image) if isinstance(image, os.PathLike) else image
                unknown.append((i, _cut(image, crop)))
            except ImageError as error:
                errors[i] = error
        if unknown:
            described = describe(self.representation, [image for _, image in unknown], self.n_jobs)
            for index, name, message in described.failures:
                errors[unknown[index][0]] = ImageError(f"{name}: {message}")
            if len(described.kept):
                sets = self.representation.metric == "smp"
                encoded = described.parts[0] if sets else self._encoder.encode(described.parts)
                vectors |= {unknown[index][0]: row for index, row in zip(described.kept, encoded)}
        return vectors, errors


def _cut(image: Any, crop: Sequence[float] | None) -> Any:
    if crop is None:
        return image
    from patchbag.search.regions import cut_out

    return cut_out(image, crop)


def _digest_of(image: Any) -> bytes | None:
    if isinstance(image, bytes):
        return hashlib.blake2b(image, digest_size=DIGEST).digest()
    if not isinstance(image, str | os.PathLike):
        return None
    return content_digest(image) if file_status(image) else None
