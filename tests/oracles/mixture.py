"""Literal versions of mixture densities, statistics and Fisher vectors, one descriptor after the other."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm


def log_joint(x, weights, means, variances):
    """ln w_k + ln N(x; mu_k, var_k) for one descriptor: (K,)."""
    return np.log(weights) + norm.logpdf(x, means, np.sqrt(variances)).sum(axis=1)


def log_likelihood(values, weights, means, variances):
    return float(sum(np.logaddexp.reduce(log_joint(x, weights, means, variances)) for x in values))


def posterior(x, weights, means, variances):
    logits = log_joint(x, weights, means, variances)
    return np.exp(logits - np.logaddexp.reduce(logits))


def statistics(values, weights, means, variances):
    s0, s1, s2 = np.zeros(len(weights)), np.zeros(means.shape), np.zeros(means.shape)
    for x in values:
        gamma = posterior(x, weights, means, variances)
        for k in range(len(weights)):
            s0[k] += gamma[k]
            s1[k] += gamma[k] * x
            s2[k] += gamma[k] * x**2
    return s0, s1, s2


def numerical_gradient(function, at, step=1e-5):
    at = np.asarray(at, float)
    gradient = np.zeros(at.shape)
    for index in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient
