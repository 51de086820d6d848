# SPDX-License-Identifier: BSD-3-Clause
"""The map: the images in two dimensions.

Principal components at once, then t-SNE (scikit-learn's, Barnes-Hut) of the leading components of the vectors, begun
from the first two; both are made again when the folder has grown.  In a large folder this is the map of the pool; an
image beyond it lies at the mean of its ``AROUND`` nearest ones of the pool, weighted by their inverse distances.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from patchbag.page.live import LiveModel

COMPONENTS = 50
FEWEST = 12  # images from which on t-SNE has neighbours to look at
AROUND = 3
FAST, BEST = "principal components", "t-SNE"


class Map:
    """Where images lie; ``make`` takes long."""

    def __init__(self, model: LiveModel) -> None:
        self._model = model
        self.made: dict[str, Any] | None = None
        self.running = False
        self._version = 0

    def make(self, tell: Callable[[int, int], None]) -> None:
        """Make the fast map, then the better one; ``tell`` is told how many of the two are there."""
        self.running = True
        try:
            with self._model.lock:
                pool, rest = self._model.pool, self._model.rest
            if pool is None:
                return
            tell(0, 2)
            n = len(pool.ids)
            ids = pool.ids if rest is None else np.append(pool.ids, rest.ids)
            coordinates = principal(pool.learner.graph_.vectors, None if rest is None else rest.vectors)
            self._publish(ids, coordinates[:, :2], FAST)
            tell(1, 2)
            if n >= FEWEST:
                from sklearn.manifold import TSNE

                start = coordinates[:n, :2] / max(float(coordinates[:n, 0].std()), 1e-12) * 1e-4
                embedding = TSNE(init=start, perplexity=min(30.0, (n - 1) / 3), random_state=0, n_jobs=-1)
                xy = embedding.fit_transform(coordinates[:n])
                self._publish(ids, np.vstack([xy, among(coordinates[n:], coordinates[:n], xy)]), BEST)
        finally:
            self.running = False
            tell(2, 2)

    def _publish(self, ids: np.ndarray, xy: np.ndarray, method: str) -> None:
        low, high = xy.min(axis=0), xy.max(axis=0)
        scaled = np.round((xy - low) / np.where(high > low, high - low, 1.0), 4)
        self._version += 1
        x, y = scaled.astype(float).T.tolist()
        self.made = {"ready": True, "method": method, "ids": ids.tolist(), "x": x, "y": y, "version": self._version}

    def outdated(self) -> bool:
        """Whether the pool has other images than the map."""
        pool, rest = self._model.pool, self._model.rest
        if pool is None:
            return False
        return self.made is None or len(self.made["ids"]) != len(pool.ids) + (0 if rest is None else len(rest.ids))


def among(new: np.ndarray, known: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """(M, 2) places of ``new (M, d)`` points among ``known (N, d)`` ones that lie at ``xy (N, 2)``."""
    from sklearn.neighbors import NearestNeighbors

    if not len(new):
        return np.empty((0, 2), xy.dtype)
    distances, near = (
        NearestNeighbors(n_neighbors=min(AROUND, len(known)), algorithm="brute").fit(known).kneighbors(new)
    )
    weights = 1.0 / np.maximum(distances, 1e-6)
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(np.einsum("mk,mkc->mc", weights, xy[near]), xy.dtype)


def principal(vectors: np.ndarray, more: np.ndarray | None = None) -> np.ndarray:
    """(N + M, n) leading principal components, float32, of ``vectors (N, d)`` and ``more (M, d)``; a sample of the
    former finds the directions.
    """
    from sklearn.decomposition import PCA

    n = min(COMPONENTS, *vectors.shape)
    if n < 2:
        all_of_them = vectors if more is None else np.vstack([vectors, more])
        return np.pad(np.asarray(all_of_them[:, :n], np.float32), ((0, 0), (0, 2 - n)))
    sample = vectors[np.linspace(0, len(vectors) - 1, min(len(vectors), 5000)).astype(int)]
    found = PCA(n, svd_solver="covariance_eigh", random_state=0).fit(sample)
    parts = [found.transform(part) for part in (vectors, more) if part is not None]
    return np.asarray(np.vstack(parts), np.float32)
