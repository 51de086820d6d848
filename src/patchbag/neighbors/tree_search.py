# SPDX-License-Identifier: BSD-3-Clause
r"""Best-first search of a tree of Bregman balls, exact or with a budget of leaves (piro2010 §3.2.2, "priority queue").

Nodes wait in a queue ordered by the divergence of their centre from the query (a product, like that of a point).  The
nearest one is taken: the points of a leaf are offered as in ``brute``, the children of an inner node join the queue.

Exact (for ball trees ``leaf_search`` is the faster way): before a node is opened, ``geodesic`` tells whether its ball
can hold a point as near as the k-th so far; if not it is left out.  All bounds allow for the errors of float32 and
float64, and candidates are ranked by their divergences in float64, so that the neighbours are those of a search of all
points, ties included.

Approximate: the search ends after ``max_leaves`` leaves and no ball is projected on.  The points returned are ranked
exactly; a neighbour is missed where it lies in a leaf that was not opened.

Points that were added after the tree was built, and are in no leaf, are looked at first.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from patchbag.neighbors.brute import ROOM, offer, rank, search_brute
from patchbag.neighbors.coordinates import LOG_SUM, value_and_slope
from patchbag.neighbors.forms import Points, Queries
from patchbag.neighbors.geodesic import ball_holds_all_near, ball_is_beyond
from patchbag.neighbors.trees import Tree, products
from patchbag.runtime import parallel_map

ROWS = 64

# divergences (m, k), indices (m, k), statistics (m, 2)
Found = tuple[np.ndarray, np.ndarray, np.ndarray]


class Added(NamedTuple):
    """Points that are in no leaf."""

    vectors: np.ndarray
    bias: np.ndarray
    order: np.ndarray


@njit(cache=True, nogil=True)
def enqueue(keys: Any, nodes: Any, size: int, key: Any, node: int) -> int:  # pragma: no cover - compiled
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if keys[parent] <= key:
            break
        keys[at], nodes[at] = keys[parent], nodes[parent]
        at = parent
    keys[at], nodes[at] = key, node
    return size + 1


@njit(cache=True, nogil=True)
def dequeue(keys: Any, nodes: Any, size: int) -> int:  # pragma: no cover - compiled
    """Take the first away; the new size."""
    size -= 1
    key, node = keys[size], nodes[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[at], nodes[at] = keys[child], nodes[child]
        at = child
    keys[at], nodes[at] = key, node
    return size


@njit(cache=True, nogil=True)
def gradient_of(space: Any, phi: Any, psi: Any) -> None:  # pragma: no cover - compiled
    """ψ = ∇h(φ), weighted, of a query."""
    codes, weights, split, _, _ = space
    for half in range(2):
        a = 0 if half == 0 else split
        b = split if half == 0 else phi.shape[0]
        total = 0.0
        for j in range(a, b):
            psi[j] = weights[half] * value_and_slope(codes[half], phi[j])[1]
            total += psi[j]
        if codes[half] == LOG_SUM:
            for j in range(a, b):
                psi[j] *= weights[half] / total


@njit(cache=True, nogil=True)
def left_out(space: Any, tree: Any, node: int, phi: Any, psi: Any, h_query: float, own: float, limit: float,
              fine: float) -> Any:  # pragma: no cover - compiled  # fmt: skip
    """Whether no point of a node can be within ``limit``, and how many evaluations that took."""
    codes, weights, split, _, _ = space
    center, h_center = tree.phi[node], tree.h[node]
    to_center = h_center - h_query + own
    for j in range(phi.shape[0]):
        to_center -= center[j] * psi[j]
    beyond, taken = ball_is_beyond(
        codes, weights, split, phi, h_query, center, h_center, to_center, tree.outer[node], limit, 4 * fine
    )
    if beyond or tree.inner[node] <= to_center:
        return beyond, taken + 1
    holds, more = ball_holds_all_near(
        codes, weights, split, phi, h_query, center, h_center, to_center, tree.inner[node], limit, 4 * fine
    )
    return holds, taken + more + 1


@njit(cache=True, nogil=True)
def scan(vectors: Any, bias: Any, order: Any, a: int, b: int, centred: Any, slack: Any, heap: Any, values: Any,
          indices: Any, count: int, out: Any, keep: bool) -> int:  # pragma: no cover - compiled  # fmt: skip
    """Offer the points of a range to a query; ``order`` names them.

    Where there is no room for all that may be equal, ``keep`` goes on with those that came first.
    """
    products(vectors[a:b], 0, b - a, centred, out)
    for i in range(b - a):
        value = bias[a + i] - out[i]
        if value <= heap[0] + slack and value < np.inf and count >= 0:
            count = offer(value, order[a + i], slack, heap, values, indices, count)
            if count < 0 and keep:
                count = values.shape[0]
    return count


@njit(cache=True, nogil=True)
def tree_neighbors(space: Any, tree: Any, added: Any, code: int, mixing: float, rows: Any, excess: float, queries: Any,
                   max_leaves: int, room: int, distances: Any, neighbors: Any, stats: Any) -> None:  # fmt: skip
    """Neighbours of each query, and divergences computed and leaves visited; -1 of these where room was missing."""
    m, k = distances.shape
    n_nodes = tree.start.shape[0]
    dtype = tree.vectors.dtype
    heap = np.empty(k, dtype)
    values, indices = np.empty(room, dtype), np.empty(room, np.int64)
    keys, nodes = np.empty(n_nodes, dtype), np.empty(n_nodes, np.int64)
    widest = added.bias.shape[0]
    for node in range(n_nodes):
        size = tree.n_children[node]
        widest = max(widest, size if size else tree.stop[node] - tree.start[node])
    out = np.empty(widest, dtype)
    psi = np.empty(queries.phi.shape[1])
    for i in range(m):
        centred, phi = queries.centred[i], queries.phi[i]
        h_query = queries.constant[i] - excess
        # rounded up, so that it is no less in the precision of the scores
        slack = dtype.type(2.001 * queries.error[i])
        heap[:] = np.inf
        computed, leaves, own = 0, 0, 0.0
        if max_leaves == 0:
            gradient_of(space, phi, psi)
            own = (phi * psi).sum()
        count = scan(added.vectors, added.bias, added.order, 0, added.bias.shape[0], centred, slack, heap, values,
                     indices, 0, out, max_leaves > 0)  # fmt: skip
        computed += added.bias.shape[0]
        size = enqueue(keys, nodes, 0, dtype.type(-np.inf), 0)
        while size > 0 and count >= 0:
            node = nodes[0]
            size = dequeue(keys, nodes, size)
            if max_leaves == 0 and heap[0] < np.inf:
                limit = heap[0] + queries.offset[i] + queries.error[i]
                hopeless, taken = left_out(space, tree, node, phi, psi, h_query, own, limit, queries.fine[i])
                computed += taken
                if hopeless:
                    continue
            children = tree.n_children[node]
            if children == 0:
                a, b = tree.start[node], tree.stop[node]
                count = scan(tree.vectors, tree.bias, tree.order, a, b, centred, slack, heap, values, indices, count,
                             out, max_leaves > 0)  # fmt: skip
                computed += b - a
                leaves += b > a  # relocation may leave a leaf empty
                if leaves >= max_leaves > 0 and heap[0] < np.inf:
                    break
            else:
                first = tree.child[node]
                products(tree.psi[first : first + children], 0, children, centred, out)
                computed += children
                for c in range(first, first + children):
                    key = tree.center_bias[c] - out[c - first]
                    size = enqueue(keys, nodes, size, key, c)
        if count < 0:
            stats[i] = -1
            continue
        stats[i, 0] = computed
        stats[i, 1] = leaves
        limit = np.inf if max_leaves > 0 else heap[0] + slack
        rank(code, mixing, queries.left[i], queries.right[i], rows, limit, values, indices, count,
             distances[i], neighbors[i])  # fmt: skip


def search_in_blocks(
    look: Callable[..., None], points: Points, tree: Tree, queries: Queries, k: int, covered: int | None, n_jobs: Any
) -> Found:
    """Divergences, indices and statistics of all queries, on the workers of the context.

    ``look(added, queries, distances, neighbors, stats)`` is a compiled loop; queries that it has no room for, of which
    it says so by statistics of -1, are answered by products.
    """
    search = partial(_search_block, look, points, tree, k, len(points) if covered is None else covered)
    if queries.size <= ROWS:  # no BLAS in it, so that there is nothing to hold to one thread
        return search(queries)
    jobs = [queries.part(slice(start, start + ROWS)) for start in range(0, queries.size, ROWS)]
    parts = list(parallel_map(search, jobs, n_jobs))
    distances, neighbors, stats = (np.vstack(some) for some in zip(*parts))
    return distances, neighbors, stats


def _search_block(
    look: Callable[..., None], points: Points, tree: Tree, k: int, covered: int, queries: Queries
) -> Found:
    distances, neighbors = np.full((queries.size, k), np.inf), np.full((queries.size, k), -1)
    stats = np.empty((queries.size, 2), np.int64)
    added = Added(points.vectors[covered:], points.bias[covered:], np.arange(covered, len(points)))
    look(added, queries, distances, neighbors, stats)
    for i in np.flatnonzero(stats[:, 0] < 0).tolist():
        distances[i], neighbors[i] = search_brute(points, queries.part(slice(i, i + 1)), k)
        stats[i] = len(points), tree.n_leaves
    return np.maximum(distances, 0), neighbors, stats


def search_tree(
    points: Points,
    tree: Tree,
    queries: Queries,
    k: int,
    *,
    max_leaves: int | None = None,
    covered: int | None = None,
    n_jobs: int | None = None,
) -> Found:
    """The k nearest points of each query: divergences (m, k), ascending, indices (m, k), and statistics (m, 2).

    Parameters
    ----------
    points : those of the tree and others
    covered : points from this one on are in no leaf (default: all are in leaves)
    max_leaves : leaves to be opened, more only where they hold less than k points; None for an exact search

    Returns
    -------
    The statistics are the divergences that were computed (of points, centres and points on geodesics) and the leaves
    that were opened.
    """
    look = partial(_look, points, tree, max_leaves or 0, min(2 * k + ROOM, len(points)))
    return search_in_blocks(look, points, tree, queries, k, covered, n_jobs)


def _look(points: Points, tree: Tree, max_leaves: int, room: int, added: Added, queries: Queries, *found: Any) -> None:
    lens = points.lens
    tree_neighbors(points.space, tree, added, lens.code, lens.mixing, points.rows, points.form.excess, queries,
                   max_leaves, room, *found)  # fmt: skip
