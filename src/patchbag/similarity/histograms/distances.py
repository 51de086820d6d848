# SPDX-License-Identifier: BSD-3-Clause
r"""Distances between histograms (piro2010 §5.3.2, table 5.3; Cha 2008).

=============  ===========================================================
euclidean      :math:`\sqrt{\sum (a - b)^2}`
manhattan      :math:`\sum |a - b|`
canberra       :math:`\sum |a - b| / (|a| + |b|)`, 0/0 = 0
lorentzian     :math:`\sum \ln(1 + |a - b|)`
chi2           :math:`\tfrac12 \sum (a - b)^2 / (a + b)`, 0/0 = 0
intersection   :math:`\tfrac12 \sum (a + b) - \sum \min(a, b)`
=============  ===========================================================

For histograms of the same sum the intersection is half of Manhattan's distance (5.33); χ² and intersection are those of
:mod:`~patchbag.similarity.histograms.kernel`.  Euclidean distances are one matrix product, the others a compiled loop,
in parallel over the rows; a logarithm of a product of 16 factors replaces 16 logarithms of :math:`1 + |a - b|`, which
for numbers below 10¹⁹ cannot overflow.  Cost: n · m · V.
"""

from functools import partial

import numpy as np
from numba import njit

from patchbag.similarity.base import map_rows
from patchbag.similarity.histograms.kernel import histogram_distance

LOOPS = ("manhattan", "canberra", "lorentzian")
DISTANCES = ("euclidean", *LOOPS, "chi2", "intersection")
BLOCK = 64
FACTORS = 16


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _loop(A, B, kind):  # pragma: no cover - compiled
    n, m, width = A.shape[0], B.shape[0], A.shape[1]
    out = np.empty((n, m), A.dtype)
    zero = A.dtype.type(0)
    for i in range(n):
        for j in range(m):
            total = zero
            if kind == 0:
                for v in range(width):
                    total += abs(A[i, v] - B[j, v])
            elif kind == 1:
                for v in range(width):
                    size = abs(A[i, v]) + abs(B[j, v])
                    total += abs(A[i, v] - B[j, v]) / size if size > 0 else zero
            else:
                for start in range(0, width, FACTORS):
                    product = 1.0
                    for v in range(start, min(start + FACTORS, width)):
                        product *= 1.0 + abs(A[i, v] - B[j, v])
                    total += np.log(product)
            out[i, j] = total
    return out


def _rows(a: np.ndarray, b: np.ndarray, kind: int) -> np.ndarray:
    return _loop(np.ascontiguousarray(a), b, kind)


def pairwise_distances(A: np.ndarray, B: np.ndarray, metric: str = "manhattan") -> np.ndarray:
    """Distances (n, m) of all rows of A (n, V) and B (m, V), float32 if both inputs are, else float64."""
    dtype = np.result_type(A, B, np.float32)
    A, B = np.asarray(A, dtype), np.ascontiguousarray(B, dtype)
    if metric in ("chi2", "intersection"):
        return histogram_distance(A, B, metric)
    if metric == "euclidean":
        squares = [np.einsum("ij,ij->i", M, M) for M in (A, B)]
        return np.sqrt(np.maximum(squares[0][:, None] + squares[1] - 2 * (A @ B.T), 0))
    rows = partial(_rows, b=B, kind=LOOPS.index(metric))
    return np.asarray(map_rows(rows, [A[start : start + BLOCK] for start in range(0, len(A), BLOCK)], len(A)))
