"""Boosted nearest neighbours as printed: dense edge matrices, a root finder, every prototype in every round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

SLOPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exponential": lambda x: -np.exp(-x),
    "squared": lambda x: 2 * (x - 1),
    "logistic": lambda x: -1 / (1 + np.exp(x)),
}
VALUES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exponential": lambda x: np.exp(-x),
    "squared": lambda x: (1 - x) ** 2,
    "logistic": lambda x: np.log1p(np.exp(-x)),
}


def leverage(r: np.ndarray, margins: np.ndarray, slope: Callable, plus: float, minus: float, epsilon: float) -> float:
    """The zero of (A.2) with the pair of (B.10), found by Brent's method."""

    def g(delta: float) -> float:
        pair = epsilon * minus * (slope(np.array(delta * plus)) - slope(np.array(-delta * minus)))
        return float(np.sum(r * slope(margins + delta * r)) + pair)

    reach = 1.0
    while g(-reach) > 0 or g(reach) < 0:
        reach *= 2
    return brentq(g, -reach, reach, xtol=1e-14, rtol=1e-14)


def boost(R: np.ndarray, slope: Callable, plus: float, minus: float, epsilon: float, rounds: int, once: bool):
    """Chosen prototypes and their leverages: algorithm 6 with the largest δ, all solved anew in every round."""
    margins, free, chosen, deltas = np.zeros(len(R)), np.ones(R.shape[1], bool), [], []
    for _ in range(rounds):
        solved = np.full(R.shape[1], -np.inf)
        for j in np.flatnonzero(free):
            solved[j] = leverage(R[:, j], margins, slope, plus, minus, epsilon)
        j = int(np.argmax(solved))
        if not once and solved[j] <= 1e-9:
            break
        margins += solved[j] * R[:, j]
        free[j] = not once
        chosen.append(j)
        deltas.append(solved[j])
    return np.array(chosen), np.array(deltas)


def edge_matrix(X: np.ndarray, codes: np.ndarray, k: int, vectors: np.ndarray) -> np.ndarray:
    """(m, m) mean of y_ic y_jc over the classes (5.21) where j is one of the k nearest neighbours of i, else 0."""
    m = len(X)
    R = np.zeros((m, m))
    for i in range(m):
        distances = [np.inf if j == i else float(np.linalg.norm(X[i] - X[j])) for j in range(m)]
        for j in np.argsort(distances, kind="stable")[:k]:
            R[i, j] = np.mean(vectors[i] * vectors[j])
    return R


def closed_form_leverage(for_it: float, against: float, n_classes: int, epsilon: float = 0.0) -> float:
    """δ of the k-NN kernel and the exponential loss from the weights w⁺ and w⁻ (5.26, B.11; for two classes 4.18)."""
    rest = n_classes - 1
    return rest**2 / n_classes * np.log((rest * for_it + epsilon) / (against + epsilon))


def surrogate_risk(R: np.ndarray, chosen: np.ndarray, deltas: np.ndarray, loss: str) -> np.ndarray:
    """(T + 1,) the mean loss (4.5, 5.13) before the first round and after each."""
    margins, risks = np.zeros(len(R)), []
    for j, delta in [(0, 0.0), *zip(chosen, deltas)]:
        margins = margins + delta * R[:, j]
        risks.append(VALUES[loss](margins).mean())
    return np.array(risks)
