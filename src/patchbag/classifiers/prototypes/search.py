# SPDX-License-Identifier: BSD-3-Clause
"""Nearest neighbours under the metrics of this library, and training images without themselves.

A search is anything with scikit-learn's ``fit(X)`` and ``kneighbors(X, n_neighbors)``: scikit-learn's
``NearestNeighbors``, our own, or a wrapper of faiss.  :class:`MetricSearch` compares with all references under the
metrics of histograms that scikit-learn lacks; where ``metric`` is ``"similarity"``, rows are similarities to the
training images, and the nearest are the most similar ones.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.neighbors import NearestNeighbors

from patchbag.declared import Declared, floats
from patchbag.similarity.histograms.distances import DISTANCES, pairwise_distances

BLOCK = 1024


def smallest(distances: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances and columns (n, k) of the k smallest entries of each row, ascending."""
    columns = np.argpartition(distances, min(k, distances.shape[1]) - 1, axis=1)[:, :k]
    columns.sort(axis=1)  # among equal distances the first comes first
    found = np.take_along_axis(distances, columns, axis=1)
    order = np.argsort(found, axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(columns, order, axis=1)


class MetricSearch(BaseEstimator):
    """All distances under a metric of :data:`~patchbag.similarity.histograms.distances.DISTANCES`, block by block."""

    _stored: ClassVar[dict[str, Declared]] = {
        "references_": floats("n", "d"),
    }

    def __init__(self, metric: str = "manhattan") -> None:
        self.metric = metric

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        self.references_ = X
        return self

    def kneighbors(self, X: np.ndarray, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
        parts = [
            smallest(pairwise_distances(X[start : start + BLOCK], self.references_, self.metric), n_neighbors)
            for start in range(0, len(X), BLOCK)
        ]
        distances, columns = zip(*parts)
        return np.concatenate(distances), np.concatenate(columns)


def make_search(search: Any, metric: Any) -> Any:
    """A search that is not fitted yet."""
    if search is not None:
        return clone(search)
    return MetricSearch(metric) if metric in DISTANCES else NearestNeighbors(metric=metric)


def nearest(references: np.ndarray, X: np.ndarray, k: int, metric: Any, search: Any) -> tuple[np.ndarray, np.ndarray]:
    """Distances and numbers (n, k) of the nearest ``references``, ascending.

    With ``metric="similarity"``, ``X (n, m)`` are similarities to m training images and ``references`` the numbers of
    those to look at; distances are negative similarities.
    """
    k = min(k, len(references))
    if isinstance(metric, str) and metric == "similarity":
        return smallest(-X[:, references], k)
    distances, columns = make_search(search, metric).fit(references).kneighbors(X, k)
    return np.asarray(distances, np.float64), np.asarray(columns)


def nearest_others(X: np.ndarray, k: int, metric: Any, search: Any) -> tuple[np.ndarray, np.ndarray]:
    """The same for training images among themselves, each without itself."""
    n = len(X)
    similar = isinstance(metric, str) and metric == "similarity"
    distances, columns = nearest(np.arange(n) if similar else X, X, min(k, n - 1) + 1, metric, search)
    own = columns == np.arange(n)[:, None]
    own[~own.any(axis=1), -1] = True  # more images with the same vector than neighbours: any of them is as near
    kept = ~own
    return distances[kept].reshape(n, -1), columns[kept].reshape(n, -1)
