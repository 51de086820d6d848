"""Integrals between diagonal Gaussians, literally: sums over many tiny intervals, or samples."""

import numpy as np


def density(x, mean, variance):
    """N(x; mean, diag variance) of points (T, D)."""
    exponent = -0.5 * np.sum((x - mean) ** 2 / variance, axis=-1)
    return np.exp(exponent) / np.prod(np.sqrt(2 * np.pi * variance))


def mixture_density(x, weights, means, variances):
    return sum(w * density(x, m, v) for w, m, v in zip(weights, means, variances))


def grid(dimension, low=-14.0, high=14.0, size=None):
    """Midpoints of tiny cells (T, D), and their volume."""
    size = size or (20_001 if dimension == 1 else 401)
    edges = np.linspace(low, high, size + 1)
    middle = (edges[:-1] + edges[1:]) / 2
    mesh = np.stack(np.meshgrid(*[middle] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    return mesh, (edges[1] - edges[0]) ** dimension


def product_integral(p, q, rho, points, volume):
    """∫ p^ρ q^ρ from densities at points."""
    return np.sum(p(points) ** rho * q(points) ** rho) * volume


def cross_entropy_integral(p, q, points, volume):
    """-∫ p ln q."""
    return -np.sum(p(points) * np.log(q(points))) * volume


def kl_integral(p, q, points, volume):
    a, b = p(points), q(points)
    inside = a > 1e-280
    return np.sum(a[inside] * (np.log(a[inside]) - np.log(np.maximum(b[inside], 1e-300)))) * volume
