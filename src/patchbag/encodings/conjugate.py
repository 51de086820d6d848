# SPDX-License-Identifier: BSD-3-Clause
r"""Fitting conjugate priors: Dirichlet from counts, Gamma from expected moments, and the special functions they need.

**Dirichlet.** Given counts :math:`n_{ik}` of K words in n images, the Dirichlet :math:`\alpha` that maximises the
Pólya likelihood (cinbis2012, eq. 2; the multinomial coefficient, which does not depend on :math:`\alpha`, is left out)

.. math::
   L(\alpha) = \sum_i \ln\Gamma(\hat\alpha) - \ln\Gamma(\hat\alpha + N_i)
               + \sum_k \ln\Gamma(\alpha_k + n_{ik}) - \ln\Gamma(\alpha_k)

is found in :math:`\tau = \ln\alpha`, so that it stays positive.  The direction is Newton's with the Hessian
:math:`-\mathrm{diag}(\alpha_k^2 h_k) + H\alpha\alpha^\top` (inverted in O(K)) where that is negative definite, else
that of Minka's fixed point, :math:`\Delta\tau_k = \ln(g_k / G)`.  Either is an ascent direction and the step is halved
until L rises.  The halving is needed: Minka's fixed point must ascend for counts of one or more, but soft or scaled
counts are often below one.

The maximum can lie at the border.  A word that no image has drives :math:`\alpha_k` to 0, and counts that vary no more
than a multinomial's drive :math:`\hat\alpha` to infinity; both are held in ``bounds``.

**Gamma.** :func:`fit_gamma` gives the (a, b) whose expectations of :math:`\lambda` and :math:`\ln\lambda` are the given
ones, the M-step of a Gamma prior.

**Special functions.** ``digamma``, ``trigamma``, ``log_gamma``, ``log_positive`` and ``exp_nonpositive`` are written
without branches so that LLVM turns a loop over them into SIMD code (libm's scalars would be called one by one; the
longer ones vectorise only if Numba inlines them).  Arguments are shifted by six,
:math:`\psi(x) = \psi(x + 6) - \sum_{j<6} 1/(x + j)` where the sum is one rational function, and Stirling's series is
used at :math:`x + 6`.  They hold to about 1e-13 for x > 0.

Cost: one pass over the counts for each evaluation of L, typically 10 to 20 of them.  Reference for the fixed point:
Minka, *Estimating a Dirichlet distribution*, 2000.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numba import njit, prange
from scipy.special import digamma as _digamma
from scipy.special import gammaln as _gammaln
from scipy.special import polygamma as _polygamma
from sklearn.exceptions import ConvergenceWarning

from patchbag.runtime import parallel_njit

LARGEST = 1e6
SMALLEST = 1e-4
_COLUMNS = 64


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
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


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
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


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def reciprocal_sum(x):
    """1/x + 1/(x+1) + ... + 1/(x+5), with one division."""
    u = x * (x + 5.0)
    return (2.0 * x + 5.0) * ((3.0 * u + 20.0) * u + 24.0) / (u * (u + 4.0) * (u + 6.0))


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def digamma(x):
    """Derivative of ln Gamma at x > 0."""
    r = 1.0 / (x + 6.0)
    s = r * r
    series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (691 / 32760 - s / 12))))))
    return log_positive(x + 6.0) - 0.5 * r - series - reciprocal_sum(x)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def trigamma(x):
    """Second derivative of ln Gamma at x > 0."""
    total = 0.0
    for j in range(6):
        total += 1.0 / ((x + j) * (x + j))
    r = 1.0 / (x + 6.0)
    s = r * r
    series = 1 / 6 - s * (1 / 30 - s * (1 / 42 - s * (1 / 30 - s * (5 / 66 - s * (691 / 2730 - s * 7 / 6)))))
    return total + r + 0.5 * s + r * s * series


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def log_gamma(x):
    """ln Gamma at x > 0."""
    y = x + 6.0
    r = 1.0 / y
    s = r * r
    series = 1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * (691 / 360360 - s / 156)))))
    u = x * (x + 5.0)
    product = u * (u + 4.0) * (u + 6.0)
    return (y - 0.5) * log_positive(y) - y + 0.9189385332046727 + r * series - log_positive(product)


@parallel_njit(error_model="numpy")
def _word_sums(counts, alpha, value, gradient, curvature):
    """Sums over images of the three orders of ln Gamma(alpha_k + n_k) - ln Gamma(alpha_k), one entry per word."""
    n, K = counts.shape
    for block in prange((K + _COLUMNS - 1) // _COLUMNS):
        first = block * _COLUMNS
        last = min(K, first + _COLUMNS)
        for i in range(n):
            for k in range(first, last):
                x = alpha[k] + counts[i, k]
                value[k] += log_gamma(x)
                gradient[k] += digamma(x)
                curvature[k] -= trigamma(x)
        for k in range(first, last):
            value[k] -= n * log_gamma(alpha[k])
            gradient[k] -= n * digamma(alpha[k])
            curvature[k] += n * trigamma(alpha[k])


class PolyaTerms(NamedTuple):
    """Pólya log-likelihood of n images with its gradient ``g - G`` and its Hessian ``-diag(h) + H`` in alpha."""

    value: float
    g: np.ndarray
    G: float
    h: np.ndarray
    H: float


def polya_terms(counts: np.ndarray, alpha: np.ndarray) -> PolyaTerms:
    """Pólya log-likelihood of all images with its first and second derivatives in ``alpha``.

    Parameters
    ----------
    counts : (n, K)
    alpha : (K,)
    """
    value, g, h = np.zeros((3, counts.shape[1]))
    _word_sums(counts, alpha, value, g, h)
    totals, total_alpha = counts.sum(axis=1, dtype=np.float64), alpha.sum()
    likelihood = value.sum() - float(np.sum(_gammaln(total_alpha + totals) - _gammaln(total_alpha)))
    G = float(np.sum(_digamma(total_alpha + totals) - _digamma(total_alpha)))
    H = float(np.sum(_polygamma(1, total_alpha) - _polygamma(1, total_alpha + totals)))
    return PolyaTerms(float(likelihood), g, G, np.maximum(h, 0.0), H)


def fit_polya(
    counts: np.ndarray,
    initial: np.ndarray | None = None,
    max_iter: int = 200,
    tol: float = 1e-6,
    bounds: tuple[float, float] = (SMALLEST, LARGEST),
) -> np.ndarray:
    """Maximum-likelihood Dirichlet parameters of a Pólya model of word counts.

    Parameters
    ----------
    counts : (n, K) non-negative; rows without counts carry no information and are allowed
    initial : (K,) where to start; moments of the counts by default
    tol : stop when no ln alpha_k moves by more, or when L rises by less than ``1e-3 * tol`` of its size
    bounds : no alpha_k is below the first and their sum is not above the second

    Returns
    -------
    (K,) float64
    """
    counts = np.ascontiguousarray(counts)
    alpha = _bounded(_moment_start(counts) if initial is None else np.asarray(initial, float), bounds)
    terms = polya_terms(counts, alpha)
    for _ in range(max_iter):
        direction = _direction(alpha, terms, bounds[0])
        step, better = 1.0, None
        while better is None and step * np.abs(direction).max() > 1e-3 * tol:
            candidate = _bounded(alpha * np.exp(step * direction), bounds)
            found = polya_terms(counts, candidate)
            better = found if found.value > terms.value else None
            step *= 0.5
        if better is None:
            return alpha
        gain, moved = better.value - terms.value, np.abs(np.log(candidate / alpha)).max()
        alpha, terms = candidate, better
        if moved < tol or gain <= 1e-3 * tol * abs(terms.value):
            return alpha
    warnings.warn(
        f"the Pólya fit did not converge in {max_iter} iterations (ln alpha moves by {moved:.2g}); raise max_iter",
        ConvergenceWarning,
        stacklevel=2,
    )
    return alpha


def _bounded(alpha: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    """``alpha`` with its sum and then its entries brought within bounds; proportions survive the first."""
    return np.maximum(alpha * min(1.0, bounds[1] / alpha.sum()), bounds[0])


def _direction(alpha: np.ndarray, terms: PolyaTerms, smallest: float) -> np.ndarray:
    """An ascent direction in ln alpha, zero for the entries held at the lower bound."""
    gradient = terms.g - terms.G
    free = (alpha > smallest) | (gradient > 0)
    inverse = np.where(free & (terms.h > 0), 1.0 / np.maximum(terms.h, 1e-300), 0.0)
    remaining = 1.0 - terms.H * inverse.sum()
    if remaining > 1e-8:
        newton = inverse * gradient
        direction = (newton + inverse * (terms.H * newton.sum() / remaining)) / alpha
    else:
        direction = np.log(np.maximum(terms.g, 1e-300) / max(terms.G, 1e-300))
    # a log-step above 3 overshoots where the quadratic model has lost its meaning
    return np.clip(np.where(free, direction, 0.0), -3.0, 3.0)


def _moment_start(counts: np.ndarray) -> np.ndarray:
    """Dirichlet with the mean of the word proportions and the precision of their variances (Minka's start)."""
    totals = counts.sum(axis=1, dtype=np.float64)
    p = counts[totals > 0] / totals[totals > 0, None]
    if not len(p):
        return np.ones(counts.shape[1])
    mean, variance = p.mean(axis=0, dtype=np.float64), p.var(axis=0, dtype=np.float64)
    use = (variance > 1e-12) & (mean > 0)
    precision = (
        np.exp(np.mean(np.log(np.maximum(mean[use] * (1 - mean[use]) / variance[use] - 1, 0.1)))) if use.any() else 1e3
    )
    return mean * np.clip(precision, 0.1, 1e4)


def fit_gamma(mean: np.ndarray, mean_log: np.ndarray, largest: float = LARGEST) -> tuple[np.ndarray, np.ndarray]:
    """Shape a and rate b of the Gamma with E[x] = ``mean`` and E[ln x] = ``mean_log`` (any common shape).

    Solves ln a - psi(a) = ln mean - mean_log by Newton steps in 1/a; a is held at ``largest`` where the right side is
    not positive (x is constant).
    """
    gap = np.maximum(np.log(mean) - mean_log, 0.5 / largest)
    a = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(6):
        a = 1 / (1 / a + (np.log(a) - _digamma(a) - gap) / (a * a * (1 / a - _polygamma(1, a))))
    a = np.minimum(a, largest)
    return a, a / mean
