# SPDX-License-Identifier: BSD-3-Clause
r"""KL divergences between any two mixtures as averages of ln p/q over points: drawn from p, or chosen (liu2010 §4.2.2).

Monte Carlo (4.16) draws the points; the unscented transform (4.17-4.19) takes 2·D sigma points a component.  In (4.17),
d is the number of dimensions, not of points, as the text has it.

Every mixture's points come from the same standard normal draws and the same quantiles for the choice of components, so
that a pair's divergence depends on the seed alone and not on which other mixtures were given with it, and so that
divergences of p from different q's can be compared.

Cost a pair with K components in D dimensions: K densities at 2·D·K, or ``n_samples``, points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from patchbag.mixture.accumulate import log_densities
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.parameters import GaussianParameters
from patchbag.runtime import parallel_map
from patchbag.similarity.mixtures.checks import check_pair
from patchbag.similarity.mixtures.matching import WEIGHT_FLOOR


def log_density(points: np.ndarray, mixture: Mixtures) -> np.ndarray:
    """ln p(x) of every point ``(T, D)`` under the one mixture given: ``(T,)``, float64."""
    weights, means, variances = (np.asarray(a[0], np.float64) for a in mixture.arrays().values())
    parameters = GaussianParameters(np.maximum(weights, WEIGHT_FLOOR), means, variances)
    return np.asarray(np.logaddexp.reduce(log_densities(np.asarray(points, np.float64), parameters), axis=1))


def kl_unscented(P: Mixtures, Q: Mixtures, dtype: Any = np.float64, check: bool = True) -> np.ndarray:
    """KL(p‖q) from 2·D sigma points a component (4.17-4.19): ``(n, m)``."""
    if check:
        check_pair(P, Q)
    d = P.dimension

    def job(i: int) -> np.ndarray:
        offsets = np.sqrt(d * np.asarray(P.variances[i], np.float64))[:, :, None] * np.eye(d)
        means = np.asarray(P.means[i], np.float64)[:, None]
        points = np.concatenate([means + offsets, means - offsets], axis=1).reshape(-1, d)
        share = np.repeat(np.asarray(P.weights[i], np.float64), 2 * d) / (2 * d)
        own = share @ log_density(points, P[i])
        return np.array([own - share @ log_density(points, Q[j]) for j in range(len(Q))])

    return np.array(list(parallel_map(job, range(len(P))))).reshape(len(P), len(Q)).astype(dtype)


def kl_monte_carlo(
    P: Mixtures,
    Q: Mixtures,
    n_samples: int = 1000,
    random_state: Any = None,
    dtype: Any = np.float64,
    check: bool = True,
) -> np.ndarray:
    """KL(p‖q) from ``n_samples`` points drawn from each p (4.16): ``(n, m)``."""
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1, got {n_samples}")
    if check:
        check_pair(P, Q)
    seed = random_seed(random_state)

    def job(i: int) -> np.ndarray:
        points = draw(P[i], n_samples, seed)
        own = log_density(points, P[i])
        return np.array([np.mean(own - log_density(points, Q[j])) for j in range(len(Q))])

    return np.array(list(parallel_map(job, range(len(P))))).reshape(len(P), len(Q)).astype(dtype)


def random_seed(random_state: Any) -> int:
    """One seed from whatever scikit-learn takes for a random state."""
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def draw(mixture: Mixtures, size: int, random_state: Any = None) -> np.ndarray:
    """``size`` points from the one mixture given: ``(size, D)``."""
    random = check_random_state(random_state)
    weights, means, variances = (np.asarray(a[0], np.float64) for a in mixture.arrays().values())
    chosen = random.choice(len(weights), size, p=weights / weights.sum())
    return means[chosen] + np.sqrt(variances[chosen]) * random.standard_normal((size, means.shape[1]))
