# SPDX-License-Identifier: BSD-3-Clause
"""Nearest neighbours under the metrics of this library, and training images without themselves.

A search is anything with scikit-learn's ``fit(X)`` and ``kneighbors(X, n_neighbors)``: scikit-learn's
``NearestNeighbors``, our own, or :class:`FaissSearch`.  :class:`MetricSearch` compares with all references under the
metrics of histograms that scikit-learn lacks; where ``metric`` is ``"similarity"``, rows are similarities to the
training images, and the nearest are the most similar ones.  A search that is approximate may find other neighbours,
and ``own`` is then not always among those of an image: the farthest is left out in its place.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, _fit_context, clone
from sklearn.neighbors import NearestNeighbors
from sklearn.utils._param_validation import StrOptions

from patchbag.parameters import estimator, parameter
from patchbag.similarity.histograms.distances import DISTANCES, pairwise_distances
from patchbag.storage.declared import Declared, floats

BLOCK = 1024
PAIRS = 1 << 26  # distances that are held at once
ROUNDING = 1e-3  # of the sum of a histogram


def smallest(distances: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances and columns (n, k) of the k smallest entries of each row, ascending."""
    columns = np.argpartition(distances, min(k, distances.shape[1]) - 1, axis=1)[:, :k]
    columns.sort(axis=1)  # among equal distances the first comes first
    found = np.take_along_axis(distances, columns, axis=1)
    order = np.argsort(found, axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(columns, order, axis=1)


@estimator
class MetricSearch(BaseEstimator):
    """All distances under a metric of :data:`~patchbag.similarity.histograms.distances.DISTANCES`, block by block."""

    metric: str = parameter(StrOptions(set(DISTANCES)), default="manhattan")

    _stored: ClassVar[dict[str, Declared]] = {
        "references_": floats("n", "d"),
    }

    @_fit_context(prefer_skip_nested_validation=True)
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


class SimilarColumns(BaseEstimator):
    """Rows of similarities to all training images; references are the numbers of those to look at.

    Distances are negative similarities.
    """

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        self.columns_ = X
        return self

    def kneighbors(self, X: np.ndarray, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
        return smallest(-X[:, self.columns_], n_neighbors)


@estimator
class FaissSearch(BaseEstimator):
    """An index of faiss (``pip install patchbag[faiss]``).

    Parameters
    ----------
    index : what faiss' ``index_factory`` makes, such as ``"Flat"``, ``"HNSW32"`` or ``"IVF64,Flat"``
    metric : ``"euclidean"`` or ``"manhattan"``
    settings : parameters of the index such as ``{"nprobe": 8}``

    Attributes
    ----------
    index_ : faiss' own
    """

    index: str = parameter(str, default="Flat")
    metric: str = parameter(StrOptions({"euclidean", "manhattan"}), default="euclidean")
    settings: Mapping[str, float] | None = parameter(dict, None, default=None)
    _stored: ClassVar[dict[str, Declared]] = {}  # an index is built anew from the prototypes

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        import faiss

        kind = {"euclidean": faiss.METRIC_L2, "manhattan": faiss.METRIC_L1}[self.metric]
        self.index_ = faiss.index_factory(X.shape[1], self.index, kind)
        rows = np.ascontiguousarray(X, np.float32)
        self.index_.train(rows)
        self.index_.add(rows)
        for name, value in (self.settings or {}).items():
            faiss.ParameterSpace().set_index_parameter(self.index_, name, value)
        return self

    def kneighbors(self, X: np.ndarray, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
        distances, columns = self.index_.search(np.ascontiguousarray(X, np.float32), n_neighbors)
        if columns.min() < 0:
            raise ValueError(f"{self.index!r} found fewer than {n_neighbors} neighbours: let it look at more lists")
        return np.sqrt(np.maximum(distances, 0)) if self.metric == "euclidean" else distances, columns


def check_choice(kernel: str, metric: Any, search: Any) -> None:
    """Raise where a kernel, a metric and a search do not go together."""
    if kernel != "knn" and is_similarity(metric) != (kernel == "similarity"):
        raise ValueError(
            f'kernel={kernel!r} does not go with metric={metric!r}: kernel="similarity" needs metric="similarity", the '
            "others need distances"
        )
    if kernel == "intersection" and metric != "manhattan":
        raise ValueError(f'kernel="intersection" is made from metric="manhattan", got {metric!r}')
    if is_similarity(metric) and search is not None:
        raise ValueError('metric="similarity" finds neighbours in its rows: leave out search')


def check_rows(X: np.ndarray, kernel: str, metric: Any) -> None:
    """Raise where rows are not the histograms that a kernel or a metric is made for."""
    if kernel != "intersection" and not (isinstance(metric, str) and metric in ("chi2", "intersection")):
        return
    good = X.min(axis=1) >= 0
    if kernel == "intersection":  # one minus half of Manhattan's distance, of shares alone
        good &= np.abs(X.sum(axis=1) - 1) <= ROUNDING
    if not good.all():
        row, wanted = int(np.argmin(good)), " that sum to 1" if kernel == "intersection" else ""
        raise ValueError(
            f"kernel={kernel!r}, metric={metric!r} compare histograms, numbers of at least 0{wanted}: row {row} has a "
            f"smallest entry of {X[row].min():.3g} and a sum of {X[row].sum():.3g}"
        )


def make_search(search: Any, metric: Any) -> Any:
    """A search that is not fitted yet."""
    if is_similarity(metric):
        return SimilarColumns()
    if search is not None:
        return clone(search)
    return MetricSearch(metric) if metric in DISTANCES else NearestNeighbors(metric=metric)


def is_similarity(metric: Any) -> bool:
    """Whether rows are similarities to the training images, and not vectors."""
    return isinstance(metric, str) and metric == "similarity"


def all_pairs(X: np.ndarray, metric: Any, search: Any) -> tuple[np.ndarray, Any]:
    """What parts of the training images are cut from, and its metric.

    Where they fit into memory these are negative distances of all pairs, computed once; else the images as they are.
    """
    if search is None and isinstance(metric, str) and metric in DISTANCES and len(X) ** 2 <= PAIRS:
        return -pairwise_distances(X, X, metric), "similarity"
    return X, metric


def nearest_others(X: np.ndarray, k: int, metric: Any, search: Any) -> tuple[np.ndarray, np.ndarray]:
    """Distances and numbers (n, k) of the nearest training images of each, ascending, itself left out.

    With ``metric="similarity"``, ``X (n, n)`` are their similarities.
    """
    n = len(X)
    references = np.arange(n) if is_similarity(metric) else X
    distances, columns = make_search(search, metric).fit(references).kneighbors(X, min(k, n - 1) + 1)
    own = columns == np.arange(n)[:, None]
    own[~own.any(axis=1), -1] = True  # more images with the same vector than neighbours: any of them is as near
    kept = ~own
    return np.asarray(distances, np.float64)[kept].reshape(n, -1), columns[kept].reshape(n, -1)
