# SPDX-License-Identifier: BSD-3-Clause
"""Literal versions of PLSA and of the latent Dirichlet allocation with latent topics."""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammaln

from oracles.polya import polya_gradient


def plsa_step(counts, theta, pi):
    """One EM step with loops over images, words and topics, and the log-likelihood before it."""
    n, K = counts.shape
    T = len(pi)
    new_theta, new_pi, value = np.zeros((n, T)), np.zeros((T, K)), 0.0
    for i in range(n):
        for k in range(K):
            p = sum(theta[i, t] * pi[t, k] for t in range(T))
            if counts[i, k] > 0:
                value += counts[i, k] * np.log(p)
            for t in range(T):
                q = theta[i, t] * pi[t, k] / p
                new_theta[i, t] += counts[i, k] * q
                new_pi[t, k] += counts[i, k] * q
    return new_theta / new_theta.sum(1, keepdims=True), new_pi / new_pi.sum(1, keepdims=True), value


def lda_update(counts, q, alpha, eta):
    """Equation 17 for one image: q (T, K) of each word to the new alpha*, eta* and q."""
    alpha_star = alpha + (counts * q).sum(axis=1)
    eta_star = eta + counts * q
    log_q = np.zeros_like(q)
    for t in range(len(alpha)):
        for k in range(len(counts)):
            log_q[t, k] = digamma(alpha_star[t]) - digamma(alpha_star.sum())
            log_q[t, k] += digamma(eta_star[t, k]) - digamma(eta_star[t].sum())
    new_q = np.exp(log_q - log_q.max(axis=0))
    return alpha_star, eta_star, new_q / new_q.sum(axis=0)


def lda_free_energy(counts, q, alpha_star, eta_star, alpha, eta):
    """F of one image at any q(z), q(theta), q(pi): expectations written out."""
    log_theta = digamma(alpha_star) - digamma(alpha_star.sum())
    log_pi = digamma(eta_star) - digamma(eta_star.sum(axis=1, keepdims=True))
    value = np.sum(counts * q * (log_theta[:, None] + log_pi)) - np.sum(counts * q * np.log(np.maximum(q, 1e-300)))

    def cross(prior, posterior, log_mean):
        def log_norm(x):
            return gammaln(x.sum()) - gammaln(x).sum()

        return log_norm(prior) - log_norm(posterior) + np.sum((prior - posterior) * log_mean)

    value += cross(alpha, alpha_star, log_theta)
    for t in range(len(alpha)):
        value += cross(eta[t], eta_star[t], log_pi[t])
    return value


def lda_bound(soft, alpha, eta):
    """F of one image at soft counts n_k q_tk (T, K) and the q(theta), q(pi) that are best for them."""
    soft = np.asarray(soft, dtype=float)
    counts = soft.sum(axis=0)
    q = soft / np.where(counts > 0, counts, 1)
    return lda_free_energy(counts, q, alpha + soft.sum(axis=1), eta + soft, alpha, eta)


def lda_gradient(soft, alpha, eta):
    """Equations 18-19 of one image: [T | T K]."""
    soft = np.asarray(soft, dtype=float)
    topics = [polya_gradient(row, prior) for row, prior in zip(soft, eta)]
    return np.concatenate([polya_gradient(soft.sum(axis=1), alpha), *topics])
