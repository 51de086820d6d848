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

Distances are |x|² + |z|² - 2 x·z in float32, after the mean of the features is taken off and their largest value
brought to one; where that is so small a part of |x|² + |z|² that digits are lost, it is computed anew from x - z in
float64.  So a large offset or unit of the features does no harm, and nearly equal features keep their distance.

Cost: T_X T_Z d a pair, as float32 matrix products over blocks of images (most of the time), and a fused pass for the
minima.  ``squared=True`` squares the descriptor distances, which favours a few close matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numba import njit, prange
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags
from patchbag.runtime import parallel_njit
from patchbag.similarity.sets.kernel import check_bags

ROWS = 4096
# share of |x|² + |z|² under which |x - z|² is computed anew: above it, float32 products leave it three digits or more
CLOSE = np.float32(1e-3)


@njit(cache=True, nogil=True)
def _careful_distances(
    products: np.ndarray,
    x: np.ndarray,
    z: np.ndarray,
    unit: float,
    squares_x: np.ndarray,
    squares_z: np.ndarray,
    where_x: np.ndarray,
    where_z: np.ndarray,
    weight: np.float32,
    squared: bool,
) -> np.ndarray:
    """Distances (n, m) between the features of two bags; those of close ones from their differences."""
    distances = np.empty(products.shape)
    for a in range(len(x)):
        for b in range(len(z)):
            total = squares_x[a] + squares_z[b]
            square = total - 2.0 * products[a, b]
            if square <= CLOSE * total:
                square = 0.0
                for k in range(x.shape[1]):
                    square += ((float(x[a, k]) - float(z[b, k])) / unit) ** 2
            moved = np.sqrt((where_x[a, 0] - where_z[0, b]) ** 2 + (where_x[a, 1] - where_z[1, b]) ** 2)
            distances[a, b] = (square if squared else np.sqrt(square)) + weight * moved
    return distances


@njit(cache=True, nogil=True)
def _mean_of_minima(distances: np.ndarray) -> float:
    n, m = distances.shape
    nearest = np.full(m, np.inf)
    forward = 0.0
    for a in range(n):
        best = np.inf
        for b in range(m):
            best = min(best, distances[a, b])
            nearest[b] = min(nearest[b], distances[a, b])
        forward += best
    return 0.5 * (forward / n + nearest.sum() / m)


# values are finite (checked), so minima need not care for NaN or the sign of zero, and can be vectorised
@parallel_njit(fastmath={"nnan", "nsz"})
def _minima(
    products: np.ndarray,
    x: np.ndarray,
    z: np.ndarray,
    unit: float,
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
        closest = np.full(offsets_z[m], np.float32(np.inf), np.float32)  # as nearest, but squared and without positions
        forward = np.zeros(m)
        distance = np.empty(offsets_z[m], np.float32)
        for a in range(start, stop):
            for b in range(offsets_z[m]):
                # rounding can leave the square of a tiny distance below zero
                distance[b] = max(squares_x[a] + squares_z[b] - two * products[a, b], zero)
            if weight > zero:
                for b in range(offsets_z[m]):
                    closest[b] = min(closest[b], distance[b])
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
        longest = squares_x[start:stop].max()
        for j in range(m):
            backward, close = 0.0, False
            for b in range(offsets_z[j], offsets_z[j + 1]):
                backward += nearest[b] if squared or weight > zero else np.sqrt(nearest[b])
                apart = closest[b] if weight > zero else nearest[b]
                close = close or apart <= CLOSE * (longest + squares_z[b])
            result[i, j] = 0.5 * (forward[j] / (stop - start) + backward / (offsets_z[j + 1] - offsets_z[j]))
            if close:
                distances = _careful_distances(
                    products[start:stop, offsets_z[j] : offsets_z[j + 1]],
                    x[start:stop],
                    z[offsets_z[j] : offsets_z[j + 1]],
                    unit,
                    squares_x[start:stop],
                    squares_z[offsets_z[j] : offsets_z[j + 1]],
                    where_x[start:stop],
                    where_z[:, offsets_z[j] : offsets_z[j + 1]],
                    weight,
                    squared,
                )
                result[i, j] = _mean_of_minima(distances)
    return result


def average_minimum_distance(a: Bags, b: Bags, position_weight: float = 0.0, squared: bool = False) -> np.ndarray:
    """Average minimum distance (n, m) between n and m bags; with ``position_weight`` > 0 both need positions."""
    frame = Frame.around([a, b], position_weight, squared)
    return np.vstack([_strip(part, b.chunks(ROWS), frame) for part in a.chunks(ROWS)])


@dataclass(frozen=True)
class Frame:
    """Where features are seen from, so that float32 suits them: less ``center (d,)``, in multiples of ``unit``."""

    center: np.ndarray
    unit: float
    position_weight: float
    squared: bool

    @classmethod
    def around(cls, bags: Sequence[Bags], position_weight: float, squared: bool) -> Frame:
        """The frame whose centre is the mean of the features and whose unit, a power of two, is about the largest
        value.
        """
        if position_weight > 0 and any(part.positions is None for part in bags):
            raise ValueError("position_weight is set but the bags have no positions; set it to 0 or extract them")
        values = [np.asarray(part.values) for part in bags]
        center = np.mean([part.mean(axis=0, dtype=float) for part in values], axis=0)
        reach = [
            max((part.max(axis=0) - center).max(initial=0.0), (center - part.min(axis=0)).max(initial=0.0))
            for part in values
        ]
        # any centre will do as long as all see the same: one in their own precision saves float32 features a detour
        center = center.astype(np.float32 if any(part.dtype == np.float32 for part in values) else np.float64)
        unit = float(2.0 ** np.ceil(np.log2(max(reach)))) if max(reach) > 0 else 1.0
        if position_weight > 0:
            # where features are so much smaller than the charge for a move, it would overflow in their unit
            unit = max(unit, (1e-30 * position_weight) ** (0.5 if squared else 1.0))
        return cls(center, unit, position_weight, squared)

    @property
    def scale(self) -> float:
        """By how much distances are too small."""
        return self.unit**2 if self.squared else self.unit

    def arrays(self, bags: Bags) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Features as they are, features in float32 in this frame with their squares, and positions."""
        values = np.asarray(bags.values)
        values = values if values.dtype in (np.float32, np.float64) else values.astype(float)
        single = np.subtract(values, self.center, dtype=values.dtype)
        single = np.divide(single, self.unit, out=single).astype(np.float32, copy=False)
        where = np.zeros((len(values), 2)) if bags.positions is None else bags.positions
        return values, single, (single**2).sum(axis=1), np.asarray(where, dtype=np.float32)


def _strip(part: Bags, others: Iterable[Bags], frame: Frame) -> np.ndarray:
    """Distances between the bags of one block and those of several, side by side."""
    x, single_x, squares_x, where_x = frame.arrays(part)
    weight = np.float32(frame.position_weight / frame.scale)
    blocks = []
    for other in others:
        z, single_z, squares_z, where_z = frame.arrays(other)
        features = (single_x @ single_z.T, x, z, frame.unit, squares_x, squares_z)
        where = (where_x, np.ascontiguousarray(where_z.T))
        blocks.append(_minima(*features, *where, part.offsets, other.offsets, weight, frame.squared))
    return np.hstack(blocks) * frame.scale


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
        frame = Frame.around([bags], self.position_weight, self.squared)
        distance = np.empty((len(bags), len(bags)))
        for i, part in enumerate(parts):
            strip = _strip(part, parts[i:], frame)
            distance[starts[i] : starts[i + 1], starts[i] :] = strip
            distance[starts[i] :, starts[i] : starts[i + 1]] = strip.T
        # the block of a part with itself is symmetric only but for rounding
        return (distance + distance.T) / 2

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
