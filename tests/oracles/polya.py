# SPDX-License-Identifier: BSD-3-Clause
"""Literal versions of the Pólya model: loops, and integration over the simplex."""

from __future__ import annotations

import math

import numpy as np
from scipy import integrate
from scipy.special import digamma


def polya_log_likelihood(counts, alpha):
    """Equation 2 for one image."""
    total, N = sum(alpha), sum(counts)
    value = math.lgamma(total) - math.lgamma(total + N)
    for n, a in zip(counts, alpha):
        value += math.lgamma(n + a) - math.lgamma(a)
    return value


def polya_likelihood_by_integration(counts, alpha):
    """Equation 1 for two words: the integral over the multinomial (p, 1 - p)."""
    norm = math.gamma(sum(alpha)) / (math.gamma(alpha[0]) * math.gamma(alpha[1]))

    def integrand(p):
        return norm * p ** (alpha[0] + counts[0] - 1) * (1 - p) ** (alpha[1] + counts[1] - 1)

    return integrate.quad(integrand, 0, 1)[0]


def polya_gradient(counts, alpha):
    """Equation 3 for one image."""
    total, N = sum(alpha), sum(counts)
    return np.array([digamma(a + n) - digamma(total + N) - digamma(a) + digamma(total) for n, a in zip(counts, alpha)])


def draw_polya(alpha, n, size, rng):
    """n images of ``size`` words each: (n, K)."""
    return np.array([rng.multinomial(size, rng.dirichlet(alpha)) for _ in range(n)], dtype=float)
