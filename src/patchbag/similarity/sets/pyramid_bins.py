# SPDX-License-Identifier: BSD-3-Clause
r"""Sparse histogram pyramids of bags: the bins of the pyramid match.

A pyramid cuts feature space into nested bins, fine to coarse, and counts how many features of a bag fall into each. A
bag with m features fills at most m bins a level however many exist, so only the filled ones are kept: for every bag a
sorted list of (bin, count) with the levels one after the other.

Two ways to cut the space:

* **uniform**: hypercubes whose side doubles from level to level, placed at a random shift (Grauman & Darrell 2005).
  Level i is ``floor((x - low + shift) / side) >> i``: the bins nest by construction, and the top level is one bin.
  The d integers are hashed to 64 bits; two different bins share a number with probability about 1e-6 for ten million
  filled bins.
* **vocabulary-guided** (Grauman & Darrell 2006): the nodes of a hierarchical k-means tree; for features of more than
  about ten dimensions, where hypercubes are either empty or hold everything.  Each bin has its own size, estimated
  from the training features: twice the largest distance to the centre, and at least that of its children, so that
  sizes grow towards the root and the kernel stays Mercer.

Cost: O(m d L) to place the features of a bag, O(m L log m) to sort them; a tree of k branches costs O(m d k L).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from sklearn.cluster import KMeans

from patchbag.bags import Bags
from patchbag.runtime import check_random_state, quiet
from patchbag.similarity.sets.bin_index import Histograms
from patchbag.storage.declared import NOT_ZERO, floats, integer, integers, real, stored
from patchbag.storage.registry import storable

# finer bins than the 53 bits of a float64 coordinate tell nothing apart, and before long int64 cannot number them
MAX_LEVELS = 53
# features hashed together: the rounds of a hash follow one another, those of different features do not
TOGETHER = 64


@njit(cache=True, nogil=True, inline="always")
def _mix(h: np.uint64) -> np.uint64:
    """Finaliser of SplitMix64: a bijection of 64 bits that spreads every input bit."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@njit(cache=True, nogil=True)
def _uniform_keys(values, low, high, shift, side, n_levels, salt):  # pragma: no cover - compiled
    """Numbers (n_levels, total) of the bins of every feature."""
    total, d = values.shape
    keys = np.empty((n_levels, total), np.uint64)
    cells = np.empty((d, TOGETHER), np.int64)
    for first in range(0, total, TOGETHER):
        part = values[first : first + TOGETHER]
        for row in range(len(part)):
            for j in range(d):
                x = min(max(float(part[row, j]), low[j]), high[j])
                cells[j, row] = np.int64(np.floor((x - low[j] + shift[j]) / side))
        for level in range(n_levels):
            h = keys[level, first : first + TOGETHER]
            h[:] = _mix(np.uint64(salt * n_levels + level + 1))
            for j in range(d):
                cell = cells[j]
                for row in range(len(h)):
                    h[row] = _mix(h[row] + np.uint64(0x9E3779B97F4A7C15) * np.uint64((cell[row] >> level) + 1))
    return keys


@storable
@dataclass(frozen=True)
class UniformBins:
    """Nested hypercubes: ``low``, ``high (d,)`` bound the space, ``shifts (s, d)`` place it, ``side`` is the finest."""

    low: np.ndarray = stored(floats("d"))
    high: np.ndarray = stored(floats("d"))
    shifts: np.ndarray = stored(floats("shifts", "d", low=0))
    side: float = stored(real(low=NOT_ZERO))
    n_levels: int = stored(integer(low=1, high=MAX_LEVELS))

    @classmethod
    def cover(cls, values: np.ndarray, n_levels: int, n_shifts: int, random_state: Any) -> UniformBins:
        """Bins that cover ``values (total, d)``: the top level, of twice the largest extent, is one bin for any
        shift.
        """
        low, high = values.min(axis=0).astype(float), values.max(axis=0).astype(float)
        extent = max(float((high - low).max()), np.finfo(float).tiny * 2**60)
        random = check_random_state(random_state)
        # a shift of exactly the extent would push the farthest feature over the edge of the top bin
        shifts = random.uniform(0.0, extent * (1 - 1e-9), size=(n_shifts, len(low)))
        return cls(low, high, shifts, 2.0 * extent / 2 ** (n_levels - 1), n_levels)

    def place(self, bags: Bags, shift: int) -> list[Histograms]:
        """Filled bins at each level, for one of the shifts.  Features outside the bounds are moved to the border."""
        values = np.asarray(bags.values)
        keys = _uniform_keys(values, self.low, self.high, self.shifts[shift], self.side, self.n_levels, shift)
        return [Histograms.count(level, bags.offsets) for level in keys]


@njit(cache=True, nogil=True)
def _descend(values, centers, children, n_levels):  # pragma: no cover - compiled
    """Nodes (n_levels, total) of every feature, finest first."""
    total, d = values.shape
    path = np.empty((n_levels, total), np.uint64)
    for row in range(total):
        node = 0
        for level in range(n_levels - 1, -1, -1):
            path[level, row] = np.uint64(node)
            first, last = children[node, 0], children[node, 1]
            if first == last:
                for finer in range(level):
                    path[finer, row] = np.uint64(len(children))
                break
            best, nearest = np.inf, node
            for child in range(first, last):
                distance = 0.0
                for j in range(d):
                    difference = float(values[row, j]) - centers[child, j]
                    distance += difference * difference
                if distance < best:
                    best, nearest = distance, child
            node = nearest
    return path


@storable
@dataclass(frozen=True)
class VocabularyBins:
    """A k-means tree: ``centers (nodes, d)``, ``children (nodes, 2)`` = range of child nodes, ``sizes`` and ``parents
    (nodes,)``.

    Below a leaf that ends early, features go to the bin number ``nodes``, which carries no weight.
    """

    centers: np.ndarray = stored(floats("nodes", "d"))
    children: np.ndarray = stored(integers("nodes", 2, low=0, high="nodes"))
    sizes: np.ndarray = stored(floats("nodes", low=NOT_ZERO))
    parents: np.ndarray = stored(integers("nodes", low=0, below="nodes"))
    n_levels: int = stored(integer(low=1, high=MAX_LEVELS))

    @classmethod
    def grow(cls, values: np.ndarray, n_levels: int, n_branches: int, random_state: Any) -> VocabularyBins:
        """Cluster ``values (total, d)`` level by level, each node into at most ``n_branches`` children."""
        random = check_random_state(random_state)
        values = np.asarray(values, dtype=float)
        centers, parents, children = [values.mean(axis=0)], [0], [(0, 0)]
        members, frontier = [np.arange(len(values))], [0]
        for _ in range(n_levels - 1):
            grown = []
            for node in frontier:
                part = values[members[node]]
                if len(part) <= n_branches or not np.ptp(part, axis=0).any():
                    continue
                seed = int(random.randint(2**31 - 1))
                with quiet:  # copies of a feature can leave fewer clusters than branches; the empty ones get no bin
                    found = KMeans(n_branches, n_init=1, max_iter=25, random_state=seed).fit(part)
                used = np.unique(found.labels_)
                children[node] = (len(centers), len(centers) + len(used))
                for label in used:
                    grown.append(len(centers))
                    members.append(members[node][found.labels_ == label])
                    centers.append(found.cluster_centers_[label])
                    parents.append(node)
                    children.append((0, 0))
            frontier = grown
        farthest = [((values[rows] - center) ** 2).sum(axis=1).max() for rows, center in zip(members, centers)]
        size = 2.0 * np.sqrt(farthest)
        # a bin that held one feature, or copies of one, has no size of its own: give it that of a typical leaf
        leaf = np.array([first == last for first, last in children])
        typical = size[leaf & (size > 1e-6 * size[0])]
        floor = float(np.median(typical)) if len(typical) else (size[0] or 1.0) / 2 ** (n_levels - 1)
        size = np.where(leaf, np.maximum(size, floor), size)
        for node in range(len(centers) - 1, 0, -1):
            size[parents[node]] = max(size[parents[node]], size[node])
        return cls(np.array(centers), np.array(children), size, np.array(parents), n_levels)

    def place(self, bags: Bags) -> list[Histograms]:
        """Filled bins at each level, finest first."""
        path = _descend(np.asarray(bags.values), self.centers, self.children, self.n_levels)
        return [Histograms.count(level, bags.offsets) for level in path]

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        first, last = values["children"].astype(np.int64).T
        # every node but the root is the child of one: ranges that overlap would make a walk down the tree endless work
        sound = np.all(first <= last) and (last - first).sum() == sizes["nodes"] - 1
        return None if sound else "its nodes are not a tree"
