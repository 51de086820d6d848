# SPDX-License-Identifier: BSD-3-Clause
r"""A graph of neighbours, searched greedily from the nearest leaves of a ball tree: approximate.

Every point has edges to points that are near to it.  A search keeps the ``beam`` nearest points seen so far and expands
the nearest one that was not expanded yet: it looks at all points that an edge leads to.  It ends when all of the beam
are expanded.  It begins with one point of each of the leaves that a best-first search of the tree finds.

**Building.**  The candidates of a point are the nearest of those in the ``JOINED`` leaves around its own, then the
neighbours of its neighbours (NN-descent, Dong et al. 2011).  All of them may lie in one cluster, from which no edge
would lead away; so one point of each of these leaves is a candidate too.  Of the candidates, and of the points that
have an edge to it, x keeps an edge to y, nearest first, unless y is nearer to a point that x has an edge to already
(the relative neighbourhood of HNSW, Malkov & Yashunin 2020).

A score is one product for every divergence and side (``forms``), so that the loops are those of squared Euclidean
distances.  Points are stored leaf after leaf: what is near by the divergence is near in memory.

Packages that are kept up do this for metrics only; their edges between √x, re-ranked by the divergence, find fewer
neighbours in the same time (``benchmarks/bench_neighbors.py --peers``).

Cost: about ``JOINED``·leaf_size + 400 products per point to build, some hundred per query.  ``JOINED``, ``CANDIDATES``
and ``DEGREE`` were chosen on drawn histograms (``clustered`` of ``benchmarks/bench_neighbors.py``).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from patchbag.neighbors.brute import rank, search_brute
from patchbag.neighbors.forms import Points, Queries
from patchbag.neighbors.leaf_search import Leaves
from patchbag.neighbors.tree_search import Added, Found, dequeue, enqueue, search_in_blocks
from patchbag.neighbors.trees import Tree, products

# leaves around a point's own; candidates of a point; edges of a point at most
JOINED = 16
CANDIDATES = 24
DEGREE = 24
# leaves in which a search begins
LEAVES = 4


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
def _score(vectors: Any, bias: Any, at: int, centred: Any) -> Any:  # pragma: no cover - compiled
    total = vectors[at, 0] * centred[0]
    for j in range(1, centred.shape[0]):
        total += vectors[at, j] * centred[j]
    return bias[at] - total


@njit(cache=True, nogil=True)
def _insert(value: Any, at: int, values: Any, places: Any) -> int:  # pragma: no cover - compiled
    """Insert into a list that is sorted by value, infinite where it is empty; where it went, -1 for nowhere."""
    low = values.shape[0] - 1
    if not value < values[low]:
        return -1
    while low > 0 and values[low - 1] > value:
        low -= 1
    same = low
    while same > 0 and values[same - 1] == value:
        same -= 1
        if places[same] == at:
            return -1
    for i in range(values.shape[0] - 1, low, -1):
        values[i] = values[i - 1]
        places[i] = places[i - 1]
    values[low] = value
    places[low] = at
    return low


@njit(cache=True, nogil=True)
def _join(tree: Any, near: Any, node: Any, asked: Any, values: Any, places: Any) -> None:  # pragma: no cover - compiled
    """For the points of each leaf, the nearest ones of the leaves that are near."""
    for leaf in range(node.shape[0]):
        for x in range(tree.start[node[leaf]], tree.stop[node[leaf]]):
            for other in near[leaf]:
                for y in range(tree.start[node[other]], tree.stop[node[other]]):
                    if y != x:
                        _insert(_score(tree.vectors, tree.bias, y, asked[x]), y, values[x], places[x])


@njit(cache=True, nogil=True)
def _descend(tree: Any, asked: Any, values: Any, places: Any, width: int) -> None:  # pragma: no cover - compiled
    """Offer each point the nearest neighbours of its nearest neighbours, ``width`` of each."""
    before = places[:, :width].copy()
    for x in range(before.shape[0]):
        for a in before[x]:
            if a >= 0:
                for y in before[a]:
                    if y >= 0 and y != x:
                        _insert(_score(tree.vectors, tree.bias, y, asked[x]), y, values[x], places[x])


@njit(cache=True, nogil=True)
def _reach_out(tree: Any, near: Any, node: Any, asked: Any, values: Any, places: Any) -> None:
    """Offer each point one of every leaf that is near, not the same to all."""
    for leaf in range(node.shape[0]):
        for x in range(tree.start[node[leaf]], tree.stop[node[leaf]]):
            for other in near[leaf, 1:]:
                first, stop = tree.start[node[other]], tree.stop[node[other]]
                y = first + x % (stop - first)
                _insert(_score(tree.vectors, tree.bias, y, asked[x]), y, values[x], places[x])


@njit(cache=True, nogil=True)
def _select(tree: Any, asked: Any, offset: Any, x: int, values: Any, places: Any, edges: Any) -> None:
    """Of the candidates of x, sorted, those to which no kept one is nearer than x."""
    kept = 0
    for c in range(values.shape[0]):
        y = places[c]
        if y < 0 or kept == edges.shape[0]:
            break
        free = True
        for i in range(kept):
            z = edges[i]
            if _score(tree.vectors, tree.bias, y, asked[z]) + offset[z] < values[c] + offset[x]:
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
                    _insert(_score(tree.vectors, tree.bias, y, asked[x]), y, scores, merged)
        _select(tree, asked, offset, x, scores, merged, edges[x])


def is_coarse(points: Points, k: int = 10) -> bool:
    """Whether float32 cannot tell near points apart, as of entries near zero under Itakura–Saito.

    An exact search finds its way all the same, through more candidates; a greedy one does not.
    """
    rows = points.rows[np.isfinite(points.bias)][:: max(len(points) // 256, 1)]
    own = points.ask(rows, rows)
    reached = search_brute(points, own, min(k, len(rows)))[0][:, -1]
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


@njit(cache=True, nogil=True)
def _enter(tree: Any, centred: Any, keys: Any, nodes: Any, out: Any, leaves: Any) -> int:  # pragma: no cover - compiled
    """Best-first search of the tree for its nearest leaves; how many centres were compared."""
    computed, found = 0, 0
    size = enqueue(keys, nodes, 0, keys.dtype.type(0), 0)
    while size > 0 and found < leaves.shape[0]:
        node = nodes[0]
        size = dequeue(keys, nodes, size)
        first, children = tree.child[node], tree.n_children[node]
        if children == 0:
            leaves[found] = node
            found += 1
        products(tree.psi[first : first + children], 0, children, centred, out)
        computed += children
        for c in range(first, first + children):
            if tree.stop[c] > tree.start[c]:  # relocation may leave a leaf empty
                size = enqueue(keys, nodes, size, tree.center_bias[c] - out[c - first], c)
    leaves[found:] = -1
    return computed


@njit(cache=True, nogil=True)
def _keep(value: Any, at: int, values: Any, places: Any, expanded: Any, leads_on: bool) -> int:
    """Insert into the beam a point that is to be expanded, or not; where it went."""
    to = _insert(value, at, values, places)
    if to >= 0:
        for b in range(values.shape[0] - 1, to, -1):
            expanded[b] = expanded[b - 1]
        expanded[to] = not leads_on
    return to


@njit(cache=True, nogil=True)
def _search(tree: Any, graph: Any, added: Any, code: int, mixing: float, rows: Any, queries: Any, beam: int,
            n_leaves: int, distances: Any, neighbors: Any, stats: Any) -> None:  # fmt: skip
    """Neighbours of each query, divergences computed and leaves begun in; -1 of these where fewer than k were found."""
    m, k = distances.shape
    n, dtype = tree.bias.shape[0], tree.vectors.dtype
    values, places, expanded = np.empty(beam, dtype), np.empty(beam, np.int64), np.empty(beam, np.bool_)
    keys, nodes = np.empty(len(tree.start), dtype), np.empty(len(tree.start), np.int64)
    out, leaves = np.empty(len(tree.start), dtype), np.empty(n_leaves, np.int64)
    entries = np.empty(n_leaves, np.int32)
    # a point is seen if it stands at its place; one that was driven out by another is looked at twice, to no effect
    seen = np.empty(64 * beam, np.int32)
    for i in range(m):
        centred = queries.centred[i]
        values[:], places[:], expanded[:], seen[:] = np.inf, -1, True, -1
        stats[i, 0] = _enter(tree, centred, keys, nodes, out, leaves) + added.bias.shape[0]
        stats[i, 1] = (leaves >= 0).sum()
        for y in range(added.bias.shape[0]):
            _keep(_score(added.vectors, added.bias, y, centred), n + y, values, places, expanded, False)
        row = entries
        for c in range(n_leaves):
            row[c] = tree.start[leaves[c]] if leaves[c] >= 0 else -1
        at = 0
        while True:
            nearest = at
            for y in row:
                if y < 0:
                    break
                if seen[y % len(seen)] != y:
                    seen[y % len(seen)] = y
                    stats[i, 0] += 1
                    to = _keep(_score(tree.vectors, graph.bias, y, centred), y, values, places, expanded, True)
                    if 0 <= to < nearest:
                        nearest = to
            at = nearest
            while at < beam and expanded[at]:
                at += 1
            if at == beam:
                break
            expanded[at] = True
            row = graph.edges[places[at]]
        count = 0
        for b in range(beam):
            at = places[b]
            if at >= n or (at >= 0 and tree.bias[at] < np.inf):
                values[count], places[count] = values[b], tree.order[at] if at < n else added.order[at - n]
                count += 1
        if count < k:
            stats[i] = -1
            continue
        limit = values[k - 1] + dtype.type(2.001 * queries.error[i])
        rank(code, mixing, queries.left[i], queries.right[i], rows, limit, values, places, count, distances[i],
             neighbors[i])  # fmt: skip


def search_graph(
    points: Points,
    tree: Tree,
    graph: Graph,
    queries: Queries,
    k: int,
    *,
    beam: int,
    max_leaves: int | None = None,
    covered: int | None = None,
    n_jobs: int | None = None,
) -> Found:
    """Near points of each query: divergences (m, k), ascending, indices (m, k), and statistics (m, 2).

    Parameters
    ----------
    beam : points that are kept and expanded; no less than k
    max_leaves : leaves in which the search begins, default ``LEAVES``
    covered : points from this one on are in no leaf (default: all are in leaves)

    Returns
    -------
    The statistics are divergences computed, of points and of centres, and leaves begun in.  Queries that find less than
    k points, where many were taken out, are answered by products.
    """
    known = max(beam, k), max_leaves or LEAVES, len(points) if covered is None else covered
    return search_in_blocks(partial(_search_block, points, tree, graph, k, *known), queries, n_jobs)


def _search_block(
    points: Points, tree: Tree, graph: Graph, k: int, beam: int, n_leaves: int, covered: int, queries: Queries
) -> Found:
    m, form = queries.size, points.form
    distances, neighbors = np.empty((m, k)), np.empty((m, k), np.int64)
    stats = np.empty((m, 2), np.int64)
    added = Added(points.vectors[covered:], points.bias[covered:], np.arange(covered, len(points)))
    assert form.inner.code is not None
    _search(tree, graph, added, form.inner.code, form.mixing, points.rows, queries, beam, n_leaves, distances,
            neighbors, stats)  # fmt: skip
    for i in np.flatnonzero(stats[:, 0] < 0).tolist():
        distances[i], neighbors[i] = search_brute(points, queries.part(slice(i, i + 1)), k)
        stats[i] = len(points), tree.n_leaves
    return np.maximum(distances, 0), neighbors, stats
