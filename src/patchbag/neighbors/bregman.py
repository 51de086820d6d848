# SPDX-License-Identifier: BSD-3-Clause
"""Nearest neighbours under Bregman divergences behind scikit-learn's interface.

Exact algorithms find the same neighbours as a search of all points in float64, in the same order; which one answers
is a matter of speed (``index``).
"""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, fields
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_array, check_is_fitted

from patchbag.neighbors.divergences import GENERATORS, Generator, find_generator
from patchbag.neighbors.forms import Form, Points, Queries
from patchbag.neighbors.index import NeighborIndex, Plan
from patchbag.parameters import NOT_NEGATIVE, ONE_OR_MORE, SHARE, TWO_OR_MORE, ZERO_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state


@estimator
class BregmanNeighbors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Nearest neighbours under a Bregman divergence.

    Parameters
    ----------
    n_neighbors : neighbours of each query
    radius : of :meth:`radius_neighbors`
    divergence : a name of ``divergences.GENERATORS``, or a ``Generator`` of one's own
    side : "right": smallest D(query ‖ x), "left": smallest D(x ‖ query), "symmetric": their mean, "mixed":
        (1 − mixing) D(query ‖ x) + mixing D(x ‖ query), or with queries (m, 2, d) of a left and a right one each
    mixing : weight of the left side of "mixed"
    algorithm : "auto", "brute", "ball", "vantage", "graph" or "sample": see :mod:`patchbag.neighbors.index`
    leaf_size, branching, n_iter : of the tree: points per leaf, most children per node, Lloyd iterations per split
    max_leaves : leaves that are opened per query, an approximate search; None for an exact one.  With "graph", leaves
        in which a search begins (None: 4)
    beam : points that a search of the graph keeps and expands: more find more, and take longer
    sample : share of the points that ``algorithm="sample"`` keeps
    smoothing : share of a row's mean that is added to its entries, for divergences that need positive ones
    random_state : seed of trees and samples
    n_jobs : workers for batches of queries

    Attributes
    ----------
    n_samples_fit_ : points, those that were taken out included
    index_ : the points and their tree or sample

    >>> X = np.array([[4.0, 1, 1], [1, 4, 1], [1, 1, 4]])
    >>> distances, indices = BregmanNeighbors(n_neighbors=1).fit(X).kneighbors([[3.0, 2, 1]])
    >>> indices
    array([[0]])
    """

    n_neighbors: int = parameter(ONE_OR_MORE, default=5)
    _: KW_ONLY
    radius: float = parameter(NOT_NEGATIVE, default=1.0)
    divergence: str | Generator = parameter(StrOptions(set(GENERATORS)), Generator, default="kl")
    side: Literal["right", "left", "symmetric", "mixed"] = parameter(
        StrOptions({"right", "left", "symmetric", "mixed"}), default="right"
    )
    mixing: float = parameter(SHARE, default=0.5)
    algorithm: Literal["auto", "brute", "ball", "vantage", "graph", "sample"] = parameter(
        StrOptions({"auto", "brute", "ball", "vantage", "graph", "sample"}), default="auto"
    )
    leaf_size: int = parameter(ONE_OR_MORE, default=50)
    branching: int = parameter(TWO_OR_MORE, default=4)
    n_iter: int = parameter(ZERO_OR_MORE, default=0)
    max_leaves: int | None = parameter(ONE_OR_MORE, None, default=None)
    beam: int = parameter(ONE_OR_MORE, default=32)
    sample: float = parameter(Interval(Real, 0, 1, closed="right"), default=0.01)
    smoothing: float = parameter(NOT_NEGATIVE, default=1e-6)
    random_state: Any = parameter("random_state", default=None)
    n_jobs: int | None = parameter(Integral, None, default=None)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Index the rows of X (n, d)."""
        X = check_array(X, dtype=np.float64)
        mixing = {"right": 0.0, "left": 1.0, "symmetric": 0.5, "mixed": float(self.mixing)}[self.side]
        form = Form(find_generator(self.divergence), mixing, float(self.smoothing))
        if self.algorithm in ("ball", "vantage", "graph") and form.inner.code is None:
            raise ValueError(
                f"{form.generator.name} has no compiled version, so that there is no {self.algorithm} tree of it: use "
                'algorithm="brute" or "auto"'
            )
        plan = Plan(**{f.name: getattr(self, f.name) for f in fields(Plan)})
        points = Points.prepare(form, form.clean(X))
        self.index_ = NeighborIndex(points, plan, check_random_state(self.random_state))
        self.n_features_in_, self.n_samples_fit_ = X.shape[1], len(X)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add the rows of X, which get the next numbers."""
        if not hasattr(self, "index_"):
            return self.fit(X)
        rows = self.index_.points.form.clean(self._check(X))
        self.index_.add(rows, check_random_state(self.random_state))
        self.n_samples_fit_ = len(self.index_.points)
        return self

    def remove(self, indices: Any) -> Self:
        """Take points out; the others keep their numbers."""
        check_is_fitted(self, "index_")
        indices = np.atleast_1d(np.asarray(indices))
        if indices.size and indices.dtype.kind not in "iu":
            raise TypeError(
                f"points are named by their numbers, got {indices.dtype}; np.flatnonzero gives those of a mask"
            )
        if len(indices) and not (indices.min() >= 0 and indices.max() < self.n_samples_fit_):
            raise IndexError(
                f"points are numbered 0 to {self.n_samples_fit_ - 1}, got {indices.min()}..{indices.max()}"
            )
        self.index_.remove(indices.astype(np.int64))
        return self

    @property
    def _n_features_out(self) -> int:
        return self.n_samples_fit_

    def _check(self, X: Any) -> np.ndarray:
        """Rows as float64; the plain case is looked at in microseconds, as single queries take tens of them."""
        plain = isinstance(X, np.ndarray) and X.dtype == np.float64 and X.ndim == 2 and X.size > 0
        if not (plain and np.isfinite(X.sum())):
            X = check_array(X, dtype=np.float64)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(f"fitted with rows of {self.n_features_in_} numbers, got {X.shape[1]}")
        return X

    def _ask(self, X: Any) -> Queries:
        if not hasattr(self, "index_"):  # check_is_fitted takes as long as a search
            check_is_fitted(self, "index_")
        points = self.index_.points
        if X is None:
            return points.ask(points.rows, points.rows)
        if self.side == "mixed" and np.ndim(X) == 3:
            if np.shape(X)[1] != 2:
                raise ValueError(f"queries of a left and a right row each are (m, 2, d), got {np.shape(X)}")
            left, right = (points.form.clean(self._check(np.asarray(X)[:, i])) for i in (0, 1))
        else:
            left = right = points.form.clean(self._check(X))
        with np.errstate(over="ignore", invalid="ignore"):
            queries = points.ask(left, right)
        fits = np.isfinite(queries.error) & np.isfinite(queries.centred).all(axis=1)
        if not fits.all():
            raise ValueError(f"row {np.argmin(fits)} is too large for the {points.form.generator.name} divergence")
        return queries

    def _search(self, X: Any, n_neighbors: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if not hasattr(self, "index_"):  # check_is_fitted takes as long as a search
            check_is_fitted(self, "index_")
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        own = X is None  # a point is not its own neighbour
        most = self.index_.n_live() - own
        # abstract classes answer slowly
        if not ((type(k) is int or isinstance(k, Integral)) and 1 <= k <= most):
            others = "other points" if own else "points"
            raise ValueError(f"n_neighbors must be between 1 and the number of {others}, {most}, got {k!r}")
        if type(X) is np.ndarray and X.shape == (1, self.n_features_in_) and X.dtype == np.float64 and X.flags.carray:
            found = self.index_.search_row(X, k)
            if found is not None:
                return _finite(*found)
        queries = self._ask(X)
        distances, indices, stats = _finite(*self.index_.search(queries, k + own, self.n_jobs))
        if own:
            other = indices != np.arange(len(indices))[:, None]
            # where k equal points come before it a point is not among its own neighbours
            other[other.all(axis=1), -1] = False
            distances, indices = (a[other].reshape(-1, k) for a in (distances, indices))
        return distances, indices, stats

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """The nearest points of each query: divergences (m, k), ascending, and indices (m, k).

        Without X the points themselves are asked, and are not their own neighbours.
        """
        distances, indices, _ = self._search(X, n_neighbors)
        return (distances, indices) if return_distance else indices

    def query_stats(self, X: Any = None, n_neighbors: int | None = None) -> dict[str, np.ndarray]:
        """What it takes to answer: (m,) divergences computed, and leaves opened."""
        _, _, stats = self._search(X, n_neighbors)
        return {"divergences": stats[:, 0], "leaves": stats[:, 1]}

    def radius_neighbors(self, X: Any = None, radius: float | None = None, return_distance: bool = True) -> Any:
        """All points with a divergence of at most ``radius``, exactly, in the order of the points: arrays of arrays."""
        queries, radius = self._ask(X), self.radius if radius is None else radius
        if not (isinstance(radius, Real) and radius >= 0):
            raise ValueError(f"radius must be a number of at least 0, got {radius!r}")
        found = self.index_.search_radius(queries, radius, self.n_jobs)
        answers = tuple(np.empty(len(some), dtype=object) for some in found)
        for answer, some in zip(answers, found):
            answer[:] = some
        if X is None:
            for i, indices in enumerate(answers[1]):
                kept = indices != i
                answers[0][i], answers[1][i] = answers[0][i][kept], indices[kept]
        return answers if return_distance else answers[1]

    def kneighbors_graph(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        mode: Literal["connectivity", "distance"] = "connectivity",
    ) -> sparse.csr_matrix:
        """Neighbours as a sparse matrix (m, n): ones, or divergences."""
        distances, indices, _ = self._search(X, n_neighbors)
        return self._graph(list(distances), list(indices), mode)

    def radius_neighbors_graph(
        self, X: Any = None, radius: float | None = None, mode: Literal["connectivity", "distance"] = "connectivity"
    ) -> sparse.csr_matrix:
        """All points within ``radius`` as a sparse matrix (m, n), each row in the order of its divergences."""
        distances, indices = self.radius_neighbors(X, radius)
        orders = [np.argsort(some, kind="stable") for some in distances]
        distances, indices = ([a[order] for a, order in zip(some, orders)] for some in (distances, indices))
        return self._graph(distances, indices, mode)

    def _graph(self, distances: list[np.ndarray], indices: list[np.ndarray], mode: str) -> sparse.csr_matrix:
        if mode not in ("connectivity", "distance"):
            raise ValueError(f'mode must be "connectivity" or "distance", got {mode!r}')
        starts = np.cumsum([0, *map(len, indices)])
        data = np.ones(starts[-1]) if mode == "connectivity" else np.concatenate(distances)
        return sparse.csr_matrix((data, np.concatenate(indices), starts), shape=(len(indices), self.n_samples_fit_))

    def transform(self, X: Any) -> sparse.csr_matrix:
        """Divergences of ``n_neighbors`` + 1 neighbours, as scikit-learn's ``KNeighborsTransformer`` has them."""
        check_is_fitted(self, "index_")
        return self.kneighbors_graph(X, min(self.n_neighbors + 1, self.index_.n_live()), "distance")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a folder that :meth:`load` maps into memory; no pickle."""
        check_is_fitted(self, "index_")
        params = {k: v for k, v in self.get_params().items() if k not in ("divergence", "random_state", "n_jobs")}
        self.index_.save(path, params)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BregmanNeighbors:
        """The index that :meth:`save` wrote."""
        index, params = NeighborIndex.open(path)
        generator = index.points.form.generator
        try:
            found = cls(divergence=generator.name if generator.name in GENERATORS else generator, **params)
            found._validate_params()
        except TypeError as error:
            raise ValueError(f"{path} is damaged: {error}") from error
        found.index_ = index
        d = index.points.rows.shape[1]
        found.n_features_in_, found.n_samples_fit_ = d, len(index.points)
        return found

    open = load  # its name up to version 0.2


def _finite(distances: np.ndarray, *rest: Any) -> tuple[np.ndarray, Any, Any]:
    """What was found, unless the farthest of a row is not finite."""
    if not np.isfinite(distances[:, -1]).all():
        raise ValueError("divergences are not finite: numbers are too large, or the index was damaged")
    return distances, *rest
