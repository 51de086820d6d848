# SPDX-License-Identifier: BSD-3-Clause
r"""Kernels between mixtures whose components correspond one to one.

Mixtures adapted from one universal model answer each other component by component, so the sums over all pairs of
components shrink to one sum over components (liu2010, eq. 4.13 and 4.24; liu2008)::

    K^ρ(p, q) ≈ Σ_i α_i β_i K^ρ(p_i, q_i)
    KL(p‖q)   ≈ Σ_i α_i (KL(p_i‖q_i) + ln α_i/β_i)
    SKL = KL(p‖q) + KL(q‖p)                                                                  (2.20)

What is computed.  KL is a sum of products of functions of p and functions of q: a whole matrix of SKL's is *one* matrix
product of width 4·K·(D + 1).  It runs in coordinates in which component i of the references is centred with unit mean
variance, on deviations from that frame, so that float32 keeps its digits.  The product kernel is a Numba kernel over
tiles of 32 × 64 images (see ``gaussians``), summed over components in float64.  CUDA tensors go through Triton kernels
(``divergence_triton``, ``product_triton``), other Array API arrays through the same sums by broadcasting.  References
are prepared at most 2^26 numbers at a time, and blocks of images compared with them on the workers of the context:
memory beyond the result stays below 500 MB.

Cost per pair: 8·K·D flops in BLAS for SKL, about 8·K·D for PPK; the slower estimates of ``matching`` cost K times as
much.

Deviation: weights of zero enter logarithms as 1e-10.
"""

from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array
from numba import njit

from patchbag.device import like, product
from patchbag.mixture.adaptation import Mixtures
from patchbag.similarity.base import map_rows
from patchbag.similarity.mixtures import divergence_triton
from patchbag.similarity.mixtures.gaussians import (
    TILE,
    TILE_ROWS,
    entropy,
    left_features,
    log_product_kernel,
    log_product_row,
    product_left,
    product_precision,
    product_right,
    right_features,
)
from patchbag.similarity.mixtures.matching import (
    WEIGHT_FLOOR,
    LogNorms,
    by_component,
    component_frame,
    pack_components,
)

# numbers in what is made of a block of references, and of a block of images to compare with them
REFERENCE_NUMBERS, ROW_NUMBERS = 1 << 26, 1 << 23
DEVICE_NUMBERS = 1 << 29  # both, on a GPU
BLOCK_IMAGES = 2048
# features of an image are padded to a multiple of this: products of other widths are slower on a GPU
ALIGN = 8
# images whose features are made together: their temporaries stay in the cache
CHUNK_IMAGES = 16


def _blocks(n: int, width: int, numbers: int) -> list[slice]:
    step = max(1, numbers // width if numbers == DEVICE_NUMBERS else min(numbers // width, BLOCK_IMAGES))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _by_references(P: Mixtures, Q: Mixtures, dtype: Any, width: int, rows: Any, job: Any) -> Any:
    """A matrix ``(n, m)`` from ``rows(q)``, a function of jobs ``job(p)`` that gives them with a block q of Q."""
    xp = array_namespace(P.means, Q.means)
    here = is_numpy_array(P.means)
    jobs = [job(p) for p in _blocks(len(P), width, ROW_NUMBERS if here else DEVICE_NUMBERS)]
    out = xp.empty((len(P), len(Q)), dtype=getattr(xp, np.dtype(dtype).name), device=device(P.means))
    for q in _blocks(len(Q), width, REFERENCE_NUMBERS if here else DEVICE_NUMBERS):
        map_rows(rows(q), jobs, len(P), out[:, q])
    return out


# --- Kullback-Leibler, one to one ------------------------------------------------------------------------------------


def _features(mixtures: Mixtures, coordinates: tuple[Any, Any], dtype: Any, sides: str) -> Any:
    """Rows such that KL(p‖q) = left(p)·right(q): the sides named, next to each other, ``(n, K(2D + 2) + 1)`` each."""
    xp = array_namespace(mixtures.means)
    # about what every component's entropy is: taken from H(p, q) and from H(p, p) before either is rounded
    offset = entropy(coordinates[1][:, 0, :] ** 2)
    centre, scale = (xp.permute_dims(a, (1, 0, 2)) for a in coordinates)
    if not is_numpy_array(centre):  # a GPU's float64 is slow, and the result is not
        centre, scale = (like(a, mixtures.means) for a in (centre, scale))
    width = len(sides) * (mixtures.n_components * (2 * mixtures.dimension + 2) + 1)
    dtype = getattr(xp, np.dtype(dtype).name)
    padding = 0 if is_numpy_array(centre) else -width % ALIGN
    features = xp.empty((len(mixtures), width + padding), dtype=dtype, device=device(mixtures.means))
    features[:, width:] = 0
    for part in _blocks(len(mixtures), 1, CHUNK_IMAGES if is_numpy_array(mixtures.means) else BLOCK_IMAGES):
        m = mixtures[part]
        weights = xp.astype(m.weights, xp.float64)
        logs = xp.log(xp.clip(weights, WEIGHT_FLOOR, None))
        own = xp.sum(weights * (logs - entropy(xp.astype(m.variances, xp.float64)) + offset), axis=1, keepdims=True)
        found = []
        for side in sides:
            if side == "l":
                f = left_features(m.means, m.variances, (centre, scale))
                f = f * xp.astype(weights, f.dtype, copy=False)[..., None]
            else:
                f = right_features(m.means, m.variances, (centre, scale))
                f[..., -1] -= xp.astype(offset + logs, f.dtype, copy=False)
            found += [xp.reshape(f, (f.shape[0], -1)), own if side == "l" else xp.ones_like(own)]
        start = 0
        for f in found:
            features[part, start : start + f.shape[1]] = xp.astype(f, dtype, copy=False)
            start += f.shape[1]
    return features


def _divergence_rows(P: Mixtures, right: Any, coordinates: tuple[Any, Any], dtype: Any, sides: str) -> Any:
    left = _features(P, coordinates, dtype, sides)
    block = product(left, right.T)  # what is left of large terms that cancel: never in TF32
    # a sum of divergences of components and of weights: what is below zero is rounding
    block[block < 0] = 0
    return block


def _divergences(P: Mixtures, Q: Mixtures, dtype: Any, sides: str) -> Any:
    coordinates = component_frame(Q)
    width = len(sides) * (Q.n_components * (2 * Q.dimension + 2) + 1)
    if divergence_triton.usable(P, dtype):
        return divergence_triton.divergences(P, Q, coordinates, sides, max(1, DEVICE_NUMBERS // width))

    def rows(q: slice) -> Any:
        make = partial(_features, coordinates=coordinates, dtype=dtype, sides=sides[::-1] if len(sides) > 1 else "r")
        block = Q[q]
        numbers = ROW_NUMBERS if is_numpy_array(Q.means) else DEVICE_NUMBERS
        right = map_rows(make, [block[part] for part in _blocks(len(block), width, numbers)], len(block))
        return partial(_divergence_rows, right=right, coordinates=coordinates, dtype=dtype, sides=sides)

    return _by_references(P, Q, dtype, width, rows, lambda p: P[p])


def kl_one_to_one(P: Mixtures, Q: Mixtures, dtype: Any = np.float32) -> Any:
    """KL(p‖q) with component i answered by component i (4.24): ``(n, m)``."""
    return _divergences(P, Q, dtype, "l")


def symmetric_kl_one_to_one(P: Mixtures, Q: Mixtures, dtype: Any = np.float32) -> Any:
    """KL(p‖q) + KL(q‖p), one to one, in one matrix product: ``(n, m)``."""
    return _divergences(P, Q, dtype, "lr")


# --- probability product kernel, one to one --------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _sum_products(mp, vp, fp, tiles, fq, rho, period, out):  # pragma: no cover - compiled
    """Σ_k exp(fp + fq + ln K^ρ) over the first axis of every input, into out (rows, columns)."""
    rows, columns = out.shape
    quadratic, product, logs = np.empty(TILE, mp.dtype), np.empty(TILE), np.empty(TILE)
    total = np.empty((TILE_ROWS, TILE))
    for first in range(0, rows, TILE_ROWS):
        last = min(first + TILE_ROWS, rows)
        for t in range(tiles.shape[1]):
            start, width = t * TILE, min(TILE, columns - t * TILE)
            total[:] = 0
            for k in range(mp.shape[0]):
                for r in range(first, last):
                    log_product_row(mp[k, r], vp[k, r], tiles[k, t], rho, period, quadratic, product, logs)
                    for j in range(width):
                        total[r - first, j] += np.exp(logs[j] + fp[k, r] + fq[k, start + j])
            for r in range(first, last):
                for j in range(width):
                    out[r, start + j] = total[r - first, j]


def _log_factors(mixtures: Mixtures, norms: Any) -> Any:
    with np.errstate(divide="ignore"):  # a component of weight zero has the factor exp(-inf)
        return np.log(np.asarray(mixtures.weights, np.float64)).T - norms


def _product_rows(job: Any, tiles: Any, right: Any, rho: float, coordinates: Any, precision: Any, dtype: Any) -> Any:
    P, norms = job
    means, variances, left = pack_components(product_left, P, rho, coordinates, precision[0])
    out = np.empty((len(P), right.shape[1]), dtype)
    _sum_products(means, variances, left + _log_factors(P, norms), tiles, right, rho, precision[1], out)
    return out


def product_one_to_one(
    P: Mixtures, Q: Mixtures, rho: float = 0.5, dtype: Any = np.float32, log_norms: LogNorms = None
) -> Any:
    """Σ_i α_i β_i K^ρ(p_i, q_i) (4.13): ``(n, m)``, divided by the norms whose logarithms are given, (n,) and (m,).

    For ρ ≠ ½ the sum itself may be too small or too large for a float where the normalised one is not.
    """
    xp = array_namespace(P.means, Q.means)
    norms = log_norms or tuple(xp.zeros(len(m), dtype=xp.float64, device=device(m.means)) for m in (P, Q))
    width = 2 * Q.n_components * (Q.dimension + 3)
    if getattr(P.means, "is_cuda", False):
        from patchbag.similarity.mixtures import product_triton

        coordinates = component_frame(Q)
        if product_triton.usable(P, Q, coordinates, dtype):
            return product_triton.product_sums(P, Q, norms, rho, coordinates)
    if not is_numpy_array(P.means):
        dense = partial(_dense_rows, rho=rho, dtype=dtype)
        return _by_references(
            P, Q, dtype, width, lambda q: partial(dense, Q=Q[q], q_norms=norms[1][q]), lambda p: (P[p], norms[0][p])
        )
    coordinates = component_frame(Q)
    precision = product_precision(by_component(P)[1], by_component(Q)[1], coordinates, dtype)

    def rows(q: slice) -> Any:
        tiles, right = pack_components(product_right, Q[q], rho, coordinates, precision[0])
        how = {"rho": rho, "coordinates": coordinates, "precision": precision, "dtype": dtype}
        return partial(_product_rows, tiles=tiles, right=right + _log_factors(Q[q], norms[1][q]), **how)

    return _by_references(P, Q, dtype, width, rows, lambda p: (P[p], norms[0][p]))


def _dense_rows(job: Any, Q: Mixtures, q_norms: Any, rho: float, dtype: Any) -> Any:
    """The same sum through the Array API, component by component, in float64."""
    P, norms = job
    xp = array_namespace(P.means, Q.means)
    shift, total = norms[:, None] + q_norms[None, :], 0.0
    for k in range(Q.n_components):
        (mp, vp), (mq, vq) = ((m.means[:, k, :], m.variances[:, k, :]) for m in (P, Q))
        logs = log_product_kernel(mp, vp, mq, vq, rho)
        weights = xp.astype(P.weights[:, k], xp.float64)[:, None] * Q.weights[:, k][None, :]
        total = total + weights * xp.exp(xp.astype(logs, xp.float64) - shift)
    return xp.astype(total, getattr(xp, np.dtype(dtype).name))
