# SPDX-License-Identifier: BSD-3-Clause
r"""Average minimum distance between sets of features (Zhang et al. 2006; "GB" and "GBdist" of kapoor2010, §8).

Every feature of one image looks for the closest feature of the other, and the distances are averaged both ways::

    D(X, Z) = 1/2 [ mean_i min_j d(x_i, z_j) + mean_j min_i d(z_j, x_i) ]
    d(x, z) = |f_x - f_z| + lambda |r_x - r_z|

f is the descriptor (geometric blur, of unit length) and r the position in the image, in units of its sides.  λ = 0 is
"GB", λ > 0 "GBdist", which charges for moving a feature.  The similarity is exp(-D / A), with A the mean distance
between different reference images unless given.

D is not a metric and exp(-D / A) is not a Mercer kernel in general; give it to
``GaussianProcessCategorizer(repair=True)``, or the distances to ``kernel="distance"``, which learns A by the evidence.

Cost: T_X T_Z d a pair, as float32 matrix products over blocks of images (most of the time), and a fused pass for the
minima.  ``squared=True`` squares the descriptor distances, which favours a few close matches.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numba import njit, prange
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags
from patchbag.similarity.sets import check_bags

ROWS = 4096


# values are finite (checked), so minima need not care for NaN or the sign of zero, and can be vectorised
@njit(cache=True, nogil=True, parallel=True, fastmath={"nnan", "nsz"})
def _minima(
    products: np.ndarray,
    squares_x: np.ndarray,
    squares_z: np.ndarray,
    where_x: np.ndarray,
    where_z: np.ndarray,
    offsets_x: np.ndarray,
    offsets_z: np.ndarray,
    weight: np.float32,
    squared: bool,
) -> np.ndarray:
    n, m = len(offsets_x) - 1, len(offsets_z) - 1
    two, zero = np.float32(2.0), np.float32(0.0)
    result = np.empty((n, m))
    for i in prange(n):
        start, stop = offsets_x[i], offsets_x[i + 1]
        nearest = np.full(offsets_z[m], np.float32(np.inf), np.float32)
        forward = np.zeros(m)
        distance = np.empty(offsets_z[m], np.float32)
        for a in range(start, stop):
            for b in range(offsets_z[m]):
                # rounding can leave the square of a tiny distance below zero
                distance[b] = max(squares_x[a] + squares_z[b] - two * products[a, b], zero)
            if weight > zero:
                for b in range(offsets_z[m]):
                    dx, dy = where_x[a, 0] - where_z[0, b], where_x[a, 1] - where_z[1, b]
                    appearance = distance[b] if squared else np.sqrt(distance[b])
                    distance[b] = appearance + weight * np.sqrt(dx * dx + dy * dy)
            for b in range(offsets_z[m]):
                nearest[b] = min(nearest[b], distance[b])
            for j in range(m):
                best = distance[offsets_z[j]]
                for b in range(offsets_z[j] + 1, offsets_z[j + 1]):
                    best = min(best, distance[b])
                # the root is monotone: without positions it can wait until the minimum is known
                forward[j] += best if squared or weight > zero else np.sqrt(best)
        for j in range(m):
            backward = 0.0
            for b in range(offsets_z[j], offsets_z[j + 1]):
                backward += nearest[b] if squared or weight > zero else np.sqrt(nearest[b])
            result[i, j] = 0.5 * (forward[j] / (stop - start) + backward / (offsets_z[j + 1] - offsets_z[j]))
    return result


def average_minimum_distance(a: Bags, b: Bags, position_weight: float = 0.0, squared: bool = False) -> np.ndarray:
    """Average minimum distance (n, m) between n and m bags; with ``position_weight`` > 0 both need positions."""
    if position_weight > 0 and (a.positions is None or b.positions is None):
        raise ValueError("position_weight is set but the bags have no positions; set it to 0 or extract them")
    rows = []
    for part in a.chunks(ROWS):
        x, square_x, where_x = _arrays(part)
        row = []
        for other in b.chunks(ROWS):
            z, square_z, where_z = _arrays(other)
            sizes = (part.offsets, other.offsets, np.float32(position_weight), squared)
            row.append(_minima(x @ z.T, square_x, square_z, where_x, np.ascontiguousarray(where_z.T), *sizes))
        rows.append(np.hstack(row))
    return np.vstack(rows)


def _arrays(bags: Bags) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values = np.asarray(bags.values, dtype=np.float32)
    where = np.zeros((len(values), 2)) if bags.positions is None else bags.positions
    return values, (values**2).sum(axis=1), np.asarray(where, dtype=np.float32)


class MinimumDistanceKernel(TransformerMixin, BaseEstimator):
    """exp(-D / A) with D the average minimum distance between bags.

    Parameters
    ----------
    position_weight : λ; 0 is "GB", a positive value "GBdist"
    squared : use squared descriptor distances
    scale : A; None for the mean distance between different reference bags
    output : "kernel", or "distance" for D itself
    """

    def __init__(
        self,
        position_weight: float = 0.0,
        *,
        squared: bool = False,
        scale: float | None = None,
        output: str = "kernel",
    ) -> None:
        self.position_weight = position_weight
        self.squared = squared
        self.scale = scale
        self.output = output

    def fit(self, X: Any, y: Any = None) -> Self:
        """Keep the reference bags and measure the scale."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Kernel (n, n) of the reference bags."""
        if self.output not in ("kernel", "distance"):
            raise ValueError(f"output must be 'kernel' or 'distance', got {self.output!r}")
        if self.position_weight < 0:
            raise ValueError(f"position_weight must be >= 0, got {self.position_weight}")
        if self.scale is not None and not self.scale > 0:
            raise ValueError(f"scale must be > 0, got {self.scale}")
        self.reference_ = check_bags(X)
        self.n_features_in_ = self.reference_.dimension
        distance = self._symmetric(self.reference_)
        n = len(distance)
        mean = float(distance.sum() - np.trace(distance)) / max(n * (n - 1), 1)
        self.scale_ = self.scale if self.scale is not None else (mean or 1.0)
        return self._similarity(distance)

    def _symmetric(self, bags: Bags) -> np.ndarray:
        parts = list(bags.chunks(ROWS))
        starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        distance = np.empty((len(bags), len(bags)))
        for i, part in enumerate(parts):
            for j in range(i, len(parts)):
                block = average_minimum_distance(part, parts[j], self.position_weight, self.squared)
                distance[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = block
                distance[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = block.T
        # a bag is at distance zero from itself, which float32 products miss by their rounding
        distance = (distance + distance.T) / 2
        np.fill_diagonal(distance, 0.0)
        return distance

    def transform(self, X: Any) -> np.ndarray:
        """Kernel (m, n) between m bags and the n reference bags."""
        check_is_fitted(self, "scale_")
        bags = check_bags(X, self.n_features_in_)
        return self._similarity(average_minimum_distance(bags, self.reference_, self.position_weight, self.squared))

    def diagonal(self, X: Any) -> np.ndarray:
        """(m,) kernel of each bag with itself: one (zero for distances)."""
        return np.full(len(check_bags(X)), 1.0 if self.output == "kernel" else 0.0)

    def _similarity(self, distance: np.ndarray) -> np.ndarray:
        return np.exp(-distance / self.scale_) if self.output == "kernel" else distance
