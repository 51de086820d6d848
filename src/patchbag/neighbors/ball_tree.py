# SPDX-License-Identifier: BSD-3-Clause
r"""BB-tree++: a tree of Bregman balls, built by careful seeding (piro2010 §3.2.2).

A node holds a range of points and the ball around their centroid, the mean of ψ (``forms``), that covers them.  It is
split by Bregman 2-means++: one seed is a random point, the other is drawn with probability proportional to its
divergence from the first (3.7–3.8); points go to the nearer seed.  ``n_iter`` Lloyd iterations may follow; the paper
needs none.  A node has two children, or more, up to ``branching`` (algorithm 1): children are split further, widest
first, as long as the Anderson–Darling test refuses that their points, projected on the line through the centroids of
the would-be halves, are normally distributed.  Nodes with at most ``leaf_size`` points, or whose ball has a radius of
at most ``radius``, are leaves.

Points of a node are neighbours in memory: rows are moved when a node is split, so that a leaf is one block.  All of the
tree is in flat arrays; children of a node are neighbours too.

Cost of one level: two products of all points with seeds, one with centroids, two to three more for each iteration.

When the tree stands, each point moves to the leaf whose centre is nearest (``relocate``), one matrix product of all
points with all leaves.  Splits high up in the tree cut through clusters; this puts them together again, which makes the
balls of the leaves small.  It is not in the paper.

Deviations: the Anderson–Darling test looks at no more than ``SAMPLE`` points; where all points of a node are equal they
are cut in halves.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from patchbag.neighbors.coordinates import CONJUGATE, ENTROPY, LOG_SUM, pull_inside, value_and_slope
from patchbag.neighbors.forms import Points
from patchbag.neighbors.geodesic import walk

SAMPLE = 512
# of A²* at the significance 0.0001 of the paper's reference (Hamerly & Elkan 2003)
CRITICAL = 1.8692
# scores that stand in memory at a time
TILE = 1 << 20


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
    """φ of a point ψ − μ, written to ``phi``; divergence minus score of whoever is compared with it, and h*(ψ).

    A point that rounding has put outside of the domain is put back, in ``psi``.
    """
    codes, weights, split, mu, _ = space
    offset = 0.0
    conjugate = 0.0
    for j in range(psi.shape[0]):
        half = 0 if j < split else 1
        raw = pull_inside(codes[2 + half], (psi[j] + mu[j]) / weights[half], mu[j] / weights[half])
        psi[j] = raw * weights[half] - mu[j]
        value, z = value_and_slope(codes[2 + half], raw)
        conjugate += weights[half] * value
        offset += weights[half] * value_and_slope(codes[half], z)[0] - z * mu[j]
        phi[j] = z
    return offset, conjugate


# reordering sums is all that fastmath is for
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def products(vectors: Any, start: int, stop: int, centred: Any, out: Any) -> None:  # pragma: no cover - compiled
    """⟨vectors[i], centred⟩ of a range of rows."""
    for i in range(start, stop):
        total = vectors[i, 0] * centred[0]
        for j in range(1, centred.shape[0]):
            total += vectors[i, j] * centred[j]
        out[i] = total


@njit(cache=True, nogil=True)
def measure(space: Any, vectors: Any, bias: Any, start: int, stop: int, psi: Any, out: Any) -> None:
    """Divergences of a range of points from a centre ψ − μ."""
    phi = np.empty(psi.shape[0])
    offset, _ = as_query(space, psi, phi)
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
def _part(vectors: Any, bias: Any, order: Any, start: int, stop: int, left: Any, right: Any) -> Any:
    """Move the points that are nearer to the left to the front; where the others begin, and how many moved."""
    low, high = start, stop - 1
    moved = 0
    while low <= high:
        if left[low] <= right[low]:
            low += 1
        elif left[high] > right[high]:
            high -= 1
        else:
            swap(vectors, bias, order, low, high)
            left[low], left[high] = left[high], left[low]
            right[low], right[high] = right[high], right[low]
            moved += 1
    return low, moved


@njit(cache=True, nogil=True)
def _draw(weights: Any, start: int, stop: int) -> int:  # pragma: no cover - compiled
    """A number of the range, drawn in proportion to its weight; -1 where no weight is positive (3.7)."""
    total = 0.0
    for i in range(start, stop):
        total += max(weights[i], 0.0)
    goal = np.random.random() * total  # noqa: NPY002
    chosen = -1
    for i in range(start, stop):
        if weights[i] > 0:
            chosen = i
            goal -= weights[i]
            if goal <= 0:
                break
    return chosen


@njit(cache=True, nogil=True)
def mean_row(vectors: Any, start: int, stop: int) -> Any:  # pragma: no cover - compiled
    """Mean of a range of rows, float64."""
    total = np.zeros(vectors.shape[1])
    for i in range(start, stop):
        for j in range(total.shape[0]):
            total[j] += vectors[i, j]
    return total / (stop - start)


@njit(cache=True, nogil=True)
def two_means(space: Any, vectors: Any, bias: Any, order: Any, start: int, stop: int, n_iter: int, left: Any,
              right: Any) -> int:  # pragma: no cover - compiled  # fmt: skip
    """Reorder a range of points into two clusters; where the second begins.  ``left``, ``right`` (n,) are scratch."""
    first = start + np.random.randint(stop - start)  # noqa: NPY002
    measure(space, vectors, bias, start, stop, vectors[first].astype(np.float64), left)
    left[first] = 0
    second = _draw(left, start, stop)
    half = (start + stop) // 2
    if second < 0:
        return half
    measure(space, vectors, bias, start, stop, vectors[second].astype(np.float64), right)
    middle, _ = _part(vectors, bias, order, start, stop, left, right)
    for _ in range(n_iter):
        if middle in (start, stop):
            return half
        measure(space, vectors, bias, start, stop, mean_row(vectors, start, middle), left)
        right_center = mean_row(vectors, middle, stop)
        measure(space, vectors, bias, start, stop, right_center, right)
        middle, moved = _part(vectors, bias, order, start, stop, left, right)
        if moved == 0:
            break
    return half if middle in (start, stop) else middle


@njit(cache=True, nogil=True)
def is_normal(sample: Any) -> bool:  # pragma: no cover - compiled
    """Anderson–Darling test of normality with unknown mean and variance (Stephens 1974)."""
    n = sample.shape[0]
    deviation = np.sqrt(((sample - sample.mean()) ** 2).sum() / max(n - 1, 1))
    if n < 8 or deviation <= 0:
        return True
    z = np.sort((sample - sample.mean()) / deviation)
    total = 0.0
    for i in range(n):
        below = max(0.5 * math.erfc(-z[i] / math.sqrt(2)), 1e-300)
        above = max(0.5 * math.erfc(z[n - 1 - i] / math.sqrt(2)), 1e-300)
        total += (2 * i + 1) * (np.log(below) + np.log(above))
    return (-n - total / n) * (1 + 4 / n - 25 / n**2) <= CRITICAL


@njit(cache=True, nogil=True)
def _is_one_cluster(vectors: Any, start: int, middle: int, stop: int) -> bool:  # pragma: no cover - compiled
    """Whether the points look normally distributed along the line through the centroids of two halves."""
    line = mean_row(vectors, start, middle) - mean_row(vectors, middle, stop)
    step = max((stop - start) // SAMPLE, 1)
    sample = np.empty((stop - start + step - 1) // step)
    for i in range(sample.shape[0]):
        total = 0.0
        for j in range(line.shape[0]):
            total += line[j] * vectors[start + i * step, j]
        sample[i] = total
    return is_normal(sample)


@njit(cache=True, nogil=True)
def _radius(space: Any, vectors: Any, bias: Any, start: int, stop: int, out: Any) -> float:
    measure(space, vectors, bias, start, stop, mean_row(vectors, start, stop), out)
    return out[start:stop].max()


@njit(cache=True, nogil=True)
def _grow(space: Any, vectors: Any, bias: Any, order: Any, leaf_size: int, branching: int, n_iter: int, radius: float,
          seed: int) -> Any:  # pragma: no cover - compiled  # fmt: skip
    """Reorder the points; start, stop, first child and number of children of all nodes, children after parents."""
    np.random.seed(seed)  # noqa: NPY002 - Numba's own state
    n = bias.shape[0]
    left, right = np.empty(n, vectors.dtype), np.empty(n, vectors.dtype)
    nodes = np.zeros((4, 2 * n + 2), np.int64)  # memory that is not written to is not used
    nodes[1, 0] = n
    count = 1
    cuts = np.empty((branching + 1, 2), np.int64)
    at = 0
    while at < count:
        start, stop = nodes[0, at], nodes[1, at]
        if stop - start > leaf_size and not (radius > 0 and _radius(space, vectors, bias, start, stop, left) <= radius):
            middle = two_means(space, vectors, bias, order, start, stop, n_iter, left, right)
            cuts[0] = start, middle
            cuts[1] = middle, stop
            found = 2
            tried = 0
            # algorithm 1: ranges before ``tried`` stay, those after it are the queue; the larger half comes first
            if stop - middle > middle - start:
                cuts[0, 0], cuts[0, 1], cuts[1, 0], cuts[1, 1] = middle, stop, start, middle
            while tried < found < branching:
                a, b = cuts[tried]
                if b - a > leaf_size:
                    middle = two_means(space, vectors, bias, order, a, b, n_iter, left, right)
                    if not _is_one_cluster(vectors, a, middle, b):
                        cuts[tried] = a, middle
                        cuts[found] = middle, b
                        found += 1
                        # both halves go to the end of the queue
                        for i in range(tried, found - 1):
                            cuts[i, 0], cuts[i, 1], cuts[i + 1, 0], cuts[i + 1, 1] = (
                                cuts[i + 1, 0], cuts[i + 1, 1], cuts[i, 0], cuts[i, 1]
                            )  # fmt: skip
                        continue
                tried += 1
            nodes[2, at] = count
            nodes[3, at] = found
            for i in range(found):
                nodes[0, count] = cuts[i, 0]
                nodes[1, count] = cuts[i, 1]
                count += 1
        at += 1
    return nodes[:, :count].copy()


@njit(cache=True, nogil=True)
def bound_nodes(space: Any, vectors: Any, bias: Any, start: Any, stop: Any, psi: Any, phi: Any, constant: Any, h: Any,
                conjugate: Any, inner: Any, outer: Any) -> None:  # pragma: no cover - compiled  # fmt: skip
    """φ, h(φ) twice, plain and by the codes, h*(ψ) and the extreme divergences of the points of each node from its centre ψ − μ."""
    out = np.empty(bias.shape[0], vectors.dtype)
    for node in range(start.shape[0]):
        a, b = start[node], stop[node]
        offset, conjugate[node] = as_query(space, psi[node], phi[node])
        products(vectors, a, b, (phi[node] - space[4]).astype(vectors.dtype), out)
        for i in range(a, b):
            out[i] = bias[i] - out[i]
        constant[node] = offset + (phi[node] * space[3]).sum()
        h[node], _ = walk(space[0], space[1], space[2], phi[node], phi[node], 0.0)
        inner[node] = out[a:b].min() + offset if b > a else np.inf
        outer[node] = out[a:b].max() + offset if b > a else 0.0


@njit(cache=True, nogil=True)
def node_means(vectors: Any, start: Any, stop: Any, psi: Any) -> None:  # pragma: no cover - compiled
    for node in range(start.shape[0]):
        if stop[node] > start[node]:
            psi[node] = mean_row(vectors, start[node], stop[node])


def space_of(points: Points) -> tuple[np.ndarray, np.ndarray, int, np.ndarray, np.ndarray]:
    """What compiled loops have to know of a form: codes of h and of h* of both halves, weights, split, μ and ν."""
    form, width = points.form, points.vectors.shape[1]
    codes = form.codes()
    dual = [ENTROPY if code == LOG_SUM else CONJUGATE[code] for code in codes]
    split = width if len(form.parts) == 1 else width // 2
    return np.array([*codes, *dual]), form.weights(), split, points.mu, points.nu


def grow_ball_tree(
    points: Points,
    *,
    leaf_size: int = 50,
    branching: int = 4,
    n_iter: int = 0,
    radius: float = 0.0,
    relocate: bool = True,
    random_state: np.random.RandomState,
) -> Tree:
    """BB-tree++ of points."""
    vectors, bias = points.vectors.copy(), points.bias.copy()
    order = np.arange(len(points))
    space = space_of(points)
    nodes = _grow(space, vectors, bias, order, leaf_size, branching, n_iter, radius, random_state.randint(2**31))
    psi = np.empty((nodes.shape[1], vectors.shape[1]))
    node_means(vectors, nodes[0], nodes[1], psi)
    tree = make_tree(points, space, vectors, bias, order, nodes, psi)
    return _relocate(points, space, tree) if relocate and len(tree.start) > 1 else tree


def _relocate(points: Points, space: Any, tree: Tree) -> Tree:
    """The same tree with every point in the leaf whose centre is nearest: one Lloyd iteration over all leaves."""
    leaves = np.flatnonzero(tree.n_children == 0)
    leaves = leaves[np.argsort(tree.start[leaves])]
    centers = (tree.phi[leaves] - points.nu).astype(points.vectors.dtype)
    offset = (tree.h[leaves] + points.form.excess - tree.phi[leaves] @ points.mu).astype(points.vectors.dtype)
    nearest = np.empty(len(points), np.int64)
    step = max(TILE // len(leaves), 1)
    for first in range(0, len(points), step):
        scores = points.vectors[first : first + step] @ centers.T
        np.subtract(offset, scores, out=scores)
        nearest[first : first + step] = scores.argmin(axis=1)
    order = np.argsort(nearest, kind="stable")
    # a node is a range of leaves before and after
    bounds = np.concatenate([[0], np.cumsum(np.bincount(nearest, minlength=len(leaves)))])
    cuts = np.append(tree.start[leaves], len(points))
    start, stop = bounds[np.searchsorted(cuts, tree.start)], bounds[np.searchsorted(cuts, tree.stop)]
    vectors, bias = points.vectors[order], points.bias[order]
    psi = tree.psi.astype(np.float64)  # of leaves that are empty now
    node_means(vectors, start, stop, psi)
    return make_tree(points, space, vectors, bias, order, np.stack([start, stop, tree.child, tree.n_children]), psi)


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
        *nodes,
        phi,
        h,
        psi.astype(vectors.dtype),
        (conjugate - psi @ points.nu).astype(vectors.dtype),
        np.maximum(inner - error, 0),
        outer + error,
    )
