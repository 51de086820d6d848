# SPDX-License-Identifier: BSD-3-Clause
r"""Entropy, cross-entropy and Kullback-Leibler divergence of samples by k-th nearest neighbours (piro2010 §2.3.3).

No density is ever built.  With ρ_k(x, W) the distance of x to its k-th nearest point of W, itself left out, N points
of W, and v_d the volume of the unit ball, the estimators of the (cross-)entropy are (2.9, 2.10)

.. math:: H = \log(N v_d) - \log k + \frac{d}{N_1}\sum_n \log \rho_k(w_n, W)

and without their bias (2.11, 2.12: Goria et al. 2005) with ψ(k) for log k, and N - 1 for N in the entropy, where a
point is not its own neighbour.  The divergence (2.13) is their difference, in which v_d and ψ(k) cancel:

.. math:: D(p_1 \| p_2) = \log\frac{N_2}{N_1 - 1} + \frac{d}{N_1}\sum_n \log\frac{\rho_k(w_n, W_2)}{\rho_k(w_n, W_1)}

An estimate can be negative where the densities are alike.

**Zero distances.**  Equal points (a flat sky) have distance 0 and an entropy of minus infinity.  Distances are taken to
be at least ``FLOOR``, a thousandth of a grey level for patches of images.

**What is computed.**  Products in float32, ``TILE`` points at a time, which order as the distances do (half |y|² - x·y,
after the mean of W is taken off).  Of every ``BLOCK`` numbers the smallest is taken: the k-th smallest of these is no
smaller than the k-th smallest of all, so that a compiled loop looks into few blocks.  The distance to the
k-th point is then computed again directly, in double precision: of a small difference between large numbers the product
leaves few digits.  Up to ``TREE_DIMENSION`` dimensions a KD-tree is faster for many points.  Arrays of another library
(CUDA tensors) stay where they are: products and minima through the Array API, and one sample against many at once.

**Cost** of a pair of samples: N_1 N_2 d multiplications.
"""

from math import lgamma, log, pi
from typing import Any

import numba
import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace
from scipy.special import digamma

from patchbag.similarity import nearest_triton

TILE = 128
BLOCK = 16
TREE_DIMENSION = 3
TREE_POINTS = 2000
FLOOR = 1e-3
AT_A_TIME = 1 << 28  # products that stand in the memory of a GPU
FAR = 1e38  # farther than any point, in products of float32


def log_unit_ball(d: int) -> float:
    """Logarithm of the volume of the unit ball in d dimensions, π^(d/2) / Γ(d/2 + 1)."""
    return d / 2 * log(pi) - lgamma(d / 2 + 1)


@numba.njit(cache=True, nogil=True)
def _insert(value: Any, place: int, values: Any, places: Any) -> None:
    """Put a number into its place among rising ``values (k,)``, if it is smaller than the last."""
    at = len(values) - 1
    if value >= values[at]:
        return
    while at > 0 and values[at - 1] > value:
        values[at] = values[at - 1]
        places[at] = places[at - 1]
        at -= 1
    values[at] = value
    places[at] = place


@numba.njit(cache=True, nogil=True, fastmath=True)
def _kth_smallest(tile: Any, k: int, own: Any, out: Any) -> None:
    """Column of the k-th smallest number of each row of ``tile (n, m)`` float32, m a multiple of ``BLOCK``.

    ``own (n,)`` are columns that do not count, none if empty; they are overwritten.
    """
    far = np.float32(FAR)
    n, blocks = tile.shape[0], tile.shape[1] // BLOCK
    values, places, least = np.empty(k, np.float32), np.zeros(k, np.int64), np.empty(blocks, np.float32)
    for i in range(n):
        if len(own):
            tile[i, own[i]] = far
        for block in range(blocks):
            value = tile[i, BLOCK * block]
            for j in range(BLOCK * block + 1, BLOCK * (block + 1)):
                value = min(value, tile[i, j])
            least[block] = value
        values[:] = far
        for block in range(blocks):
            _insert(least[block], block, values, places)
        bound = values[k - 1]
        values[:] = far
        for block in range(blocks):
            if least[block] <= bound:
                for j in range(BLOCK * block, BLOCK * (block + 1)):
                    if tile[i, j] <= bound:
                        _insert(tile[i, j], j, values, places)
        out[i] = places[k - 1]


def kth_distances(x: Any, y: Any, k: int, *, itself: bool = False) -> Any:
    """Distance of every row of ``x (n, d)`` to its k-th nearest row of ``y (m, d)``, (n,).

    ``itself`` says that x and y are the same points, of which none is its own neighbour.
    """
    if (usable := y.shape[0] - itself) < k:
        raise ValueError(f"{k} neighbours were asked for, but there are {usable} points")
    xp = array_namespace(x, y)
    if not is_numpy_namespace(xp):
        return kth_distances_to_many(x, y[None, ...], k + itself)[0, :]
    if x.shape[1] <= TREE_DIMENSION and len(y) > TREE_POINTS:
        from scipy.spatial import KDTree

        return KDTree(y).query(x, [k + itself])[0][:, 0]
    mean = y.mean(axis=0, dtype=np.float64)
    n, d, m = len(x), x.shape[1], -(-len(y) // BLOCK) * BLOCK
    rows, columns = np.ones((n, d + 1), np.float32), np.zeros((d + 1, m), np.float32)
    rows[:, :d] = mean - x
    columns[:d, : len(y)] = (y - mean).T
    columns[d] = 0.5 * np.einsum("ij,ij->j", columns[:d], columns[:d])
    columns[d, len(y) :] = FAR
    chosen, own = np.empty(n, np.int64), np.arange(n if itself else 0)
    tile = np.empty((TILE, m), np.float32)
    for start in range(0, n, TILE):
        part = np.matmul(rows[start : start + TILE], columns, out=tile[: min(TILE, n - start)])
        _kth_smallest(part, k, own[start : start + TILE], chosen[start : start + TILE])
    difference = x.astype(np.float64) - y[chosen]
    return np.sqrt(np.einsum("ij,ij->i", difference, difference))


def kth_distances_to_many(x: Any, y: Any, k: int) -> Any:
    """Distance of every row of ``x (n, d)`` to its k-th nearest row of each of ``y (r, m, d)``: (r, n).

    For arrays of any library: one product, of whose numbers the k smallest are in the k blocks with the smallest
    minima, so that all are read once and few are sorted.  CUDA tensors go to ``nearest_triton``.
    """
    if nearest_triton.usable(x, y):
        return nearest_triton.kth_distances(x, y, k)
    xp = array_namespace(x, y)
    r, m, d = y.shape
    n, mean, where = x.shape[0], xp.mean(x, axis=0), device(x)
    a, b = x - mean, y - mean
    half = xp.sum(b * b, axis=2, keepdims=True) / 2
    rows = xp.concat([-a, xp.ones((n, 1), dtype=a.dtype, device=where)], axis=1)
    columns = xp.concat([b, half], axis=2)
    if missing := -m % BLOCK:
        far = xp.zeros((r, missing, d + 1), dtype=b.dtype, device=where)
        far[..., d] = FAR
        columns = xp.concat([columns, far], axis=1)
    blocks, inside = (m + missing) // BLOCK, xp.arange(BLOCK, device=where)
    step, found = max(AT_A_TIME // (n * blocks * BLOCK), 1), []
    for start in range(0, r, step):
        stop = min(start + step, r)
        scores = xp.reshape(rows @ xp.matrix_transpose(columns[start:stop, ...]), (-1, blocks * BLOCK))
        best = _smallest(xp, xp.min(xp.reshape(scores, (-1, blocks, BLOCK)), axis=2), min(k, blocks))
        members = xp.reshape(best[:, :, None] * BLOCK + inside, (scores.shape[0], -1))
        place = _smallest(xp, xp.take_along_axis(scores, members, axis=1), k)[:, k - 1 : k]
        chosen = xp.reshape(xp.take_along_axis(members, place, axis=1), (-1, n, 1))
        points = xp.take_along_axis(b[start:stop, ...], xp.broadcast_to(chosen, (*chosen.shape[:2], d)), axis=1)
        found.append(xp.sqrt(xp.sum((a - points) ** 2, axis=2)))
    return xp.concat(found, axis=0)


def _smallest(xp: Any, values: Any, k: int) -> Any:
    """Columns (rows, k) of the smallest numbers of each row, ascending."""
    if hasattr(xp, "topk"):  # PyTorch's
        return xp.topk(values, k, dim=1, largest=False).indices
    return xp.argsort(values, axis=1)[:, :k]


def mean_log(distances: Any) -> float:
    """Mean logarithm of distances, none of them below ``FLOOR``."""
    xp = array_namespace(distances)
    return float(xp.mean(xp.log(xp.clip(distances, min=FLOOR))))


def entropy(x: Any, k: int = 10, *, unbiased: bool = True) -> float:
    """Entropy of the density that ``x (n, d)`` is a sample of, in nats (2.9; 2.11 without bias)."""
    n, d = x.shape
    count = log(n - 1) - float(digamma(k)) if unbiased else log(n) - log(k)
    return count + log_unit_ball(d) + d * mean_log(kth_distances(x, x, k, itself=True))


def cross_entropy(x: Any, y: Any, k: int = 10, *, unbiased: bool = True) -> float:
    """Cross-entropy of the density of ``x (n, d)`` relative to that of ``y (m, d)`` (2.10; 2.12 without bias)."""
    count = log(y.shape[0]) - (float(digamma(k)) if unbiased else log(k))
    return count + log_unit_ball(x.shape[1]) + x.shape[1] * mean_log(kth_distances(x, y, k))


def divergence(x: Any, y: Any, k: int = 10) -> float:
    """Kullback-Leibler divergence D(x‖y) of two samples (2.13)."""
    return cross_entropy(x, y, k) - entropy(x, k)
