# SPDX-License-Identifier: BSD-3-Clause
r"""Kernels between mixtures whose components correspond one to one.

Mixtures adapted from one universal model answer each other component by component, so the sums over all pairs of
components shrink to one sum over components (liu2010, eq. 4.13 and 4.24; liu2008)::

    K^ρ(p, q) ≈ Σ_i α_i β_i K^ρ(p_i, q_i)
    KL(p‖q)   ≈ Σ_i α_i (KL(p_i‖q_i) + ln α_i/β_i)
    SKL = KL(p‖q) + KL(q‖p)                                                                  (2.20)

What is computed.  KL is a sum of products of functions of p and functions of q: a whole matrix of SKL's is *one*
matrix product of width 4·K·(D + 1).  It runs in coordinates in which component i of the references is centred with
unit mean variance, on deviations from that frame, so that float32 keeps its digits.  The product kernel is a Numba
kernel over tiles of 32 × 64 images (see ``gaussians``), summed over components in float64; CUDA tensors and other
Array API arrays take the same sums by broadcasting.  Both run in blocks of images of at most 4,096 a side: memory
beyond the result stays below 500 MB.

Cost a pair: 8·K·D flops in BLAS for SKL, about 8·K·D for PPK; the slower estimates of ``matching`` cost K times as
much.

Deviation: weights of zero enter logarithms as 1e-10.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array
from numba import prange

from patchbag.mixture.adaptation import Mixtures
from patchbag.runtime import parallel_map, parallel_njit
from patchbag.similarity.mixtures.checks import check_pair, check_range
from patchbag.similarity.mixtures.components import by_component, component_frame, pack_components
from patchbag.similarity.mixtures.gaussians import (
    TILE,
    TILE_ROWS,
    check_rho,
    entropy,
    left_features,
    log_product_kernel,
    log_product_row,
    product_left,
    product_precision,
    product_right,
    right_features,
)
from patchbag.similarity.mixtures.matching import WEIGHT_FLOOR

# numbers in the features of a block of rows, which are made once, and of a block of columns
ROW_NUMBERS, COLUMN_NUMBERS = 1 << 26, 1 << 24
BLOCK_IMAGES = 4096
CHUNK_IMAGES = 16


# --- Kullback-Leibler, one to one ------------------------------------------------------------------------------------


def _features(mixtures: Mixtures, coordinates: tuple[Any, Any], dtype: Any, sides: str) -> tuple[Any, Any]:
    """Rows such that KL(p‖q) = left(p)·right(q) + own(p).

    Returns
    -------
    features : the sides named in ``sides``, next to each other, ``(n, K(2D + 2))`` each
    own : (n,) float64
    """
    xp = array_namespace(mixtures.means)
    # about what every component's entropy is: taken from H(p, q) and from H(p, p) before either is rounded
    offset = entropy(coordinates[1] ** 2)

    def rows(part: slice) -> tuple[Any, Any]:
        m = mixtures[part]
        weights = xp.astype(m.weights, xp.float64)
        logs = xp.log(xp.clip(weights, WEIGHT_FLOOR, None))
        found = []
        for side in sides:
            if side == "l":
                f = left_features(m.means, m.variances, coordinates) * weights[..., None]
            else:
                f = right_features(m.means, m.variances, coordinates)
                f[..., -1] -= offset + logs
            found.append(xp.reshape(f, (f.shape[0], -1)))
        own = xp.sum(weights * (logs - entropy(xp.astype(m.variances, xp.float64)) + offset), axis=1)
        return xp.astype(xp.concat(found, axis=1), getattr(xp, np.dtype(dtype).name)), own

    n = len(mixtures)
    if not is_numpy_array(mixtures.means):
        return rows(slice(0, n))
    features = np.empty((n, len(sides) * mixtures.n_components * (2 * mixtures.dimension + 2)), dtype)
    own = np.empty(n)

    def job(start: int) -> None:
        part = slice(start, start + CHUNK_IMAGES)
        features[part], own[part] = rows(part)

    list(parallel_map(job, range(0, n, CHUNK_IMAGES), shared=True))
    return features, own


def _blocks(n: int, width: int, numbers: int) -> list[slice]:
    step = max(1, min(numbers // width, BLOCK_IMAGES))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _divergences(P: Mixtures, Q: Mixtures, dtype: Any, symmetric: bool) -> Any:
    xp = array_namespace(P.means, Q.means)
    coordinates = component_frame(Q)
    left, right = ("lr", "rl") if symmetric else ("l", "r")
    width = len(left) * Q.n_components * (2 * Q.dimension + 2)
    out = xp.empty((len(P), len(Q)), dtype=getattr(xp, np.dtype(dtype).name), device=device(P.means))
    for p in _blocks(len(P), width, ROW_NUMBERS):
        p_features, p_own = _features(P[p], coordinates, dtype, left)
        for q in _blocks(len(Q), width, COLUMN_NUMBERS):
            q_features, q_own = _features(Q[q], coordinates, dtype, right)
            block = p_features @ q_features.T
            block += xp.astype(p_own, block.dtype)[:, None]
            if symmetric:
                block += xp.astype(q_own, block.dtype)[None, :]
            # a sum of divergences of components and of weights: what is below zero is rounding
            block[block < 0] = 0
            out[p, q] = block
    return out


def kl_one_to_one(P: Mixtures, Q: Mixtures, dtype: Any = np.float32, check: bool = True) -> Any:
    """KL(p‖q) with component i answered by component i (4.24): ``(n, m)``."""
    if check:
        check_pair(P, Q, one_to_one=True)
    return _divergences(P, Q, dtype, symmetric=False)


def symmetric_kl_one_to_one(P: Mixtures, Q: Mixtures, dtype: Any = np.float32, check: bool = True) -> Any:
    """KL(p‖q) + KL(q‖p), one to one, in one matrix product: ``(n, m)``."""
    if check:
        check_pair(P, Q, one_to_one=True)
    return _divergences(P, Q, dtype, symmetric=True)


# --- probability product kernel, one to one --------------------------------------------------------------------------


@parallel_njit()
def _sum_products(mp, vp, fp, tiles, fq, rho, period, out):  # pragma: no cover - compiled
    """Σ_k exp(fp + fq + ln K^ρ) over the first axis of every input, into out (rows, columns)."""
    rows, columns = out.shape
    n_tiles = tiles.shape[1]
    n_row_tiles = (rows + TILE_ROWS - 1) // TILE_ROWS
    for job in prange(n_tiles * n_row_tiles):
        t, first = job % n_tiles, (job // n_tiles) * TILE_ROWS
        last = min(first + TILE_ROWS, rows)
        start, width = t * TILE, min(TILE, columns - t * TILE)
        quadratic, product, logs = np.empty(TILE, mp.dtype), np.empty(TILE), np.empty(TILE)
        total = np.zeros((TILE_ROWS, TILE))
        for k in range(mp.shape[0]):
            for r in range(first, last):
                log_product_row(mp[k, r], vp[k, r], tiles[k, t], rho, period, quadratic, product, logs)
                for j in range(width):
                    total[r - first, j] += np.exp(logs[j] + fp[k, r] + fq[k, start + j])
        for r in range(first, last):
            for j in range(width):
                out[r, start + j] = total[r - first, j]


def product_one_to_one(
    P: Mixtures,
    Q: Mixtures,
    rho: float = 0.5,
    dtype: Any = np.float32,
    log_norms: tuple[Any, Any] | None = None,
    check: bool = True,
) -> Any:
    """Σ_i α_i β_i K^ρ(p_i, q_i) (4.13): ``(n, m)``, divided by the norms whose logarithms are given, (n,) and (m,).

    For ρ ≠ ½ the sum itself may be too small or too large for a float where the normalised one is not.
    """
    rho = check_rho(rho)
    if check:
        check_pair(P, Q, one_to_one=True)
    if not is_numpy_array(P.means):
        found = _product_dense(P, Q, rho, dtype, log_norms)
        return found if log_norms is not None else check_range(found, P, Q, rho)
    centre, scale = component_frame(Q)
    coordinates = centre[:, None], scale[:, None]
    out = np.empty((len(P), len(Q)), dtype)
    precision, period = product_precision(by_component(P)[1], by_component(Q)[1], coordinates, dtype)
    width = 2 * Q.n_components * (Q.dimension + 3)
    with np.errstate(divide="ignore"):  # a component of weight zero has the factor exp(-inf)
        p_logs, q_logs = (np.log(np.asarray(m.weights, np.float64)).T for m in (P, Q))
    if log_norms is not None:
        p_logs, q_logs = p_logs - log_norms[0], q_logs - log_norms[1]
    for q in _blocks(len(Q), width, COLUMN_NUMBERS):
        tiles, right = pack_components(product_right, Q[q], rho, coordinates, precision)
        for p in _blocks(len(P), width, COLUMN_NUMBERS):
            means, variances, left = pack_components(product_left, P[p], rho, coordinates, precision)
            block = np.empty((means.shape[1], right.shape[1]), dtype)
            _sum_products(means, variances, left + p_logs[:, p], tiles, right + q_logs[:, q], rho, period, block)
            out[p, q] = block
    return out if log_norms is not None else check_range(out, P, Q, rho)


def _product_dense(P: Mixtures, Q: Mixtures, rho: float, dtype: Any, log_norms: tuple[Any, Any] | None) -> Any:
    """The same sum through the Array API, component by component, in float64 in blocks of images."""
    xp = array_namespace(P.means, Q.means)
    out = xp.empty((len(P), len(Q)), dtype=getattr(xp, np.dtype(dtype).name), device=device(P.means))
    for p in _blocks(len(P), 1, BLOCK_IMAGES):
        for q in _blocks(len(Q), 1, BLOCK_IMAGES):
            mine, theirs = P[p], Q[q]
            shift: Any = 0.0
            if log_norms is not None:
                shift = log_norms[0][p][:, None] + log_norms[1][q][None, :]
            total: Any = 0.0
            for k in range(Q.n_components):
                (mp, vp), (mq, vq) = ((m.means[:, k, :], m.variances[:, k, :]) for m in (mine, theirs))
                logs = log_product_kernel(mp, vp, mq, vq, rho)
                weights = xp.astype(mine.weights[:, k], xp.float64)[:, None] * theirs.weights[:, k][None, :]
                total = total + weights * xp.exp(xp.astype(logs, xp.float64) - shift)
            out[p, q] = xp.astype(total, out.dtype)
    return out
