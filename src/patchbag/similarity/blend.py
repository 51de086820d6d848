# SPDX-License-Identifier: BSD-3-Clause
r"""The share of one of two distributions in their best blend: the inner problem of contextual similarities.

With ratios :math:`r_i` of how well p and the context u answer component i of q, and its weights :math:`w_i`, one
maximises the concave

.. math:: \sum_i w_i \ln(1 + \omega (r_i - 1))\ [+\ \text{the same with q and p exchanged}], \quad 0 \le \omega \le 1

either to the end, by Newton's method kept inside a bracket, on the sign of the derivative, or by a few EM steps from ω
= 1/2, which are :math:`\omega \leftarrow \omega + \omega (1 - \omega) f'(\omega) / \sum_i w_i`.

Cost per pair and step: a division for each component, vectorised over tiles of pairs.
"""

import numpy as np
from numba import njit

from patchbag.special import newton_step

TILE = 64
# how far inside [0, 1] the slopes are looked at that decide for its ends: there all are finite
EDGE = 1e-12
NEWTON_STEPS = 60
TOLERANCE = 1e-6


@njit(cache=True, nogil=True, error_model="numpy")
def _slope(ratios, weights, omega, slope, curvature):  # pragma: no cover - compiled
    """Add the derivative of Σ w ln(1 + ω (r - 1)) at ω to ``slope``, and minus the second to ``curvature``."""
    for j in range(ratios.shape[0]):
        e = ratios[j] - 1.0
        term = e / (1.0 + omega[j] * e)
        slope[j] += weights[j] * term
        curvature[j] += weights[j] * term * term


@njit(cache=True, nogil=True, error_model="numpy")
def _share_tile(forward, own, backward, theirs, iterations, out):  # pragma: no cover - compiled
    """ω of one image with a tile of others: ratios (K, width), weights own (K,), theirs (K, width)."""
    width, symmetric = forward.shape[1], backward.shape[0] > 0
    omega, low, high = np.full(width, 0.5), np.zeros(width), np.ones(width)
    slope, curvature, weights, total = np.empty(width), np.empty(width), np.empty(width), np.full(width, own.sum())
    if symmetric:
        total += theirs.sum(axis=0)
    # the optimum needs the slopes at both ends first: steps -2 and -1
    for step in range(0 if iterations > 0 else -2, iterations if iterations > 0 else NEWTON_STEPS):
        if step <= 0:
            omega[:] = EDGE if step == -2 else 1.0 - EDGE if step == -1 else 0.5
        slope[:] = 0.0
        curvature[:] = 0.0
        for i in range(forward.shape[0]):
            weights[:] = own[i]
            _slope(forward[i], weights, omega, slope, curvature)
            if symmetric:
                _slope(backward[i], theirs[i], omega, slope, curvature)
        moved = 0.0
        for j in range(width):
            if iterations > 0:
                omega[j] += omega[j] * (1.0 - omega[j]) * slope[j] / total[j]
            elif step == -2:
                high[j] = 0.0 if slope[j] <= 0 else 1.0
            elif step == -1:
                low[j] = 1.0 if slope[j] >= 0 else 0.0
            elif low[j] < high[j]:
                before = omega[j]
                omega[j], low[j], high[j] = newton_step(before, slope[j], curvature[j], low[j], high[j])
                moved = max(moved, abs(omega[j] - before))
        if iterations == 0 and step >= 0 and moved < TOLERANCE:
            break
    for j in range(width):
        out[j] = 0.0 if high[j] == 0.0 else 1.0 if low[j] == 1.0 else omega[j]


@njit(cache=True, nogil=True)
def _shares(forward, own, backward, theirs, iterations, out):  # pragma: no cover - compiled
    for image in range(out.shape[0]):
        for start in range(0, out.shape[1], TILE):
            part = slice(start, min(start + TILE, out.shape[1]))
            mine = forward[:, image, part]
            replies = backward[:, image, part] if backward.shape[0] > 0 else mine[:0]
            _share_tile(mine, own[image], replies, theirs[:, part], iterations, out[image, part])


def best_shares(
    forward: np.ndarray,
    own: np.ndarray,
    backward: np.ndarray | None = None,
    theirs: np.ndarray | None = None,
    iterations: int | None = None,
) -> np.ndarray:
    """The best ω of every pair: ``(n, m)``.

    Parameters
    ----------
    forward, backward : (K, n, m) positive ratios r
    own : (n, K) weights of the components of the n; theirs : (m, K) of the m
    iterations : EM steps from 1/2, or None for the optimum
    """
    out = np.empty(forward.shape[1:], forward.dtype)
    if backward is None or theirs is None:
        backward, theirs = forward[:0], np.empty((forward.shape[2], 0))
    columns = np.ascontiguousarray(np.asarray(theirs, np.float64).T)
    _shares(forward, np.asarray(own, np.float64), backward, columns, iterations or 0, out)
    return out
