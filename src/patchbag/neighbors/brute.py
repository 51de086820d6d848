# SPDX-License-Identifier: BSD-3-Clause
r"""The nearest points by matrix products: exact, and the bar that every tree has to jump.

A tile of scores (``forms``) of some queries and some points is one BLAS product.  A compiled loop then reads it once,
while it is in the cache: it keeps the k smallest scores of each query in a heap, whose largest one, plus twice the
error of float32, is the limit that a *candidate* must not exceed.  32 scores are looked at together, since after
the first tiles almost none passes.  The matrix of all scores never stands in memory.  The divergences of the candidates
are computed again in float64, by definition, and sorted; of equal ones the first point wins.

Where more candidates lie within the limit than there is room for (many equal points), the query is asked once more with
room for all.

Cost: 2·m·n·D operations in BLAS, one read of m·n numbers; about k·ln(n/k) insertions and k + few divergences per query.

``dense`` is the same for arrays that are not NumPy's (CUDA tensors), through the Array API.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from patchbag.neighbors.coordinates import mixed_divergence
from patchbag.neighbors.forms import Points, Queries
from patchbag.runtime import parallel_map

ROWS = 256
COLUMNS = 1024
LOOK = 32
ROOM = 64
NONE = np.empty(0, np.int64)

Within = tuple[list[np.ndarray], list[np.ndarray]]  # divergences and indices, an array per query


@njit(cache=True, nogil=True)
def push(value: Any, heap: Any) -> None:  # pragma: no cover - compiled
    """Replace the largest of a heap, at 0, by a smaller value."""
    k = heap.shape[0]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= k:
            break
        if child + 1 < k and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = value


@njit(cache=True, nogil=True)
def offer(value: Any, index: int, slack: Any, heap: Any, values: Any, indices: Any, count: int) -> int:
    """Take one point among the candidates of a query; the new number of candidates, -1 where there is no room.

    ``heap`` (k,) are the smallest scores, ``values`` and ``indices`` the candidates, ``slack`` is 2ε.
    """
    if value < heap[0]:
        push(value, heap)
    if count == values.shape[0]:
        limit = heap[0] + slack
        kept = 0
        for i in range(count):
            if values[i] <= limit:
                values[kept] = values[i]
                indices[kept] = indices[i]
                kept += 1
        count = kept
        if count == values.shape[0]:
            return -1
    values[count] = value
    indices[count] = index
    return count + 1


@njit(cache=True, nogil=True)
def collect(tile: Any, bias: Any, first: int, slack: Any, heap: Any, values: Any, indices: Any, counts: Any) -> None:
    """Offer a tile of products (m, c), of the points from ``first`` on, to each of m queries."""
    width = tile.shape[1]
    whole = width - width % LOOK
    for i in range(tile.shape[0]):
        row = tile[i]
        limit = heap[i, 0] + slack[i]
        for start in range(0, whole, LOOK):
            near = 0
            for j in range(LOOK):  # the compiler makes vectors of this
                near |= bias[start + j] - row[start + j] <= limit
            if near:
                stop = start + LOOK
                counts[i] = _offer_some(
                    row, bias, start, stop, first, slack[i], heap[i], values[i], indices[i], counts[i]
                )
                limit = heap[i, 0] + slack[i]
        counts[i] = _offer_some(row, bias, whole, width, first, slack[i], heap[i], values[i], indices[i], counts[i])


@njit(cache=True, nogil=True)
def _offer_some(row: Any, bias: Any, start: int, stop: int, first: int, slack: Any, heap: Any, values: Any,
                indices: Any, count: int) -> int:  # pragma: no cover - compiled  # fmt: skip
    for j in range(start, stop):
        value = bias[j] - row[j]
        # points that were taken out have infinite scores
        if value <= heap[0] + slack and value < np.inf and count >= 0:
            count = offer(value, first + j, slack, heap, values, indices, count)
    return count


@njit(cache=True, nogil=True)
def place(value: Any, index: int, distances: Any, neighbors: Any, filled: int) -> int:  # pragma: no cover - compiled
    """Insert into a list that is sorted by divergence, then index; the new number of entries."""
    k = distances.shape[0]
    if filled == k and not (value < distances[k - 1] or (value == distances[k - 1] and index < neighbors[k - 1])):
        return filled
    at = min(filled, k - 1)
    while at > 0 and (distances[at - 1] > value or (distances[at - 1] == value and neighbors[at - 1] > index)):
        distances[at] = distances[at - 1]
        neighbors[at] = neighbors[at - 1]
        at -= 1
    distances[at] = value
    neighbors[at] = index
    return min(filled + 1, k)


@njit(cache=True, nogil=True)
def rank(
    code: int, mixing: float, left: Any, right: Any, rows: Any, limit: float, values: Any, indices: Any, count: int,
    distances: Any, neighbors: Any,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """The nearest candidates of one query in float64."""
    filled = 0
    for c in range(count):
        if values[c] <= limit:
            value = mixed_divergence(code, mixing, left, rows[indices[c]], right)
            filled = place(value, indices[c], distances, neighbors, filled)


@njit(cache=True, nogil=True)
def _rank_all(code: int, mixing: float, left: Any, right: Any, rows: Any, slack: Any, heap: Any, values: Any,
              indices: Any, counts: Any, distances: Any, neighbors: Any) -> None:  # fmt: skip  # pragma: no cover
    for i in range(counts.shape[0]):
        if counts[i] > 0:
            rank(code, mixing, left[i], right[i], rows, heap[i, 0] + slack[i], values[i], indices[i], counts[i],
                 distances[i], neighbors[i])  # fmt: skip


def search_brute(points: Points, queries: Queries, k: int, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest points of each query: divergences (m, k), ascending, and indices (m, k).

    There must be k points that were not taken out.
    """
    jobs = [queries.part(slice(start, start + ROWS)) for start in range(0, queries.size, ROWS)]
    parts = list(parallel_map(partial(_search_block, points, k), jobs, n_jobs))
    if len(parts) == 1:
        return parts[0]
    return np.vstack([distances for distances, _ in parts]), np.vstack([neighbors for _, neighbors in parts])


def _search_block(points: Points, k: int, queries: Queries, room: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    m, n, dtype = queries.size, len(points), points.vectors.dtype
    room = min(2 * k + ROOM, n) if room is None else room
    heap = np.full((m, k), np.inf, dtype)
    values, indices = np.empty((m, room), dtype), np.empty((m, room), np.int64)
    counts = np.zeros(m, np.int64)
    slack = (2 * queries.error).astype(dtype) * dtype.type(1.001)
    # one query is a matrix-vector product, which has no tiles
    columns = COLUMNS if m > 1 else n
    tile = np.empty((m, min(columns, n)), dtype)
    for first in range(0, n, columns):
        part = points.vectors[first : first + columns]
        products = tile[:, : len(part)]
        if m > 1:
            np.matmul(queries.centred, part.T, out=products)
        else:
            np.dot(part, queries.centred[0], out=products[0])
        collect(products, points.bias[first : first + columns], first, slack, heap, values, indices, counts)
    distances, neighbors = np.full((m, k), np.inf), np.full((m, k), -1)
    form = points.form
    if form.inner.code is None:
        _rank_plainly(points, queries, slack, heap, values, indices, counts, distances, neighbors)
    else:
        _rank_all(form.inner.code, form.mixing, queries.left, queries.right, points.rows, slack, heap, values, indices,
                  counts, distances, neighbors)  # fmt: skip
    for i in np.flatnonzero(counts < 0):
        distances[i], neighbors[i] = _search_block(points, k, queries.part(slice(i, i + 1)), n)
    return np.maximum(distances, 0), neighbors


def _rank_plainly(
    points: Points, queries: Queries, slack: np.ndarray, heap: np.ndarray, values: np.ndarray, indices: np.ndarray,
    counts: np.ndarray, distances: np.ndarray, neighbors: np.ndarray,
) -> None:  # fmt: skip
    """The same for generators that are not compiled."""
    k = distances.shape[1]
    for i in np.flatnonzero(counts > 0).tolist():
        kept = np.sort(indices[i, : counts[i]][values[i, : counts[i]] <= heap[i, 0] + slack[i]])
        found = plain_divergences(points, queries, i, kept)
        order = np.argsort(found, kind="stable")[:k]
        distances[i], neighbors[i] = found[order], kept[order]


def plain_divergences(points: Points, queries: Queries, query: int, indices: np.ndarray) -> np.ndarray:
    """Divergences of one query to the points of these indices, float64, by definition."""
    form = points.form
    x = points.rows[indices]
    left, right = (np.broadcast_to(side[query], x.shape) for side in (queries.left, queries.right))
    if form.inner.code is None:
        found = np.zeros(len(indices))
        for is_right, weight in form.parts:
            found += weight * (form.inner.divergence(left, x) if is_right else form.inner.divergence(x, right))
        return found
    return _divergences(form.inner.code, form.mixing, queries.left[query], queries.right[query], x)


@njit(cache=True, nogil=True)
def _divergences(code: int, mixing: float, left: Any, right: Any, x: Any) -> Any:  # pragma: no cover - compiled
    found = np.empty(x.shape[0])
    for i in range(x.shape[0]):
        found[i] = mixed_divergence(code, mixing, left, x[i], right)
    return found


def search_radius(points: Points, queries: Queries, radius: float, n_jobs: int | None = None) -> Within:
    """All points within ``radius`` of each query: divergences and indices, in the order of the points."""
    return within_in_blocks(partial(_radius_block, points, radius), queries, n_jobs)


def within_in_blocks(look: Callable[[Queries], Within], queries: Queries, n_jobs: int | None) -> Within:
    """``look`` of all queries, block by block on the workers of the context."""
    jobs = [queries.part(slice(start, start + ROWS)) for start in range(0, queries.size, ROWS)]
    parts = list(parallel_map(look, jobs, n_jobs))
    return [d for distances, _ in parts for d in distances], [i for _, indices in parts for i in indices]


def _radius_block(points: Points, radius: float, queries: Queries) -> Within:
    limit = (radius - queries.offset + 2 * queries.error)[:, None]
    found: list[list[np.ndarray]] = [[] for _ in range(queries.size)]
    for first in range(0, len(points), COLUMNS):
        part = slice(first, first + COLUMNS)
        scores = points.bias[part] - queries.centred @ points.vectors[part].T
        within = (scores <= limit) & (scores < np.inf)  # points that were taken out have infinite scores
        for i in np.flatnonzero(within.any(axis=1)).tolist():
            found[i].append(first + np.flatnonzero(within[i]))
    return rank_within(points, queries, radius, [np.concatenate(some or [NONE]) for some in found])


def rank_within(points: Points, queries: Queries, radius: float, candidates: list[np.ndarray]) -> Within:
    """Those of each query's candidates that are within ``radius``, in float64."""
    distances, neighbors = [], []
    for i, indices in enumerate(candidates):
        exact = plain_divergences(points, queries, i, indices)
        kept = exact <= radius
        distances.append(np.maximum(exact[kept], 0))
        neighbors.append(indices[kept])
    return distances, neighbors
