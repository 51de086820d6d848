# SPDX-License-Identifier: BSD-3-Clause
r"""Separable generators coordinate by coordinate, for compiled loops.

A generator that is a sum over coordinates, :math:`F(x) = \sum_j f(x_j)`, has a code, and so has its conjugate

.. math:: f^*(y) = \sup_x \, xy - f(x), \qquad f^{*\prime} = (f')^{-1} .

====================  ==================  =====================================
code                  f(z)                conjugate
====================  ==================  =====================================
``SQUARE``            z²                  ``QUARTER``: z²/4
``ENTROPY``           z ln z − z, z > 0   ``EXPONENTIAL``: exp z
``BURG``              −ln z, z > 0        ``BURG_DUAL``: −1 − ln(−z), z < 0
``LOGISTIC``          ln(1 + exp z)       ``BITS``: z ln z + (1 − z) ln(1 − z)
====================  ==================  =====================================

``LOG_SUM`` is ln Σ exp z_j, the conjugate of the entropy restricted to the simplex; it is the logarithm of the sum that
``EXPONENTIAL`` makes, and its derivatives are those of the latter divided by that sum.
"""

from typing import Any

import numpy as np
from numba import njit

SQUARE, QUARTER, ENTROPY, EXPONENTIAL, BURG, BURG_DUAL, LOGISTIC, BITS, LOG_SUM = range(9)
CONJUGATE = {
    SQUARE: QUARTER,
    QUARTER: SQUARE,
    ENTROPY: EXPONENTIAL,
    EXPONENTIAL: ENTROPY,
    BURG: BURG_DUAL,
    BURG_DUAL: BURG,
    LOGISTIC: BITS,
    BITS: LOGISTIC,
}


@njit(cache=True, nogil=True, inline="always")
def _entropy(z: Any) -> Any:  # pragma: no cover - compiled
    return z * np.log(z) if z > 0 else 0.0


@njit(cache=True, nogil=True)
def softplus(z: Any) -> Any:  # pragma: no cover - compiled
    """ln(1 + exp z) without overflow."""
    return max(z, 0.0) + np.log1p(np.exp(-abs(z)))


@njit(cache=True, nogil=True)
def inside(code: int, z: Any) -> bool:  # pragma: no cover - compiled
    """Whether z lies in the (open) domain."""
    if code in (ENTROPY, BURG):
        return z > 0
    if code == BURG_DUAL:
        return z < 0
    if code == BITS:
        return 0 < z < 1
    return True


@njit(cache=True, nogil=True)
def pull_inside(code: int, z: Any, typical: Any) -> Any:  # pragma: no cover - compiled
    """z, or the nearest number of the domain that rounding could have made it from; ``typical`` lies inside."""
    if code in (ENTROPY, BURG):
        return max(z, 1e-7 * typical)
    if code == BURG_DUAL:
        return min(z, 1e-7 * typical)
    if code == BITS:
        return min(max(z, 1e-7 * typical), 1 - 1e-7 * (1 - typical))
    return z


@njit(cache=True, nogil=True)
def value_and_slope(code: int, z: Any) -> tuple[Any, Any]:  # pragma: no cover - compiled
    """f(z) and f'(z)."""
    if code == ENTROPY:
        slope = np.log(z)
        return z * slope - z, slope
    if code in (EXPONENTIAL, LOG_SUM):
        slope = np.exp(z)
        return slope, slope
    if code == SQUARE:
        return z * z, 2 * z
    if code == QUARTER:
        return 0.25 * z * z, 0.5 * z
    if code == BURG:
        return -np.log(z), -1 / z
    if code == BURG_DUAL:
        return -1 - np.log(-z), -1 / z
    if code == LOGISTIC:
        return softplus(z), 1 / (1 + np.exp(-z))
    return _entropy(z) + _entropy(1 - z), np.log(z) - np.log1p(-z)


@njit(cache=True, nogil=True)
def pair(code: int, x: Any, y: Any) -> Any:  # pragma: no cover - compiled
    """f(x) − f(y) − (x − y) f'(y), written so that near pairs lose few digits."""
    if code == ENTROPY:
        return x * np.log(x / y) - x + y if x > 0 else y
    if code == EXPONENTIAL:
        return np.exp(y) * (np.expm1(x - y) - (x - y))
    if code == SQUARE:
        return (x - y) * (x - y)
    if code == QUARTER:
        return 0.25 * (x - y) * (x - y)
    if code in (BURG, BURG_DUAL):
        return x / y - np.log(x / y) - 1
    if code == LOGISTIC:
        return softplus(x) - softplus(y) - (x - y) / (1 + np.exp(-y))
    total = 0.0
    if x > 0:
        total += x * np.log(x / y)
    if x < 1:
        total += (1 - x) * np.log((1 - x) / (1 - y))
    return total


@njit(cache=True, nogil=True)
def divergence(code: int, x: Any, y: Any) -> Any:  # pragma: no cover - compiled
    """D_F(x ‖ y) of two vectors, summed in the order of the coordinates."""
    total = 0.0
    for j in range(x.shape[0]):
        total += pair(code, x[j], y[j])
    return total


@njit(cache=True, nogil=True)
def mixed_divergence(code: int, mixing: float, left: Any, x: Any, right: Any) -> Any:  # pragma: no cover - compiled
    """(1 − α) D_F(l ‖ x) + α D_F(x ‖ r), eq. 3.20; a term of weight 0 is not computed."""
    total = 0.0
    if mixing < 1:
        total += (1 - mixing) * divergence(code, left, x)
    if mixing > 0:
        total += mixing * divergence(code, x, right)
    return total
