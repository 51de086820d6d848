# SPDX-License-Identifier: BSD-3-Clause
r"""Pyramid match kernel between bags of features (Grauman & Darrell 2005; kapoor2010, §5).

Two features match at level i if they fall into one bin there and were not matched in a finer one.  The number of new
matches is a difference of histogram intersections I_i, and finer matches weigh more::

    K(X, Z) = sum_{i=0}^{L-1} w_i (I_i - I_{i-1}),   I_{-1} = 0,   w_i >= w_{i+1} >= 0

Summing by parts gives K = Σ (w_i - w_{i+1}) I_i with w_L = 0: a sum of histogram intersections with coefficients that
are not negative, hence a Mercer kernel, and one intersection of the concatenated, weighted histograms.  Nothing else
is computed here; see pyramid_bins for the bins and bin_index for the intersections.

For **uniform** bins w_i = 2^-i, one over the side.  The random place of the grid decides which close features are
split; averaging the kernel over ``n_shifts`` placements reduces that noise and keeps it Mercer.  For
**vocabulary-guided** bins the weight belongs to the bin, one over its size, and the difference is taken to the
parent's weight.  (Weights that depend on the pair of images, the other choice of Grauman & Darrell 2006, lose the
Mercer property and are not offered.)

``normalize`` divides by the root of the self-matches, so that large bags do not match everything.  A self-match is
all at the finest level; if that is so fine that hardly any features of different images meet there, the normalised
kernel is close to the identity and nothing can be learned from it; if it is so coarse that everything meets, neither.
How fine is right depends on the features.

Each match of two features in a bin of diagonal d_i is at most d_i long, so Σ d_i (I_i - I_{i-1}) bounds from above
the cost of the optimal partial matching; with random shifts its expectation is within O(d log D) of it.

Cost: linear in the number of features to build; the Gram matrix of n bags costs the number of bins that pairs share.

The text says a kernel is Mercer "as long as w_i >= w_{i+1}"; the last weight must not be negative either.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from threadpoolctl import threadpool_limits

from patchbag.bags import Bags
from patchbag.parameters import NOT_NEGATIVE, ONE_OR_MORE, TWO_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state, parallel_map
from patchbag.similarity.base import BagKernel, map_rows
from patchbag.similarity.sets.bin_index import BinIndex, Histograms
from patchbag.similarity.sets.pyramid_bins import MAX_LEVELS, UniformBins, VocabularyBins
from patchbag.storage.declared import NOT_ZERO, Declared, Many, Part, floats, real

# features of the images that are placed, or compared with all others, together
ROWS = 1 << 18

Place = Callable[[Bags], list[Histograms]]


def _own_intersections(job: tuple[int, list[Histograms]], indexes: Sequence[BinIndex]) -> np.ndarray:
    """Intersections of a block of the indexed images with all that come after them."""
    first, parts = job
    rows = np.zeros((parts[0].n, indexes[0].n))
    for part, index in zip(parts, indexes):
        index.add_intersections(rows, part, first)
    return rows


def _intersections(bags: Bags, places: Sequence[Place], indexes: Sequence[BinIndex], norms: Any) -> np.ndarray:
    """Intersections of a block of bags with all indexed images, divided by the norms (n,) of these and their own."""
    rows, totals = np.zeros((len(bags), indexes[0].n)), np.zeros(len(bags))
    for index, part in zip(indexes, (part for place in places for part in place(bags))):
        index.add_intersections(rows, part)
        totals += part.totals()
    return rows if norms is None else rows / np.sqrt(np.outer(totals, norms))


class IntersectionKernel(BagKernel):
    """Base of kernels that are intersections of weighted sparse histograms.

    A subclass says how bags become histograms: ``_learn_bins``, then ``_places``, functions each of which turns bags
    into one or several histograms with bins of their own.

    Attributes
    ----------
    references_ : inverted indexes of the histograms of the reference bags;  self_match_ : (n,)
    """

    normalize: bool

    _stored: ClassVar[dict[str, Declared]] = {
        "references_": Many(Part("BinIndex", n="n"), low=1),
        "self_match_": floats("n", low=NOT_ZERO),
    }

    def _learn_bins(self, bags: Bags) -> None:
        raise NotImplementedError

    def _places(self) -> list[Place]:
        raise NotImplementedError

    def _prepare(self, bags: Bags) -> Bags:
        return bags

    def _fit(self, bags: Bags) -> None:
        self._index(bags, None)

    def _fit_gram(self, bags: Bags) -> np.ndarray:
        gram = np.zeros((len(bags), len(bags)))
        self._index(bags, gram)
        gram += gram.T
        np.fill_diagonal(gram, self.self_match_)
        return gram / np.sqrt(np.outer(self.self_match_, self.self_match_)) if self.normalize else gram

    def _index(self, bags: Bags, gram: np.ndarray | None) -> None:
        """Make the bins and index the reference bags; add their intersections to the upper triangle of ``gram``."""
        self._learn_bins(bags)
        blocks = list(self._prepare(bags).chunks(ROWS))
        starts = np.cumsum([0] + [len(block) for block in blocks])
        self_match, references = np.zeros(len(bags)), []
        for place in self._places():
            placed = list(parallel_map(place, blocks))
            parts = [Histograms.concatenate(part) for part in zip(*placed)]
            indexes = [BinIndex.build(part) for part in parts]
            self_match += sum(part.totals() for part in parts)
            references += indexes
            if gram is not None:
                jobs = zip(starts, placed)
                for start, rows in zip(starts, parallel_map(partial(_own_intersections, indexes=indexes), jobs)):
                    gram[start : start + len(rows)] += rows
        super()._fit(bags)
        self.references_, self.self_match_ = references, self_match

    def _compare(self, bags: Bags) -> np.ndarray:
        norms = self.self_match_ if self.normalize else None
        rows = partial(_intersections, places=self._places(), indexes=self.references_, norms=norms)
        return map_rows(rows, self._prepare(bags).chunks(ROWS), len(bags))

    def diagonal(self, X: Any) -> np.ndarray:
        """(m,) kernel of each bag with itself."""
        bags = self._check(X, fitted=True)
        if self.normalize:
            return np.ones(len(bags))
        return np.sum([part.totals() for place in self._places() for part in place(self._prepare(bags))], axis=0)


def _place_uniform(bags: Bags, bins: UniformBins, shift: int, weights: np.ndarray) -> list[Histograms]:
    return [level.weighted(weight) for level, weight in zip(bins.place(bags, shift), weights)]


def _place_vocabulary(bags: Bags, bins: VocabularyBins, weights: np.ndarray) -> list[Histograms]:
    return [level.weighted(weights[level.bins.astype(np.int64)]) for level in bins.place(bags)]


@estimator
class PyramidMatchKernel(IntersectionKernel):
    """Pyramid match kernel between bags of features.

    Parameters
    ----------
    bins : "uniform" (features of up to about a dozen dimensions) or "vocabulary"
    n_levels : number of levels L, at most 53: finer bins are smaller than the rounding of the features
        Uniform: the finest side is the extent of the features over 2^(L-2).  Vocabulary: levels of the tree, root
        included.
    n_shifts : random placements of uniform bins to average
    weights : (n_levels,) weights w_i, finest first, not increasing; None for 2^-i (uniform bins only)
    n_branches : children of a node of the vocabulary tree
    max_samples : features sampled to grow the tree
    position_weight : None to ignore positions; else positions join the features, their unit square scaled to this
        multiple of the largest extent of the features
    normalize : divide by the root of the self-matches

    >>> from patchbag.bags import Bags
    >>> bags = Bags.from_list([np.zeros((3, 2)), np.ones((5, 2))])
    >>> PyramidMatchKernel(random_state=0).fit_transform(bags).shape
    (2, 2)
    """

    bins: str = parameter(StrOptions({"uniform", "vocabulary"}), default="uniform")
    _: KW_ONLY
    n_levels: int = parameter(Interval(Integral, 1, MAX_LEVELS, closed="both"), default=5)
    n_shifts: int = parameter(ONE_OR_MORE, default=4)
    weights: Any = parameter("array-like", None, default=None)
    n_branches: int = parameter(TWO_OR_MORE, default=10)
    max_samples: int = parameter(ONE_OR_MORE, default=100_000)
    position_weight: float | None = parameter(NOT_NEGATIVE, None, default=None)
    normalize: bool = parameter("boolean", default=True)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "extent_": real(low=0),
        "bins_": Part("UniformBins", "VocabularyBins", d="bin_d", shifts="shifts"),
        "level_weights_": floats("levels", low=0, optional=True),
    }

    def _learn_bins(self, bags: Bags) -> None:
        values = np.asarray(bags.values)
        # differences of small integers overflow in their own type
        extents = values.max(axis=0).astype(float) - values.min(axis=0)
        self.extent_ = float(extents.max(initial=0.0)) or 1.0
        bags = self._prepare(bags)
        random = partial(check_random_state, self.random_state)
        if self.bins == "uniform":
            self.bins_: Any = UniformBins.cover(bags.values, self.n_levels, self.n_shifts, random())
            self.level_weights_ = self._check_weights()
            return
        if self.weights is not None:
            raise ValueError("weights are for uniform bins; vocabulary bins weigh one over their size")
        # most nodes are small: threads cost more than they bring, and sums would depend on their number
        with threadpool_limits(limits=1):
            sample = bags.sample(self.max_samples, random())
            self.bins_ = VocabularyBins.grow(sample, self.n_levels, self.n_branches, random())

    def _check_weights(self) -> np.ndarray:
        if self.weights is None:
            return 2.0 ** -np.arange(self.n_levels)
        weights = np.asarray(self.weights, dtype=float)
        good = weights.shape == (self.n_levels,) and np.isfinite(weights).all() and weights[0] > 0 and weights[-1] >= 0
        if not good or np.any(np.diff(weights) > 0):
            raise ValueError(
                f"weights must be {self.n_levels} numbers >= 0 that do not increase from fine to coarse "
                f"(otherwise the kernel is not Mercer), got {self.weights!r}"
            )
        return weights

    def _prepare(self, bags: Bags) -> Bags:
        if self.position_weight is None:
            return bags
        if bags.positions is None:
            raise ValueError("position_weight is set but the bags have no positions; set it to None or extract them")
        scaled = np.asarray(bags.positions) * (self.position_weight * self.extent_)
        return bags.replace(np.hstack([np.asarray(bags.values), scaled]))

    def _places(self) -> list[Place]:
        if self.bins == "uniform":
            steps = (self.level_weights_ - np.append(self.level_weights_[1:], 0.0)) / self.n_shifts
            shifts = range(self.n_shifts)
            return [partial(_place_uniform, bins=self.bins_, shift=shift, weights=steps) for shift in shifts]
        inverse = 1.0 / self.bins_.sizes
        steps = np.append(inverse - inverse[self.bins_.parents], 0.0)
        steps[0] = inverse[0]
        return [partial(_place_vocabulary, bins=self.bins_, weights=steps)]

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        uniform = values["bins"] == "uniform"
        if not isinstance(values["bins_"], UniformBins if uniform else VocabularyBins):
            return f"its bins are a {type(values['bins_']).__name__}"
        if sizes["bin_d"] != sizes["d"] + (2 if values["position_weight"] is not None else 0):
            return f"its bins have {sizes['bin_d']} dimensions, its features {sizes['d']}"
        levels = values["bins_"].n_levels
        placements = values["n_shifts"] if uniform else 1
        if uniform and (sizes.get("levels") != levels or sizes["shifts"] != placements):
            return "it has other weights than levels, or other placements than shifts"
        found = len(values["references_"])
        return None if found == levels * placements else f"it has {found} indexes for {levels * placements} levels"
