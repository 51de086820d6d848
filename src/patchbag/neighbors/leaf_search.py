# SPDX-License-Identifier: BSD-3-Clause
r"""Exact search of the leaves of a ball tree, all of them looked at by one product.

High in a tree balls overlap so much that few can be left out, and each test costs as much as many points.  So the exact
search goes over the leaves at once:

1. the scores of all centres, a matrix-vector product that is n/leaf_size as long as that of the points;
2. the nearest leaves are opened until k points are known;
3. a leaf stays only if a bound that costs one more product allows it;
4. those that stay are projected on (``geodesic``), nearest first, and opened if need be.

The bound of step 3 is the three-point identity :math:`D(\psi \| q) = D(\psi \| c) + D(c \| q) + \langle \psi - \psi_c,
\varphi_c - \varphi_q \rangle`, whose last term is at least :math:`-\|\psi - \psi_c\|_{A^{-1}} \|\varphi_c -
\varphi_q\|_A` (Cauchy–Schwarz) for every diagonal A > 0.  Of these :math:`A_j = s_j / \delta_j`, the deviation of the
leaf's ψ over that of φ of all points from the centre, makes the product smallest on the average.  The least D(ψ ‖ c)
and the largest ‖ψ − ψ_c‖ of each leaf are known.

All bounds allow for rounding; candidates are ranked in float64 as in ``brute``.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from patchbag.neighbors.brute import ROOM, rank
from patchbag.neighbors.forms import Points, Queries
from patchbag.neighbors.tree_search import Added, Found, gradient_of, left_out, scan, search_in_blocks
from patchbag.neighbors.trees import Tree, products


class Leaves(NamedTuple):
    """Leaves of a tree, in order, with what the bounds need.

    Attributes
    ----------
    node : (leaves,) number in the tree
    psi, bias : (leaves, D), (leaves,) centres as points
    near : (leaves, D) φ − ν of the centres, metric : (leaves, D) A, in the precision of the points
    spread, blur : (leaves,) largest ‖ψ − ψ_c‖ of a point, and what rounding can change of ‖φ_c − φ_q‖
    """

    node: np.ndarray
    psi: np.ndarray
    bias: np.ndarray
    near: np.ndarray
    metric: np.ndarray
    spread: np.ndarray
    blur: np.ndarray


def gather_leaves(points: Points, tree: Tree) -> Leaves:
    """The leaves of a tree that have points."""
    node = np.flatnonzero((tree.n_children == 0) & (tree.stop > tree.start))
    node = node[np.argsort(tree.start[node])]
    psi = tree.psi[node]
    phi = tree.phi[node] - points.nu
    variance = np.empty(phi.shape)
    _variances(tree.vectors, tree.start[node], tree.stop[node], psi, variance)
    typical = points.form.queries(points.rows, points.rows)[0].var(axis=0)
    # a leaf of one point has no deviation, a coordinate that is constant neither
    inside = np.sqrt(variance) + 1e-4 * points.largest + 1e-12
    outside = np.sqrt(phi**2 + typical) + 1e-4 * np.sqrt(typical).max() + 1e-12
    metric = np.clip(inside / outside, 1e-9, 1e9).astype(psi.dtype)
    spread = np.empty(len(node))
    _spreads(tree.vectors, tree.start[node], tree.stop[node], psi, metric, spread)
    # points and centres are rounded to 2⁻²⁴ of their entries
    return Leaves(
        node,
        psi,
        tree.center_bias[node],
        phi.astype(psi.dtype),
        metric,
        1.001 * spread + 1e-6 * np.sqrt((points.largest**2 / metric).sum(axis=1)),
        1e-6 * np.sqrt((metric * phi**2).sum(axis=1)),
    )


@njit(cache=True, nogil=True)
def _variances(vectors: Any, start: Any, stop: Any, psi: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Mean squared deviation of each leaf's points from its centre, coordinate by coordinate."""
    for leaf in range(start.shape[0]):
        out[leaf] = 0
        for i in range(start[leaf], stop[leaf]):
            for j in range(psi.shape[1]):
                out[leaf, j] += (vectors[i, j] - psi[leaf, j]) ** 2
        out[leaf] /= stop[leaf] - start[leaf]


@njit(cache=True, nogil=True)
def _spreads(vectors: Any, start: Any, stop: Any, psi: Any, metric: Any, out: Any) -> None:
    """Largest distance of each leaf's points from its centre by the inverse of the metric."""
    for leaf in range(start.shape[0]):
        most = 0.0
        for i in range(start[leaf], stop[leaf]):
            total = 0.0
            for j in range(psi.shape[1]):
                total += (vectors[i, j] - psi[leaf, j]) ** 2 / metric[leaf, j]
            most = max(most, total)
        out[leaf] = np.sqrt(most)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _squared_distance(a: Any, b: Any, weights: Any) -> Any:  # pragma: no cover - compiled
    total = weights.dtype.type(0)
    for j in range(a.shape[0]):
        total += weights[j] * (a[j] - b[j]) * (a[j] - b[j])
    return total


@njit(cache=True, nogil=True)
def leaf_keys(leaves: Any, centred: Any, keys: Any) -> None:  # pragma: no cover - compiled
    """Scores of the centres of all leaves."""
    products(leaves.psi, 0, keys.shape[0], centred, keys)
    for leaf in range(keys.shape[0]):
        keys[leaf] = leaves.bias[leaf] - keys[leaf]


@njit(cache=True, nogil=True)
def may_hold(tree: Any, leaves: Any, leaf: int, centred: Any, key: Any, goal: Any) -> bool:
    """Whether the bound of step 3 allows a score of at most ``goal`` in a leaf; ``key`` is that of its centre."""
    distance = np.sqrt(_squared_distance(centred, leaves.near[leaf], leaves.metric[leaf]))
    reach = leaves.spread[leaf] * (1.001 * distance + leaves.blur[leaf])
    return key + tree.inner[leaves.node[leaf]] - reach <= goal


@njit(cache=True, nogil=True)
def leaf_neighbors(space: Any, tree: Any, leaves: Any, added: Any, code: int, mixing: float, rows: Any, excess: float,
                   queries: Any, room: int, distances: Any, neighbors: Any, stats: Any) -> None:  # fmt: skip
    """Neighbours of each query, divergences computed and leaves opened; -1 of these where room was missing."""
    m, k = distances.shape
    n_leaves = leaves.node.shape[0]
    dtype = tree.vectors.dtype
    heap = np.empty(k, dtype)
    values, indices = np.empty(room, dtype), np.empty(room, np.int64)
    keys, staying = np.empty(n_leaves, dtype), np.empty(n_leaves, np.int64)
    widest = added.bias.shape[0]
    for node in leaves.node:
        widest = max(widest, tree.stop[node] - tree.start[node])
    out = np.empty(widest, dtype)
    psi = np.empty(queries.phi.shape[1])
    for i in range(m):
        centred, phi = queries.centred[i], queries.phi[i]
        h_query = queries.constant[i] - excess
        slack = dtype.type(2.001 * queries.error[i])
        heap[:] = np.inf
        count = scan(added.vectors, added.bias, added.order, 0, added.bias.shape[0], centred, slack, heap, values,
                     indices, 0, out, False)  # fmt: skip
        computed, opened = n_leaves + added.bias.shape[0], 0
        leaf_keys(leaves, centred, keys)
        while opened < n_leaves and count >= 0 and (opened == 0 or heap[0] == np.inf):
            leaf = int(np.argmin(keys))
            node = leaves.node[leaf]
            count = scan(tree.vectors, tree.bias, tree.order, tree.start[node], tree.stop[node], centred, slack, heap,
                         values, indices, count, out, False)  # fmt: skip
            computed += tree.stop[node] - tree.start[node]
            opened += 1
            keys[leaf] = np.inf
        # twice the slack, as centres may have larger biases than points
        goal = heap[0] + 2 * slack
        n_staying = 0
        for leaf in range(n_leaves):
            if keys[leaf] < np.inf and may_hold(tree, leaves, leaf, centred, keys[leaf], goal):
                staying[n_staying] = leaf
                n_staying += 1
        computed += n_leaves
        if n_staying:
            gradient_of(space, phi, psi)
            own = (phi * psi).sum()
            for leaf in staying[:n_staying][np.argsort(keys[staying[:n_staying]])]:
                node = leaves.node[leaf]
                limit = heap[0] + queries.offset[i] + queries.error[i]
                hopeless, taken = left_out(space, tree, node, phi, psi, h_query, own, limit, queries.fine[i])
                computed += taken
                if not hopeless and count >= 0:
                    a, b = tree.start[node], tree.stop[node]
                    count = scan(tree.vectors, tree.bias, tree.order, a, b, centred, slack, heap, values, indices,
                                 count, out, False)  # fmt: skip
                    computed += b - a
                    opened += 1
        stats[i, 0], stats[i, 1] = computed, opened
        if count < 0:
            stats[i] = -1
            continue
        rank(code, mixing, queries.left[i], queries.right[i], rows, heap[0] + slack, values, indices, count,
             distances[i], neighbors[i])  # fmt: skip


def search_leaves(
    points: Points,
    tree: Tree,
    leaves: Leaves,
    queries: Queries,
    k: int,
    *,
    covered: int | None = None,
    n_jobs: int | None = None,
) -> Found:
    """The k nearest points of each query: divergences (m, k), ascending, indices (m, k), and statistics (m, 2).

    Points from ``covered`` on are in no leaf (default: all are in leaves).  The statistics are divergences computed, of
    points, of centres, by bounds and on geodesics, and leaves opened.
    """
    look = partial(_look, points, tree, leaves, min(2 * k + ROOM, len(points)))
    return search_in_blocks(look, points, tree, queries, k, covered, n_jobs)


def _look(points: Points, tree: Tree, leaves: Leaves, room: int, added: Added, queries: Queries, *found: Any) -> None:
    lens = points.lens
    leaf_neighbors(points.space, tree, leaves, added, lens.code, lens.mixing, points.rows, points.form.excess, queries,
                   room, *found)  # fmt: skip
