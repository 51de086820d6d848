# SPDX-License-Identifier: BSD-3-Clause
r"""Bregman vantage-point tree: points near and far of a random point, half and half (piro2010 §3.2.3).

The divergences D(ψ ‖ v) of a node's points from a random one of them, the vantage point v, are computed; the half below
their median is the near child, the other half the far child, until a node has at most ``leaf_size`` points.  So the
tree is balanced, and building it takes one divergence per point and level.

A child is known by the annulus around its parent's vantage point that its points lie in: least and largest divergence.
The near side is left out of a search by projecting on a ball, the far side also where the query's ball lies inside of
the hole (``geodesic``).

Deviation: siblings have the same vantage point, so that its divergence from the query does not tell them apart; the
search's queue is ordered by the nodes' centroids, as in a ball tree.
"""

from typing import Any

import numpy as np
from numba import njit

from patchbag.neighbors.forms import Points
from patchbag.neighbors.trees import Tree, make_tree, measure, node_means, swap


@njit(cache=True, nogil=True)
def _grow(space: Any, vectors: Any, bias: Any, order: Any, leaf_size: int, seed: int) -> Any:
    """Reorder the points; start, stop, first child and number of children of all nodes, and their vantage points."""
    np.random.seed(seed)  # noqa: NPY002 - Numba's own state
    n, width = vectors.shape
    out = np.empty(n, vectors.dtype)
    nodes = np.zeros((4, 2 * n + 2), np.int64)
    vantage = np.empty((max(8 * n // max(leaf_size, 1), 8) + 3, width))
    nodes[1, 0] = n
    vantage[0] = 0.0
    count = 1
    at = 0
    while at < count:
        start, stop = nodes[0, at], nodes[1, at]
        if stop - start > leaf_size:
            point = vectors[start + np.random.randint(stop - start)].astype(np.float64)  # noqa: NPY002
            measure(space, vectors, bias, start, stop, point, out)
            half = (start + stop) // 2
            threshold = np.partition(out[start:stop], half - start)[half - start]
            low = start
            for below in (True, False):  # strictly below first, then as many equal ones as make half
                for i in range(low, stop):
                    if low < half and (out[i] < threshold if below else out[i] == threshold):
                        swap(vectors, bias, order, i, low)
                        out[i], out[low] = out[low], out[i]
                        low += 1
            nodes[2, at] = count
            nodes[3, at] = 2
            for side in range(2):
                nodes[0, count] = start if side == 0 else half
                nodes[1, count] = half if side == 0 else stop
                vantage[count] = point
                count += 1
        at += 1
    return nodes[:, :count].copy(), vantage[:count].copy()


def grow_vantage_tree(points: Points, *, leaf_size: int = 50, random_state: np.random.RandomState) -> Tree:
    """Vantage-point tree of points."""
    vectors, bias = points.vectors.copy(), points.bias.copy()
    order = np.arange(len(points))
    space = points.space
    nodes, vantage = _grow(space, vectors, bias, order, leaf_size, random_state.randint(2**31))
    routes = np.empty_like(vantage)
    node_means(vectors, nodes, routes)
    return make_tree(points, space, vectors, bias, order, nodes, vantage, routes)
