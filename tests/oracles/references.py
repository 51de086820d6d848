"""Mixtures of references and contextual similarity by their EM steps as printed (liu2010, chapters 5 and 6)."""

import math

import numpy as np

from oracles.mixtures import gaussian_cross_entropy, gaussian_product, log_density


def _answers(q, references, value, one_to_one):
    """value(q_i, p_kj), zero where i ≠ j one-to-one: nested lists [i][k][j]."""
    return [
        [
            [0.0 if one_to_one and i != j else value(qi[1], qi[2], pj[1], pj[2]) for j, pj in enumerate(p)]
            for p in references
        ]
        for i, qi in enumerate(q)
    ]


def kl_weights(q, references, iterations, one_to_one=True):
    """Eq. 5.17 and 5.18."""
    e = _answers(q, references, lambda *a: math.exp(-gaussian_cross_entropy(*a)), one_to_one)
    omega = np.full(len(references), 1 / len(references))
    for _ in range(iterations):
        new = np.zeros(len(references))
        for i, (pi, _, _) in enumerate(q):
            gamma = [[omega[k] * p[j][0] * e[i][k][j] for j in range(len(p))] for k, p in enumerate(references)]
            total = sum(map(sum, gamma))
            new += [pi * sum(row) / total for row in gamma]
        omega = new
    return omega


def bhattacharyya_weights(q, references, iterations, one_to_one=True):
    """Eq. 5.24 and 5.25."""
    b = _answers(q, references, lambda *a: gaussian_product(*a, 0.5), one_to_one)
    omega = np.full(len(references), 1 / len(references))
    for _ in range(iterations):
        c = np.zeros(len(references))
        for i, (pi, _, _) in enumerate(q):
            gamma = [[omega[k] * p[j][0] * b[i][k][j] ** 2 for j in range(len(p))] for k, p in enumerate(references)]
            total = sum(map(sum, gamma))
            for k, p in enumerate(references):
                c[k] += pi * sum(math.sqrt(p[j][0] * gamma[k][j] / total) * b[i][k][j] for j in range(len(p)))
        omega = c**2 / np.sum(c**2)
    return omega


def sampled_weights(x, references, iterations):
    """Eq. 5.7 and 5.10 for descriptors x (T, D)."""
    densities = np.array([[math.exp(log_density(row, p)) for p in references] for row in x])
    omega = np.full(len(references), 1 / len(references))
    for _ in range(iterations):
        gamma = omega * densities
        gamma /= gamma.sum(axis=1, keepdims=True)
        omega = gamma.mean(axis=0)
    return omega


def context_terms(q, p, u, one_to_one=True):
    """Weights of q's components, and how p and u answer them: three lists."""
    terms = []
    for i, (pi, m, v) in enumerate(q):
        answers = [
            sum(
                b * math.exp(-gaussian_cross_entropy(m, v, n, w))
                for j, (b, n, w) in enumerate(r)
                if not one_to_one or i == j
            )
            for r in (p, u)
        ]
        terms.append((pi, *answers))
    return terms


def context_objective(omega, terms):
    """Eq. 6.13."""
    return sum(pi * math.log(omega * a + (1 - omega) * b) for pi, a, b in terms)


def context_share(terms, iterations):
    """Eq. 6.16 and 6.17, over the terms of one or both directions."""
    omega, total = 0.5, sum(pi for pi, _, _ in terms)
    for _ in range(iterations):
        omega = sum(pi * omega * a / (omega * a + (1 - omega) * b) for pi, a, b in terms) / total
    return omega
