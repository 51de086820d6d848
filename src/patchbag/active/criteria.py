# SPDX-License-Identifier: BSD-3-Clause
r"""How useful a label would be: the criteria of kapoor2010, table 1, and two for many classes.

All are written so that larger is better.  With ȳ₁ ≥ ȳ₂ the two largest means of an image:

================  ==================================================  ==================================
``uncertainty``   |ȳ|/√(Σ+σ²) smallest (eq. 10)                       2 Φ(-(ȳ₁ - ȳ₂)/√(2(Σ+σ²)))
``margin``        |ȳ| smallest                                        exp(-(ȳ₁ - ȳ₂)/2)
``variance``      Σ largest                                           Σ
``influence``     most doubt of the pool removed                      Σ_j doubt_j cov(x, x_j)²/(Σ+σ²)
``entropy``       entropy of the class probabilities largest          entropy / log C
``one_vs_all``    eq. 10, smallest over the one-versus-all problems   2 Φ(-min_c |ȳ_c|/√(Σ+σ²))
``random``                                                            uniform in [0, 1)
================  ==================================================  ==================================

For two classes ȳ₂ = -ȳ₁ and the first two are the paper's.  For more, the paper looks at each one-versus-all problem
by itself (``batch="per_class"``; ``one_vs_all`` is the single best image over them).  That has a flaw where classes
are many and labels few: nearly all targets are -1, all means are far below 0, and the ones nearest to 0 belong to
images just like those that are already labelled.  The two leading classes do not have this flaw.

``influence`` is the doubt of the others that a label would remove: doubt_j is the uncertainty of image j of a reference
sample of the pool, and cov(x, x_j)²/(Σ+σ²) is by how much the label of x reduces the variance of x_j.
"""

import numpy as np
from scipy.special import ndtr

from patchbag.classifiers.gaussian_process.membership import winning_probabilities

CRITERIA = ("uncertainty", "margin", "variance", "influence", "entropy", "one_vs_all", "random")


def utilities_by_class(criterion: str, mean: np.ndarray, variance: np.ndarray, noise: float) -> np.ndarray:
    """Utility of each image for each one-versus-all problem, (N, C), for the criteria of table 1.

    Parameters
    ----------
    criterion : "margin", "variance" or "uncertainty"
    mean : (N, C)
    variance : (N,)
    noise : σ²
    """
    if criterion == "margin":
        return np.exp(-np.abs(mean))
    if criterion == "variance":
        return np.repeat(variance[:, None], mean.shape[1], axis=1)
    if criterion == "uncertainty":
        return 2.0 * ndtr(-np.abs(mean) / np.sqrt(variance + noise)[:, None])
    raise ValueError(
        f"criterion {criterion!r} has no utilities for single classes; use margin, variance or uncertainty"
    )


def doubt(mean: np.ndarray, variance: np.ndarray, noise: float) -> np.ndarray:
    """(N,) twice the probability that the second class beats the leading one: 1 where they tie."""
    return 2.0 * ndtr(-_gap(mean) / np.sqrt(2.0 * (variance + noise)))


def influence(cross: np.ndarray, doubts: np.ndarray, variance: np.ndarray, noise: float) -> np.ndarray:
    """(N,) doubt that a label would remove, from posterior covariances ``cross (N, R)`` with R images and their
    doubts.
    """
    return (cross**2 @ doubts) / (variance + noise)


def utilities(
    criterion: str, mean: np.ndarray, variance: np.ndarray, noise: float, random: np.random.RandomState
) -> np.ndarray:
    """Utility (N,) of labelling each image; ``mean (N, C)`` with C >= 2, ``variance (N,)``; all but "influence"."""
    if criterion == "random":
        return random.uniform(size=len(mean))
    if criterion == "uncertainty":
        return doubt(mean, variance, noise)
    if criterion == "margin":
        return np.exp(-0.5 * _gap(mean))
    if criterion == "variance":
        return variance.copy()
    if criterion == "entropy":
        p = winning_probabilities(mean, np.sqrt(variance + noise)[:, None])
        return -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1) / np.log(mean.shape[1])
    if criterion == "one_vs_all":
        return utilities_by_class("uncertainty", mean, variance, noise).max(axis=1)
    raise ValueError(f"criterion must be one of {CRITERIA}, got {criterion!r}")


def _gap(mean: np.ndarray) -> np.ndarray:
    top = np.partition(mean, -2, axis=1)[:, -2:]
    return top[:, 1] - top[:, 0]
