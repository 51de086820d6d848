# SPDX-License-Identifier: BSD-3-Clause
r"""Fitting conjugate priors: Dirichlet from counts, Gamma from expected moments.

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
than a multinomial's drive :math:`\hat\alpha` to infinity; both are held within bounds.

**Gamma.** :func:`fit_gamma` gives the (a, b) whose expectations of :math:`\lambda` and :math:`\ln\lambda` are the given
ones, the M-step of a Gamma prior.

Cost: one pass over the counts for each evaluation of L, typically 10 to 20 of them.  Reference for the fixed point:
Minka, *Estimating a Dirichlet distribution*, 2000.
"""

import warnings
from typing import NamedTuple

import numpy as np
from numba import prange
from scipy.special import digamma as _digamma
from scipy.special import gammaln as _gammaln
from scipy.special import polygamma as _polygamma
from sklearn.exceptions import ConvergenceWarning

from patchbag.runtime import parallel_njit
from patchbag.special import digamma, log_gamma, trigamma

LARGEST = 1e6
SMALLEST = 1e-4
_COLUMNS = 64


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
    """The terms of counts (n, K) at alpha (K,)."""
    value, g, h = np.zeros((3, counts.shape[1]))
    _word_sums(counts, alpha, value, g, h)
    totals, total_alpha = counts.sum(axis=1, dtype=np.float64), alpha.sum()
    likelihood = value.sum() - float(np.sum(_gammaln(total_alpha + totals) - _gammaln(total_alpha)))
    G = float(np.sum(_digamma(total_alpha + totals) - _digamma(total_alpha)))
    H = float(np.sum(_polygamma(1, total_alpha) - _polygamma(1, total_alpha + totals)))
    return PolyaTerms(float(likelihood), g, G, np.maximum(h, 0.0), H)


def fit_polya(
    counts: np.ndarray, initial: np.ndarray | None = None, max_iter: int = 200, tol: float = 1e-6
) -> np.ndarray:
    """Maximum-likelihood Dirichlet parameters of a Pólya model of word counts.

    Parameters
    ----------
    counts : (n, K) non-negative; rows without counts carry no information and are allowed
    initial : (K,) where to start; moments of the counts by default
    tol : stop when no ln alpha_k moves by more, or when L rises by less than ``1e-3 * tol`` of its size

    Returns
    -------
    (K,) float64, no entry below ``SMALLEST`` and their sum not above ``LARGEST``
    """
    counts = np.ascontiguousarray(counts)
    alpha = _bounded(_moment_start(counts) if initial is None else np.asarray(initial, float))
    terms = polya_terms(counts, alpha)
    for _ in range(max_iter):
        direction = _direction(alpha, terms)
        step, better = 1.0, None
        while better is None and step * np.abs(direction).max() > 1e-3 * tol:
            candidate = _bounded(alpha * np.exp(step * direction))
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


def _bounded(alpha: np.ndarray) -> np.ndarray:
    """``alpha`` with its sum and then its entries brought within bounds; proportions survive the first."""
    return np.maximum(alpha * min(1.0, LARGEST / alpha.sum()), SMALLEST)


def _direction(alpha: np.ndarray, terms: PolyaTerms) -> np.ndarray:
    """An ascent direction in ln alpha, zero for the entries held at the lower bound."""
    gradient = terms.g - terms.G
    free = (alpha > SMALLEST) | (gradient > 0)
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


def fit_gamma(mean: np.ndarray, mean_log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape a and rate b of the Gamma with E[x] = ``mean`` and E[ln x] = ``mean_log`` (any common shape).

    Solves ln a - psi(a) = ln mean - mean_log by Newton steps in 1/a; a is held at ``LARGEST`` where the right side is
    not positive (x is constant).
    """
    gap = np.maximum(np.log(mean) - mean_log, 0.5 / LARGEST)
    a = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(6):
        a = 1 / (1 / a + (np.log(a) - _digamma(a) - gap) / (a * a * (1 / a - _polygamma(1, a))))
    a = np.minimum(a, LARGEST)
    return a, a / mean
