# SPDX-License-Identifier: BSD-3-Clause
r"""Sums of histogram intersections between many sparse histograms.

For histograms a_i, b_j over the same bins the matrix wanted is :math:`G_{ij} = \sum_b \min(a_{ib}, b_{jb})`.  Pair by
pair it costs the length of both lists.  Turned around it costs only the bins that a pair shares: an *inverted index*
lists for every bin which reference images fill it and with what count, and a query adds min(count, count) along the
lists of its bins.  Bins that only one image fills, most of the finest level of a pyramid, are never touched.

The work is cut into blocks of query images; inside a block, entries are ordered by bin, so a list is read from memory
once for the block, and every row of the result belongs to one thread: the result does not depend on the number of
threads.  Bins that at least a third of the images fill are kept as dense rows, where the inner loop is vectorised.
With the reference against itself only the upper triangle is computed.

min(c a, c b) = c min(a, b) for c >= 0, so weights of bins are multiplied into the counts beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import prange

from patchbag.runtime import parallel_njit

DENSE_SHARE = 3
BLOCK = 64


@dataclass(frozen=True)
class Histograms:
    """Sparse histograms of n images as entries: ``bins``, ``images`` (ascending) and ``counts``, all (entries,)."""

    bins: np.ndarray
    images: np.ndarray
    counts: np.ndarray
    n: int

    def totals(self) -> np.ndarray:
        """(n,) sum of the counts of each image: its intersection with itself."""
        return np.bincount(self.images, weights=self.counts, minlength=self.n)


@dataclass(frozen=True)
class BinIndex:
    """Inverted index of n histograms: bin ``keys[b]`` is filled by ``images[starts[b]:starts[b + 1]]`` with
    ``counts``.
    """

    keys: np.ndarray
    starts: np.ndarray
    images: np.ndarray
    counts: np.ndarray
    n: int

    @classmethod
    def build(cls, histograms: Histograms) -> BinIndex:
        order = np.argsort(histograms.bins, kind="stable")
        bins = histograms.bins[order]
        first = np.flatnonzero(np.concatenate([[True], bins[1:] != bins[:-1]])) if len(bins) else np.empty(0, np.int64)
        images = histograms.images[order].astype(np.int32)
        starts = np.concatenate([first, [len(bins)]])
        return cls(bins[first], starts, images, histograms.counts[order].astype(float), histograms.n)

    def add_intersections(self, result: np.ndarray, queries: Histograms) -> None:
        """Add to ``result (queries.n, n)`` the intersection of every query with every indexed image."""
        found = np.searchsorted(self.keys, queries.bins)
        known = np.zeros(len(found), bool)
        inside = found < len(self.keys)
        known[inside] = self.keys[found[inside]] == queries.bins[inside]
        self._add(result, found[known], queries.images[known], queries.counts[known].astype(float), symmetric=False)

    def add_own_intersections(self, result: np.ndarray) -> None:
        """Add to ``result (n, n)`` the intersections of the indexed images with each other, upper triangle only."""
        shared = np.repeat(np.diff(self.starts), np.diff(self.starts)) > 1
        bins = np.repeat(np.arange(len(self.keys)), np.diff(self.starts))
        self._add(result, bins[shared], self.images[shared].astype(np.int64), self.counts[shared], symmetric=True)

    def _add(
        self, result: np.ndarray, bins: np.ndarray, images: np.ndarray, counts: np.ndarray, symmetric: bool
    ) -> None:
        blocks = images // BLOCK
        order = np.lexsort((bins, blocks))
        bins, images, counts = bins[order], images[order], counts[order]
        n_blocks = -(-result.shape[0] // BLOCK)
        block_starts = np.searchsorted(blocks[order], np.arange(n_blocks + 1))
        lengths = np.diff(self.starts)
        frequent = np.flatnonzero(lengths * DENSE_SHARE > self.n)
        dense_row = np.full(len(self.keys), -1, np.int64)
        dense_row[frequent] = np.arange(len(frequent))
        dense = np.zeros((len(frequent), self.n))
        for row, b in enumerate(frequent):
            part = slice(self.starts[b], self.starts[b + 1])
            dense[row, self.images[part]] = self.counts[part]
        _intersect(
            result,
            bins,
            images,
            counts,
            block_starts,
            self.starts,
            self.images,
            self.counts,
            dense_row,
            dense,
            symmetric,
        )


@parallel_njit()
def _intersect(
    result: np.ndarray,
    bins: np.ndarray,
    images: np.ndarray,
    counts: np.ndarray,
    block_starts: np.ndarray,
    starts: np.ndarray,
    posting_images: np.ndarray,
    posting_counts: np.ndarray,
    dense_row: np.ndarray,
    dense: np.ndarray,
    symmetric: bool,
) -> None:
    n = result.shape[1]
    for block in prange(len(block_starts) - 1):
        for entry in range(block_starts[block], block_starts[block + 1]):
            b, row, count = bins[entry], images[entry], counts[entry]
            target = result[row]
            if dense_row[b] >= 0:
                source = dense[dense_row[b]]
                first = row if symmetric else 0
                for j in range(first, n):
                    other = source[j]
                    target[j] += other if other < count else count
            else:
                p = starts[b]
                if symmetric:
                    while posting_images[p] < row:
                        p += 1
                for q in range(p, starts[b + 1]):
                    other = posting_counts[q]
                    target[posting_images[q]] += other if other < count else count


def mirror_upper(matrix: np.ndarray) -> np.ndarray:
    """Copy the upper triangle of a square matrix to the lower one, in place."""
    lower = np.tril_indices(len(matrix), -1)
    matrix[lower] = matrix.T[lower]
    return matrix
