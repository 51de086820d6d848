"""Adapted mixtures and the kernels between them, one component at a time (liu2010, chapter 4)."""

import math

import numpy as np


def map_adaptation(x, weights, means, variances, tau, weight_prior="universal"):
    """Eq. 4.2 and 4.6-4.8 for the descriptors x (T, D) of one image."""
    n, dimension = means.shape
    gamma = np.array(
        [
            [
                w
                * math.prod(
                    math.exp(-((a - m) ** 2) / (2 * v)) / math.sqrt(2 * math.pi * v) for a, m, v in zip(row, mu, var)
                )
                for w, mu, var in zip(weights, means, variances)
            ]
            for row in x
        ]
    )
    gamma /= gamma.sum(axis=1, keepdims=True)
    w, mu, var = np.empty(n), np.empty((n, dimension)), np.empty((n, dimension))
    for i in range(n):
        count = gamma[:, i].sum()
        prior = weights[i] * n if weight_prior == "universal" else 1
        w[i] = (count + tau * prior) / (len(x) + n * tau)
        for d in range(dimension):
            first, second = np.sum(gamma[:, i] * x[:, d]), np.sum(gamma[:, i] * x[:, d] ** 2)
            mu[i, d] = (first + tau * means[i, d]) / (count + tau)
            var[i, d] = (second + tau * (variances[i, d] + means[i, d] ** 2)) / (count + tau) - mu[i, d] ** 2
    return w, mu, var


def statistics(bags, weights, means, variances):
    """Literal soft counts and moments of a list of (T, D) arrays."""
    s0, s1, s2 = [], [], []
    for x in bags:
        logs = -0.5 * (((x[:, None] - means) ** 2 / variances) + np.log(2 * np.pi * variances)).sum(-1) + np.log(
            weights
        )
        gamma = np.exp(logs - logs.max(axis=1, keepdims=True))
        gamma /= gamma.sum(axis=1, keepdims=True)
        s0.append(gamma.sum(axis=0))
        s1.append(gamma.T @ x)
        s2.append(gamma.T @ x**2)
    return np.array(s0), np.array(s1), np.array(s2)


def gaussian_cross_entropy(mp, vp, mq, vq):
    return 0.5 * sum(math.log(2 * math.pi * b) + (a + (m - n) ** 2) / b for m, a, n, b in zip(mp, vp, mq, vq))


def gaussian_kl(mp, vp, mq, vq):
    """Eq. 4.15."""
    return 0.5 * sum(math.log(b / a) + a / b + (m - n) ** 2 / b - 1 for m, a, n, b in zip(mp, vp, mq, vq))


def gaussian_product(mp, vp, mq, vq, rho):
    """Eq. 4.10 with Σ and μ as printed."""
    value = (2 * math.pi) ** ((1 - 2 * rho) * len(mp) / 2)
    for m, a, n, b in zip(mp, vp, mq, vq):
        sigma = 1 / (rho / a + rho / b)
        mu = rho * (m / a + n / b)
        value *= math.sqrt(sigma) * a ** (-rho / 2) * b ** (-rho / 2)
        value *= math.exp(-rho / 2 * m * m / a - rho / 2 * n * n / b + 0.5 * mu * sigma * mu)
    return value


def components(mixtures, image):
    arrays = (mixtures.weights, mixtures.means, mixtures.variances)
    return [tuple(np.asarray(a[image, k], np.float64) for a in arrays) for k in range(mixtures.n_components)]


def for_pairs(P, Q, function):
    return np.array([[function(components(P, i), components(Q, j)) for j in range(len(Q))] for i in range(len(P))])


def kl_one_to_one(p, q):
    """Eq. 4.24."""
    return sum(a * (gaussian_kl(m, v, n, w) + math.log(a / b)) for (a, m, v), (b, n, w) in zip(p, q))


def product_one_to_one(p, q, rho):
    """Eq. 4.13."""
    return sum(a * b * gaussian_product(m, v, n, w, rho) for (a, m, v), (b, n, w) in zip(p, q))


def product_one_to_many(p, q, rho):
    """Eq. 4.11."""
    return sum(a * b * gaussian_product(m, v, n, w, rho) for a, m, v in p for b, n, w in q)


def bhattacharyya_bound(p, q):
    """Eq. 4.12."""
    return math.sqrt(sum(a * b * gaussian_product(m, v, n, w, 0.5) ** 2 for a, m, v in p for b, n, w in q))


def mapping(p, q):
    """Eq. 4.20."""
    return [int(np.argmin([gaussian_kl(m, v, n, w) - math.log(b) for b, n, w in q])) for _, m, v in p]


def kl_matched(p, q):
    """Eq. 4.21."""
    return sum(
        a * (gaussian_kl(m, v, q[j][1], q[j][2]) + math.log(a / q[j][0])) for (a, m, v), j in zip(p, mapping(p, q))
    )


def product_matched(p, q, rho):
    return sum(a * q[j][0] * gaussian_product(m, v, q[j][1], q[j][2], rho) for (a, m, v), j in zip(p, mapping(p, q)))


def kl_variational(p, q):
    """Eq. 4.22 and 4.23."""

    def bound(r):
        return -sum(
            a * math.log(sum(b * math.exp(-gaussian_cross_entropy(m, v, n, w)) for b, n, w in r)) for a, m, v in p
        )

    return bound(q) - bound(p)


def log_density(x, p):
    total = 0.0
    for a, m, v in p:
        total += a * math.exp(-0.5 * np.sum((x - m) ** 2 / v)) / math.sqrt(np.prod(2 * math.pi * v))
    return math.log(total)


def kl_unscented(p, q):
    """Eq. 4.17-4.19."""
    total = 0.0
    for a, m, v in p:
        d = len(m)
        for k in range(d):
            for sign in (1, -1):
                x = m.copy()
                x[k] += sign * math.sqrt(d * v[k])
                total += a * (log_density(x, p) - log_density(x, q)) / (2 * d)
    return total
