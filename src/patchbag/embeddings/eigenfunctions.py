# SPDX-License-Identifier: BSD-3-Clause
r"""Eigenfunctions of kernels of two numbers, for many dimensions at once (liu2010 §7.4, eq. 7.4 and 7.6).

The kernel matrices of all dimensions are multiplied by F + 4 vectors each (subspace iteration, then Rayleigh-Ritz).
Quantiles make the matrices alike, so that the eigenvectors of the mean of some are a good beginning, and the spectra
fall fast: two products are enough for χ².
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit, vectorize
from scipy import sparse

EXTRA = 4
TOGETHER = 64  # columns whose values are sorted together
PASSES = 5  # at most
CLOSE = 1e-3  # of the largest eigenvalue: residual of eigenvectors that are good enough
SWEEPS, SMALL = 15, 1e-7  # of Jacobi's rotations, at most; what is left beside the diagonal, of its largest entry
TINY = 1e-30


@vectorize(cache=True)
def _bhattacharyya(u, v):  # pragma: no cover - compiled
    return np.sqrt(u * v)


@vectorize(cache=True)
def _chi2(u, v):  # pragma: no cover - compiled
    both = u + v
    return (u + u) * v / both if both > 0 else both


@vectorize(cache=True)
def _jensen_shannon(u, v):  # pragma: no cover - compiled
    both = u + v
    left = u * np.log2(both / u) if u > 0 else u
    right = v * np.log2(both / v) if v > 0 else v
    return type(both)(0.5) * (left + right)


KERNELS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "bhattacharyya": _bhattacharyya,
    "chi2": _chi2,
    "intersection": np.minimum,
    "jensen-shannon": _jensen_shannon,
}


compiled = partial(njit, cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@compiled()
def _product(a, b):  # pragma: no cover - compiled
    total = a[0] * b[0]
    for j in range(1, a.shape[0]):
        total += a[j] * b[j]
    return total


@compiled()
def _orthonormalise(rows):  # pragma: no cover - compiled
    """Gram-Schmidt in place; twice, for the rows are nearly dependent."""
    tiny = rows.dtype.type(TINY)
    for step in range(2 * rows.shape[0]):
        r = step // 2
        for q in range(r):
            share = _product(rows[r], rows[q])
            for j in range(rows.shape[1]):
                rows[r, j] -= share * rows[q, j]
        length = np.sqrt(max(_product(rows[r], rows[r]), tiny))
        for j in range(rows.shape[1]):
            rows[r, j] /= length


@compiled()
def _rotate(a, b, cosine, sine):  # pragma: no cover - compiled
    for k in range(a.shape[0]):
        x, y = a[k], b[k]
        a[k], b[k] = cosine * x - sine * y, sine * x + cosine * y


@compiled()
def _diagonalise(A, turn):  # pragma: no cover - compiled
    """Jacobi's rotations of a small symmetric matrix: eigenvalues are left on its diagonal, vectors are rows."""
    n, one = len(A), A.dtype.type(1)
    turn[:] = np.eye(n, dtype=A.dtype)
    for _ in range(SWEEPS):
        most = largest = A.dtype.type(0)
        for p in range(n):
            largest = max(largest, abs(A[p, p]))
            for q in range(p + 1, n):
                most = max(most, abs(A[p, q]))
        if most <= A.dtype.type(SMALL) * largest:
            break
        for p in range(n):
            for q in range(p + 1, n):
                if abs(A[p, q]) > A.dtype.type(SMALL / 8) * largest:
                    half = (A[q, q] - A[p, p]) / (A[p, q] + A[p, q])
                    tangent = one / (abs(half) + np.sqrt(half * half + one))
                    tangent = tangent if half >= 0 else -tangent
                    cosine = one / np.sqrt(tangent * tangent + one)
                    _rotate(A[:, p], A[:, q], cosine, cosine * tangent)
                    _rotate(A[p], A[q], cosine, cosine * tangent)
                    _rotate(turn[p], turn[q], cosine, cosine * tangent)


@compiled()
def _iterate(matrices, start, values, vectors):  # pragma: no cover - compiled
    """Subspace iteration for one matrix after the other, into ``values (D, n)`` and ``vectors (D, n, M)``."""
    n_rows, size = start.shape
    number = start.dtype.type
    image, basis = np.empty_like(start), np.empty_like(start)
    inside, turn = np.empty((n_rows, n_rows), start.dtype), np.empty((n_rows, n_rows), start.dtype)
    turned = np.empty(size, start.dtype)
    for d in range(matrices.shape[0]):
        np.dot(start, matrices[d], image)
        for _ in range(PASSES):
            largest = number(TINY)
            for r in range(n_rows):
                for j in range(size):
                    largest = max(largest, abs(image[r, j]))
            basis[:] = image / largest  # squares stay in range
            _orthonormalise(basis)
            np.dot(basis, matrices[d], image)
            for p in range(n_rows):
                for q in range(p + 1):
                    inside[p, q] = inside[q, p] = _product(image[p], basis[q])
            _diagonalise(inside, turn)
            order = np.argsort(-np.diag(inside))
            worst = number(0)
            for e in range(values.shape[1]):
                value, vector = inside[order[e], order[e]], vectors[d, e]
                values[d, e], vector[:], turned[:] = value, 0, 0
                for r in range(n_rows):
                    share = turn[order[e], r]
                    for j in range(size):
                        vector[j] += share * basis[r, j]
                        turned[j] += share * image[r, j]
                for j in range(size):
                    worst = max(worst, abs(turned[j] - value * vector[j]))
            if worst <= number(CLOSE) * values[d, 0]:
                break


def beginning(matrices: np.ndarray, n: int, random: Any) -> np.ndarray:
    """Rows (n + EXTRA, M) to begin with: the first n span what the largest eigenvectors of the mean matrix do."""
    size = matrices.shape[1]
    traces = np.maximum(np.trace(matrices, axis1=1, axis2=2), TINY)
    mean = np.tensordot(1 / traces, matrices, 1)
    rows = random.standard_normal((min(n, size) + EXTRA, size)).astype(matrices.dtype)
    basis = rows[:-EXTRA].T
    for _ in range(PASSES):
        basis = np.linalg.qr(mean @ basis)[0]
    rows[:-EXTRA] = basis.T  # the others: for what a few matrices have and their mean has not
    return np.asarray(rows)


def top_eigenpairs(matrices: np.ndarray, n: int, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The n largest eigenvalues (D, n), falling, and eigenvectors (D, n, M) of symmetric matrices (D, M, M).

    ``start (n + EXTRA, M)``: from :func:`beginning` of these matrices, or of others that are like them.
    """
    size = matrices.shape[1]
    n = min(n, size)
    if 2 * (n + EXTRA) >= size:
        values, vectors = np.linalg.eigh(matrices)
        return values[:, ::-1][:, :n], vectors[:, :, ::-1][:, :, :n].swapaxes(1, 2)
    values, vectors = (np.empty((len(matrices), n, *shape), matrices.dtype) for shape in ((), (size,)))
    _iterate(matrices, start, values, vectors)
    return values, vectors


def nystroem(
    values: np.ndarray, samples: np.ndarray, coefficients: np.ndarray, kernel: Callable[..., np.ndarray]
) -> np.ndarray:
    """φ (D, B, F) of (7.6) at ``values (D, B)``, from ``samples (D, M)`` and ``coefficients (D, F, M)`` = ψ/σ."""
    return np.asarray(kernel(values[:, :, None], samples[:, None, :]) @ coefficients.swapaxes(1, 2))


def learn_functions(
    kernel: Callable[..., np.ndarray], n_functions: int, n_points: int, start: np.ndarray, part: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (D, F) and tables (D, B, F) of some dimensions: their samples (D, M), weights and limits (D,)."""
    samples, weights, limits = part
    values, vectors = top_eigenpairs(kernel_matrices(kernel, samples), n_functions, start)
    values = np.maximum(values, 0)
    # a function without energy is zero
    there = values > 1e-7 * np.maximum(values[:, :1], TINY)
    scale = np.where(there, 1 / np.sqrt(np.maximum(values, TINY)), 0.0).astype(samples.dtype)
    points = (np.linspace(0, 1, n_points, dtype=samples.dtype) * np.sqrt(limits)[:, None]) ** 2
    tables = nystroem(points, samples, vectors * scale[:, :, None], kernel)
    return values * (weights / samples.shape[1])[:, None], tables


def kernel_matrices(kernel: Callable[..., np.ndarray], samples: np.ndarray) -> np.ndarray:
    """(D, M, M) of samples (D, M)."""
    return np.asarray(kernel(samples[:, :, None], samples[:, None, :]))


def quantiles(X: Any, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the values of each column that are not zero: evenly spread quantiles (D, n), the share (D,) of all values that
    they are, and the largest one (D,).
    """
    height, width = X.shape
    if sparse.issparse(X):
        X = sparse.csr_array(X).tocsc()
        X.eliminate_zeros()
    samples = np.zeros((width, n), np.float32)
    shares, largest = np.zeros(width, np.float32), np.zeros(width, np.float32)
    for first in range(0, width, TOGETHER):  # all of X turned around would be read in jumps
        some = slice(first, min(first + TOGETHER, width))
        if sparse.issparse(X):
            ends = X.indptr[some.start : some.stop + 1]
            values = np.concatenate([np.sort(X.data[a:b]) for a, b in pairwise(ends)])
            starts, ends = ends[:-1] - ends[0], ends[1:] - ends[0]
        else:
            columns = np.sort(X[:, some].T, axis=1)
            values, ends = columns.ravel(), height * np.arange(1, len(columns) + 1)
            starts = ends - np.count_nonzero(columns, axis=1)
        there = ends - starts
        has = there > 0
        where = ((np.arange(n) + 0.5) / n * there[has, None]).astype(np.int64)
        samples[some][has] = values[starts[has, None] + np.minimum(where, there[has, None] - 1)]
        shares[some], largest[some][has] = there / height, values[ends[has] - 1]
    return samples, shares, largest
