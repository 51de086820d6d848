"""Bregman divergences and their neighbours as they are written, pair by pair, in double precision."""

from __future__ import annotations

import numpy as np

LITERAL = {
    "squared_euclidean": lambda p, q: np.sum((p - q) ** 2, axis=-1),
    "kl": lambda p, q: np.sum(p * np.log(p / q), axis=-1),
    "generalized_kl": lambda p, q: np.sum(p * np.log(p / q) - p + q, axis=-1),
    "itakura_saito": lambda p, q: np.sum(p / q - np.log(p / q) - 1, axis=-1),
    "exponential": lambda p, q: np.sum(np.exp(p) - np.exp(q) - (p - q) * np.exp(q), axis=-1),
    "logistic": lambda p, q: np.sum(
        np.log(1 + np.exp(p)) - np.log(1 + np.exp(q)) - (p - q) / (1 + np.exp(-q)), axis=-1
    ),
}


def divergences(name: str, side: str, query: np.ndarray, X: np.ndarray, mixing: float = 0.5) -> np.ndarray:
    """(n,) of one query to all rows."""
    d = LITERAL[name]
    query = np.broadcast_to(query, X.shape)
    if side == "right":
        return d(query, X)
    if side == "left":
        return d(X, query)
    alpha = 0.5 if side == "symmetric" else mixing
    return (1 - alpha) * d(query, X) + alpha * d(X, query)


def nearest(name: str, side: str, queries: np.ndarray, X: np.ndarray, k: int, mixing: float = 0.5) -> np.ndarray:
    """(m, k) indices, nearest first, of equal divergences the first row."""
    return np.array(
        [np.argsort(divergences(name, side, q, X, mixing), kind="stable")[:k] for q in queries], dtype=np.int64
    )


def anderson_darling(sample: np.ndarray) -> float:
    """A²* against the normal distribution whose mean and variance are the sample's (Stephens 1974)."""
    from scipy.stats import norm

    n = len(sample)
    z = np.sort((sample - sample.mean()) / sample.std(ddof=1))
    total = 0.0
    for i in range(n):
        total += (2 * i + 1) * (norm.logcdf(z[i]) + norm.logsf(z[n - 1 - i]))
    return (-n - total / n) * (1 + 4 / n - 25 / n**2)
