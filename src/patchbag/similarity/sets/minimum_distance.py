# SPDX-License-Identifier: BSD-3-Clause
r"""Average minimum distance between sets of features (Zhang et al. 2006; "GB" and "GBdist" of kapoor2010, §8).

Every feature of one image looks for the closest feature of the other, and the distances are averaged both ways::

    D(X, Z) = 1/2 [ mean_i min_j d(x_i, z_j) + mean_j min_i d(z_j, x_i) ]
    d(x, z) = |f_x - f_z| + lambda |r_x - r_z|

f is the descriptor (geometric blur, of unit length) and r the position in the image, in units of its sides.  λ = 0 is
"GB", λ > 0 "GBdist", which charges for moving a feature.  The similarity is exp(-D / A), with A the mean distance
between different reference images unless given.

D is not a metric and exp(-D / A) is not a Mercer kernel in general; give it to
``GaussianProcessClassifier(repair=True)``, or the distances to ``kernel="distance"``, which learns A by the evidence.

Distances are |x|² + |z|² - 2 x·z in float32, after the mean of the features is taken off and their largest value
brought to one; a pair of images with features so close that digits are lost (under a thousandth of |x|² + |z|²) is
computed anew from x - z in float64.  So a large offset or unit of the features does no harm, and nearly equal features
keep their distance.

Cost: T_X T_Z d per pair, as float32 matrix products over blocks of a few images that stay in the cache (two thirds of
the time), and a fused pass for the minima.  Several λ share the products: ``KernelUnion`` computes GB and GBdist in one
pass.  ``squared=True`` squares the descriptor distances, which favours a few close matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numba import njit
from numba.extending import intrinsic
from scipy.spatial.distance import cdist
from sklearn.utils._param_validation import StrOptions

from patchbag.bags import Bags
from patchbag.parameters import NOT_NEGATIVE, POSITIVE, estimator, parameter
from patchbag.runtime import parallel_map
from patchbag.similarity.base import BagKernel
from patchbag.storage.declared import Declared, real

# features in a block: the products of two blocks stay in a core's own cache
ROWS = 1024
# share of |x|² + |z|² under which |x - z|² is computed anew: above it, float32 products leave it three digits or more
CLOSE = np.float32(1e-3)
INFINITE = np.float32(np.inf)


def _lesser(typing_context, a, b):  # pragma: no cover - compiled
    """The smaller of two numbers that are not NaN: the compiler vectorises minima only where it is told so."""

    def generate(context, builder, signature, arguments):
        flags = ("nnan", "nsz")
        return builder.select(builder.fcmp_ordered("<", *arguments, flags=flags), *arguments, flags=flags)

    return a(a, b), generate


_smaller: Any = intrinsic(_lesser)

# Loops over one array each: with more, the compiler gives up telling whether they overlap, and does not vectorise.


@njit(cache=True, nogil=True)
def _squares(products, squares, own, out):  # pragma: no cover - compiled
    for b in range(len(out)):
        # rounding can leave the square of a tiny distance below zero
        out[b] = max(own + squares[b] - np.float32(2) * products[b], np.float32(0))


@njit(cache=True, nogil=True)
def _charged(apart, squared, x, y, places, weight, out):  # pragma: no cover - compiled
    """Distances with the charge for the way from (x, y) to places (2, n)."""
    across, down = places[0], places[1]
    if squared:
        for b in range(len(out)):
            out[b] = apart[b] + weight * np.sqrt((x - across[b]) ** 2 + (y - down[b]) ** 2)
    else:
        for b in range(len(out)):
            out[b] = np.sqrt(apart[b]) + weight * np.sqrt((x - across[b]) ** 2 + (y - down[b]) ** 2)


@njit(cache=True, nogil=True)
def _lower(least, values):  # pragma: no cover - compiled
    for b in range(len(least)):
        least[b] = _smaller(least[b], values[b])


@njit(cache=True, nogil=True)
def _least(values):  # pragma: no cover - compiled
    best = values[0]
    for b in range(len(values)):
        best = _smaller(best, values[b])
    return best


@njit(cache=True, nogil=True)
def _minima(products, x, z, weights, squared, result, close):  # pragma: no cover - compiled
    """Distances result (k, n, m) under each weight, and which pairs (n, m) have features too close for float32.

    x and z are squares, places and offsets of the features of two blocks.
    """
    (squares, places, offsets), (z_squares, z_places, ends) = x, z
    total = len(z_squares)
    apart, value, closest = np.empty(total, np.float32), np.empty(total, np.float32), np.empty(total, np.float32)
    nearest = np.empty((len(weights), total), np.float32)
    for i in range(result.shape[1]):
        start, stop = offsets[i], offsets[i + 1]
        closest[:] = INFINITE
        nearest[:] = INFINITE
        result[:, i] = 0
        for a in range(start, stop):
            _squares(products[a], z_squares, squares[a], apart)
            _lower(closest, apart)
            for k in range(len(weights)):
                if weights[k] > 0:
                    _charged(apart, squared, places[0, a], places[1, a], z_places, weights[k], value)
                    _lower(nearest[k], value)
                found = value if weights[k] > 0 else apart
                for j in range(result.shape[2]):
                    best = _least(found[ends[j] : ends[j + 1]])
                    # the root is monotone: without positions it can wait until the minimum is known
                    result[k, i, j] += best if squared or weights[k] > 0 else np.sqrt(best)
        longest = squares[start:stop].max()
        for j in range(result.shape[2]):
            first, last = ends[j], ends[j + 1]
            for k in range(len(weights)):
                backward = 0.0
                for b in range(first, last):
                    if weights[k] > 0:
                        backward += nearest[k, b]
                    else:
                        backward += closest[b] if squared else np.sqrt(closest[b])
                result[k, i, j] = 0.5 * (result[k, i, j] / (stop - start) + backward / (last - first))
            for b in range(first, last):
                close[i, j] |= closest[b] <= CLOSE * (longest + z_squares[b])


class Block(NamedTuple):
    """A few bags in float32, less their common centre and in their common unit, beside their features as they are."""

    values: np.ndarray
    single: np.ndarray
    squares: np.ndarray
    places: np.ndarray
    offsets: np.ndarray


def _careful(x: np.ndarray, z: np.ndarray, where: tuple[Any, Any], weights: Any, squared: bool) -> list[float]:
    """Distances under each weight from the differences of the features, in float64."""
    apart, moved = cdist(x, z, "sqeuclidean" if squared else "euclidean"), cdist(*where)
    costs = [apart + weight * moved for weight in weights]
    return [0.5 * (cost.min(axis=1).mean() + cost.min(axis=0).mean()) for cost in costs]


def _strip(job: tuple[Block, int], others: list[Block], unit: float, weights: np.ndarray, squared: bool) -> np.ndarray:
    """Distances (k, n, m) between the bags of one block and those of several, from the numbered one on."""
    part, first = job
    blocks = []
    for other in others[first:]:
        shape = len(part.offsets) - 1, len(other.offsets) - 1
        found, close = np.empty((len(weights), *shape)), np.zeros(shape, bool)
        _minima(part.single @ other.single.T, part[2:], other[2:], weights, squared, found, close)
        for i, j in np.argwhere(close):
            rows, columns = slice(*part.offsets[i : i + 2]), slice(*other.offsets[j : j + 2])
            # a unit that is a power of two costs no digits
            x, z = part.values[rows] / np.float64(unit), other.values[columns] / np.float64(unit)
            where = part.places[:, rows].T, other.places[:, columns].T
            found[:, i, j] = _careful(x, z, where, weights, squared)
        blocks.append(found)
    return np.concatenate(blocks, axis=2)


def minimum_distances(
    a: Bags, b: Bags | None, position_weights: Sequence[float] = (0.0,), squared: bool = False
) -> np.ndarray:
    """Average minimum distances (k, n, m) between n and m bags under k weights of the positions.

    Without ``b`` those of the bags with each other, exactly symmetric; weights > 0 need positions.
    """
    given = [a] if b is None else [a, b]
    heaviest = max(position_weights)
    center, unit = _frame(given, heaviest, squared)
    scale = unit**2 if squared else unit
    blocks = [[_block(part, center, unit) for part in bags.chunks(ROWS)] for bags in given]
    weights = np.array([weight / scale for weight in position_weights], np.float32)
    strip = partial(_strip, others=blocks[-1], unit=unit, weights=weights, squared=squared)
    jobs = [(block, i if b is None else 0) for i, block in enumerate(blocks[0])]
    result, start = np.empty((len(weights), len(a), len(given[-1]))), 0
    for found in parallel_map(strip, jobs):
        stop = start + found.shape[1]
        result[:, start:stop, result.shape[2] - found.shape[2] :] = found
        if b is None:
            result[:, start:, start:stop] = found.swapaxes(1, 2)
        start = stop
    # the block of a part with itself is symmetric only but for rounding
    return scale * (result if b is not None else (result + result.swapaxes(1, 2)) / 2)


def _frame(given: Sequence[Bags], position_weight: float, squared: bool) -> tuple[np.ndarray, float]:
    """Where features are seen from so that float32 suits them: their mean, and a power of two near the largest."""
    if position_weight > 0 and any(part.positions is None for part in given):
        raise ValueError("position_weight is set but the bags have no positions; set it to 0 or extract them")
    values = [np.asarray(part.values) for part in given]
    center = np.mean([part.mean(axis=0, dtype=float) for part in values], axis=0)
    reach = max(max((v.max(axis=0) - center).max(), (center - v.min(axis=0)).max(), 0.0) for v in values)
    # any centre will do as long as all see the same: one in their own precision saves float32 features a detour
    center = center.astype(np.float32 if any(v.dtype == np.float32 for v in values) else np.float64)
    unit = float(2.0 ** np.ceil(np.log2(reach))) if reach > 0 else 1.0
    if position_weight > 0:
        # where features are so much smaller than the charge for a move, it would overflow in their unit
        unit = max(unit, (1e-30 * position_weight) ** (0.5 if squared else 1.0))
    return center, unit


def _block(bags: Bags, center: np.ndarray, unit: float) -> Block:
    values = np.asarray(bags.values)
    values = values if values.dtype in (np.float32, np.float64) else values.astype(float)
    single = np.subtract(values, center, dtype=values.dtype)
    single = np.divide(single, unit, out=single).astype(np.float32, copy=False)
    places = np.zeros((len(values), 2)) if bags.positions is None else np.asarray(bags.positions)
    places = np.ascontiguousarray(places.T, dtype=np.float32)
    return Block(values, single, (single**2).sum(axis=1), places, bags.offsets)


@estimator
class MinimumDistanceKernel(BagKernel):
    """exp(-D / A) with D the average minimum distance between bags.

    Parameters
    ----------
    position_weight : λ; 0 is "GB", a positive value "GBdist"
    squared : use squared descriptor distances
    scale : A; None for the mean distance between different reference bags
    output : "kernel", or "distance" for D itself

    Attributes
    ----------
    references_ : the reference bags;  scale_ : A
    """

    most_features = 1 << 14

    position_weight: float = parameter(NOT_NEGATIVE, default=0.0)
    _: KW_ONLY
    squared: bool = parameter("boolean", default=False)
    scale: float | None = parameter(POSITIVE, None, default=None)
    output: str = parameter(StrOptions({"kernel", "distance"}), default="kernel")

    _stored: ClassVar[dict[str, Declared]] = {
        "scale_": real(low=0),
    }

    @classmethod
    def fit_transform_all(cls, kernels: Sequence[Self], X: Any) -> list[np.ndarray]:
        for kernel in kernels:
            kernel._validate_params()
        bags = kernels[0]._check(X)
        grams = cls._distances(kernels, bags, None)
        return [kernel._learn(bags, gram) for kernel, gram in zip(kernels, grams)]

    @classmethod
    def transform_all(cls, kernels: Sequence[Self], X: Any) -> list[np.ndarray]:
        distances = cls._distances(kernels, kernels[0]._check(X, fitted=True), kernels[0].references_)
        return [kernel._similarity(distance) for kernel, distance in zip(kernels, distances)]

    @staticmethod
    def _distances(kernels: Sequence[MinimumDistanceKernel], a: Bags, b: Bags | None) -> list[np.ndarray]:
        """Distances of each kernel, in one pass if they are of one kind."""
        if any(kernel.squared != kernels[0].squared for kernel in kernels):
            return [minimum_distances(a, b, [kernel.position_weight], kernel.squared)[0] for kernel in kernels]
        return list(minimum_distances(a, b, [kernel.position_weight for kernel in kernels], kernels[0].squared))

    def _fit(self, bags: Bags) -> None:
        self._fit_gram(bags)

    def _fit_gram(self, bags: Bags) -> np.ndarray:
        return self._learn(bags, *self._distances([self], bags, None))

    def _learn(self, bags: Bags, distance: np.ndarray) -> np.ndarray:
        super()._fit(bags)
        n = len(distance)
        mean = float(distance.sum() - np.trace(distance)) / max(n * (n - 1), 1)
        self.scale_ = self.scale if self.scale is not None else (mean or 1.0)
        return self._similarity(distance)

    def _compare(self, bags: Bags) -> np.ndarray:
        return self._similarity(*self._distances([self], bags, self.references_))

    def diagonal(self, X: Any) -> np.ndarray:
        """(m,) kernel of each bag with itself: one (zero for distances)."""
        return np.full(len(self._check(X, fitted=True)), 1.0 if self.output == "kernel" else 0.0)

    def _similarity(self, distance: np.ndarray) -> np.ndarray:
        return np.exp(-distance / self.scale_) if self.output == "kernel" else distance
