# SPDX-License-Identifier: BSD-3-Clause
"""Search: by an image of the folder, by a picture from outside, by a part of one; and groups of near-duplicates.

The index is made in the background when the folder is described (:mod:`patchbag.search`).  A picture from outside is
decoded in a process of its own, which may die (:mod:`patchbag.page.decoder`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from patchbag.page.album import Album
from patchbag.page.folder import inside
from patchbag.page.live import LiveModel
from patchbag.search.duplicates import find_duplicates
from patchbag.search.index import SearchIndex
from patchbag.search.ranking import compare, nearest
from patchbag.search.regions import cut_out

BY = "deep"


class NotReadyError(RuntimeError):
    """The index is being made."""


class Finder:
    """Searches an album."""

    def __init__(self, album: Album, model: LiveModel) -> None:
        self._album = album
        self._model = model
        self._index: SearchIndex | None = None
        self._ids = np.empty(0, int)
        self.groups: list[list[int]] | None = None
        self.searching = False

    def update(self) -> None:
        """Bring the index up to what the folder holds; takes long."""
        index = SearchIndex(self._album.root, BY).update()
        place = {name: i for i, name in enumerate(self._album.names)}
        self._ids = np.array([place.get(name, -1) for name in index.names], int)
        self._index = index

    def find_duplicates(self, progress: Callable[[int, int], None]) -> None:
        """Look for near-duplicates; takes long."""
        self.searching = True
        try:
            self.update()
            assert self._index is not None
            groups, _ = find_duplicates(self._index, progress)
            self.groups = [[int(self._ids[row]) for row in group if self._ids[row] >= 0] for group in groups]
        finally:
            self.searching = False

    def duplicates(self) -> dict[str, Any]:
        """Groups of near-duplicates, those across classes first, or that they are not known yet."""
        if self.groups is None:
            return {"ready": False, "running": self.searching}
        album, rows = self._album, []
        for ids in self.groups:
            here = [i for i in ids if not album.gone[i] and not album.skipped[i]]
            labels = sorted({int(album.label[i]) for i in here} - {-1})
            if len(here) > 1:
                rows.append({"ids": here, "labels": labels, "across": len(labels) > 1})
        return {"ready": True, "running": self.searching, "groups": sorted(rows, key=lambda row: not row["across"])}

    def distances(self, image: int) -> np.ndarray:
        """(n,) of an image of the folder to all; infinite for those that are not known yet."""
        far = np.full(len(self._album), np.inf)
        index = self._index
        rows = np.flatnonzero(self._ids == image) if index is not None else np.empty(0, int)
        if index is not None and len(rows):
            known = self._ids >= 0
            far[self._ids[known]] = compare(index.vectors, np.asarray(index.vectors[rows[0]]))[known]
            return far
        with self._model.lock:
            pool = self._model.pool
            if pool is None or image not in pool.at:
                raise NotReadyError("this image is not described yet; try again in a moment")
            vectors = pool.learner.graph_.vectors
            far[pool.ids] = compare(vectors, vectors[pool.at[image]])
        return far

    def by_image(self, image: int, top: int) -> list[dict[str, Any]]:
        """The images most like one of the folder, nearest first."""
        far = self.distances(image)
        far[self._album.gone] = np.inf
        far[image] = np.inf
        return [{"id": int(i), "distance": round(float(far[i]), 4)} for i in nearest(far, top)]

    def by_part(self, image: int, crop: Sequence[float], top: int) -> list[dict[str, Any]]:
        """By a rectangle of an image of the folder."""
        return self.by_picture(cut_out(inside(self._album.root, self._album.names[image]), crop), top)

    def by_picture(self, picture: np.ndarray, top: int, crop: Sequence[float] | None = None) -> list[dict[str, Any]]:
        """The images most like a picture from outside, or like a part of it, nearest first."""
        index = self._index
        if index is None:
            raise NotReadyError("the index is being made; try again in a moment")
        place = {name: int(i) for name, i in zip(index.paths, self._ids)}
        found = index.search(picture, top, crop=crop)
        matches = [(place[m.image], m.distance) for m in found if place[m.image] >= 0]
        return [{"id": i, "distance": round(distance, 4)} for i, distance in matches if not self._album.gone[i]]
