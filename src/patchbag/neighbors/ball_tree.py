# SPDX-License-Identifier: BSD-3-Clause
r"""BB-tree++: a tree of Bregman balls, built by careful seeding (piro2010 §3.2.2).

A node holds a range of points and the ball around their centroid, the mean of ψ (``forms``), that covers them.  It is
split by Bregman 2-means++: one seed is a random point, the other is drawn with probability proportional to its
divergence from the first (3.7–3.8); points go to the nearer seed.  ``n_iter`` Lloyd iterations may follow; the paper
needs none.  A node has two children, or more, up to ``branching`` (algorithm 1): children are split further, widest
first, as long as the Anderson–Darling test refuses that their points, projected on the line through the centroids of
the would-be halves, are normally distributed.  Nodes with at most ``leaf_size`` points are leaves.

Cost of one level: one product of all points with the difference of the seeds' φ, which says which of the two is
nearer, and one with centroids; each iteration is one more, and a mean.

When the tree stands, each point moves to the leaf whose centre is nearest (``relocate``), one matrix product of all
points with all leaves.  Splits high up in the tree cut through clusters; this puts them together again, which makes the
balls of the leaves small.  It is not in the paper.

Deviations: the second seed is drawn from an even sample of at most ``SAMPLE`` points of the node, and the
Anderson–Darling test looks at no more; where all points of a node are equal they are cut in halves.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from patchbag.neighbors.forms import Points
from patchbag.neighbors.trees import Tree, as_query, make_tree, mean_row, node_means, products, swap

SAMPLE = 512
# of A²* at the significance 0.0001 of the paper's reference (Hamerly & Elkan 2003)
CRITICAL = 1.8692
# scores that stand in memory at a time
TILE = 1 << 20


@njit(cache=True, nogil=True)
def _part(vectors: Any, bias: Any, order: Any, start: int, stop: int, scores: Any, limit: Any) -> Any:
    """Move the points with scores up to the limit to the front; where the others begin, and how many moved."""
    low, high = start, stop - 1
    moved = 0
    while low <= high:
        if scores[low] <= limit:
            low += 1
        elif scores[high] > limit:
            high -= 1
        else:
            swap(vectors, bias, order, low, high)
            scores[low], scores[high] = scores[high], scores[low]
            moved += 1
    return low, moved


@njit(cache=True, nogil=True)
def _draw(weights: Any, start: int, stop: int, step: int) -> int:  # pragma: no cover - compiled
    """A number of the range, drawn in proportion to its weight; -1 where no weight is positive (3.7)."""
    total = 0.0
    for i in range(start, stop, step):
        total += max(weights[i], 0.0)
    goal = np.random.random() * total  # noqa: NPY002
    chosen = -1
    for i in range(start, stop, step):
        if weights[i] > 0:
            chosen = i
            goal -= weights[i]
            if goal <= 0:
                break
    return chosen


@njit(cache=True, nogil=True)
def two_means(space: Any, vectors: Any, bias: Any, order: Any, start: int, stop: int, n_iter: int,
              scores: Any) -> int:  # pragma: no cover - compiled  # fmt: skip
    """Reorder a range of points into two clusters; where the second begins.  ``scores`` (n,) is scratch."""
    near, far = np.empty(vectors.shape[1]), np.empty(vectors.shape[1])
    first = start + np.random.randint(stop - start)  # noqa: NPY002
    offset, _, _ = as_query(space, vectors[first].astype(np.float64), near)
    centred = (near - space[4]).astype(vectors.dtype)
    step = (stop - start + SAMPLE - 1) // SAMPLE
    begin = start + np.random.randint(step)  # noqa: NPY002
    for i in range(begin, stop, step):
        products(vectors, i, i + 1, centred, scores)
        scores[i] = bias[i] - scores[i] + offset if i != first else 0.0
    second = _draw(scores, begin, stop, step)
    half = (start + stop) // 2
    if second < 0:
        return half
    limit = as_query(space, vectors[second].astype(np.float64), far)[0] - offset
    for at in range(n_iter + 1):
        # the difference of a point's divergences from two centres is one product, with the difference of their φ
        products(vectors, start, stop, (far - near).astype(vectors.dtype), scores)
        middle, moved = _part(vectors, bias, order, start, stop, scores, limit)
        if middle in (start, stop):
            return half
        if at == n_iter or (at > 0 and moved == 0):
            break
        limit = as_query(space, mean_row(vectors, middle, stop), far)[0]
        limit -= as_query(space, mean_row(vectors, start, middle), near)[0]
    return middle


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
def _grow(space: Any, vectors: Any, bias: Any, order: Any, leaf_size: int, branching: int, n_iter: int,
          seed: int) -> Any:  # pragma: no cover - compiled  # fmt: skip
    """Reorder the points; start, stop, first child and number of children of all nodes, children after parents."""
    np.random.seed(seed)  # noqa: NPY002 - Numba's own state
    n = bias.shape[0]
    scores = np.empty(n, vectors.dtype)
    nodes = np.zeros((4, 2 * n + 2), np.int64)  # memory that is not written to is not used
    nodes[1, 0] = n
    count = 1
    cuts = np.empty((branching + 1, 2), np.int64)
    at = 0
    while at < count:
        start, stop = nodes[0, at], nodes[1, at]
        size = stop - start
        if size > leaf_size:
            middle = two_means(space, vectors, bias, order, start, stop, n_iter, scores)
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
                    middle = two_means(space, vectors, bias, order, a, b, n_iter, scores)
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


def grow_ball_tree(
    points: Points,
    *,
    leaf_size: int = 50,
    branching: int = 4,
    n_iter: int = 0,
    relocate: bool = True,
    random_state: np.random.RandomState,
) -> Tree:
    """BB-tree++ of points."""
    vectors, bias = points.vectors.copy(), points.bias.copy()
    order = np.arange(len(points))
    space = points.space
    nodes = _grow(space, vectors, bias, order, leaf_size, branching, n_iter, random_state.randint(2**31))
    psi = np.empty((nodes.shape[1], vectors.shape[1]))
    node_means(vectors, nodes, psi)
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
    nodes = np.stack([start, stop, tree.child, tree.n_children])
    node_means(vectors, nodes, psi)
    return make_tree(points, space, vectors, bias, order, nodes, psi)
