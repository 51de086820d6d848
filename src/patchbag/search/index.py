# SPDX-License-Identifier: BSD-3-Clause
"""The index of a folder: which image is most like this one?

    index = SearchIndex("photos/").update()
    for match in index.search("query.jpg", top=5):
        print(match.distance, match.image)

A query is one product of its vector with those of all images, exact.  An
image whose bytes the index knows is not described again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from patchbag.collection.folder import CollectionError
from patchbag.collection.shard import file_status
from patchbag.collection.store import content_digest
from patchbag.images import ImageError
from patchbag.search.diffusion import CANDIDATES
from patchbag.search.diffusion import diffuse as diffuse_weight
from patchbag.search.encoder import Described, describe
from patchbag.search.folder_index import DIGEST, FolderIndex
from patchbag.search.ranking import compare, nearest
from patchbag.search.regions import cut_out


class Match(NamedTuple):
    """An image that was found, by its path, and how far it is from the query; by angles 0 for the same, at most 2."""

    image: str
    distance: float


class SearchIndex(FolderIndex):
    """The images of a folder, to be searched by example.

    Parameters
    ----------
    folder : walked with all its sub-folders
    by : what images are compared by, one of ``REPRESENTATIONS``: "deep", "fisher", "color", "words", …
    n_jobs : workers that describe images, None for those of the context, -1 for all cores

    Attributes
    ----------
    names : paths of the images from the folder, with slashes
    vectors : (n, d) of the images
    failures : {name: message} of files that cannot be used

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
        self, images: Sequence[Any], top: int = 10, *, crop: Sequence[float] | None = None, diffuse: bool = False
    ) -> list[list[Match] | ImageError]:
        """The same for several images at once; in place of matches the error where an image cannot be read.

        Parameters
        ----------
        images : paths, bytes, Pillow images or arrays
        top : matches per image
        crop : part of the images to search by: left, top, right, bottom, as shares of width and height
        diffuse : rank by diffusion among the nearest images (:mod:`patchbag.search.diffusion`); distances are then 0
            for the best match and at most 1
        """
        if self._encoder is None:
            raise CollectionError(f"{self.folder} has no index yet, or it is empty: call update() first")
        vectors, errors = self._queries(images, crop)
        patches = self._describe(self.names, None) if self.representation.metric == "smp" else None
        results: list[list[Match] | ImageError] = []
        for i, image in enumerate(images):
            if i in errors:
                results.append(errors[i])
                continue
            if patches is None:
                distances = compare(self.vectors, vectors[i], self.representation.metric)
            else:
                distances = self._by_patches(vectors[i], patches, top)
            distances[self._itself(image)] = np.inf
            if diffuse:
                distances = self._diffused(distances, vectors[i], top)
            found = nearest(distances, top)
            results.append([Match(os.path.join(self.folder, self.names[i]), float(distances[i])) for i in found])
        return results

    def _by_patches(self, query: np.ndarray, described: Described, top: int) -> np.ndarray:
        from patchbag.search.patches import patch_distances

        distances = np.full(len(self), np.inf)  # a file can have gone meanwhile
        distances[described.kept] = patch_distances(query, list(described.parts[0]), top)
        return distances

    def _diffused(self, distances: np.ndarray, query: np.ndarray, top: int) -> np.ndarray:
        """Distances by diffusion among the nearest images, infinite for the rest."""
        if self.representation.metric != "cosine":
            raise ValueError(f"images by {self.representation.name!r} have no angles for diffusion to follow")
        rows = nearest(distances, max(CANDIDATES, 2 * top))
        again = np.full(len(distances), np.inf)
        again[rows] = 1.0 - diffuse_weight(np.asarray(self.vectors)[rows], query)
        return again

    def _itself(self, image: Any) -> list[int]:
        """Rows of the index that are this very file."""
        if not isinstance(image, str | os.PathLike) or (digest := _digest_of(image)) is None:
            return []
        same = np.flatnonzero((np.asarray(self._digests) == np.frombuffer(digest, np.uint8)).all(axis=1))
        return [int(row) for row in same if os.path.samefile(image, os.path.join(self.folder, self.names[row]))]

    def _queries(
        self, images: Sequence[Any], crop: Sequence[float] | None
    ) -> tuple[dict[int, np.ndarray], dict[int, ImageError]]:
        """Vectors of queries: those of the index where it knows the bytes, else of the images as they are described."""
        assert self._encoder is not None
        vectors: dict[int, np.ndarray] = {}
        errors: dict[int, ImageError] = {}
        unknown: list[tuple[int, Any]] = []
        for i, image in enumerate(images):
            row = None
            if crop is None and self.vectors.shape[1] and isinstance(image, str | os.PathLike | bytes):
                row = self._rows.get(_digest_of(image) or b"")
            if row is not None:
                vectors[i] = np.asarray(self.vectors[row])
                continue
            try:
                image = os.fspath(image) if isinstance(image, os.PathLike) else image
                unknown.append((i, image if crop is None else cut_out(image, crop)))
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


def _digest_of(image: Any) -> bytes | None:
    if isinstance(image, bytes):
        return hashlib.blake2b(image, digest_size=DIGEST).digest()
    return content_digest(image) if file_status(image) else None
