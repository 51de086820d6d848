# SPDX-License-Identifier: BSD-3-Clause
r"""Statistics of bags under a universal Gaussian mixture: the one pass over the descriptors that feeds every method.

Bags of words, Pólya, Fisher vectors, latent-mixture Fisher vectors and MAP-adapted mixtures are all functions of the
soft counts and the first two moments of a bag's descriptors under the universal mixture's components.  The sums *add*,
across descriptors, spatial cells, images and machines: a cell of a pyramid is a sum of smaller cells, a whole image the
sum of all cells, and EM needs nothing but the sum over all images.

``collect`` walks over whole bags in jobs of about ``JOB_ROWS`` descriptors on a pool of threads.  Memory beyond the
result is a few megabytes a thread.  Arrays that live on a GPU are handled by dense products through the Array API.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags
from patchbag.mixture.accumulate import CUTOFF, FAR, accumulate, accumulate_dense, raw_moments
from patchbag.mixture.parameters import GaussianParameters
from patchbag.mixture.spatial import SpatialPyramid
from patchbag.records import Records, shared
from patchbag.runtime import parallel_map

JOB_ROWS = 16384
# descriptors that are processed together on a GPU: their posteriors are K times as many numbers
DENSE_ROWS = 1 << 19
ASSIGNMENTS = ("soft", "hard", "nearest")


@dataclass(frozen=True, repr=False)
class Statistics(Records):
    r"""Soft counts and moments of n bags under K components in D dimensions.

    With :math:`\gamma_{tk}` the posterior of component k for descriptor :math:`x_t`,

    * ``s0 (n, K)``: :math:`\sum_t \gamma_{tk}`
    * ``s1 (n, K, D)``: :math:`\sum_t \gamma_{tk} x_t`
    * ``s2 (n, K, D)``: :math:`\sum_t \gamma_{tk} x_t^2`

    With spatial cells there is one more axis behind n: ``s0 (n, C, K)``, ``s1 (n, C, K, D)``, ``s2 (n, C, K, D)``.
    ``+`` adds the statistics of two sets of descriptors of the same images.  ``universal`` is the mixture they refer
    to; statistics of different mixtures do not add.  Where only the counts were asked for, D is 0 in ``s1`` and ``s2``.
    """

    s0: Any
    s1: Any
    s2: Any
    universal: GaussianParameters | None = shared()

    def __add__(self, other: Self) -> Self:
        if tuple(self.s1.shape) != tuple(other.s1.shape):
            raise ValueError(
                f"cannot add statistics of shapes {tuple(self.s1.shape)} and {tuple(other.s1.shape)}: "
                "they must describe the same images under the same mixture"
            )
        self.check_shared(other)
        return replace(self, s0=self._counts() + other._counts(), s1=self.s1 + other.s1, s2=self.s2 + other.s2)

    def pool(self) -> Self:
        """The sum over all images, as statistics of one image."""
        xp = array_namespace(self.s0)
        arrays = {**self.arrays(), "s0": self._counts()}
        return replace(self, **{name: xp.sum(a, axis=0, keepdims=True) for name, a in arrays.items()})

    def _counts(self) -> Any:
        """The counts as precise as the moments: a sum that is rounded in one and not in the other would not fit."""
        xp = array_namespace(self.s0)
        return xp.astype(self.s0, xp.result_type(self.s0.dtype, self.s1.dtype), copy=False)

    def counts(self) -> Self:
        """The statistics without their moments."""
        return replace(self, s1=self.s1[..., :0], s2=self.s2[..., :0])

    def combine_cells(self, membership: Any) -> Self:
        """Statistics of cells that are unions of the present ones.

        Parameters
        ----------
        membership : (C', C) zeros and ones; new cell i is the sum of the old cells j with membership[i, j] = 1
        """
        s0, s1, s2 = (_unions(a, membership) for a in (self._counts(), self.s1, self.s2))
        return replace(self, s0=s0, s1=s1, s2=s2)


def _unions(a: Any, membership: Any) -> Any:
    """Sums (n, C', ...) over the cells of (n, C, ...) that ``membership (C', C)`` names."""
    xp = array_namespace(a)
    m = xp.asarray(membership, dtype=a.dtype)
    flat = xp.reshape(a, (a.shape[0], a.shape[1], math.prod(a.shape[2:])))
    return xp.reshape(m @ flat, (a.shape[0], m.shape[0], *a.shape[2:]))


def check_descriptors(bags: Bags, dimension: int) -> None:
    """Raise unless every bag has descriptors, of the right dimension; whether they are finite shows in their sums."""
    bags.check_not_empty()
    if bags.dimension != dimension:
        raise ValueError(
            f"the mixture was trained on {dimension}-D descriptors, these bags have {bags.dimension}-D ones"
        )


def collect(
    bags: Bags,
    parameters: GaussianParameters,
    pyramid: SpatialPyramid | None = None,
    assignment: str = "soft",
    n_threads: int | None = None,
    moments: bool = True,
) -> Statistics:
    """Statistics of every bag under the mixture.

    Parameters
    ----------
    bags : Bags
    parameters : the universal mixture
    pyramid : the statistics are kept apart by its cells; without it there is no cell axis
    assignment : ``"soft"`` posteriors; ``"hard"``, the most probable component takes all; ``"nearest"``, the component
        with the nearest mean takes all
    moments : False keeps the counts alone, which is all that words need and 2 D times smaller

    Returns
    -------
    Statistics
        float64 where the descriptors are float64, else float32; on the descriptors' own array type and device.  The
        moments are float64 also where the mixture lies far from the origin (``FAR``), since their differences matter
    """
    check_descriptors(bags, parameters.dimension)
    if assignment not in ASSIGNMENTS:
        raise ValueError(f"assignment must be one of {', '.join(ASSIGNMENTS)}, got {assignment!r}")
    universal, cutoff = parameters, CUTOFF if assignment == "soft" else 1.0
    wide = universal.distance > FAR
    if assignment == "nearest":
        k, spread = parameters.n_components, float(parameters.variances.mean())
        parameters = GaussianParameters(np.full(k, 1 / k), parameters.means, np.full(parameters.means.shape, spread))
    if not is_numpy_array(bags.values):
        if pyramid is not None or assignment != "soft":
            raise ValueError(
                "spatial cells and hard assignment need NumPy descriptors, not " + type(bags.values).__name__
            )
        dense = []
        for first, last in whole_bags(bags.offsets, DENSE_ROWS):
            part = bags[first:last]
            s0, s12, _ = accumulate_dense(part.values, part.offsets, parameters)
            dense.append(Statistics(s0, *raw_moments(s0, s12, parameters, wide), universal=universal))
            if not moments:
                dense[-1] = dense[-1].counts()
        return Statistics.concatenate(dense)
    if pyramid is not None and bags.positions is None:
        raise ValueError("a spatial pyramid needs to know where the patches are: these bags have no positions")
    n_atoms = 1 if pyramid is None else pyramid.n_atoms

    def job(bounds: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first, last = bounds
        rows = slice(int(bags.offsets[first]), int(bags.offsets[last]))
        values = np.asarray(bags.values[rows])
        segments = np.repeat(np.arange(last - first), bags.sizes[first:last])
        if pyramid is not None:
            segments = segments * n_atoms + pyramid.assign(np.asarray(bags.positions[rows]))
            # one cell after the other: the sums of a cell stay in the cache
            order = np.argsort(segments, kind="stable")
            values, segments = values[order], segments[order]
        s0, s12, log_likelihood = accumulate(values, segments, (last - first) * n_atoms, parameters, cutoff=cutoff)
        if not np.isfinite(log_likelihood):
            raise_not_finite(bags[first:last], first, len(bags))
        if pyramid is not None:
            # while the sums are still standardised: counts and moments are then made of the same rounded sums
            s0, s12 = (_unions(a.reshape(last - first, n_atoms, *a.shape[1:]), pyramid.membership) for a in (s0, s12))
        if not moments:
            return s0, s12[..., :0], s12[..., :0]
        return s0, *raw_moments(s0, s12, parameters, wide)

    parts = list(parallel_map(job, whole_bags(bags.offsets, JOB_ROWS), n_threads, shared=True))
    s0, s1, s2 = (np.concatenate(column) for column in zip(*parts))
    return Statistics(s0, s1, s2, universal=universal)


def whole_bags(offsets: np.ndarray, max_rows: int) -> list[tuple[int, int]]:
    """Ranges of consecutive bags with at most ``max_rows`` descriptors together (or one larger bag)."""
    bounds, first = [], 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + max_rows, side="right")) - 1
        last = max(last, first + 1)
        bounds.append((first, last))
        first = last
    return bounds


def raise_not_finite(bags: Bags, first: int, total: int) -> None:
    """Name the bag that holds NaN or infinite descriptors."""
    for i, values in enumerate(bags):
        if not np.isfinite(values).all():
            raise ValueError(f"bag {first + i} of {total} has descriptors that are NaN or infinite")
    raise ValueError("descriptors lie too far from the universal mixture to be represented in float32; pass float64")


class UniversalStatistics(TransformerMixin, BaseEstimator):
    """Bags → Statistics: projection, universal mixture and spatial cells, fitted on the training bags.

    Parameters
    ----------
    mixture : UniversalMixture, fitted or not (it is cloned and fitted); 64 components by default
    projection : a transformer of bags (``BagPCA``), applied in chunks; optional
    pyramid : list of grids such as ``["1x1", "2x2", "3x1"]``, or None for whole images without a cell axis
    assignment : ``"soft"``, ``"hard"`` or ``"nearest"``, see ``collect``
    n_threads : threads of the collection, all cores by default
    moments : False for encodings of word counts, which need no more than the counts

    Attributes
    ----------
    mixture_ : the fitted universal mixture
    projection_ : the fitted projection
    """

    def __init__(
        self,
        mixture: Any = None,
        projection: Any = None,
        pyramid: list[str] | None = None,
        assignment: str = "soft",
        n_threads: int | None = None,
        moments: bool = True,
    ) -> None:
        self.mixture = mixture
        self.projection = projection
        self.pyramid = pyramid
        self.assignment = assignment
        self.n_threads = n_threads
        self.moments = moments

    def fit(self, X: Any, y: Any = None) -> Self:
        from patchbag.mixture.gaussian import UniversalMixture  # which itself stands on this module

        bags = as_bags(X).check_not_empty()
        self.pyramid_ = SpatialPyramid(self.pyramid) if self.pyramid is not None else None
        self.projection_ = None
        sample = bags
        mixture = UniversalMixture() if self.mixture is None else clone(self.mixture)
        # the sample below no longer knows how many images there were
        mixture.set_params(n_components=mixture.resolve_components(bags))
        if mixture.max_samples is not None and bags.values.shape[0] > mixture.max_samples:
            rows = bags.sample(mixture.max_samples, mixture.random_state)
            sample = Bags(rows, [0, len(rows)])
        if self.projection is not None:
            self.projection_ = clone(self.projection).fit(bags)
            sample = self.projection_.transform(sample)
        self.mixture_ = mixture.fit(sample)
        return self

    def transform(self, X: Any) -> Statistics:
        check_is_fitted(self, "mixture_")
        bags = as_bags(X).check_not_empty()
        parts = []
        # projected in chunks of images, so that the projected descriptors of all images never stand in memory at once
        for chunk in bags.chunks(16 * JOB_ROWS):
            if self.projection_ is not None:
                chunk = self.projection_.transform(chunk)
            parts.append(
                collect(chunk, self.mixture_.parameters_, self.pyramid_, self.assignment, self.n_threads, self.moments)
            )
        return Statistics.concatenate(parts)
