# SPDX-License-Identifier: BSD-3-Clause
"""All points within a radius, by the balls of a tree; exact.

A node is left out where no point of it can be as near as the radius (``geodesic``).  Where the leaves of a ball tree
are at hand, all of them are looked at by one product and the bound of ``leaf_search``, as for the k nearest; else the
tree is gone through from its root.  Points of the leaves that stay are compared in float32, those that pass are
compared again in float64.
"""

from functools import partial
from typing import Any

import numpy as np
from numba import njit

from patchbag.neighbors.brute import Within, rank_within, within_in_blocks
from patchbag.neighbors.forms import Points, Queries
from patchbag.neighbors.leaf_search import Leaves, leaf_keys, may_hold
from patchbag.neighbors.tree_search import gradient_of, left_out
from patchbag.neighbors.trees import Tree, products


@njit(cache=True, nogil=True)
def _grown(values: Any, size: int) -> Any:  # pragma: no cover - compiled
    """An array with room for ``size`` entries that begins like ``values``."""
    if size <= values.shape[0]:
        return values
    more = np.empty(max(2 * values.shape[0], size), values.dtype)
    more[: values.shape[0]] = values
    return more


@njit(cache=True, nogil=True)
def _within(space: Any, tree: Any, leaves: Any, excess: float, queries: Any, radius: float, counts: Any) -> Any:
    """Candidates of all queries, one after the other, and how many each query has."""
    dtype = tree.vectors.dtype
    found, size = np.empty(1024, np.int64), 0
    stack = np.empty(tree.start.shape[0], np.int64)
    keys = np.empty(0 if leaves is None else leaves.node.shape[0], dtype)
    out = np.empty(tree.vectors.shape[0], dtype)  # memory that is not written to is not used
    psi = np.empty(queries.phi.shape[1])
    for i in range(counts.shape[0]):
        centred, phi = queries.centred[i], queries.phi[i]
        h_query = queries.constant[i] - excess
        goal = dtype.type(radius - queries.offset[i] + 2.001 * queries.error[i])
        n_stack = 1
        stack[0] = 0
        if leaves is not None:
            n_stack = 0
            leaf_keys(leaves, centred, keys)
            for leaf in range(keys.shape[0]):
                if may_hold(tree, leaves, leaf, centred, keys[leaf], goal + dtype.type(2.001 * queries.error[i])):
                    stack[n_stack] = leaves.node[leaf]
                    n_stack += 1
        if n_stack:
            gradient_of(space, phi, psi)
        own = (phi * psi).sum()
        before = size
        while n_stack:
            n_stack -= 1
            node = stack[n_stack]
            if left_out(space, tree, node, phi, psi, h_query, own, radius, queries.fine[i])[0]:
                continue
            for c in range(tree.child[node], tree.child[node] + tree.n_children[node]):
                stack[n_stack] = c
                n_stack += 1
            if tree.n_children[node] == 0:
                a, b = tree.start[node], tree.stop[node]
                products(tree.vectors[a:b], 0, b - a, centred, out)
                found = _grown(found, size + b - a)
                for y in range(a, b):
                    value = tree.bias[y] - out[y - a]
                    if value <= goal and value < np.inf:
                        found[size] = tree.order[y]
                        size += 1
        counts[i] = size - before
    return found[:size]


def search_radius_in_leaves(
    points: Points,
    tree: Tree,
    leaves: Leaves | None,
    queries: Queries,
    radius: float,
    *,
    covered: int,
    n_jobs: int | None = None,
) -> Within:
    """All points within ``radius`` of each query: divergences and indices, in the order of the points.

    Points from ``covered`` on are in no leaf.
    """
    return within_in_blocks(partial(_search_block, points, tree, leaves, covered, radius), queries, n_jobs)


def _search_block(
    points: Points, tree: Tree, leaves: Leaves | None, covered: int, radius: float, queries: Queries
) -> Within:
    counts = np.empty(queries.size, np.int64)
    found = _within(points.space, tree, leaves, points.form.excess, queries, radius, counts)
    live = covered + np.flatnonzero(np.isfinite(points.bias[covered:]))
    candidates = [np.append(np.sort(some), live) for some in np.split(found, np.cumsum(counts)[:-1])]
    return rank_within(points, queries, radius, candidates)
