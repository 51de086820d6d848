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
value is divided by min(T_X, T_Z).

**Normalisation.**  Under the linear kernel, "sum" is zero between a bag whose features cancel and any bag, itself
included; so is "lyu" where their powers cancel, and everything for a bag of zeros.  Such a bag has no direction that
could be brought to unit length: it is an error with ``normalize=True``.

Cost: O(T_X T_Z d) per pair as matrix products, and cubic for the matching: for comparisons, not for large data.
"""

import warnings
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.utils._param_validation import StrOptions

from patchbag.bags import Bags
from patchbag.parameters import POSITIVE, estimator, parameter
from patchbag.similarity.base import BagKernel, map_rows
from patchbag.storage.declared import Declared, floats, real

METHODS = ("sum", "max", "lyu", "emd")
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


def _match(a: Bags, b: Bags, method: str, local: str, gamma: float, p: float) -> np.ndarray:
    """Matches (n, m) of the bags of two datasets that are compared at once."""
    similarity = local_kernel(np.asarray(a.values, dtype=float), np.asarray(b.values, dtype=float), local, gamma)
    if method == "lyu":
        similarity = similarity**p
    match = {"max": best_match, "emd": assignment_match}.get(method, mean_match)
    return match(similarity, a.offsets, b.offsets)


def _match_all(a: Bags, b: Bags, **options: Any) -> np.ndarray:
    return np.hstack([_match(a, other, **options) for other in b.chunks(ROWS)])


@estimator
class SetKernel(BagKernel):
    """Kernel between bags from a kernel between features.

    Parameters
    ----------
    method : "sum", "lyu", "max" or "emd"; the last two warn that they are not Mercer kernels
    local : "rbf" or "linear", the kernel between features
    gamma : of the rbf; None for one over the mean squared distance of features of the reference bags
    p : exponent of "lyu"
    normalize : divide by the root of the self-similarities; a bag without any is an error

    Attributes
    ----------
    references_ : the reference bags;  gamma_ : float;  self_similarity_ : (n,)

    >>> SetKernel("sum").fit_transform([np.zeros((3, 2)), np.ones((5, 2))]).diagonal()
    array([1., 1.])
    """

    most_features = 1 << 14

    method: str = parameter(StrOptions(set(METHODS)), default="sum")
    _: KW_ONLY
    local: str = parameter(StrOptions({"rbf", "linear"}), default="rbf")
    gamma: float | None = parameter(POSITIVE, None, default=None)
    p: float = parameter(POSITIVE, default=9.0)
    normalize: bool = parameter("boolean", default=True)

    _stored: ClassVar[dict[str, Declared]] = {
        "gamma_": real(low=0),
        "self_similarity_": floats("n"),
    }

    def _fit(self, bags: Bags) -> None:
        if self.method == "lyu" and self.local == "linear" and not float(self.p).is_integer():
            raise ValueError(f"p must be a whole number for the linear kernel, got {self.p}")
        if self.method in ("max", "emd"):
            warnings.warn(
                f"the {self.method} match is not a Mercer kernel: an SVM may not converge and a Gaussian process needs "
                "repair; use 'lyu' or the pyramid match for a positive semidefinite one",
                stacklevel=5,
            )
        spread = 2.0 * float(np.asarray(bags.values, dtype=float).var(axis=0).sum())
        self.gamma_ = self.gamma if self.gamma is not None else 1.0 / (spread or 1.0)
        self.self_similarity_ = self._norms(bags) if self.normalize else self._own(bags)
        super()._fit(bags)

    @property
    def _options(self) -> dict[str, Any]:
        return {"method": self.method, "local": self.local, "gamma": self.gamma_, "p": self.p}

    def _compare(self, bags: Bags) -> np.ndarray:
        result = map_rows(partial(_match_all, b=self.references_, **self._options), bags.chunks(ROWS), len(bags))
        return result / np.sqrt(np.outer(self._norms(bags), self.self_similarity_)) if self.normalize else result

    def diagonal(self, X: Any) -> np.ndarray:
        """(m,) kernel of each bag with itself."""
        bags = self._check(X, fitted=True)
        return np.ones(len(bags)) if self.normalize else self._own(bags)

    def _own(self, bags: Bags) -> np.ndarray:
        single = (bags[i : i + 1] for i in range(len(bags)))
        return np.array([_match(bag, bag, **self._options)[0, 0] for bag in single])

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
