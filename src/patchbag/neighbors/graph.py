# SPDX-License-Identifier: BSD-3-Clause
r"""A graph of neighbours: every point has edges to points that are near to it (searched by ``graph_search``).

The candidates of a point are the nearest of those in the ``JOINED`` leaves around its own, then the
neighbours of its neighbours (NN-descent, Dong et al. 2011).  All of them may lie in one cluster, from which no edge
would lead away; so one point of each of these leaves is a candidate too.  Of the candidates, and of the points that
have an edge to it, x keeps an edge to y, nearest first, unless y is ``RELAXED`` times nearer to a point that x has an
edge to already (the relative neighbourhood of HNSW, Malkov & Yashunin 2020, relaxed as in DiskANN).

A score is one product for every divergence and side (``forms``), so that the loops are those of squared Euclidean
distances.  Points are stored leaf after leaf: what is near by the divergence is near in memory.

Cost: some thousand products per point.  The constants were chosen on drawn histograms
(``clustered`` and ``iid`` of ``benchmarks/bench_neighbors.py``, 20,000 points).
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from patchbag.neighbors.brute import search_brute
from patchbag.neighbors.forms import Points
from patchbag.neighbors.leaf_search import Leaves
from patchbag.neighbors.trees import Tree

# leaves around a point's own; candidates of a point; its edges at most; how much nearer another has to be
JOINED = 32
CANDIDATES = 48
DEGREE = 32
RELAXED = 1.1
# a bit that marks places in a list
EXPANDED = 1 << 31


class Graph(NamedTuple):
    """Edges between the points of a tree, by their places in it.

    Attributes
    ----------
    edges : (n, DEGREE) int32, the nearest first, −1 behind the last
    bias : (n,) of the points when the tree was made: those that are taken out later are still ways to others
    """

    edges: np.ndarray
    bias: np.ndarray


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"}, inline="always")
def score(vectors: Any, bias: Any, at: Any, centred: Any) -> Any:  # pragma: no cover - compiled
    total = vectors.dtype.type(0)
    for j in range(centred.shape[0]):
        total += vectors[at, j] * centred[j]
    return bias[at] - total


@njit(cache=True, nogil=True)
def insert(value: Any, at: Any, values: Any, places: Any) -> int:  # pragma: no cover - compiled
    """Insert into a list that is sorted by value, infinite where it is empty; where it went, -1 for nowhere.

    Places at or above ``EXPANDED`` are those of points that were expanded.
    """
    last = values.shape[0] - 1
    if not value < values[last]:
        return -1
    worst, worst_place = values[last], places[last]
    low = last
    while low > 0 and values[low - 1] > value:
        values[low], places[low] = values[low - 1], places[low - 1]
        low -= 1
    same = low
    while same > 0 and values[same - 1] == value:
        same -= 1
        if places[same] & (EXPANDED - 1) == at:  # it is there already
            for i in range(low, last):
                values[i], places[i] = values[i + 1], places[i + 1]
            values[last], places[last] = worst, worst_place
            return -1
    values[low], places[low] = value, at
    return low


@njit(cache=True, nogil=True)
def _join(tree: Any, near: Any, node: Any, asked: Any, values: Any, places: Any) -> None:  # pragma: no cover - compiled
    """For the points of each leaf, the nearest ones of the leaves that are near."""
    for leaf in range(node.shape[0]):
        for x in range(tree.start[node[leaf]], tree.stop[node[leaf]]):
            for other in near[leaf]:
                for y in range(tree.start[node[other]], tree.stop[node[other]]):
                    if y != x:
                        insert(score(tree.vectors, tree.bias, y, asked[x]), y, values[x], places[x])


@njit(cache=True, nogil=True)
def _descend(tree: Any, asked: Any, values: Any, places: Any, width: int) -> None:  # pragma: no cover - compiled
    """Offer each point the nearest neighbours of its nearest neighbours, ``width`` of each."""
    before = places[:, :width].copy()
    for x in range(before.shape[0]):
        for a in before[x]:
            if a >= 0:
                for y in before[a]:
                    if y >= 0 and y != x:
                        insert(score(tree.vectors, tree.bias, y, asked[x]), y, values[x], places[x])


@njit(cache=True, nogil=True)
def _reach_out(tree: Any, near: Any, node: Any, asked: Any, values: Any, places: Any) -> None:
    """Offer each point one of every leaf that is near, not the same to all."""
    for leaf in range(node.shape[0]):
        for x in range(tree.start[node[leaf]], tree.stop[node[leaf]]):
            for other in near[leaf, 1:]:
                first, stop = tree.start[node[other]], tree.stop[node[other]]
                y = first + x % (stop - first)
                insert(score(tree.vectors, tree.bias, y, asked[x]), y, values[x], places[x])


@njit(cache=True, nogil=True)
def _select(tree: Any, asked: Any, offset: Any, x: int, values: Any, places: Any, edges: Any) -> None:
    """Of the candidates of x, sorted, those to which no kept one is much nearer than x."""
    kept = 0
    for c in range(values.shape[0]):
        y = places[c]
        if y < 0 or kept == edges.shape[0]:
            break
        free = True
        for i in range(kept):
            z = edges[i]
            if RELAXED * (score(tree.vectors, tree.bias, y, asked[z]) + offset[z]) < values[c] + offset[x]:
                free = False
                break
        if free:
            edges[kept] = y
            kept += 1
    edges[kept:] = -1


@njit(cache=True, nogil=True)
def _link(tree: Any, asked: Any, offset: Any, values: Any, places: Any, edges: Any) -> None:
    """Edges from candidates: selected, joined by those that lead back, and selected again."""
    n, degree = edges.shape
    back, count = np.full((n, degree), -1, np.int32), np.zeros(n, np.int64)
    for x in range(n):
        _select(tree, asked, offset, x, values[x], places[x], edges[x])
        for y in edges[x]:
            if y >= 0 and count[y] < degree:
                back[y, count[y]] = x
                count[y] += 1
    merged, scores = np.empty(2 * degree, np.int32), np.empty(2 * degree, values.dtype)
    for x in range(n):
        merged[:] = -1
        scores[:] = np.inf
        for some in (edges[x], back[x]):
            for y in some:
                if y >= 0:
                    insert(score(tree.vectors, tree.bias, y, asked[x]), y, scores, merged)
        _select(tree, asked, offset, x, scores, merged, edges[x])


def is_coarse(points: Points) -> bool:
    """Whether float32 cannot tell near points apart, as of entries near zero under Itakura–Saito.

    An exact search finds its way all the same, through more candidates; a greedy one does not.
    """
    rows = points.rows[np.isfinite(points.bias)][:: max(len(points) // 256, 1)]
    own = points.ask(rows, rows)
    reached = search_brute(points, own, min(10, len(rows)))[0][:, -1]
    # the bound allows for rounding errors that all have one sign
    return bool(np.median(own.error) > (rows.shape[1] + 4) * np.median(reached))


def link_points(points: Points, tree: Tree, leaves: Leaves) -> Graph:
    """The graph of the points of a tree."""
    rows = points.rows[tree.order]
    own = points.ask(rows, rows)
    known = tree, np.argsort(leaves.bias - leaves.near @ leaves.psi.T, axis=1)[:, :JOINED], leaves.node, own.centred
    n = len(rows)
    # room for what reaches out stays empty until then
    values, places = (np.full((n, CANDIDATES + JOINED), *what) for what in ((np.inf, tree.bias.dtype), (-1, np.int32)))
    _join(*known, values[:, :CANDIDATES], places[:, :CANDIDATES])
    _descend(tree, own.centred, values[:, :CANDIDATES], places[:, :CANDIDATES], CANDIDATES // 2)
    _reach_out(*known, values, places)
    edges = np.empty((n, DEGREE), np.int32)
    _link(tree, own.centred, own.offset, values, places, edges)
    return Graph(edges, tree.bias.copy())
