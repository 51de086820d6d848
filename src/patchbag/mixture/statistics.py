# SPDX-License-Identifier: BSD-3-Clause
r"""Statistics of bags under a universal Gaussian mixture: the one pass over the descriptors that feeds every method.

Bags of words, Pólya, Fisher vectors, latent-mixture Fisher vectors and MAP-adapted mixtures are all functions of the
soft counts and the first two moments of a bag's descriptors under the universal mixture's components.  The sums *add*,
across descriptors, spatial cells, images and machines: a cell of a pyramid is a sum of smaller cells, a whole image the
sum of all cells, and EM needs nothing but the sum over all images.

``collect`` walks over whole bags in jobs of about ``JOB_ROWS`` descriptors, which carry their descriptors with them and
return sums.  Memory beyond the result is one chunk of ``CHUNK_ROWS`` descriptors and a few megabytes per worker.
On a GPU the sums are dense products, chunk by chunk (``dense``).
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, Self

import numpy as np
from array_api_compat import array_namespace

from patchbag.bags import Bags
from patchbag.device import on_device, to_host
from patchbag.features.projection import project
from patchbag.mixture.accumulate import CUTOFF, FAR, accumulate, raw_moments
from patchbag.mixture.dense import collect_dense
from patchbag.mixture.parameters import GaussianParameters
from patchbag.mixture.spatial import SpatialPyramid
from patchbag.records import Records, shared
from patchbag.runtime import parallel_map
from patchbag.storage.declared import Part, floats, stored
from patchbag.storage.registry import storable

JOB_ROWS = 16384
CHUNK_ROWS = 64 * JOB_ROWS


@storable
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

    s0: Any = stored(floats("n", "K", low=0))
    s1: Any = stored(floats("n", "K", "D"))
    s2: Any = stored(floats("n", "K", "D"))
    universal: GaussianParameters | None = shared(Part("GaussianParameters", optional=True, K="K"))

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


def _unions(a: Any, membership: Any) -> Any:
    """Sums (n, C', ...) over the cells of (n, C, ...) that ``membership (C', C)`` names."""
    xp = array_namespace(a)
    m = xp.asarray(membership, dtype=a.dtype)
    flat = xp.reshape(a, (a.shape[0], a.shape[1], math.prod(a.shape[2:])))
    return xp.reshape(m @ flat, (a.shape[0], m.shape[0], *a.shape[2:]))


def collect(
    bags: Bags,
    parameters: GaussianParameters,
    pyramid: SpatialPyramid | None = None,
    assignment: str = "soft",
    n_jobs: int | None = None,
    moments: bool = True,
    projection: Any = None,
) -> Statistics:
    """Statistics of every bag under the mixture.

    Parameters
    ----------
    bags : Bags
    parameters : the universal mixture
    pyramid : the statistics are kept apart by its cells; without it there is no cell axis
    assignment : ``"soft"`` posteriors; ``"hard"``, the most probable component takes all; ``"nearest"``, the component
        with the nearest mean takes all
    n_jobs : workers, None for those of the context
    moments : False keeps the counts alone, which is all that words need and 2 D times smaller
    projection : a fitted transformer of bags, which every job applies to its descriptors first

    Returns
    -------
    Statistics
        float64 where the descriptors are float64, else float32; on the descriptors' own array type and device.  The
        moments are float64 also where the mixture lies far from the origin (``FAR``), since their differences matter
    """
    bags.check_not_empty()
    if projection is None and bags.dimension != parameters.dimension:
        raise ValueError(
            f"the mixture was trained on {parameters.dimension}-D descriptors, these bags have {bags.dimension}-D ones"
        )
    universal = parameters
    if assignment == "nearest":
        parameters = parameters.by_distance()
    wide = universal.distance > FAR
    if on_device(bags[0]):
        hard = assignment != "soft"
        statistics = Statistics(*collect_dense(bags, parameters, pyramid, hard, moments, wide, projection), universal)
        xp = array_namespace(statistics.s0)
        if not bool(xp.isfinite(xp.sum(statistics.s0))):
            raise_not_finite(bags, 0, len(bags))
        return statistics
    work = partial(
        _sums, parameters=parameters, pyramid=pyramid, cutoff=CUTOFF if assignment == "soft" else 1.0, moments=moments,
        wide=wide, projection=projection,
    )  # fmt: skip
    arrays: list[np.ndarray] = []
    done = 0
    for chunk in bags.chunks(CHUNK_ROWS):
        # descriptors that lie scattered in a file are read once, and only a chunk of them at a time
        jobs = list(Bags(chunk.values, chunk.offsets, chunk.positions).chunks(JOB_ROWS))
        for job, part in zip(jobs, parallel_map(work, jobs, n_jobs, near=True)):
            if part is None:
                raise_not_finite(job, done, len(bags))
            arrays = arrays or [np.empty((len(bags), *a.shape[1:]), a.dtype) for a in part]
            for whole, a in zip(arrays, part):
                whole[done : done + len(job)] = a
            done += len(job)
    s0, s1, s2 = arrays
    return Statistics(s0, s1, s2, universal)


def _sums(
    bags: Bags,
    parameters: GaussianParameters,
    pyramid: SpatialPyramid | None,
    cutoff: float,
    moments: bool,
    wide: bool,
    projection: Any,
) -> tuple[np.ndarray, ...] | None:
    """Counts and moments of the bags of one job; None if a descriptor is not finite."""
    bags = project(bags, projection)
    n, values, segments = len(bags), np.asarray(bags.values), np.repeat(np.arange(len(bags)), bags.sizes)
    n_atoms = 1
    if pyramid is not None:
        if bags.positions is None:
            raise ValueError("a spatial pyramid needs to know where the patches are: these bags have no positions")
        n_atoms = pyramid.n_atoms
        segments = segments * n_atoms + pyramid.assign(np.asarray(bags.positions))
        # one cell after the other: the sums of a cell stay in the cache
        order = np.argsort(segments, kind="stable")
        values, segments = values[order], segments[order]
    s0, s12, log_likelihood = accumulate(values, segments, n * n_atoms, parameters, cutoff=cutoff, moments=moments)
    if not np.isfinite(log_likelihood):
        return None
    if pyramid is not None:
        # while the sums are still standardised: counts and moments are then made of the same rounded sums
        s0, s12 = (_unions(a.reshape(n, n_atoms, *a.shape[1:]), pyramid.membership) for a in (s0, s12))
    return (s0, *raw_moments(s0, s12, parameters, wide)) if moments else (s0, s12, s12)


def raise_not_finite(bags: Bags, first: int, total: int) -> NoReturn:
    """Name the bag that holds NaN or infinite descriptors."""
    for i, values in enumerate(bags):
        if not np.isfinite(to_host(values)).all():
            raise ValueError(f"bag {first + i} of {total} has descriptors that are NaN or infinite")
    raise ValueError("descriptors lie too far from the universal mixture to be represented in float32; pass float64")
