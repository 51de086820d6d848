# SPDX-License-Identifier: BSD-3-Clause
r"""Special functions for compiled loops, and Newton's method in a bracket.

They are written without branches, so that LLVM turns a loop over them into SIMD code: libm's scalars would be called
one by one, and longer functions vectorise only if Numba inlines them.  Arguments are shifted by six,

.. math:: \psi(x) = \psi(x + 6) - \sum_{j<6} \frac1{x + j}

where the sum is one rational function (:func:`reciprocal_sum`) and Stirling's series is used at :math:`x + 6`.  They
hold to about 1e-13 for x > 0.  Outside of compiled loops use :mod:`scipy.special`.

For float32 there is :math:`e^{\psi(x)} = e^{\psi(x + 6)} e^{-\sum_{j<6} 1/(x+j)}` as one function: the first factor is
a short series in :math:`y = x + 5.5`; the exponents of several can be taken relative to the largest one before
:func:`exp_single`, so that a very small x does not underflow.

:func:`newton_step` finds the maximum of a concave function, or the zero of its falling slope: Newton's step as long as
it stays between two points where the slope is known to be positive and negative, else half-way between them.
"""

import numpy as np
from numba import njit

inlined = njit(cache=True, nogil=True, error_model="numpy", inline="always")
real = np.float32


@inlined
def log_positive(x):
    """Natural logarithm of a positive, normal number."""
    bits = np.float64(x).view(np.int64)
    exponent = (bits - 0x3FE6A09E667F3BCD) >> 52
    mantissa = np.int64(bits - (exponent << 52)).view(np.float64)
    f = (mantissa - 1.0) / (mantissa + 1.0)
    s = f * f
    p = 1.0 / 19 * s + 1.0 / 17
    p = p * s + 1.0 / 15
    p = p * s + 1.0 / 13
    p = p * s + 1.0 / 11
    p = p * s + 1.0 / 9
    p = p * s + 1.0 / 7
    p = p * s + 0.2
    p = p * s + 1.0 / 3
    p = p * s + 1.0
    return np.float64(exponent) * 0.6931471805599453 + 2.0 * f * p


@inlined
def exp_nonpositive(x):
    """Exponential of x <= 0; below -700 it stays at exp(-700), about 1e-304."""
    x = max(x, -700.0)
    k = np.floor(x * 1.4426950408889634 + 0.5)
    r = x - k * 0.6931471803691238
    r = r - k * 1.9082149292705877e-10
    p = 1.0 / 479001600 * r + 1.0 / 39916800
    p = p * r + 1.0 / 3628800
    p = p * r + 1.0 / 362880
    p = p * r + 1.0 / 40320
    p = p * r + 1.0 / 5040
    p = p * r + 1.0 / 720
    p = p * r + 1.0 / 120
    p = p * r + 1.0 / 24
    p = p * r + 1.0 / 6
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * np.int64((np.int64(k) + 1023) << 52).view(np.float64)


@inlined
def reciprocal_sum(x):
    """1/x + 1/(x+1) + ... + 1/(x+5), with one division."""
    u = x * (x + 5.0)
    return (2.0 * x + 5.0) * ((3.0 * u + 20.0) * u + 24.0) / (u * (u + 4.0) * (u + 6.0))


@inlined
def digamma_from_log(x, log):
    """psi(x) + c, from ``log`` = ln(x + 6) + c."""
    r = 1.0 / (x + 6.0)
    s = r * r
    series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (691 / 32760 - s / 12))))))
    return log - 0.5 * r - series - reciprocal_sum(x)


@inlined
def digamma(x):
    """Derivative of ln Gamma at x > 0."""
    return digamma_from_log(x, log_positive(x + 6.0))


@inlined
def trigamma(x):
    """Second derivative of ln Gamma at x > 0."""
    total = 0.0
    for j in range(6):
        total += 1.0 / ((x + j) * (x + j))
    r = 1.0 / (x + 6.0)
    s = r * r
    series = 1 / 6 - s * (1 / 30 - s * (1 / 42 - s * (1 / 30 - s * (5 / 66 - s * (691 / 2730 - s * 7 / 6)))))
    return total + r + 0.5 * s + r * s * series


@inlined
def log_gamma(x):
    """ln Gamma at x > 0."""
    y = x + 6.0
    r = 1.0 / y
    s = r * r
    series = 1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * (691 / 360360 - s / 156)))))
    u = x * (x + 5.0)
    product = u * (u + 4.0) * (u + 6.0)
    return (y - 0.5) * log_positive(y) - y + 0.9189385332046727 + r * series - log_positive(product)


@inlined
def split_exp_digamma(x):
    """(f, e) with exp(psi(x)) = f exp(-e), for a float32 x > 0: exp(psi(x + 6)) and sum_{j<6} 1/(x + j)."""
    u = x * (x + real(5))
    r = real(1) / (x + real(5.5))
    s = r * r
    power = (real(2) * x + real(5)) * ((real(3) * u + real(20)) * u + real(24)) / (u * (u + real(4)) * (u + real(6)))
    return x + real(5.5) + r * (real(1 / 24) - s * (real(37 / 5760) - s * real(10313 / 2903040))), power


@inlined
def exp_single(x):
    """Exponential of a float32 x <= 0; below -80 it stays at exp(-80), about 2e-35."""
    x = x if x > real(-80) else real(-80)
    k = np.floor(x * real(1.44269504) + real(0.5))
    r = x - k * real(0.693359375)
    r = r + k * real(2.12194440e-4)
    p = real(1 / 5040) * r + real(1 / 720)
    p = p * r + real(1 / 120)
    p = p * r + real(1 / 24)
    p = p * r + real(1 / 6)
    p = p * r + real(0.5)
    p = p * r + real(1)
    p = p * r + real(1)
    return p * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)


@inlined
def newton_step(x, slope, curvature, low, high):
    """The next x and bracket (low, high) of the zero of ``slope``, whose derivative is minus ``curvature``."""
    if slope > 0:
        low = x
    else:
        high = x
    target = x + slope / curvature if curvature > 0 else x
    if not low < target < high:
        target = 0.5 * (low + high)
    return target, low, high
