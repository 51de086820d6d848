# SPDX-License-Identifier: BSD-3-Clause
r"""Spatial pyramid match: visual words in a pyramid of image cells (Lazebnik et al. 2006; kapoor2010, §5).

Appearance and position are treated apart: every feature becomes its nearest visual word, and for each word a pyramid
match is done in the space of image positions, with a grid of 2^l × 2^l cells at level l = 0 (whole image) to L
(finest)::

    K(X, Z) = sum_words ( 2^-L I_0 + sum_{l=1}^{L} 2^-(L-l+1) I_l )

which is the pyramid match with weights 2^-(L-l), summed by parts.  I_l counts the features of the same word in the
same cell. The coefficients sum to one, so the self-match of a bag is its number of features.  Cells are placed
without a shift, as the centre of the image means something.

The vocabulary is learned by k-means on sampled features, or given.  Cost: O(m K d) per bag for the words, O(m L) for
the cells; the Gram matrix is the intersection of sparse histograms of pyramid_match.

Positions are (x, y) in [0, 1]; a bag without them is an error unless ``n_levels`` is 1, when the kernel is that of a
bag of words.
"""

from dataclasses import KW_ONLY
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.utils._param_validation import Interval
from threadpoolctl import threadpool_limits

from patchbag.bags import Bags
from patchbag.parameters import ONE_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state
from patchbag.similarity.sets.bin_index import Histograms
from patchbag.similarity.sets.pyramid_match import IntersectionKernel, Place
from patchbag.storage.declared import Declared, floats

MAX_LEVELS = 20  # a number of 64 bits then still holds any cell and any of millions of words
WORD_ROWS = 1024
ROUNDING = 2 * float(np.finfo(np.float32).eps)


def spatial_weights(n_levels: int) -> np.ndarray:
    """(n_levels,) coefficients of the intersections, coarse to fine: 2^-L for level 0, 2^-(L-l+1) for l > 0."""
    finest = n_levels - 1
    return np.array([2.0**-finest] + [2.0 ** -(finest - l + 1) for l in range(1, n_levels)])


def cell_of(positions: np.ndarray, level: int) -> np.ndarray:
    """(total,) number of the cell of a 2^level × 2^level grid in which each (x, y) of [0, 1]² lies."""
    side = 2**level
    cell = np.clip((np.asarray(positions, dtype=float) * side).astype(np.int64), 0, side - 1)
    return cell[:, 1] * side + cell[:, 0]


def nearest_words(values: np.ndarray, words: np.ndarray) -> np.ndarray:
    """(total,) number of the word nearest to each feature, as float64 would have it.

    Distances are compared in float32, and in float64 where two are so close that float32 could mistake them.
    """
    center = words.mean(axis=0)
    unit = float(np.abs(words - center).max()) or 1.0
    columns = (words - center) / unit
    squares = (columns**2).sum(axis=1)
    single, half = columns.T.astype(np.float32), (0.5 * squares).astype(np.float32)
    found = np.empty(len(values), np.int64)
    for start in range(0, len(values), WORD_ROWS):
        rows = (values[start : start + WORD_ROWS] - center) / unit
        scores = rows.astype(np.float32) @ single
        np.subtract(half, scores, out=scores)
        best = scores.argmin(axis=1)
        # a score is wrong by at most d + 3 roundings of |x| |w| + |w|²
        size = np.sqrt((rows**2).sum(axis=1) * squares.max()) + squares.max()
        limit = scores[np.arange(len(rows)), best] + ROUNDING * (rows.shape[1] + 3) * size
        scores[np.arange(len(rows)), best] = np.inf
        doubtful = np.flatnonzero(~(scores.min(axis=1) > limit))
        best[doubtful] = (0.5 * squares - rows[doubtful] @ columns.T).argmin(axis=1)
        found[start : start + WORD_ROWS] = best
    return found


def _place_words(bags: Bags, vocabulary: np.ndarray, n_levels: int) -> list[Histograms]:
    words = nearest_words(np.asarray(bags.values), vocabulary).astype(np.uint64)
    found = []
    for level, weight in enumerate(spatial_weights(n_levels)):
        keys = words * np.uint64(4**level)
        if level:
            keys += cell_of(bags.positions, level).astype(np.uint64)
        found.append(Histograms.count(keys, bags.offsets).weighted(weight))
    return found


@estimator
class SpatialPyramidMatch(IntersectionKernel):
    """Spatial pyramid match kernel between bags with positions.

    Parameters
    ----------
    n_words : size of the vocabulary to learn
    vocabulary : (K, d) words to use instead
    n_levels : levels of the pyramid, at most 20; 3 means grids of 1, 4 and 16 cells
    max_samples : features sampled to learn the words
    normalize : divide by the root of the self-matches
    """

    n_words: int = parameter(ONE_OR_MORE, default=200)
    _: KW_ONLY
    vocabulary: Any = parameter("array-like", None, default=None)
    n_levels: int = parameter(Interval(Integral, 1, MAX_LEVELS, closed="both"), default=3)
    max_samples: int = parameter(ONE_OR_MORE, default=100_000)
    normalize: bool = parameter("boolean", default=True)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "vocabulary_": floats("words", "d"),
    }

    def _learn_bins(self, bags: Bags) -> None:
        if self.vocabulary is not None:
            self.vocabulary_ = np.asarray(self.vocabulary, dtype=float)
            if self.vocabulary_.ndim != 2 or self.vocabulary_.shape[1] != bags.dimension:
                raise ValueError(
                    f"the vocabulary has shape {self.vocabulary_.shape}, expected words of {bags.dimension} dimensions"
                )
            return
        sample = bags.sample(self.max_samples, check_random_state(self.random_state)).astype(float)
        if len(sample) < self.n_words:
            raise ValueError(f"{len(sample)} features cannot make {self.n_words} words; lower n_words or add bags")
        random = check_random_state(self.random_state)
        kmeans = MiniBatchKMeans(self.n_words, n_init=1, batch_size=4096, random_state=random)
        with threadpool_limits(limits=1):  # the words must not depend on the number of threads
            self.vocabulary_ = kmeans.fit(sample).cluster_centers_

    def _prepare(self, bags: Bags) -> Bags:
        if bags.positions is None and self.n_levels > 1:
            raise ValueError("the spatial pyramid needs positions and the bags have none; extract them, or n_levels=1")
        return bags

    def _places(self) -> list[Place]:
        return [partial(_place_words, vocabulary=self.vocabulary_, n_levels=self.n_levels)]

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        found = len(values["references_"])
        sound = found == values["n_levels"] and sizes["words"] > 0
        return None if sound else f"it has {found} indexes for {values['n_levels']} levels, {sizes['words']} words"
