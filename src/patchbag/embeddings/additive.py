# SPDX-License-Identifier: BSD-3-Clause
r"""addkPCA: explicit vectors of additive kernels, by a kernel PCA of every dimension (liu2010 §7.4).

An additive kernel is a sum over the dimensions of histograms, :math:`K(x, z) = \sum_d k(x_d, z_d)`:

==============  ================================================================================
bhattacharyya   :math:`\sqrt{uv}`, for which :math:`\varphi(u) = \sqrt u` is exact (``SquareRootMap``)
chi2            :math:`2uv / (u + v)`
intersection    :math:`\min(u, v)`
jensen-shannon  :math:`\tfrac u2 \log_2 \frac{u+v}{u} + \tfrac v2 \log_2 \frac{u+v}{v}`
==============  ================================================================================

In each dimension the kernel matrix of M values has eigenvalues :math:`\sigma^2` and eigenvectors ψ (7.4); of the D · F
largest eigenvalues the E largest are kept, so that a dimension gets as many functions as it deserves.  A new value is
embedded by Nyström's formula (7.6)

.. math:: \varphi_{d,e}(u) = k(u, \cdot)' \psi_{d,e} / \sigma_{d,e},

which is tabulated at B points and interpolated, constantly or linearly: the cost does not depend on M.

**Deviations.**  The M values of a dimension are the quantiles of the training values that are not zero, each of which
stands for its share of them, where the thesis draws M images: the same functions with less noise, since a word is
absent from most images and k(0, v) = 0 teaches nothing.  Tables are even in :math:`\sqrt u` and not in u: the functions
rise like a root at 0, where most values are.  Beyond the largest training value they go on as straight lines in it.

**What is computed.**  The functions of all dimensions together (:mod:`~patchbag.embeddings.eigenfunctions`).  Zero
stays zero, and sparse rows stay sparse.  Cost: D · M² kernel values and about 4 · D · M² · F operations to learn, one
root and n_d table look-ups per value that is not zero to embed.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numba import prange
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from patchbag.device import to_host
from patchbag.embeddings.eigenfunctions import (
    KERNELS,
    TINY,
    beginning,
    kernel_matrices,
    learn_functions,
    quantiles,
)
from patchbag.parameters import ONE_OR_MORE, TWO_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state, parallel_map, parallel_njit
from patchbag.storage.declared import Declared, floats, integers, real, size

BLOCK = 64  # dimensions that are learned together: their matrices stay near the core
LARGEST = 1e15  # products of two such numbers, summed over samples, are still far from the end of float32
WIDE = np.uint64(4)  # functions that are written at once
TILE, ROWS = 128, 64  # dimensions and rows that are embedded together


@parallel_njit(cache=True, nogil=True, error_model="numpy")
def _embed(
    data, indices, starts, first, tables, steps, n_points, linear, values, columns, out_starts
):  # pragma: no cover - compiled
    number = steps.dtype.type
    last = number(n_points - 2 if linear else n_points - 1)
    half, none = number(0.0 if linear else 0.5), number(0)
    for i in prange(starts.shape[0] - 1):
        # numbers without a sign: Numba need not ask whether an index counts from the end
        at, end = np.uint64(out_starts[i]), np.uint64(out_starts[i + 1])
        for p in range(starts[i], starts[i + 1]):
            d = indices[p]
            row, n = first[d], np.uint64(first[d + 1] - first[d])
            where = np.sqrt(data[p]) * steps[d]
            cell = np.int32(min(where + half, last))
            share = where - number(cell) if linear else none
            near = np.uint64(row) * np.uint64(n_points) + np.uint64(cell) * n
            done = np.uint64(0)
            if at + WIDE <= end:
                # what is too much is overwritten by the next value: cheaper than a loop of unknown length
                for e in range(WIDE):
                    value = tables[near + e]
                    values[at + e] = value + share * (tables[near + n + e] - value)
                    columns[at + e] = row + np.int32(e)
                done = WIDE
            for e in range(done, n):
                value = tables[near + e]
                values[at + e] = value + share * (tables[near + n + e] - value)
                columns[at + e] = row + np.int32(e)
            at += n


@parallel_njit(cache=True, nogil=True, error_model="numpy")
def _embed_dense(X, first, tables, steps, n_points, linear, out):  # pragma: no cover - compiled
    """Of dense rows, into ``out (n, E)``: rows by the dozen and TILE dimensions at a time, whose tables stay near."""
    number = steps.dtype.type
    last = number(n_points - 2 if linear else n_points - 1)
    half, none = number(0.0 if linear else 0.5), number(0)
    n_rows, width = X.shape
    for part in prange((n_rows + ROWS - 1) // ROWS):
        cells, shares = np.empty(TILE, np.int32), np.empty(TILE, steps.dtype)
        for start in range(0, width, TILE):
            tile = min(TILE, width - start)
            for i in range(part * ROWS, min(n_rows, (part + 1) * ROWS)):
                for d in range(tile):
                    where = np.sqrt(X[i, start + d]) * steps[start + d]
                    cells[d] = np.int32(min(where + half, last))
                    shares[d] = where - number(cells[d]) if linear else none
                end = np.uint64(first[width])
                for d in range(tile):
                    at, n = np.uint64(first[start + d]), np.uint64(first[start + d + 1] - first[start + d])
                    near = at * np.uint64(n_points) + np.uint64(cells[d]) * n
                    share, done = shares[d], np.uint64(0)
                    if at + WIDE <= end:  # as above
                        for e in range(WIDE):
                            value = tables[near + e]
                            out[i, at + e] = value + share * (tables[near + n + e] - value)
                        done = WIDE
                    for e in range(done, n):
                        value = tables[near + e]
                        out[i, at + e] = value + share * (tables[near + n + e] - value)


@parallel_njit(cache=True, nogil=True)
def _count(indices, starts, functions, lengths):  # pragma: no cover - compiled
    """Numbers in each row of the output."""
    for i in prange(starts.shape[0] - 1):
        total = 0
        for p in range(starts[i], starts[i + 1]):
            total += functions[indices[p]]
        lengths[i] = total


@estimator
class HistogramMap(TransformerMixin, BaseEstimator):
    """Rows of numbers that are not negative, dense or sparse."""

    _stored: ClassVar[dict[str, Declared]] = {
        "n_features_in_": size("d"),
    }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.positive_only = True
        return tags

    def _check(self, X: Any, reset: bool) -> sparse.csr_array | np.ndarray:
        X = validate_data(self, to_host(X), accept_sparse="csr", dtype=(np.float64, np.float32), reset=reset)
        numbers = X.data if sparse.issparse(X) else X
        if numbers.size and numbers.min() < 0:
            raise ValueError(f"additive kernels are for numbers that are not negative, got {numbers.min():.3g}")
        return X


class SquareRootMap(HistogramMap):
    """Square roots: inner products are Bhattacharyya kernels, exactly.

    >>> SquareRootMap().fit_transform(np.array([[0.25, 0.75, 0.0]])).round(3)
    array([[0.5  , 0.866, 0.   ]])
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Remember the number of dimensions; there is nothing to learn."""
        self._check(X, reset=True)
        return self

    def transform(self, X: Any) -> Any:
        """Of the same kind as X."""
        check_is_fitted(self, "n_features_in_")
        X = self._check(X, reset=False)
        return X.sqrt() if sparse.issparse(X) else np.sqrt(X)


@estimator
class AdditiveKernelPCA(HistogramMap):
    """Explicit vectors whose inner products are an additive kernel, nearly.

    Parameters
    ----------
    kernel : ``"chi2"``, ``"intersection"``, ``"bhattacharyya"``, ``"jensen-shannon"``, or a function k(u, v) of arrays
        with k(0, v) = 0
    n_components : E, numbers per embedded row; None for twice the dimensions
    n_functions : F, most functions per dimension
    n_samples : M, values per dimension that teach
    n_points : B, points of a table
    interpolation : ``"linear"`` or ``"constant"``
    random_state : seed of the first vectors of the eigenproblems
    n_jobs : workers

    Attributes
    ----------
    functions_ : (D,) functions that each dimension has;  energy_ : share of all eigenvalues that was kept
    tables_ : (E · B,) the functions, dimension after dimension and point after point; points are even in the root of u
    limits_ : (D,) the largest u of the tables

    >>> AdditiveKernelPCA().fit_transform(words).shape
    (120, 16)
    """

    kernel: str | Callable[[np.ndarray, np.ndarray], np.ndarray] = parameter(
        StrOptions(set(KERNELS)), callable, default="chi2"
    )
    _: KW_ONLY
    n_components: int | None = parameter(ONE_OR_MORE, None, default=None)
    n_functions: int = parameter(ONE_OR_MORE, default=6)
    n_samples: int = parameter(TWO_OR_MORE, default=128)
    n_points: int = parameter(TWO_OR_MORE, default=64)
    interpolation: str = parameter(StrOptions({"linear", "constant"}), default="linear")
    random_state: Any = parameter("random_state", default=None)
    n_jobs: int | None = parameter(Integral, None, default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "functions_": integers("d", low=0, high=1 << 20),
        "energy_": real(),
        "tables_": floats("numbers"),
        "limits_": floats("d", low=0),
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        X = self._check(X, reset=True)
        width = X.shape[1]
        if X.max() > LARGEST:
            raise ValueError(f"numbers of up to {X.max():.3g} are too large to learn from; divide each row by its sum")
        learned = quantiles(X, self.n_samples)
        filled = np.flatnonzero(learned[1])  # dimensions that are not zero in all rows: the others have no functions
        if not len(filled):
            raise ValueError("all numbers are zero: there is nothing to learn from")
        kernel = KERNELS[self.kernel] if isinstance(self.kernel, str) else self.kernel
        largest = learned[2][filled]
        if np.any(at_zero := kernel(np.zeros_like(largest), largest)):
            raise ValueError(
                f"k(0, v) is {np.abs(at_zero).max():.3g} for a v of these rows; it must be 0, so that zeros stay zero"
            )
        n = min(self.n_functions, self.n_samples)
        some = filled[np.linspace(0, len(filled) - 1, min(len(filled), BLOCK)).astype(int)]
        random = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        start = beginning(kernel_matrices(kernel, learned[0][some]), n, random)
        parts = [tuple(a[filled[d : d + BLOCK]] for a in learned) for d in range(0, len(filled), BLOCK)]
        learn = partial(learn_functions, kernel, n, self.n_points, start)
        found, tables = (np.concatenate(a) for a in zip(*parallel_map(learn, parts, self.n_jobs)))
        values = np.zeros((width, found.shape[1]), found.dtype)
        values[filled] = found
        wanted = min(2 * width if self.n_components is None else self.n_components, values.size)
        chosen = np.zeros(values.size, bool)
        chosen[np.argsort(-values.ravel(), kind="stable")[:wanted]] = True
        chosen = chosen.reshape(values.shape) & (values > 0)
        self.functions_ = chosen.sum(axis=1)
        self.energy_ = float(values[chosen].sum() / max(values.sum(), TINY))
        # the functions of a dimension stand side by side at every point: a value reads two places, not two per function
        self.tables_ = np.concatenate([table[:, kept].ravel() for table, kept in zip(tables, chosen[filled])])
        self.limits_ = learned[2]
        return self

    def transform(self, X: Any) -> Any:
        """(n, E) rows, sparse where X is."""
        check_is_fitted(self, "tables_")
        X = self._check(X, reset=False)
        first = np.concatenate([[0], np.cumsum(self.functions_)]).astype(np.int32)
        steps = ((self.n_points - 1) / np.sqrt(np.maximum(self.limits_, TINY))).astype(X.dtype)
        # a value may read the functions of the next point, and WIDE at once
        tables = np.pad(self.tables_.astype(X.dtype, copy=False), (0, int(self.functions_.max()) + int(WIDE)))
        linear = self.interpolation == "linear"
        if not sparse.issparse(X):
            out = np.empty((len(X), int(first[-1])), X.dtype)
            _embed_dense(np.ascontiguousarray(X), first, tables, steps, self.n_points, linear, out)
            return out
        starts = np.zeros(len(X.indptr), np.int64)
        _count(X.indices, X.indptr, self.functions_, starts[1:])
        np.cumsum(starts, out=starts)
        if starts[-1] <= np.iinfo(np.int32).max:  # else SciPy would make a copy of the columns
            starts = starts.astype(np.int32)
        values, columns = np.empty(starts[-1], X.dtype), np.empty(starts[-1], np.int32)
        _embed(X.data, X.indices, X.indptr, first, tables, steps, self.n_points, linear, values, columns, starts)
        return sparse.csr_array((values, columns, starts), shape=(len(starts) - 1, int(first[-1])))

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        sizes["E"] = int(values["functions_"].sum())
        needed = sizes["E"] * int(values["n_points"])
        return None if needed == sizes["numbers"] else f"its tables have {sizes['numbers']} numbers, not {needed}"
