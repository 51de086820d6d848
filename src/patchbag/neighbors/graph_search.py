# SPDX-License-Identifier: BSD-3-Clause
"""Greedy search of a graph of neighbours (``graph``) from the nearest leaves of a ball tree: approximate.

A search keeps the ``beam`` nearest points seen so far and expands the nearest one that was not expanded yet: it looks
at all points that an edge leads to.  It ends when all of the beam are expanded.  It begins with one point of each of
the leaves that a best-first search of the tree finds.  What the beam holds at the end is ranked in float64.

Cost: some hundred products per query.  ``benchmarks/bench_neighbors_peers.py`` compares it with packages: nmslib,
hnswlib on √x, ranked again, pynndescent.
"""

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from patchbag.neighbors.brute import rank
from patchbag.neighbors.forms import Points, Queries
from patchbag.neighbors.graph import EXPANDED, Graph, insert, score
from patchbag.neighbors.tree_search import Added, Found, dequeue, enqueue, search_in_blocks
from patchbag.neighbors.trees import Tree, products

# leaves in which a search begins
LEAVES = 4
EMPTY = 2 * EXPANDED - 1
# bytes of memory that a processor fetches together
LINE = 64


def _prefetch(typing_context: Any, array: Any, row: Any, column: Any) -> Any:
    """Ask for an entry of an array (n, D) to be in the cache soon: LLVM's ``prefetch``, which Numba has no name for."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        at = [context.cast(builder, arguments[i], signature.args[i], types.intp) for i in (1, 2)]
        place = cgutils.get_item_pointer(
            context, builder, kind, context.make_array(kind)(context, builder, arguments[0]), at
        )
        place = builder.bitcast(place, cgutils.voidptr_t)
        read, keep, data = (ir.Constant(ir.IntType(32), number) for number in (0, 3, 1))
        known = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, *(ir.IntType(32),) * 3])
        builder.call(
            cgutils.get_or_insert_function(builder.module, known, "llvm.prefetch.p0i8"), [place, read, keep, data]
        )
        return context.get_dummy_value()

    return types.void(array, row, column), generate


_fetch: Any = intrinsic(_prefetch)


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
def graph_neighbors(tree: Any, graph: Any, added: Any, code: int, mixing: float, rows: Any, queries: Any, beam: int,
                    n_leaves: int, distances: Any, neighbors: Any, stats: Any) -> None:  # fmt: skip
    """Neighbours of each query, divergences computed and leaves begun in; -1 of these where fewer than k were found."""
    m, k = distances.shape
    n, dtype = tree.bias.shape[0], tree.vectors.dtype
    values, places = np.empty(beam, dtype), np.empty(beam, np.int64)
    keys, nodes = np.empty(len(tree.start), dtype), np.empty(len(tree.start), np.int64)
    out, leaves = np.empty(len(tree.start), dtype), np.empty(n_leaves, np.int64)
    entries = np.empty(n_leaves, np.int32)
    fresh = np.empty(max(n_leaves, graph.edges.shape[1]), np.int32)
    # a point is seen if it stands at its place; one that was driven out by another is looked at twice, to no effect
    size = 64
    while size < 64 * beam:
        size *= 2
    seen, last = np.empty(size, np.int32), np.int32(size - 1)
    for i in range(m):
        centred = queries.centred[i]
        values[:], places[:], seen[:] = np.inf, EMPTY, -1
        stats[i, 0] = _enter(tree, centred, keys, nodes, out, leaves) + added.bias.shape[0]
        stats[i, 1] = (leaves >= 0).sum()
        for extra in range(added.bias.shape[0]):
            insert(score(added.vectors, added.bias, extra, centred), EXPANDED + n + extra, values, places)
        row = entries
        for c in range(n_leaves):
            row[c] = tree.start[leaves[c]] if leaves[c] >= 0 else -1
        at = 0
        while True:
            nearest, count = at, 0
            for y in row:  # first ask for all, then look at them: memory takes longer than the products
                if y < 0:
                    break
                if seen[y & last] != y:
                    seen[y & last] = y
                    fresh[count] = y
                    count += 1
                    for j in range(0, centred.shape[0], LINE // centred.itemsize):
                        _fetch(tree.vectors, y, j)
            stats[i, 0] += count
            for y in fresh[:count]:
                to = insert(score(tree.vectors, graph.bias, y, centred), y, values, places)
                if 0 <= to < nearest:
                    nearest = to
            at = nearest
            while at < beam and places[at] >= EXPANDED:
                at += 1
            if at == beam:
                break
            row = graph.edges[places[at]]
            places[at] += EXPANDED
        count = 0
        for b in range(beam):
            at = places[b] - EXPANDED
            if values[b] < np.inf and (at >= n or tree.bias[at] < np.inf):
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
    look = partial(_look, points, tree, graph, max(beam, k), max_leaves or LEAVES)
    return search_in_blocks(look, points, tree, queries, k, covered, n_jobs)


def _look(
    points: Points, tree: Tree, graph: Graph, beam: int, n_leaves: int, added: Added, queries: Queries, *found: Any
) -> None:
    lens = points.lens
    graph_neighbors(tree, graph, added, lens.code, lens.mixing, points.rows, queries, beam, n_leaves,
                    *found)  # fmt: skip
