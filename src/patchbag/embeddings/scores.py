# SPDX-License-Identifier: BSD-3-Clause
r"""Scores of linear classifiers on addkPCA's vectors, in two ways (liu2010 §7.4.3).

With weights :math:`w_c` on embedded rows, the score of class c is :math:`f_c(z) = w_c' \varphi(z) + b_c`.

1. **Vectors**: embed, then multiply.  For every value that is not zero its n_d functions are interpolated, and each
   times its row of weights (C numbers side by side) is added to the scores.  The embedded row is never written.
2. **Tables**: :math:`f_c(z) = \sum_d f_{c,d}(z_d) + b_c`, where :math:`f_{c,d} = \sum_e w_{c,d,e} \varphi_{d,e}` is
   tabulated at the same B points: one look-up per value and class.

Interpolation is linear in the tables' values, so both give the same scores but for rounding.  The thesis finds vectors
5 to 15 times faster, since look-ups of one class after the other read memory in jumps.  Here the classes of a point
stand side by side, and what decides is what has to be read: tables have D · B · C numbers, functions E · B and weights
E · C.  So few classes take tables and many take vectors (``TABLE_CLASSES``, measured in bench_embeddings.py).
"""

import numpy as np
from numba import prange
from scipy import sparse

from patchbag.embeddings.additive import AdditiveKernelPCA
from patchbag.embeddings.eigenfunctions import TINY
from patchbag.runtime import parallel_njit

TABLE_CLASSES = 32  # up to so many classes tables are faster


@parallel_njit(cache=True, nogil=True, error_model="numpy")
def _scores(
    data, indices, starts, first, tables, steps, n_points, linear, weights, scores
):  # pragma: no cover - compiled
    """Add w'φ to ``scores (n, C)``; ``weights (E, C)``, of no rows where the tables are of scores already."""
    number = steps.dtype.type
    last = number(n_points - 2 if linear else n_points - 1)
    half = number(0.0 if linear else 0.5)
    direct = weights.shape[0] == 0
    for i in prange(starts.shape[0] - 1):
        row = scores[i]
        for p in range(starts[i], starts[i + 1]):
            d = indices[p]
            n = first[d + 1] - first[d]
            where = np.sqrt(data[p]) * steps[d]
            cell = np.int32(min(where + half, last))
            share = where - number(cell)
            near = np.int64(first[d]) * n_points + np.int64(cell) * n
            if direct:
                now = tables[near : near + n]
                if linear:
                    after = tables[near + n : near + 2 * n]
                    for c in range(n):
                        row[c] += now[c] + share * (after[c] - now[c])
                else:
                    for c in range(n):
                        row[c] += now[c]
            else:
                for e in range(n):
                    value = tables[near + e]
                    if linear:
                        value += share * (tables[near + n + e] - value)
                    weight = weights[first[d] + e]
                    for c in range(row.shape[0]):
                        row[c] += value * weight[c]


def score_tables(embedding: AdditiveKernelPCA, coef: np.ndarray) -> np.ndarray:
    """Scores (D, B, C) of every dimension at its points, from weights ``coef (C, E)``."""
    points, n = embedding.n_points, embedding.functions_
    tables = np.zeros((len(n), points, len(coef)), coef.dtype)
    ends = np.cumsum(n)
    for d in np.flatnonzero(n):
        start = ends[d] - n[d]
        functions = embedding.tables_[start * points : ends[d] * points].reshape(points, n[d])
        tables[d] = functions.astype(coef.dtype, copy=False) @ coef[:, start : ends[d]].T
    return tables


def additive_scores(
    embedding: AdditiveKernelPCA, coef: np.ndarray, rows: sparse.csr_array, tables: np.ndarray | None = None
) -> np.ndarray:
    """w'φ (n, C) of histograms: by ``tables`` of :func:`score_tables` where they are given, else by vectors.

    Parameters
    ----------
    embedding : fitted
    coef : (C, E)
    rows : (n, D), in the type of numbers of ``coef``
    """
    counts = embedding.functions_ if tables is None else np.full(len(embedding.functions_), len(coef))
    first = np.concatenate([[0], np.cumsum(counts)])
    numbers = embedding.tables_.astype(coef.dtype, copy=False) if tables is None else tables.ravel()
    weights = np.ascontiguousarray(coef.T) if tables is None else np.empty((0, len(coef)), coef.dtype)
    steps = ((embedding.n_points - 1) / np.sqrt(np.maximum(embedding.limits_, TINY))).astype(coef.dtype)
    scores = np.zeros((rows.shape[0], len(coef)), coef.dtype)
    linear = embedding.interpolation == "linear"
    _scores(rows.data, rows.indices, rows.indptr, first, numbers, steps, embedding.n_points, linear, weights, scores)
    return scores
