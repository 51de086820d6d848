# SPDX-License-Identifier: BSD-3-Clause
r"""KL divergences between any two mixtures as averages of ln p/q over points: drawn from p, or chosen (liu2010 §4.2.2).

Monte Carlo (4.16) draws the points; the unscented transform (4.17-4.19) takes 2·D sigma points per component.  In
(4.17), d is the number of dimensions, not of points, as the text has it.

Every mixture's points come from the same standard normal draws and the same quantiles for the choice of components, so
that a pair's divergence depends on the seed alone and not on which other mixtures were given with it, and so that
divergences of p from different q's can be compared.

Cost per pair with K components in D dimensions: K densities at 2·D·K, or ``n_samples``, points.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from patchbag.mixture.accumulate import log_densities
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.parameters import GaussianParameters
from patchbag.runtime import check_random_state
from patchbag.similarity.base import map_rows
from patchbag.similarity.mixtures.matching import WEIGHT_FLOOR


def log_density(points: np.ndarray, mixture: Mixtures) -> np.ndarray:
    """ln p(x) of every point ``(T, D)`` under the one mixture given: ``(T,)``, float64."""
    weights, means, variances = (np.asarray(a[0], np.float64) for a in mixture.arrays().values())
    parameters = GaussianParameters(np.maximum(weights, WEIGHT_FLOOR), means, variances)
    return np.asarray(np.logaddexp.reduce(log_densities(np.asarray(points, np.float64), parameters), axis=1))


def _row(p: Mixtures, Q: Mixtures, points_of: Callable[[Mixtures], tuple[Any, Any]], dtype: Any) -> np.ndarray:
    """Averages of ln p/q over points of one mixture: ``(1, m)``."""
    points, shares = points_of(p)
    own = log_density(points, p)
    return np.array([[shares @ (own - log_density(points, Q[j])) for j in range(len(Q))]], dtype)


def _sigma_points(p: Mixtures) -> tuple[np.ndarray, np.ndarray]:
    weights, means, variances = (np.asarray(a[0], np.float64) for a in p.arrays().values())
    d = p.dimension
    offsets = np.sqrt(d * variances)[:, :, None] * np.eye(d)
    points = np.concatenate([means[:, None] + offsets, means[:, None] - offsets], axis=1).reshape(-1, d)
    return points, np.repeat(weights, 2 * d) / (2 * d)


def _draws(p: Mixtures, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return draw(p, size, seed), np.full(size, 1 / size)


def kl_unscented(P: Mixtures, Q: Mixtures, dtype: Any = np.float64) -> np.ndarray:
    """KL(p‖q) from 2·D sigma points per component (4.17-4.19): ``(n, m)``."""
    rows = partial(_row, Q=Q, points_of=_sigma_points, dtype=dtype)
    return map_rows(rows, [P[i] for i in range(len(P))], len(P))


def kl_monte_carlo(
    P: Mixtures, Q: Mixtures, n_samples: int = 1000, random_state: Any = None, dtype: Any = np.float64
) -> np.ndarray:
    """KL(p‖q) from ``n_samples`` points drawn from each p (4.16): ``(n, m)``."""
    points_of = partial(_draws, size=n_samples, seed=random_seed(random_state))
    return map_rows(partial(_row, Q=Q, points_of=points_of, dtype=dtype), [P[i] for i in range(len(P))], len(P))


def random_seed(random_state: Any) -> int:
    """One seed from whatever scikit-learn takes for a random state."""
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def draw(mixture: Mixtures, size: int, random_state: Any = None) -> np.ndarray:
    """``size`` points from the one mixture given: ``(size, D)``."""
    random = check_random_state(random_state)
    weights, means, variances = (np.asarray(a[0], np.float64) for a in mixture.arrays().values())
    chosen = random.choice(len(weights), size, p=weights / weights.sum())
    return means[chosen] + np.sqrt(variances[chosen]) * random.standard_normal((size, means.shape[1]))
