# SPDX-License-Identifier: BSD-3-Clause
"""Trees in flat arrays: nodes that are ranges of points, each with a centre and the divergences of its points from it.

Points of a node are neighbours in memory: rows are moved when a node is split, so that a leaf is one block.  Children
of a node are neighbours too.  Trees are made by ``ball_tree`` and ``vantage_tree`` and searched by ``tree_search`` and
``leaf_search``.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from patchbag.neighbors.coordinates import LOG_SUM, pull_inside, value_and_slope
from patchbag.neighbors.forms import Points


class Tree(NamedTuple):
    """A tree of nodes, each a range of points with what bounds their divergences from its centre.

    Attributes
    ----------
    order : (n,) the points, leaf after leaf
    vectors, bias : (n, D), (n,) of the points in that order, as in ``Points``
    start, stop : (nodes,) range of each node
    child, n_children : (nodes,) first child and number of children, 0 for leaves
    phi, h : (nodes, D) and (nodes,) centre as a query
    psi, center_bias : (nodes, D) and (nodes,) centre as a point, centred like ``vectors``
    inner, outer : (nodes,) least and largest divergence of a point from the centre
    """

    order: np.ndarray
    vectors: np.ndarray
    bias: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    child: np.ndarray
    n_children: np.ndarray
    phi: np.ndarray
    h: np.ndarray
    psi: np.ndarray
    center_bias: np.ndarray
    inner: np.ndarray
    outer: np.ndarray

    @property
    def n_leaves(self) -> int:
        return int((self.n_children == 0).sum())

    def depths(self) -> np.ndarray:
        """(leaves,) depth of each leaf; the root has depth 0."""
        depth = np.zeros(len(self.start), np.int64)
        for node in np.flatnonzero(self.n_children):
            depth[self.child[node] : self.child[node] + self.n_children[node]] = depth[node] + 1
        return depth[self.n_children == 0]

    def mean_branching(self) -> float:
        """Children per inner node."""
        inner = self.n_children[self.n_children > 0]
        return float(inner.mean()) if len(inner) else 0.0


@njit(cache=True, nogil=True)
def as_query(space: Any, psi: Any, phi: Any) -> Any:  # pragma: no cover - compiled
    """φ of a point ψ − μ, written to ``phi``; divergence minus score of whoever is compared with it, h*(ψ), and h(φ).

    The last is that of the codes (``forms``).  A point that rounding has put outside of the domain is put back, in
    ``psi``.
    """
    codes, weights, split, mu, _ = space
    offset, conjugate, left, right = 0.0, 0.0, 0.0, 0.0
    for j in range(psi.shape[0]):
        half = 0 if j < split else 1
        raw = pull_inside(codes[2 + half], (psi[j] + mu[j]) / weights[half], mu[j] / weights[half])
        psi[j] = raw * weights[half] - mu[j]
        value, z = value_and_slope(codes[2 + half], raw)
        conjugate += weights[half] * value
        own = z * raw - value  # the generator at its slope's dual (Legendre), less another logarithm
        offset += weights[half] * own - z * mu[j]
        if half == 0:
            left += own
        else:
            right += own
        phi[j] = z
    plain = weights[0] * (np.log(left) if codes[0] == LOG_SUM else left)
    if split < psi.shape[0]:
        plain += weights[1] * (np.log(right) if codes[1] == LOG_SUM else right)
    return offset, conjugate, plain


# reordering sums is all that fastmath is for
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def products(vectors: Any, start: int, stop: int, centred: Any, out: Any) -> None:  # pragma: no cover - compiled
    """⟨vectors[i], centred⟩ of a range of rows."""
    for i in range(start, stop):
        total = vectors.dtype.type(0)
        for j in range(centred.shape[0]):
            total += vectors[i, j] * centred[j]
        out[i] = total


@njit(cache=True, nogil=True)
def measure(space: Any, vectors: Any, bias: Any, start: int, stop: int, psi: Any, out: Any) -> None:
    """Divergences of a range of points from a centre ψ − μ."""
    phi = np.empty(psi.shape[0])
    offset, _, _ = as_query(space, psi, phi)
    products(vectors, start, stop, (phi - space[4]).astype(vectors.dtype), out)
    for i in range(start, stop):
        out[i] = bias[i] - out[i] + offset


@njit(cache=True, nogil=True)
def swap(vectors: Any, bias: Any, order: Any, a: int, b: int) -> None:  # pragma: no cover - compiled
    """Exchange two points."""
    for j in range(vectors.shape[1]):
        vectors[a, j], vectors[b, j] = vectors[b, j], vectors[a, j]
    bias[a], bias[b] = bias[b], bias[a]
    order[a], order[b] = order[b], order[a]


@njit(cache=True, nogil=True)
def mean_row(vectors: Any, start: int, stop: int) -> Any:  # pragma: no cover - compiled
    """Mean of a range of rows, float64."""
    total = np.zeros(vectors.shape[1])
    for i in range(start, stop):
        for j in range(total.shape[0]):
            total[j] += vectors[i, j]
    return total / (stop - start)


@njit(cache=True, nogil=True)
def bound_nodes(space: Any, vectors: Any, bias: Any, start: Any, stop: Any, psi: Any, phi: Any, constant: Any, h: Any,
                conjugate: Any, inner: Any, outer: Any) -> None:  # pragma: no cover - compiled  # fmt: skip
    """φ, h(φ), plain and by the codes, h*(ψ) and the extreme divergences of a node's points from its centre ψ − μ."""
    out = np.empty(bias.shape[0], vectors.dtype)
    for node in range(start.shape[0]):
        a, b = start[node], stop[node]
        offset, conjugate[node], h[node] = as_query(space, psi[node], phi[node])
        products(vectors, a, b, (phi[node] - space[4]).astype(vectors.dtype), out)
        for i in range(a, b):
            out[i] = bias[i] - out[i]
        constant[node] = offset + (phi[node] * space[3]).sum()
        inner[node] = out[a:b].min() + offset if b > a else np.inf
        outer[node] = out[a:b].max() + offset if b > a else 0.0


@njit(cache=True, nogil=True)
def node_means(vectors: Any, nodes: Any, psi: Any) -> None:  # pragma: no cover - compiled
    """Means of the points of all nodes, those of inner nodes by way of their children; empty nodes keep theirs."""
    start, stop, child, n_children = nodes
    for node in range(start.shape[0] - 1, -1, -1):  # children come after their parents
        size = stop[node] - start[node]
        if size > 0 and n_children[node] == 0:
            psi[node] = mean_row(vectors, start[node], stop[node])
        elif size > 0:
            psi[node] = 0
            for c in range(child[node], child[node] + n_children[node]):
                for j in range(psi.shape[1]):
                    psi[node, j] += (stop[c] - start[c]) / size * psi[c, j]


def make_tree(
    points: Points,
    space: Any,
    vectors: np.ndarray,
    bias: np.ndarray,
    order: np.ndarray,
    nodes: np.ndarray,
    psi: np.ndarray,
    routes: np.ndarray | None = None,
) -> Tree:
    """A tree from its nodes (start, stop, child, n_children) and their centres ψ − μ.

    ``routes`` (nodes, D) are centres that order the queue of a search, where they are others than those of the bounds.
    """
    phi = np.empty_like(psi)
    constant, h, conjugate, inner, outer = (np.empty(len(psi)) for _ in range(5))
    bound_nodes(space, vectors, bias, nodes[0], nodes[1], psi, phi, constant, h, conjugate, inner, outer)
    error, _ = points.errors(phi, constant)
    # zero but for rounding of centres that should sum to one
    shift = h - (constant - points.form.excess)
    inner += shift
    outer += shift
    if routes is not None:
        conjugate = np.array([as_query(space, route, np.empty_like(route))[1] for route in routes])
        psi = routes
    return Tree(
        order,
        vectors,
        bias,
        nodes[0],
        nodes[1],
        nodes[2],
        nodes[3],
        phi,
        h,
        psi.astype(vectors.dtype),
        (conjugate - psi @ points.nu).astype(vectors.dtype),
        np.maximum(inner - error, 0),
        outer + error,
    )
