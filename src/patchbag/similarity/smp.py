# SPDX-License-Identifier: BSD-3-Clause
r"""How alike two images are by their sparse multiscale patches: divergences summed over scales (piro2010 §2.3, 2.4).

.. math:: S(I_1, I_2) = \sum_j \alpha_j\, D_{KL}\big(p_j(I_1) \,\|\, p_j(I_2)\big)

with the densities p_j of the patches at each scale (:mod:`patchbag.features.laplacian`) and divergences by k-th nearest
neighbours (:mod:`patchbag.similarity.nearest`); k = 10 and all α = 1 (§2.4.2.2).  The smaller S, the more alike.

The entropies of the first image are the same whatever it is compared with: one against many costs a cross-entropy per
pair.  On a GPU images with the same number of patches are one array per scale (``StackedPatches``), and one against all
of them a few products.

**Two steps** (§2.4.4.2): all images are ranked by a cheaper measure, the first n of them again by S.  In the thesis the
first measure is the divergence of the low-pass, which is half of the work and ranks otherwise than S.  Deviation: here
it is S itself, with means over every ``SAMPLED``-th of the query's patches at every scale; ``scales=LOW_PASS`` takes
the low-pass alone, which finds fewer of the images that are best by S.  The stride was chosen on Caltech-101.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from math import log
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from patchbag.bags import Bags
from patchbag.device import on_device, to_device, to_host
from patchbag.features.laplacian import BANDS, WIDTH, split_scales
from patchbag.parameters import ONE_OR_MORE, estimator, parameter
from patchbag.similarity.base import BagKernel, check_bags
from patchbag.similarity.nearest import (
    FLOOR,
    cross_entropy,
    entropy,
    kth_distances,
    kth_distances_to_many,
    mean_log,
)

LOW_PASS = (BANDS,)
ALL = tuple(range(BANDS + 1))
SAMPLED = 16
NEIGHBOURS = 10


def _neighbours(k: int, *samples: np.ndarray) -> int:
    """k, or what a small image has: of a thumbnail's finest band a few patches are kept."""
    return max(1, min(k, *(len(sample) - 1 for sample in samples)))


def divergences_to(
    query: np.ndarray,
    references: Sequence[np.ndarray],
    scales: Sequence[int] = ALL,
    k: int = NEIGHBOURS,
    weights: Any = None,
) -> np.ndarray:
    """S(query, reference) of each reference, over some of the scales; on the device of the context."""
    if on_device(query):
        return _divergences_elsewhere(query, references, scales, k, weights)
    scales_of_query = split_scales(query)
    alpha = np.ones(len(ALL)) if weights is None else np.asarray(weights, float)
    result = np.zeros(len(references))
    own: dict[tuple[int, int], float] = {}
    for i, reference in enumerate(references):
        parts = split_scales(reference)
        for j in scales:
            a, b = scales_of_query[j], parts[j]
            n = _neighbours(k, a, b)
            if (j, n) not in own:
                own[j, n] = entropy(a, n)
            result[i] += alpha[j] * (cross_entropy(a, b, n) - own[j, n])
    return result


@dataclass(frozen=True)
class StackedPatches:
    """Patches of many images that have the same number of them: an array ``(images, n_j, d_j)`` per scale."""

    scales: list[Any]

    @classmethod
    def of(cls, references: Sequence[np.ndarray]) -> StackedPatches:
        """Put them where the context computes; ValueError where the images have different numbers of patches."""
        parts = [split_scales(np.asarray(reference)) for reference in references]
        return cls([to_device(np.stack([part[j] for part in parts])) for j in ALL])

    def divergences(
        self, query: np.ndarray, scales: Sequence[int] = ALL, k: int = NEIGHBOURS, weights: Any = None
    ) -> Any:
        """S(query, image) of each of the images, over some of the scales, in a few products; on the device."""
        alpha = np.ones(len(ALL)) if weights is None else np.asarray(weights, float)
        found: Any = 0.0
        for j in scales:
            own, others = to_device(split_scales(np.asarray(query))[j]), self.scales[j]
            n, d = _neighbours(k, own, others[0, ...]), own.shape[1]
            xp = array_namespace(others)
            cross = xp.mean(xp.log(xp.clip(kth_distances_to_many(own, others, n), min=FLOOR)), axis=1)
            ahead = log(others.shape[1]) - log(own.shape[0] - 1) - d * mean_log(kth_distances(own, own, n, itself=True))
            found = found + float(alpha[j]) * (d * cross + ahead)
        return found


def _divergences_elsewhere(
    query: np.ndarray, references: Sequence[np.ndarray], scales: Sequence[int], k: int, weights: Any
) -> np.ndarray:
    sizes = [tuple(np.bincount(np.asarray(r)[:, 0].astype(int), minlength=len(ALL)).tolist()) for r in references]
    result = np.zeros(len(references))
    for size in set(sizes):
        rows = [i for i, own in enumerate(sizes) if own == size]
        stack = StackedPatches.of([references[i] for i in rows])
        result[rows] = to_host(stack.divergences(query, scales, k, weights))
    return result


def sampled_divergences(query: np.ndarray, references: Sequence[np.ndarray], scales: Sequence[int] = ALL) -> np.ndarray:
    """S(query, reference) up to a constant, by a sample of the query's patches; small scales keep just enough."""
    ends = np.searchsorted(query[:, 0], np.arange(BANDS + 2)).tolist()
    rows = [np.arange(a, b, max(1, min(SAMPLED, (b - a) // (NEIGHBOURS + 1)))) for a, b in pairwise(ends)]
    return divergences_to(query[np.concatenate(rows)], references, scales)


def two_step_divergences(
    query: np.ndarray, references: Sequence[np.ndarray], n: int, scales: Sequence[int] = ALL
) -> tuple[np.ndarray, np.ndarray]:
    """S of the n references that are best by a sample of some scales; infinite for others; and by the sample."""
    sampled, found = sampled_divergences(query, references, scales), np.full(len(references), np.inf)
    near = np.argsort(sampled, kind="stable")[:n]
    found[near] = divergences_to(query, [references[i] for i in near])
    return found, sampled


def two_step_ranking(
    query: np.ndarray, references: Sequence[np.ndarray], n: int, scales: Sequence[int] = ALL
) -> np.ndarray:
    """All references, most alike first: the n best by a sample of some scales in the order of S, then the others."""
    found, sampled = two_step_divergences(query, references, n, scales)
    return np.lexsort((sampled, found))


@estimator
class SMPSimilarity(BagKernel):
    """Similarities to reference images by their sparse multiscale patches: -S, rows that are no kernel matrix.

    Parameters
    ----------
    k : neighbours of the estimators
    weights : of the divergences of the four scales, None for all 1

    >>> from patchbag.features.laplacian import MultiscalePatches
    >>> images = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), np.uint8)
    >>> SMPSimilarity(k=3).fit_transform(MultiscalePatches().transform(images)).shape
    (3, 3)
    """

    symmetric = False

    k: int = parameter(ONE_OR_MORE, default=NEIGHBOURS)
    _: KW_ONLY
    weights: Any = parameter("array-like", None, default=None)

    def _check(self, X: Any, fitted: bool = False) -> Bags:
        if self.weights is not None and (
            np.shape(self.weights) != (len(ALL),) or not np.isfinite(np.asarray(self.weights, float)).all()
        ):
            raise ValueError(f"weights must be {len(ALL)} numbers, one for each scale; got {self.weights!r:.60}")
        return check_bags(X, WIDTH)

    def _compare(self, X: Any) -> np.ndarray:
        references = list(self.references_)
        return np.stack([-divergences_to(query, references, ALL, self.k, self.weights) for query in X])
