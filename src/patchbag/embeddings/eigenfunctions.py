# SPDX-License-Identifier: BSD-3-Clause
r"""Eigenfunctions of kernels of two numbers, for many dimensions at once (liu2010 §7.4, eq. 7.4 and 7.6).

The kernel matrices of all dimensions are multiplied by F + 4 vectors each (subspace iteration, then Rayleigh-Ritz).
Quantiles make the matrices alike, so that the eigenvectors of their mean are a good beginning, and the spectra fall
fast: two products are enough for χ².
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numba import vectorize
from scipy import sparse

EXTRA = 4
PASSES = 5  # at most
CLOSE = 1e-3  # of the largest eigenvalue: residual of eigenvectors that are good enough
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


def top_eigenpairs(matrices: np.ndarray, n: int, random: Any) -> tuple[np.ndarray, np.ndarray]:
    """The n largest eigenvalues (D, n), falling, and eigenvectors (D, M, n) of symmetric matrices (D, M, M)."""
    size = matrices.shape[1]
    n = min(n, size)
    if 2 * (n + EXTRA) >= size:
        values, vectors = np.linalg.eigh(matrices)
        return values[:, ::-1][:, :n], vectors[:, :, ::-1][:, :, :n]
    traces = np.maximum(np.trace(matrices, axis1=1, axis2=2), TINY)
    mean = np.tensordot(1 / traces, matrices, 1)
    basis, others = np.split(random.standard_normal((size, n + EXTRA)).astype(matrices.dtype), [n], axis=1)
    for _ in range(PASSES):
        basis = np.linalg.qr(mean @ basis)[0]
    image = matrices @ np.hstack([basis, others])  # others: for what a few matrices have and their mean has not
    for _ in range(PASSES):
        basis = np.linalg.qr(image)[0]
        image = matrices @ basis
        values, turn = np.linalg.eigh(basis.swapaxes(1, 2) @ image)
        values, turn = values[:, ::-1][:, :n], turn[:, :, ::-1][:, :, :n]
        vectors = basis @ turn
        residual = np.abs(image @ turn - vectors * values[:, None, :]).max(axis=(1, 2))
        if (residual <= CLOSE * values[:, 0]).all():
            break
    return values, vectors


def nystroem(
    values: np.ndarray, samples: np.ndarray, coefficients: np.ndarray, kernel: Callable[..., np.ndarray]
) -> np.ndarray:
    """φ (D, B, F) of (7.6) at ``values (D, B)``, from ``samples (D, M)`` and ``coefficients (D, M, F)`` = ψ/σ."""
    return np.asarray(kernel(values[:, :, None], samples[:, None, :]) @ coefficients)


def learn_functions(
    kernel: Callable[..., np.ndarray], n_functions: int, n_points: int, seed: int, part: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (D, F) and tables (D, B, F) of some dimensions: their samples (D, M), weights and limits (D,)."""
    samples, weights, limits = part
    matrices = kernel(samples[:, :, None], samples[:, None, :]) * (weights / samples.shape[1])[:, None, None]
    values, vectors = top_eigenpairs(matrices, n_functions, np.random.default_rng(seed))
    values = np.maximum(values, 0)
    # of the weighted matrix: σ² ψ; a function without energy is zero
    scale = np.sqrt(weights / samples.shape[1])[:, None] / np.sqrt(np.maximum(values, TINY))
    scale = np.where(values > 1e-7 * np.maximum(values[:, :1], TINY), scale, 0.0).astype(samples.dtype)
    points = (np.linspace(0, 1, n_points, dtype=samples.dtype) * np.sqrt(limits)[:, None]) ** 2
    tables = nystroem(points, samples, vectors * scale[:, None, :], kernel)
    return values, tables


def quantiles(X: Any, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the values of each column that are not zero: evenly spread quantiles (D, n), the share (D,) of all values that
    they are, and the largest one (D,).
    """
    if sparse.issparse(X):
        X = sparse.csc_array(X)
        columns: Any = [np.sort(X.data[a:b]) for a, b in pairwise(X.indptr)]
    else:
        columns = np.sort(np.ascontiguousarray(X.T), axis=1)
    samples = np.zeros((X.shape[1], n), np.float32)
    shares, largest = np.zeros(X.shape[1], np.float32), np.zeros(X.shape[1], np.float32)
    where = (np.arange(n) + 0.5) / n
    for d, column in enumerate(columns):
        there = column[np.searchsorted(column, 0, side="right") :]
        if len(there):
            samples[d] = there[np.minimum((where * len(there)).astype(np.int64), len(there) - 1)]
            shares[d], largest[d] = len(there) / X.shape[0], there[-1]
    return samples, shares, largest
