# SPDX-License-Identifier: BSD-3-Clause
r"""Sums of histogram intersections between many sparse histograms.

For histograms a_i, b_j over the same bins the matrix wanted is :math:`G_{ij} = \sum_b \min(a_{ib}, b_{jb})`.  Pair by
pair it costs the length of both lists.  Turned around it costs only the bins that a pair shares: an *inverted index*
lists for every bin which reference images fill it and with what count, and a query adds min(count, count) along the
lists of its bins.  Bins that only one image fills, most of the finest level of a pyramid, are never touched.

Queries come in blocks of images, whose entries are ordered by bin, so that a list is read from memory once for the
block.  Bins that at least a third of the images fill are kept as dense rows, where the inner loop is vectorised.  With
the reference against itself only the upper triangle is computed.

min(c a, c b) = c min(a, b) for c >= 0, so weights of bins are multiplied into the counts beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numba import njit

from patchbag.storage.declared import floats, integers, size, stored
from patchbag.storage.registry import storable

DENSE_SHARE = 3


@dataclass(frozen=True)
class Histograms:
    """Sparse histograms of n images as entries: ``bins``, ``images`` (ascending) and ``counts``, all (entries,)."""

    bins: np.ndarray
    images: np.ndarray
    counts: np.ndarray
    n: int

    @classmethod
    def count(cls, keys: np.ndarray, offsets: np.ndarray) -> Histograms:
        """Distinct keys of each bag and their number.

        Parameters
        ----------
        keys : (total,) integers, one for each feature; sorted in place
        offsets : (n + 1,), no bag empty
        """
        for start, stop in pairwise(offsets):
            keys[start:stop].sort()
        first = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        first[offsets[:-1]] = True
        rows = np.flatnonzero(first)
        filled = np.add.reduceat(first, offsets[:-1], dtype=np.int64)
        images = np.repeat(np.arange(len(filled)), filled)
        return cls(keys[rows], images, np.diff(rows, append=len(keys)), len(filled))

    @classmethod
    def concatenate(cls, parts: Sequence[Histograms]) -> Histograms:
        """The images of all parts, in order."""
        starts = np.cumsum([0] + [part.n for part in parts])
        images = np.concatenate([part.images + start for part, start in zip(parts, starts)])
        bins, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("bins", "counts"))
        return cls(bins, images, counts, int(starts[-1]))

    def weighted(self, weights: np.ndarray | float) -> Histograms:
        """Counts times one weight for all, or one for each entry; entries without weight are left out."""
        counts = self.counts * np.asarray(weights, dtype=float)
        keep = slice(None) if np.all(counts > 0) else counts > 0
        return Histograms(self.bins[keep], self.images[keep], counts[keep], self.n)

    def totals(self) -> np.ndarray:
        """(n,) sum of the counts of each image: its intersection with itself."""
        return np.bincount(self.images, weights=self.counts, minlength=self.n)


@storable
@dataclass(frozen=True)
class BinIndex:
    """Inverted index of n histograms: bin ``keys[b]`` is filled by ``images[starts[b]:starts[b + 1]]`` with
    ``counts``.
    """

    n: int = stored(size("n"))
    keys: np.ndarray = stored(integers("bins", ascending=True))
    images: np.ndarray = stored(integers("entries", low=0, below="n"))
    counts: np.ndarray = stored(floats("entries", low=0))
    starts: np.ndarray = stored(integers("bins + 1", low=0, high="entries", ascending=True))

    @classmethod
    def build(cls, histograms: Histograms) -> BinIndex:
        order = np.argsort(histograms.bins, kind="stable")
        bins = histograms.bins[order]
        first = np.flatnonzero(np.concatenate([[True], bins[1:] != bins[:-1]])) if len(bins) else np.empty(0, np.int64)
        images = histograms.images[order].astype(np.int32)
        starts = np.concatenate([first, [len(bins)]])
        return cls(histograms.n, bins[first], images, histograms.counts[order].astype(float), starts)

    @cached_property
    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows (·, n) of the counts of frequent bins, and which row a bin has, or -1."""
        frequent = np.flatnonzero(np.diff(self.starts) * DENSE_SHARE > self.n)
        which = np.full(len(self.keys), -1, np.int64)
        which[frequent] = np.arange(len(frequent))
        rows = np.zeros((len(frequent), self.n))
        for row, b in zip(rows, frequent):
            part = slice(self.starts[b], self.starts[b + 1])
            row[self.images[part]] = self.counts[part]
        return rows, which

    def add_intersections(self, result: np.ndarray, queries: Histograms, first: int | None = None) -> None:
        """Add to ``result (queries.n, n)`` the intersection of every query with every indexed image.

        With ``first`` the queries are the indexed images from that number on, and only those are added that come after
        the query itself.
        """
        if len(self.keys) == 0:
            return
        order = np.argsort(queries.bins, kind="stable")
        wanted = queries.bins[order]
        bins = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        known = self.keys[bins] == wanted
        if first is not None:  # a bin that no other image fills adds nothing
            known &= np.diff(self.starts)[bins] > 1
        order = order[known]
        entries = bins[known], queries.images[order], queries.counts[order].astype(float)
        lists = self.starts, self.images, self.counts
        _intersect(result, *entries, -1 if first is None else first, *lists, *self.dense)


@njit(cache=True, nogil=True)
def _intersect(result, bins, rows, counts, first, starts, images, listed, dense, which):  # pragma: no cover - compiled
    for entry in range(len(bins)):
        b, row, count = bins[entry], rows[entry], counts[entry]
        after = 0 if first < 0 else first + row + 1
        if which[b] >= 0:
            source, target = dense[which[b], after:], result[row, after:]
            for j in range(len(target)):
                target[j] += min(source[j], count)
        else:
            target, posted = result[row], images[starts[b] : starts[b + 1]]
            filled = listed[starts[b] : starts[b + 1]]
            for q in range(np.searchsorted(posted, after) if after > 0 else 0, len(posted)):
                target[posted[q]] += min(filled[q], count)
