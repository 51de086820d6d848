# SPDX-License-Identifier: BSD-3-Clause
r"""The latent mixture: every image has its own Gaussian mixture, drawn from a prior that is learned.

For image descriptors :math:`x_{1:N}` in D dimensions (cinbis2012 writes the univariate case; here all quantities of a
Gaussian have one value for each dimension)

.. math::
   \pi \sim \mathcal D(\alpha), \quad
   \lambda_{kd} \sim \mathcal G(a_{kd}, b_{kd}) \;(4), \quad
   \mu_{kd} \mid \lambda_{kd} \sim \mathcal N(m_{kd}, (\beta_{kd} \lambda_{kd})^{-1}) \;(5), \quad
   x_i \sim \textstyle\sum_k \pi_k \mathcal N(\mu_k, \lambda_k^{-1}) \;(7).

The likelihood (6) is intractable; its bound F (8) under the factorised q (9) is used.  Given the responsibilities
:math:`q_{ik}`, the best q of the parameters is a function of the statistics s0, s1, s2 (20):
:func:`posterior` computes (21-25), in coordinates centred at m, where (25) does not cancel.  Put into F, it gives

.. math::
   F = \ln\frac{B(\alpha^*)}{B(\alpha)} + \sum_{kd} \left[ \ln\frac{\Gamma(a^*)}{\Gamma(a)} + a \ln b - a^* \ln b^*
       + \tfrac12 \ln\frac{\beta}{\beta^*} \right] - \tfrac{ND}{2} \ln 2\pi - \sum_{ik} q_{ik} \ln q_{ik}

(B: the multivariate Beta function), which :func:`free_energy` returns; its last term is a constant as long as the
responsibilities are fixed.

**Learning** (:func:`fit_prior`).  With fixed responsibilities, as in the paper's experiments, F separates: alpha is
the Pólya fit to the soft counts, and each (k, d) has its own Normal-Gamma EM.  The M-step is closed but for a, which
solves :math:`\ln a - \psi(a) = \ln \overline{E\lambda} - \overline{E \ln\lambda}`.  EM crawls where images have few
descriptors of a component, so steps are lengthened in (m, ln β, ln a, ln b), for each (k, d) by its own factor, which
grows while its F rises and falls back to a plain EM step, from the last good point, when it does not.  F of the kept
points never decreases.  Cost: one pass over the statistics an iteration.

**Full inference** (:func:`infer_bag`) also updates :math:`q_{ik}` by (26-28) and needs the descriptors.

Slips in the paper: the left side of (26) is :math:`\ln q_{ik}` up to the normalisation over k; the appendix calls
:math:`q(w_i)` once :math:`q(z_i)`; after (8), "the posterior on the hyper-parameters" is that on the latent variables;
:math:`\lambda = \sigma^{-1}` before (4) reads σ as a variance.  (10-14) and (20-28) are right as printed.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, prange
from scipy.special import digamma as _digamma
from scipy.special import gammaln, logsumexp
from sklearn.exceptions import ConvergenceWarning

from patchbag.device import lies_elsewhere, to_host
from patchbag.encodings import latent_dense
from patchbag.encodings.base import pool_cells
from patchbag.encodings.conjugate import LARGEST, fit_gamma, fit_polya
from patchbag.runtime import parallel_njit
from patchbag.special import digamma, inlined, log_gamma, log_positive
from patchbag.storage.declared import NOT_ZERO, floats, stored
from patchbag.storage.registry import storable

SMALLEST_BETA = 1e-6


@storable
@dataclass(frozen=True)
class LatentPrior:
    """Hyper-parameters of P latent mixtures, one per cell or one in all: ``alpha (P, K)``, the others ``(P, K, D)``."""

    alpha: np.ndarray = stored(floats("P", "K", low=NOT_ZERO))
    m: np.ndarray = stored(floats("P", "K", "D"))
    beta: np.ndarray = stored(floats("P", "K", "D", low=NOT_ZERO))
    a: np.ndarray = stored(floats("P", "K", "D", low=NOT_ZERO))
    b: np.ndarray = stored(floats("P", "K", "D", low=NOT_ZERO))


def posterior(s0: Any, s1: Any, s2: Any, prior: LatentPrior) -> tuple[np.ndarray, ...]:
    """Equations 21-25: (..., K) counts and (..., K, D) moments to alpha, m, beta, a, b of each image and cell."""
    count = np.asarray(s0, dtype=np.float64)[..., None]
    s1, s2 = np.asarray(s1, dtype=np.float64), np.asarray(s2, dtype=np.float64)
    first = s1 - count * prior.m
    second = s2 - prior.m * (2 * s1 - count * prior.m)
    beta = prior.beta + count
    shift = first / beta
    b = prior.b + 0.5 * np.maximum(second - first * shift, 0.0)
    return prior.alpha + count[..., 0], prior.m + shift, beta, prior.a + 0.5 * count, b


def free_energy(s0: Any, s1: Any, s2: Any, prior: LatentPrior, entropy: Any = 0.0) -> np.ndarray:
    """F (8) of each image and cell at the optimal q of the parameters: counts (..., K), moments (..., K, D) to (...).

    ``entropy (...)`` is that of the responsibilities, - sum q ln q, a constant where they are fixed.
    """
    alpha, _, beta, a, b = posterior(s0, s1, s2, prior)
    weights = gammaln(alpha) - gammaln(prior.alpha)
    value = weights.sum(-1) + gammaln(prior.alpha.sum(-1)) - gammaln(alpha.sum(-1))
    gaussians = gammaln(a) - gammaln(prior.a) + prior.a * np.log(prior.b) - a * np.log(b)
    value = value + np.sum(gaussians + 0.5 * np.log(prior.beta / beta), axis=(-2, -1))
    N, D = np.asarray(s0, dtype=np.float64).sum(-1), prior.m.shape[-1]
    return value - 0.5 * N * D * np.log(2 * np.pi) + entropy


@inlined
def posterior_entry(count, s1, s2, m, beta, a, b):
    """Equations 22-25 for one (k, d): 1/beta*, m* - m, a* and b*."""
    first = s1 - count * m
    second = s2 - m * (s1 + first)
    inverse = 1.0 / (beta + count)
    shift = first * inverse
    return inverse, shift, a + 0.5 * count, b + 0.5 * max(second - first * shift, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def _add_expectations(count, s1, s2, scale, m, beta, a, b, sums):
    """Add one component of one image to sums (6, D), all that the M-step and F need.

    In order: E[lambda], E[ln lambda], E[lambda] (m* - m), E[lambda] (m* - m)^2, 1/beta*, and F's share of q.
    """
    for d in range(len(m)):
        inverse, shift, shape, rate = posterior_entry(count, scale * s1[d], scale * s2[d], m[d], beta[d], a[d], b[d])
        log_rate = log_positive(rate)
        precision = shape / rate
        sums[0, d] += precision
        sums[1, d] += digamma(shape) - log_rate
        sums[2, d] += precision * shift
        sums[3, d] += precision * shift * shift
        sums[4, d] += inverse
        sums[5, d] += log_gamma(shape) - shape * log_rate + 0.5 * log_positive(inverse)


@parallel_njit()
def _expectations(s0, s1, s2, scale, prior, sums):
    """Sums over images and cells into sums (P, K, 6, D), from prior (4, P, K, D): m, beta, a, b."""
    n, C, K = s0.shape
    for k in prange(K):
        for c in range(C):
            p = c if prior.shape[1] > 1 else 0
            m, beta, a, b = prior[0, p, k], prior[1, p, k], prior[2, p, k], prior[3, p, k]
            for i in range(n):
                _add_expectations(scale * s0[i, c, k], s1[i, c, k], s2[i, c, k], scale, m, beta, a, b, sums[p, k])


def em_step(
    s0: np.ndarray, s1: np.ndarray, s2: np.ndarray, scale: float, prior: LatentPrior, floor: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One EM step of the Normal-Gamma hyper-parameters, and F (without constants) of each (k, d) before it.

    Parameters
    ----------
    s0 : (n, C, K)
    s1, s2 : (n, C, K, D)
    scale : multiplies the statistics
    floor : (D,) smallest variance b/a

    Returns
    -------
    coordinates : (4, P, K, D), the new m, ln beta, ln a and ln b
    value : (P, K, D)
    """
    models, K, D = prior.m.shape
    parts = prior.m, prior.beta, prior.a, prior.b
    if lies_elsewhere(s1):
        sums = latent_dense.expectations(s0, s1, s2, scale, parts)
    else:
        by_component = np.zeros((models, K, 6, D))
        _expectations(s0, s1, s2, scale, np.stack(parts), by_component)
        sums = by_component.transpose(2, 0, 1, 3)
    n = s0.shape[0] * s0.shape[1] // models
    constants = prior.a * np.log(prior.b) - gammaln(prior.a) + 0.5 * np.log(prior.beta)
    value = sums[5] + n * constants
    m = prior.m + sums[2] / sums[0]
    spread = np.maximum(sums[3] - sums[2] ** 2 / sums[0], 0.0) + sums[4]
    beta = np.clip(n / spread, SMALLEST_BETA, LARGEST)
    # where the floor holds b/a, the best a solves the same equation with this mean of ln lambda
    mean = sums[0] / n
    held = np.minimum(mean, 1 / np.maximum(floor, 1e-300))
    a, b = fit_gamma(held, sums[1] / n - mean / held + 1)
    return np.stack([m, np.log(beta), np.log(a), np.log(b)]), value


def fit_prior(
    s0: np.ndarray,
    s1: np.ndarray,
    s2: np.ndarray,
    initial: LatentPrior,
    scale: float = 1.0,
    max_iter: int = 100,
    tol: float = 1e-6,
    floor: Any = 0.0,
) -> tuple[LatentPrior, list[float]]:
    """Hyper-parameters by variational EM with fixed responsibilities.

    Parameters
    ----------
    s0 : (n, C, K) float32 or float64, C-contiguous
    s1, s2 : (n, C, K, D), where s0 is: on a GPU all passes over them run there (``latent_dense``)
    initial : with P = C for one model per cell, or P = 1 for one model
    tol : stop when F rises by less than this times its size in two iterations
    floor : smallest variance b/a, a number or (D,)

    Returns
    -------
    prior : LatentPrior
    history : F after each iteration, without the constants (entropy and ln 2 pi)
    """
    parts = zip(pool_cells(to_host(s0), len(initial.m) > 1), initial.alpha)
    alpha = np.stack([fit_polya(scale * part, start) for part, start in parts])
    at = np.stack([initial.m, np.log(initial.beta), np.log(initial.a), np.log(initial.b)])
    target, best = em_step(s0, s1, s2, scale, initial, floor)
    stretch, history = np.ones(best.shape), [float(best.sum())]
    for _ in range(max_iter):
        trial = at + stretch * (target - at)
        prior = _prior_at(alpha, trial, floor)
        found, value = em_step(s0, s1, s2, scale, prior, floor)
        rose = value >= best
        at, target = np.where(rose, trial, at), np.where(rose, found, target)
        stretch = np.where(rose, np.minimum(stretch * 1.5, 50.0), 1.0)
        best = np.where(rose, value, best)
        history.append(float(best.sum()))
        # over two iterations: a step that fell back gains nothing, the plain EM step after it does
        if len(history) > 2 and history[-1] - history[-3] <= tol * abs(history[-1]):
            break
    else:
        warnings.warn(
            f"the latent mixture's prior did not converge in {max_iter} iterations; raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=2,
        )
    return _prior_at(alpha, at, floor), history


def _prior_at(alpha: np.ndarray, coordinates: np.ndarray, floor: Any) -> LatentPrior:
    m, log_beta, log_a, log_b = coordinates
    beta = np.exp(np.clip(log_beta, np.log(SMALLEST_BETA), np.log(LARGEST)))
    a = np.exp(np.clip(log_a, np.log(1e-3), np.log(LARGEST)))
    return LatentPrior(alpha, m, beta, a, np.maximum(np.exp(np.clip(log_b, -600, 600)), a * floor))


def assign(
    x: np.ndarray, alpha: np.ndarray, m: np.ndarray, beta: np.ndarray, a: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """Responsibilities (26-28) of the descriptors x (N, D) of one image under its posterior: ln q (N, K)."""
    precision = a / b
    gaussians = np.sum(_digamma(a) - np.log(b) - 1 / beta - precision * m**2, axis=-1)
    constant = _digamma(alpha) - _digamma(alpha.sum(-1)) + 0.5 * gaussians
    logits = constant + x @ (precision * m).T - 0.5 * (x * x) @ precision.T
    return logits - logsumexp(logits, axis=1, keepdims=True)


def infer_bag(
    x: np.ndarray, prior: LatentPrior, max_iter: int = 50, tol: float = 1e-5
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[float]]:
    """Full variational inference for one image: responsibilities and posteriors in turn until F stops rising.

    Starts from the responsibilities under the prior.

    Parameters
    ----------
    x : (N, D) descriptors
    prior : with P = 1

    Returns
    -------
    s0, s1, s2 : (K,), (K, D), (K, D) statistics at the last responsibilities
    history : F after each iteration
    """
    center = prior.alpha[0] @ prior.m[0] / prior.alpha[0].sum()
    x = np.asarray(x, dtype=np.float64) - center  # the expanded squares lose digits far from the origin
    model = LatentPrior(prior.alpha[0], prior.m[0] - center, prior.beta[0], prior.a[0], prior.b[0])
    q: Any = model.alpha, model.m, model.beta, model.a, model.b
    history: list[float] = []
    while True:
        log_r = assign(x, *q)
        r = np.exp(log_r)
        s0, s1, s2 = r.sum(axis=0), r.T @ x, r.T @ (x * x)
        history.append(float(free_energy(s0, s1, s2, model, -np.sum(r * log_r))))
        if len(history) > max_iter or (len(history) > 1 and history[-1] - history[-2] <= tol * abs(history[-1])):
            return s0, s1 + s0[:, None] * center, s2 + center * (2 * s1 + s0[:, None] * center), history
        q = posterior(s0, s1, s2, model)
