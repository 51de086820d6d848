# SPDX-License-Identifier: BSD-3-Clause
"""Compiled steps of stochastic gradient descent on a block of samples; :mod:`.stochastic` says what they compute."""

from typing import Any

import numpy as np
from numba import prange

from patchbag.runtime import parallel_njit

CLASSES = 64  # that a worker takes together


def parts(A: np.ndarray, *_: Any) -> int:
    """Of the classes, each for one worker."""
    return -(-A.shape[1] // CLASSES)


@parallel_njit(turns=parts, cache=True, nogil=True)
def descend(scores, gram, targets, lam, start, t0, A, B):  # pragma: no cover - compiled
    """Steps on the samples of a block; ``scores (b, C)`` under the weights before it, overwritten.

    Fills in A and B (b, C): after the block w = s w + X'A, and the average a = p a + q w + X'B.  Of many classes few
    have a loss: a sample without any among the classes of a worker adds nothing to the samples that follow.
    """
    b, n = scores.shape
    for part in prange((n + CLASSES - 1) // CLASSES):
        lo, hi = part * CLASSES, min(n, (part + 1) * CLASSES)
        s = 1.0
        lossy, found = np.empty(b, np.int64), 0  # samples with a loss
        for i in range(b):
            t = start + i
            decay = 1.0 - 1.0 / (t + t0)
            eta = 1.0 / (lam * (t + t0))
            rho = 2.0 / (t + 3.0)
            for c in range(lo, hi):
                scores[i, c] *= s
            for j in lossy[:found]:
                g = gram[i, j]
                for c in range(lo, hi):
                    scores[i, c] += g * A[j, c]
            s *= decay
            loss = False
            for c in range(lo, hi):
                y = 1.0 if targets[i] == c else -1.0
                A[i, c] = eta * y if y * scores[i, c] < 1.0 else 0.0
                B[i, c] = rho * A[i, c]
                loss |= A[i, c] != 0.0
            for j in lossy[:found]:
                for c in range(lo, hi):
                    A[j, c] *= decay
                    B[j, c] += rho * (A[j, c] - B[j, c])
            if loss:
                lossy[found] = i
                found += 1


def first_t0(lam: float) -> float:
    """t₀ of a descent that begins at zero: the first step is as long as a typical w."""
    return float(1.0 / (lam * np.sqrt(1.0 / np.sqrt(lam))))


def multiples(start: int, t0: float, b: int) -> tuple[float, float, float]:
    """s, p and q of :func:`descend`."""
    s, p, q = 1.0, 1.0, 0.0
    for t in range(start, start + b):
        s *= 1.0 - 1.0 / (t + t0)
        rho = 2.0 / (t + 3.0)
        p, q = (1 - rho) * p, (1 - rho) * q + rho * s
    return s, p, q


@parallel_njit(turns=parts, cache=True, nogil=True)
def sparse_scores(scores, data, indices, starts, V):  # pragma: no cover - compiled
    """Add X V to ``scores (b, C)``, for ``V (D, C)``."""
    n = V.shape[1]
    for part in prange((n + CLASSES - 1) // CLASSES):
        lo, hi = part * CLASSES, min(n, (part + 1) * CLASSES)
        for i in range(starts.shape[0] - 1):
            row = scores[i, lo:hi]
            for p in range(starts[i], starts[i + 1]):
                weight = V[indices[p], lo:hi]
                for c in range(hi - lo):
                    row[c] += data[p] * weight[c]


@parallel_njit(turns=parts, cache=True, nogil=True)
def sparse_update(A, V, B, U, data, indices, starts):  # pragma: no cover - compiled
    """Add X'A to V and X'B to U, for the classes that have something to add."""
    n = V.shape[1]
    for part in prange((n + CLASSES - 1) // CLASSES):
        lo, hi = part * CLASSES, min(n, (part + 1) * CLASSES)
        for i in range(starts.shape[0] - 1):
            for c in range(lo, hi):
                if A[i, c] != 0:
                    a, b = A[i, c], B[i, c]
                    for p in range(starts[i], starts[i + 1]):
                        V[indices[p], c] += data[p] * a
                        U[indices[p], c] += data[p] * b
