# SPDX-License-Identifier: BSD-3-Clause
"""The map: the images of the pool in two dimensions.

Principal components at once, then t-SNE (scikit-learn's, Barnes-Hut) of the leading components of the vectors, begun
from the first two; both are made again when the folder has grown.  In a large folder the map shows the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from patchbag.page.live import LiveModel

COMPONENTS = 50
FEWEST = 12  # images from which on t-SNE has neighbours to look at
FAST, BEST = "principal components", "t-SNE"


class Map:
    """Where images lie; ``make`` takes long."""

    def __init__(self, model: LiveModel) -> None:
        self._model = model
        self.made: dict[str, Any] | None = None
        self.running = False
        self._version = 0

    def make(self, tell: Callable[[int, int], None]) -> None:
        self.running = True
        try:
            with self._model.lock:
                pool = self._model.pool
            if pool is None:
                return
            tell(0, 2)
            coordinates = principal(pool.learner.graph_.vectors)
            self._publish(pool.ids, coordinates[:, :2], FAST)
            tell(1, 2)
            if len(pool.ids) >= FEWEST:
                from sklearn.manifold import TSNE

                start = coordinates[:, :2] / max(float(coordinates[:, 0].std()), 1e-12) * 1e-4
                perplexity = min(30.0, (len(pool.ids) - 1) / 3)
                embedding = TSNE(init=start, perplexity=perplexity, random_state=0, n_jobs=-1)
                self._publish(pool.ids, embedding.fit_transform(coordinates), BEST)
            tell(2, 2)
        finally:
            self.running = False

    def _publish(self, ids: np.ndarray, xy: np.ndarray, method: str) -> None:
        low, high = xy.min(axis=0), xy.max(axis=0)
        scaled = np.round((xy - low) / np.where(high > low, high - low, 1.0), 4)
        self._version += 1
        x, y = scaled.astype(float).T.tolist()
        self.made = {"ready": True, "method": method, "ids": ids.tolist(), "x": x, "y": y, "version": self._version}

    def outdated(self) -> bool:
        pool = self._model.pool
        return pool is not None and (self.made is None or len(self.made["ids"]) != len(pool.ids))


def principal(vectors: np.ndarray, n: int = COMPONENTS) -> np.ndarray:
    """(N, n) leading principal components, float32; a sample finds the directions."""
    from sklearn.decomposition import PCA

    n = min(n, *vectors.shape)
    if n < 2:
        return np.pad(np.asarray(vectors[:, :n], np.float32), ((0, 0), (0, 2 - n)))
    sample = vectors[np.linspace(0, len(vectors) - 1, min(len(vectors), 5000)).astype(int)]
    found = PCA(n, svd_solver="covariance_eigh", random_state=0).fit(sample).transform(vectors)
    return np.asarray(found, np.float32)
