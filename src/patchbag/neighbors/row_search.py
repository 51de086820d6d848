# SPDX-License-Identifier: BSD-3-Clause
"""One query at a time, in one compiled call: smoothing, preparation, search and ranking.

A search of a tree or a graph takes some ten microseconds, and one of all points no more where they are few.  So do the
checks of an array, the making of twenty small ones, and finding out which compiled version the arguments need.  Here
the last is done once, when the first query comes, and the others are part of the compiled call.  The neighbours are
those of ``brute``, ``tree_search``, ``leaf_search`` and ``graph_search``, whose loops these are; only the matrix-vector
product of ``brute`` is not that of BLAS.
"""

from typing import Any

import numpy as np
from numba import float64, njit, typeof

from patchbag.neighbors.brute import ROOM, collect, rank
from patchbag.neighbors.divergences import smooth_rows
from patchbag.neighbors.forms import Points, Queries, ask_rows
from patchbag.neighbors.graph import Graph
from patchbag.neighbors.graph_search import LEAVES, graph_neighbors
from patchbag.neighbors.leaf_search import Leaves, leaf_neighbors
from patchbag.neighbors.tree_search import Added, Found, tree_neighbors
from patchbag.neighbors.trees import Tree, products


@njit(cache=True, nogil=True)
def _all_neighbors(points: Any, code: int, mixing: float, rows: Any, queries: Any, room: int, distances: Any,
                   neighbors: Any, stats: Any) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Neighbours of one query among all points; -1 of the statistics where room was missing."""
    (n, _), k, dtype = points.vectors.shape, distances.shape[1], points.vectors.dtype
    tile, heap = np.empty((1, n), dtype), np.full((1, k), np.inf, dtype)
    values, indices, counts = np.empty((1, room), dtype), np.empty((1, room), np.int64), np.zeros(1, np.int64)
    slack = np.full(1, 2.001 * queries.error[0]).astype(dtype)
    products(points.vectors, 0, n, queries.centred[0], tile[0])
    collect(tile, points.bias, 0, slack, heap, values, indices, counts)
    stats[0, 0], stats[0, 1] = n if counts[0] >= 0 else -1, 0
    rank(code, mixing, queries.left[0], queries.right[0], rows, heap[0, 0] + slack[0], values[0], indices[0], counts[0],
         distances[0], neighbors[0])  # fmt: skip


@njit(cache=True, nogil=True)
def _search_row(lens: Any, space: Any, excess: float, tree: Any, leaves: Any, graph: Any, added: Any, rows: Any, X: Any,
                beam: int, max_leaves: int, room: int, distances: Any, neighbors: Any,
                stats: Any) -> bool:  # pragma: no cover - compiled  # fmt: skip
    """Answer a query as it comes, X (1, d); False where it lies outside of the domain or less than k points are found.

    ``tree`` is None where all points are ``added``, ``leaves`` where the search has a budget of leaves, ``graph`` where
    there is none.
    """
    width = lens.mu.shape[0]
    clean, phi, numbers = np.empty(X.shape), np.empty((1, width)), np.empty((4, 1))
    centred = np.empty((1, width), added.vectors.dtype)
    if not smooth_rows(X, lens.smoothing, lens.lower, lens.upper, lens.simplex, clean):
        return False
    ask_rows(lens, clean, clean, phi, centred, numbers)
    queries = Queries(clean, clean, phi, numbers[0], centred, numbers[1], numbers[2], numbers[3])
    code, mixing = lens.code, lens.mixing
    distances[:], neighbors[:] = np.inf, -1
    if tree is None:
        _all_neighbors(added, code, mixing, rows, queries, room, distances, neighbors, stats)
    elif graph is not None:
        graph_neighbors(tree, graph, added, code, mixing, rows, queries, beam, max_leaves, distances, neighbors, stats)
    elif leaves is not None:
        leaf_neighbors(space, tree, leaves, added, code, mixing, rows, excess, queries, room, distances, neighbors,
                       stats)  # fmt: skip
    else:
        tree_neighbors(space, tree, added, code, mixing, rows, excess, queries, max_leaves, room, distances, neighbors,
                       stats)  # fmt: skip
    for j in range(distances.shape[1]):
        distances[0, j] = max(distances[0, j], 0.0)
    return stats[0, 0] >= 0


class RowSearch:
    """A search for one row after the other.

    Parameters
    ----------
    tree : None for a search of all points
    leaves : for an exact search of the leaves; None for one of the tree
    max_leaves : of the tree, or of the graph to begin in
    covered : points from this one on are in no leaf
    """

    def __init__(
        self,
        points: Points,
        tree: Tree | None = None,
        leaves: Leaves | None = None,
        graph: Graph | None = None,
        max_leaves: int | None = None,
        covered: int = 0,
    ) -> None:
        added = Added(points.vectors[covered:], points.bias[covered:], np.arange(covered, len(points)))
        leaves = leaves if max_leaves is None and graph is None else None
        self.known = points.lens, points.space, points.form.excess, tree, leaves, graph, added, points.rows
        self.max_leaves = max_leaves or (0 if graph is None else LEAVES)
        answer = np.empty((1, 1)), np.empty((1, 1), np.int64), np.empty((1, 2), np.int64)
        kinds = (*map(typeof, self.known), float64[:, ::1], *map(typeof, (1, 1, 1, *answer)))
        self.search = _search_row.compile(kinds)

    def __call__(self, X: np.ndarray, k: int, beam: int) -> Found | None:
        """Divergences, indices (1, k) and statistics (1, 2); None where X (1, d) has to be searched in another way.

        X is float64, aligned and contiguous: compiled code takes it for that.
        """
        distances, neighbors, stats = np.empty((1, k)), np.empty((1, k), np.int64), np.empty((1, 2), np.int64)
        room = min(2 * k + ROOM, len(self.known[-1]))
        done = self.search(*self.known, X, max(beam, k), self.max_leaves, room, distances, neighbors, stats)
        return (distances, neighbors, stats) if done else None
