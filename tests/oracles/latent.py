# SPDX-License-Identifier: BSD-3-Clause
"""Literal versions of the latent mixture: the bound F term by term, equations 10-14 and 20-28 with loops."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import digamma, gammaln


def statistics(x, r):
    """Equation 20 for one image: descriptors (N, D), responsibilities (N, K)."""
    K, D = r.shape[1], x.shape[1]
    s0, s1, s2 = np.zeros(K), np.zeros((K, D)), np.zeros((K, D))
    for i in range(len(x)):
        for k in range(K):
            s0[k] += r[i, k]
            s1[k] += r[i, k] * x[i]
            s2[k] += r[i, k] * x[i] ** 2
    return s0, s1, s2


def posterior(s0, s1, s2, alpha, m, beta, a, b):
    """Equations 21-25 as printed."""
    s0_ = s0[:, None]
    beta_star = beta + s0_
    m_star = (s1 + beta * m) / beta_star
    b_star = b + 0.5 * (beta * m**2 + s2) - 0.5 * beta_star * m_star**2
    return alpha + s0, m_star, beta_star, a + s0_ / 2, b_star


def free_energy(x, r, q, alpha, m, beta, a, b):
    """F = H(q) + E_q[ln p(x, w, pi, mu, lambda)] (eq. 8), every expectation written out; q may be any."""
    alpha_q, m_q, beta_q, a_q, b_q = q
    log_pi = digamma(alpha_q) - digamma(alpha_q.sum())
    log_lambda, mean_lambda = digamma(a_q) - np.log(b_q), a_q / b_q
    value = 0.0
    for i in range(len(x)):
        for k in range(r.shape[1]):
            log_x = 0.5 * log_lambda[k] - 0.5 * math.log(2 * math.pi)
            log_x = log_x - 0.5 * (mean_lambda[k] * (x[i] - m_q[k]) ** 2 + 1 / beta_q[k])
            value += r[i, k] * (log_pi[k] + log_x.sum())
            if r[i, k] > 0:
                value -= r[i, k] * math.log(r[i, k])
    # priors
    value += gammaln(alpha.sum()) - gammaln(alpha).sum() + ((alpha - 1) * log_pi).sum()
    value += np.sum(a * np.log(b) - gammaln(a) + (a - 1) * log_lambda - b * mean_lambda)
    quadratic = mean_lambda * (m_q - m) ** 2 + 1 / beta_q
    value += np.sum(0.5 * np.log(beta) + 0.5 * log_lambda - 0.5 * math.log(2 * math.pi) - 0.5 * beta * quadratic)
    # entropies of q
    value -= gammaln(alpha_q.sum()) - gammaln(alpha_q).sum() + ((alpha_q - 1) * log_pi).sum()
    value += np.sum(a_q - np.log(b_q) + gammaln(a_q) + (1 - a_q) * digamma(a_q))
    value += np.sum(0.5 * math.log(2 * math.pi * math.e) - 0.5 * np.log(beta_q) - 0.5 * log_lambda)
    return float(value)


def gradients(q, alpha, m, beta, a, b):
    """Equations 14, 13, 12, 10, 11 as printed, by the name of the hyper-parameter."""
    alpha_q, m_q, beta_q, a_q, b_q = q
    return {
        "alpha": digamma(alpha_q) - digamma(alpha_q.sum()) - (digamma(alpha) - digamma(alpha.sum())),
        "m": beta * a_q / b_q * (m_q - m),
        "beta": 0.5 * (1 / beta - a_q / b_q * (m - m_q) ** 2 - 1 / beta_q),
        "a": digamma(a_q) - np.log(b_q) - (digamma(a) - np.log(b)),
        "b": a / b - a_q / b_q,
    }


def responsibilities(x, q):
    """Equations 26-28, normalised over components."""
    alpha_q, m_q, beta_q, a_q, b_q = q
    r = np.zeros((len(x), len(alpha_q)))
    for i in range(len(x)):
        for k in range(len(alpha_q)):
            value = digamma(alpha_q[k]) - digamma(alpha_q.sum())
            for d in range(x.shape[1]):
                value += 0.5 * (digamma(a_q[k, d]) - math.log(b_q[k, d]))
                value -= 0.5 * (a_q[k, d] / b_q[k, d] * (x[i, d] - m_q[k, d]) ** 2 + 1 / beta_q[k, d])
            r[i, k] = value
    r = np.exp(r - r.max(axis=1, keepdims=True))
    return r / r.sum(axis=1, keepdims=True)
