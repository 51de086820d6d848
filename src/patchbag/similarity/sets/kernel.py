# SPDX-License-Identifier: BSD-3-Clause
r"""Model-free kernels between sets of features (liu2010, §2.2.1): every feature against every feature.

With a kernel k between single features and bags X, Z of T_X, T_Z features:

=========  ==========================================================================  =========
"sum"      mean over all pairs of k(x_i, z_j) (2.1)                                    Mercer
"max"      mean over i of max_j k, averaged with mean over j of max_i k (2.2)          not Mercer
"lyu"      mean over all pairs of k(x_i, z_j)^p (2.3)                                  Mercer
"emd"      largest Σ f_ij k(x_i, z_j) over flows f (2.4)                               not Mercer
=========  ==========================================================================  =========

The exponent p > 1 lets good matches dominate; powers of a Mercer kernel are Mercer for whole p (Schur products), and
for any p > 0 if the kernel is infinitely divisible, as the Gaussian is.  Other p are refused.

**EMD.**  (2.4) is printed as a maximisation of similarity; it is the optimal partial matching that the pyramid match
approximates.  Its constraints (2.5) to (2.8), at most one unit from each feature and min(T_X, T_Z) in all, describe
an assignment polytope with whole-numbered vertices, so the linear program is solved exactly as an assignment; the
value is divided by min(T_X, T_Z).  :func:`transport_cost` is the distance of Rubner et al. instead, where each bag
has mass one (a linear program, HiGHS).

**Normalisation.**  Under the linear kernel, "sum" is zero between a bag whose features cancel and any bag, itself
included; so is "lyu" where their powers cancel, and everything for a bag of zeros.  Such a bag has no direction that
could be brought to unit length: it is an error with ``normalize=True``.

Cost: O(T_X T_Z d) a pair as matrix products, and cubic for the matching: for comparisons, not for large data.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import coo_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags

METHODS = ("sum", "max", "lyu", "emd")
LOCAL = ("rbf", "linear")
ROWS = 2048
# share of the mean similarity of a feature with itself up to which the self-similarity of a bag is rounding
NOTHING = 1e-12


def local_kernel(x: np.ndarray, z: np.ndarray, local: str, gamma: float) -> np.ndarray:
    """Kernel (n, m) between single features: exp(-γ|x - z|²) or the inner product."""
    products = x @ z.T
    if local == "linear":
        return products
    squares = (x**2).sum(axis=1)[:, None] + (z**2).sum(axis=1) - 2.0 * products
    return np.exp(-gamma * np.maximum(squares, 0.0))


def mean_match(similarity: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Mean of all entries in each block of a similarity matrix cut at offsets ``rows`` and ``columns``."""
    sums = np.add.reduceat(np.add.reduceat(similarity, rows[:-1], axis=0), columns[:-1], axis=1)
    return sums / np.outer(np.diff(rows), np.diff(columns))


def best_match(similarity: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Mean of the row maxima and of the column maxima of each block, averaged (2.2)."""
    by_row = np.add.reduceat(np.maximum.reduceat(similarity, columns[:-1], axis=1), rows[:-1], axis=0)
    by_column = np.add.reduceat(np.maximum.reduceat(similarity, rows[:-1], axis=0), columns[:-1], axis=1)
    return 0.5 * (by_row / np.diff(rows)[:, None] + by_column / np.diff(columns))


def assignment_match(similarity: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Similarity of the optimal partial matching of each block, per matched feature: (2.4) over min(T_X, T_Z)."""
    result = np.empty((len(rows) - 1, len(columns) - 1))
    for i in range(len(rows) - 1):
        for j in range(len(columns) - 1):
            block = similarity[rows[i] : rows[i + 1], columns[j] : columns[j + 1]]
            result[i, j] = block[linear_sum_assignment(block, maximize=True)].mean()
    return result


def transport_cost(distance: Any) -> float:
    """Earth mover's distance between two bags of mass one, from the distances (n, m) of their features."""
    distance = np.asarray(distance, dtype=float)
    n, m = distance.shape
    if n == m:
        # equal masses: a vertex of the transport polytope is a permutation
        return float(distance[linear_sum_assignment(distance)].mean())
    flow = np.arange(n * m)
    rows = np.concatenate([flow // m, n + flow % m])
    constraints = coo_array((np.ones(2 * n * m), (rows, np.concatenate([flow, flow]))), shape=(n + m, n * m)).tocsr()
    masses = np.concatenate([np.full(n, 1.0 / n), np.full(m, 1.0 / m)])
    result = linprog(distance.ravel(), A_eq=constraints, b_eq=masses, bounds=(0, None), method="highs")
    if not result.success:
        raise RuntimeError(f"the transport of {n} to {m} features was not solved: {result.message}")
    return float(result.fun)


class SetKernel(TransformerMixin, BaseEstimator):
    """Kernel between bags from a kernel between features.

    Parameters
    ----------
    method : "sum", "lyu", "max" or "emd"; the last two warn that they are not Mercer kernels
    local : "rbf" or "linear", the kernel between features
    gamma : of the rbf; None for one over the mean squared distance of features of the reference bags
    p : exponent of "lyu"
    normalize : divide by the root of the self-similarities; a bag without any is an error
    """

    def __init__(
        self,
        method: str = "sum",
        *,
        local: str = "rbf",
        gamma: float | None = None,
        p: float = 9.0,
        normalize: bool = True,
    ) -> None:
        self.method = method
        self.local = local
        self.gamma = gamma
        self.p = p
        self.normalize = normalize

    def fit(self, X: Any, y: Any = None) -> Self:
        """Keep the reference bags."""
        for name, value, allowed in (("method", self.method, METHODS), ("local", self.local, LOCAL)):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
        if self.method == "lyu" and not (self.p > 0 and (self.local == "rbf" or float(self.p).is_integer())):
            raise ValueError(f"p must be a whole number > 0 for the linear kernel and > 0 for the rbf, got {self.p}")
        if self.gamma is not None and not self.gamma > 0:
            raise ValueError(f"gamma must be > 0, got {self.gamma}")
        if self.method in ("max", "emd"):
            warnings.warn(
                f"the {self.method} match is not a Mercer kernel: an SVM may not converge and a Gaussian process needs "
                "repair; use 'lyu' or the pyramid match for a positive semidefinite one",
                stacklevel=2,
            )
        self.reference_ = check_bags(X)
        self.n_features_in_ = self.reference_.dimension
        values = np.asarray(self.reference_.values, dtype=float)
        spread = 2.0 * float(values.var(axis=0).sum())
        self.gamma_ = self.gamma if self.gamma is not None else 1.0 / (spread or 1.0)
        self.self_similarity_ = self._norms(self.reference_) if self.normalize else self._own(self.reference_)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Kernel (m, n) between m bags and the n reference bags."""
        check_is_fitted(self, "reference_")
        bags = check_bags(X, self.n_features_in_)
        result = np.vstack(
            [
                np.hstack([self._block(part, other) for other in self.reference_.chunks(ROWS)])
                for part in bags.chunks(ROWS)
            ]
        )
        if self.normalize:
            result /= np.sqrt(np.outer(self._norms(bags), self.self_similarity_))
        return result

    def diagonal(self, X: Any) -> np.ndarray:
        """(m,) kernel of each bag with itself."""
        check_is_fitted(self, "reference_")
        bags = check_bags(X, self.n_features_in_)
        return np.ones(len(bags)) if self.normalize else self._own(bags)

    def _own(self, bags: Bags) -> np.ndarray:
        return np.array([self._block(bags[i : i + 1], bags[i : i + 1])[0, 0] for i in range(len(bags))])

    def _norms(self, bags: Bags) -> np.ndarray:
        """(m,) self-similarities to divide by."""
        own = self._own(bags)
        lengths = (np.asarray(bags.values, dtype=float) ** 2).sum(axis=1)
        single = np.ones(len(lengths)) if self.local == "rbf" else lengths
        single = single**self.p if self.method == "lyu" else single
        nothing = own <= NOTHING * np.add.reduceat(single, bags.offsets[:-1]) / bags.sizes
        if nothing.any():
            raise ValueError(
                f"bag {int(np.argmax(nothing))} of {len(bags)} has no similarity with itself, as its features are zero "
                f"or cancel, and cannot be normalised; drop it, pass normalize=False, or take another local kernel "
                f"than {self.local!r}"
            )
        return own

    def _block(self, a: Bags, b: Bags) -> np.ndarray:
        x, z = (np.asarray(bags.values, dtype=float) for bags in (a, b))
        similarity = local_kernel(x, z, self.local, self.gamma_)
        if self.method == "lyu":
            similarity = similarity**self.p
        match = {"max": best_match, "emd": assignment_match}.get(self.method, mean_match)
        return match(similarity, a.offsets, b.offsets)


def check_bags(X: Any, dimension: int | None = None) -> Bags:
    """Bags that are finite, positions included, not empty, and of the given dimension."""
    bags = as_bags(X).check_not_empty()
    if len(bags) == 0:
        raise ValueError("expected at least one bag, got none")
    for what, rows in (("feature", bags.values), ("position", bags.positions)):
        finite = np.ones(1, bool) if rows is None else np.isfinite(np.asarray(rows)).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            bag = int(np.searchsorted(bags.offsets, row, side="right")) - 1
            within = row - bags.offsets[bag]
            raise ValueError(f"bag {bag} of {len(bags)} has a {what} that is not finite (row {within})")
    if dimension is not None and bags.dimension != dimension:
        raise ValueError(f"features have {bags.dimension} dimensions, the reference bags {dimension}")
    return bags
