# SPDX-License-Identifier: BSD-3-Clause
r"""Parameters of a diagonal Gaussian mixture, and its log-densities as one matrix product.

In standardised coordinates :math:`z = (x - c) / s` (c, s: the mixture's own overall mean and deviation)

.. math:: \ln w_k N(x; \mu_k, \sigma_k^2) = b_k + \sum_d \left( z_d \frac{m_{kd}}{v_{kd}} - \frac{z_d^2}{2 v_{kd}}
\right)

with :math:`m = (\mu - c)/s`, :math:`v = \sigma^2/s^2`: the row :math:`[z, z^2]` times a (2D, K) matrix.  The expanded
square loses digits when the data lie far from the origin; standardising first is what makes float32 safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from patchbag.storage.declared import NOT_ZERO, floats, stored
from patchbag.storage.registry import storable

# A component of weight zero gets this instead of -inf: it never wins, and no inf - inf can arise.
LOG_ZERO = -1e30


@storable
@dataclass(frozen=True)
class GaussianParameters:
    """Weights ``(K,)``, means ``(K, D)`` and variances ``(K, D)`` of K diagonal Gaussians, in float64.

    Two of them are equal if all their numbers are.
    """

    weights: np.ndarray = stored(floats("K", low=0, high=1))
    means: np.ndarray = stored(floats("K", "D"))
    variances: np.ndarray = stored(floats("K", "D", low=NOT_ZERO))

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, GaussianParameters):
            return self is other
        mine, theirs = ((p.weights, p.means, p.variances) for p in (self, other))
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs))

    @property
    def n_components(self) -> int:
        return len(self.weights)

    @property
    def dimension(self) -> int:
        return int(self.means.shape[1])

    @cached_property
    def center(self) -> np.ndarray:
        """(D,) mean of the mixture."""
        return self.weights @ self.means

    @cached_property
    def scale(self) -> np.ndarray:
        """(D,) standard deviation of the mixture."""
        spread = self.weights @ (self.variances + (self.means - self.center) ** 2)
        return np.sqrt(np.maximum(spread, np.finfo(np.float64).tiny))

    @cached_property
    def distance(self) -> float:
        """How far its mean lies from the origin, in deviations of the narrowest component; the largest over D."""
        return float(np.max(np.abs(self.center) / np.sqrt(self.variances.min(axis=0)), initial=0.0))

    @cached_property
    def projection(self) -> np.ndarray:
        """(2D, K) matrix that takes [z, z²] to log-densities, up to ``bias``."""
        m, v = (self.means - self.center) / self.scale, self.variances / self.scale**2
        return np.concatenate([(m / v).T, (-0.5 / v).T])

    @cached_property
    def bias(self) -> np.ndarray:
        """(K,) constant part of the log-densities, log-weights included."""
        m, v = (self.means - self.center) / self.scale, self.variances / self.scale**2
        with np.errstate(divide="ignore"):
            log_weights = np.maximum(np.log(self.weights), LOG_ZERO)
        log_volume = np.log(2 * np.pi * self.variances).sum(axis=1)
        return log_weights - 0.5 * ((m * m / v).sum(axis=1) + log_volume)

    @cached_property
    def for_densities(self) -> np.ndarray:
        """[center | 1/scale | projection, component after component | bias] in float32, for a kernel of a GPU."""
        parts = self.center, 1 / self.scale, self.projection.T, self.bias
        return np.concatenate([a.ravel() for a in parts]).astype(np.float32)

    @cached_property
    def for_gradients(self) -> np.ndarray:
        """[means | 1/σ | 1/√weights, zero for a weight of zero] in float32, for a kernel of a GPU."""
        roots = np.divide(1.0, np.sqrt(self.weights), out=np.zeros(len(self.weights)), where=self.weights > 0)
        return np.concatenate([a.ravel() for a in (self.means, 1 / np.sqrt(self.variances), roots)]).astype(np.float32)

    def by_distance(self) -> GaussianParameters:
        """The same means with equal weights and one variance: the most probable component is the nearest one."""
        k, spread = self.n_components, float(self.variances.mean())
        return GaussianParameters(np.full(k, 1 / k), self.means, np.full(self.means.shape, spread))

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        # what overflows here would be NaN in every density
        with np.errstate(all="ignore"):
            parameters = GaussianParameters(values["weights"], values["means"], values["variances"])
            sound = parameters.n_components and np.isfinite(parameters.projection).all()
            sound = sound and np.isfinite(parameters.bias).all() and np.isfinite(parameters.distance)
        return None if sound else "its densities are not finite"


def check_parameters(weights: Any, means: Any, variances: Any) -> GaussianParameters:
    """Validated :class:`GaussianParameters`; weights are rescaled to sum to one."""
    w, m, v = (np.asarray(a, np.float64) for a in (weights, means, variances))
    if w.ndim != 1 or m.ndim != 2 or m.shape != v.shape or len(w) != len(m):
        raise ValueError(
            f"expected weights (K,), means (K, D) and variances (K, D), got shapes {w.shape}, {m.shape} and {v.shape}"
        )
    for name, a in (("weights", w), ("means", m), ("variances", v)):
        if not np.isfinite(a).all():
            raise ValueError(f"the mixture's {name} contain NaN or infinity")
    if (w < 0).any() or w.sum() <= 0:
        raise ValueError("the mixture's weights must not be negative, and not all be zero")
    if (v <= 0).any():
        k, d = np.argwhere(v <= 0)[0]
        raise ValueError(f"variance {v[k, d]} of component {k}, dimension {d} is not positive")
    return GaussianParameters(w / w.sum(), m, v)
