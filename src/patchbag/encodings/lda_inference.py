# SPDX-License-Identifier: BSD-3-Clause
r"""Variational inference in the latent Dirichlet allocation of :mod:`patchbag.encodings.lda` (cinbis2012, eq. 17).

For one image with counts :math:`n_k` (patches with the same word share their q),

.. math::
   q_{tk} \propto \exp[\psi(\alpha^*_t) - \psi(\hat\alpha^*) + \psi(\eta^*_{tk}) - \psi(\hat\eta^*_t)], \quad
   \alpha^*_t = \alpha_t + \sum_k n_k q_{tk}, \quad
   \eta^*_{tk} = \eta_{tk} + n_k q_{tk} \tag{17}

is iterated from the q of the prior's means, until an update changes :math:`\alpha^*` by less than ``tol`` in the mean
(scikit-learn's rule and default).  It is :math:`\alpha^*` that is slow, so between two updates of :math:`\eta^*`, which
are dear, q and :math:`\alpha^*` are iterated several times, and every second time extrapolated (squared extrapolation);
the end is a fixed point of (17) all the same.

Cost: an update is one exponential and two divisions for each topic and word with a count, in SIMD.  exp(ψ(x)) is
computed as one function: :math:`e^{\psi(x)} = e^{\psi(x + 6)} e^{-\sum_{j<6} 1/(x+j)}`, where the first factor is a
short series in :math:`y = x + 5.5`, and the exponents of a word's topics are taken relative to the largest one, so that
very small :math:`\eta` do not underflow.  The inference runs in float32, which holds soft counts to about 1e-6 of
their size (so does not reach a ``tol`` much below 1e-6 N).
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from patchbag.encodings.conjugate import digamma, exp_nonpositive
from patchbag.runtime import parallel_njit

real = np.float32


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def split_exp_digamma(x):
    """(f, e) with exp(psi(x)) = f exp(-e), for a float32 x > 0: exp(psi(x + 6)) and sum_{j<6} 1/(x + j)."""
    u = x * (x + real(5))
    r = real(1) / (x + real(5.5))
    s = r * r
    power = (real(2) * x + real(5)) * ((real(3) * u + real(20)) * u + real(24)) / (u * (u + real(4)) * (u + real(6)))
    return x + real(5.5) + r * (real(1 / 24) - s * (real(37 / 5760) - s * real(10313 / 2903040))), power


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
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


@njit(cache=True, nogil=True, error_model="numpy")
def _topic_weights(eta, gain, ratio, weights, exponent, lowest):
    """Replace weights (T, J) by exp(psi(eta + soft counts)), each word's column up to a common factor.

    The soft counts are ``gain_t weights_tj ratio_j`` of the weights that come in.
    """
    T, J = eta.shape
    lowest[:] = np.inf
    for t in range(T):
        for j in range(J):
            factor, power = split_exp_digamma(eta[t, j] + gain[t] * weights[t, j] * ratio[j])
            weights[t, j] = factor
            exponent[t, j] = power
        for j in range(J):
            # not min(), whose rule for NaN keeps LLVM from vectorising
            lowest[j] = exponent[t, j] if exponent[t, j] < lowest[j] else lowest[j]
    for t in range(T):
        for j in range(J):
            weights[t, j] *= exp_single(lowest[j] - exponent[t, j])


@njit(cache=True, nogil=True, error_model="numpy")
def _topic_gains(alpha, eta_totals, topic, gain):
    """gain (T,) becomes exp(psi(alpha*) - psi(eta-hat*)), up to a common factor."""
    largest = -np.inf
    logs = np.empty(len(alpha))
    for t in range(len(alpha)):
        logs[t] = digamma(alpha[t] + topic[t]) - digamma(eta_totals[t] + topic[t])
    for t in range(len(alpha)):
        largest = max(largest, logs[t])
    for t in range(len(alpha)):
        # held above 1e-30: a topic may be the only one with a word
        gain[t] = exp_nonpositive(max(logs[t] - largest, -69.0))


@njit(cache=True, nogil=True, error_model="numpy")
def _extrapolate(before, between, topic, total):
    """Lengthen the last two steps of the soft topic counts (squared extrapolation), keeping them positive."""
    steps, turns = 0.0, 0.0
    for t in range(len(topic)):
        step = between[t] - before[t]
        turn = topic[t] - between[t] - step
        steps += step * step
        turns += turn * turn
    length = min(max(np.sqrt(steps / max(turns, 1e-300)), 1.0), 20.0)
    mass = 0.0
    for t in range(len(topic)):
        step = between[t] - before[t]
        turn = topic[t] - between[t] - step
        topic[t] = max(before[t] + 2.0 * length * step + length * length * turn, 0.1 * topic[t])
        mass += topic[t]
    for t in range(len(topic)):
        topic[t] *= total / mass


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
def _dot(x, y):
    """Inner product; fastmath only lets the additions be reordered."""
    total = real(0)
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _divide(n, gain, weights, ratio, topic):
    """Assign words to topics: ratio (J,) becomes n_j / sum_t gain_t weights_tj, topic (T,) the topics' soft counts."""
    T, J = weights.shape
    ratio[:] = 0.0
    for t in range(T):
        for j in range(J):
            ratio[j] += gain[t] * weights[t, j]
    for j in range(J):
        ratio[j] = n[j] / ratio[j]
    change = 0.0
    for t in range(T):
        share = np.float64(gain[t] * _dot(weights[t], ratio))
        change += abs(share - topic[t])
        topic[t] = share
    return change / T


@njit(cache=True, nogil=True, error_model="numpy")
def infer_image(counts, words, alpha, eta, eta_totals, max_iter, tol, scale):
    """Equation 17 for one image: soft counts n_k q_tk of its words (T, J), and the number of updates of eta*."""
    T, J = len(alpha), len(words)
    n, ratio, lowest, gain = np.empty(J, real), np.empty(J, real), np.empty(J, real), np.empty(T, real)
    near, weights, exponent = np.empty((T, J), real), np.empty((T, J), real), np.empty((T, J), real)
    topic, before, between = np.zeros(T), np.empty(T), np.empty(T)
    total = 0.0
    for j in range(J):
        n[j] = scale * counts[words[j]]
        total += n[j]
    for t in range(T):
        gain[t] = alpha[t] / eta_totals[t]
        for j in range(J):
            near[t, j] = eta[t, words[j]]
            weights[t, j] = near[t, j]
    _divide(n, gain, weights, ratio, topic)
    iterations, first_change = 0, np.inf
    while iterations < max_iter and first_change >= tol:
        iterations += 1
        _topic_weights(near, gain, ratio, weights, exponent, lowest)
        # while eta* stands, q(z) and alpha* are cheap to iterate, and it is alpha* that is slow
        for inner in range(max_iter):
            before[:], between[:] = between, topic
            _topic_gains(alpha, eta_totals, topic, gain)
            change = _divide(n, gain, weights, ratio, topic)
            if inner == 0:
                first_change = change
            if change < max(tol, 0.1 * first_change):
                break
            if inner % 2 == 1:
                _extrapolate(before, between, topic, total)
    for t in range(T):
        for j in range(J):
            weights[t, j] *= gain[t] * ratio[j]
    return weights, iterations


@parallel_njit()
def _infer(counts, alpha, eta, eta_totals, max_iter, tol, scale, out, iterations):
    for i in prange(len(counts)):
        words = np.flatnonzero(counts[i])
        soft, iterations[i] = infer_image(counts[i], words, alpha, eta, eta_totals, max_iter, tol, scale)
        for t in range(len(alpha)):
            for j in range(len(words)):
                out[i, t, words[j]] = soft[t, j]


def lda_counts(
    counts: np.ndarray,
    alpha: np.ndarray,
    eta: np.ndarray,
    max_iter: int = 100,
    tol: float = 1e-3,
    count_scale: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Word counts divided among the topics by variational inference (eq. 17).

    Parameters
    ----------
    counts : (n, K)
    alpha : (T,)
    eta : (T, K)
    max_iter, tol : at most so many iterations, until the mean change of alpha* is below tol

    Returns
    -------
    soft_counts : (n, T, K), n_k q_tk times ``count_scale``, float32
    iterations : (n,)
    """
    # one compiled version, whatever the counts are
    counts = np.ascontiguousarray(counts, dtype=real)
    out = np.zeros((len(counts), *eta.shape), real)
    iterations = np.zeros(len(counts), np.int64)
    _infer(counts, alpha, eta, eta.sum(axis=1), max_iter, tol, float(count_scale), out, iterations)
    return out, iterations
