# SPDX-License-Identifier: BSD-3-Clause
r"""The E-step by matrix products alone, through the Array API: what a GPU runs.

The sums are those of ``accumulate``.  One product of rows :math:`[z, z^2, 1]` gives the log-densities, one product a
segment the moments.  Segments of one size are one batched product.  Others are put into buckets whose sizes differ by
at most ``WASTE``, filled up with rows of weight zero.  A GPU is bound by its memory here, not by arithmetic: posteriors
are written once, where the library has a softmax, and the rows are padded to a multiple of ``ALIGN`` numbers.  Of CUDA
tensors, two Triton kernels make the same sums in less than half the time (``dense_triton``).

Precision: float32 as far as the descriptors are not float64; sums of more than ``DENSE_NUMBERS / K`` descriptors are
added up in float64 (EM).  Nothing is cut off, unlike in ``accumulate``: the difference is at most K · CUTOFF of a
descriptor.
"""

from math import prod
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from patchbag.bags import Bags
from patchbag.device import floating, lies_elsewhere, like, prefetch, to_device, to_host
from patchbag.features.projection import project
from patchbag.mixture import dense_triton
from patchbag.mixture.accumulate import raw_moments
from patchbag.mixture.parameters import GaussianParameters
from patchbag.mixture.spatial import SpatialPyramid

# posteriors that are computed together
DENSE_NUMBERS = 1 << 28
PIECE_ROWS = 4096  # of EM that a kernel of a GPU adds up in float32
ALIGN = 4
WASTE = 1.5


def standardized(values: Any, parameters: GaussianParameters) -> Any:
    """Rows [z, z², 1] and zeros up to a multiple of ``ALIGN``: (N, W)."""
    xp = array_namespace(values)
    values = floating(values)
    n, d = values.shape
    width = 2 * d + 1
    rows = xp.empty((n, width + -width % ALIGN), dtype=values.dtype, device=device(values))
    center, inverse = like(parameters.center, values), like(1 / parameters.scale, values)
    if hasattr(xp, "addcmul"):  # PyTorch's passes over memory are half as many
        xp.addcmul(-center * inverse, values, inverse, out=rows[:, :d])
        xp.mul(rows[:, :d], rows[:, :d], out=rows[:, d : 2 * d])
    else:
        z = (values - center) * inverse
        rows[:, :d] = z
        rows[:, d : 2 * d] = z * z
    rows[:, 2 * d] = 1
    rows[:, width:] = 0
    return rows


def posteriors(rows: Any, parameters: GaussianParameters, hard: bool = False) -> tuple[Any, Any]:
    """Posteriors (N, K) of the components for standardised rows, and logarithms of their densities (N, K)."""
    xp = array_namespace(rows)
    projection = np.concatenate([parameters.projection, parameters.bias[None]])
    logits = rows @ like(np.pad(projection, ((0, rows.shape[1] - len(projection)), (0, 0))), rows)
    if hard:
        share = xp.astype(logits >= xp.max(logits, axis=1, keepdims=True), rows.dtype)
        return share / xp.sum(share, axis=1, keepdims=True), logits
    if hasattr(xp, "softmax"):  # PyTorch's reads and writes once
        return xp.softmax(logits, dim=1), logits
    share = xp.exp(logits - xp.max(logits, axis=1, keepdims=True))
    return share / xp.sum(share, axis=1, keepdims=True), logits


def segment_products(share: Any, rows: Any, offsets: np.ndarray) -> tuple[Any, Any]:
    """Sums (S, K) of the shares and (S, K, W) of their products with the rows, over consecutive segments.

    ``offsets (S + 1,)`` are on the host.
    """
    xp, where = array_namespace(share), device(share)
    sizes, last = np.diff(offsets), share.shape[0] - 1
    if len(sizes) and (sizes == sizes[0]).all():
        a, b = (xp.reshape(m, (len(sizes), int(sizes[0]), m.shape[1])) for m in (share, rows))
        return xp.sum(a, axis=1), xp.matrix_transpose(a) @ b
    order = np.argsort(sizes, kind="stable")
    ascending = sizes[order]
    starts, lengths = (xp.asarray(a[order], device=where) for a in (offsets[:-1], sizes))
    counts, products, first = [], [], 0
    while first < len(order):
        stop = int(np.searchsorted(ascending, max(WASTE * ascending[first], ascending[first] + 16), side="right"))
        bucket, longest = slice(first, stop), int(ascending[stop - 1])
        steps = xp.arange(longest, dtype=starts.dtype, device=where)[None, :]
        index = xp.reshape(xp.clip(starts[bucket][:, None] + steps, 0, max(last, 0)), (-1,))
        a, b = (xp.reshape(xp.take(m, index, axis=0), (stop - first, longest, m.shape[1])) for m in (share, rows))
        a = a * xp.astype(steps < lengths[bucket][:, None], a.dtype)[..., None]
        counts.append(xp.sum(a, axis=1))
        products.append(xp.matrix_transpose(a) @ b)
        first = stop
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    index = xp.asarray(back, device=where)
    return tuple(xp.take(xp.concat(parts, axis=0), index, axis=0) for parts in (counts, products))


def dense_sums(
    values: Any, offsets: np.ndarray, parameters: GaussianParameters, hard: bool = False, moments: bool = True
) -> tuple[Any, Any]:
    """Standardised sums ``s0 (S, K)``, ``s12 (S, K, 2D)`` of consecutive segments; (S, K, 0) without moments."""
    if moments and not hard and dense_triton.usable(values):
        s0, s1, s2, _ = dense_triton.segment_sums(values, offsets, parameters)
        return s0, array_namespace(s1).concat([s1, s2], axis=-1)
    rows = standardized(values, parameters)
    share, _ = posteriors(rows, parameters, hard)
    return segment_products(share, rows[:, : 2 * parameters.dimension if moments else 0], offsets)


def log_likelihoods(share: Any, logits: Any) -> Any:
    """log p(x) (N,): of the best component, log-density less the logarithm of its share."""
    xp = array_namespace(share)
    return xp.max(logits, axis=1) - xp.log(xp.max(share, axis=1))


def dense_expectation(
    values: Any, parameters: GaussianParameters, weight: Any = None, n_jobs: int | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """``s0 (K,)``, ``s12 (K, 2D)`` of all rows in float64 on the host, and Σ log p(x): what EM asks for."""
    xp = array_namespace(values)
    d = parameters.dimension
    sums: Any = 0.0
    total: Any = 0.0
    step = max(1, DENSE_NUMBERS // parameters.n_components)
    for start in range(0, values.shape[0], step):
        part = slice(start, min(start + step, values.shape[0]))
        if weight is None and dense_triton.usable(values):
            pieces = np.append(np.arange(0, part.stop - start, PIECE_ROWS), part.stop - start)
            s0, s1, s2, logs = dense_triton.segment_sums(values[part, :], pieces, parameters)
            both = xp.concat([s1, s2, s0[..., None]], axis=2)
            sums, total = (a + xp.sum(b, axis=0, dtype=xp.float64) for a, b in ((sums, both), (total, logs)))
            continue
        rows = standardized(values[part, :], parameters)
        share, logits = posteriors(rows, parameters)
        logs = log_likelihoods(share, logits)
        if weight is not None:
            w = like(weight[part], rows)
            rows, logs = rows * w[:, None], logs * w
        sums = sums + xp.astype(xp.matrix_transpose(share) @ rows, xp.float64)
        total = total + xp.sum(xp.astype(logs, xp.float64))
    found = to_host(sums)
    return found[:, 2 * d], found[:, : 2 * d], float(total)


def collect_dense(
    bags: Bags,
    parameters: GaussianParameters,
    pyramid: SpatialPyramid | None = None,
    hard: bool = False,
    moments: bool = True,
    wide: bool = False,
    projection: Any = None,
) -> tuple[Any, Any, Any]:
    """Counts and moments of every bag (and cell), where the descriptors lie or the context computes.

    Options are those of :func:`~patchbag.mixture.statistics.collect`.
    """
    whole: list[Any] = []
    done = 0
    chunks = bags.chunks(max(1, DENSE_NUMBERS // parameters.n_components))
    for chunk in chunks if lies_elsewhere(bags.values) else prefetch(_bring, chunks):
        chunk = project(chunk, projection)
        arrays: tuple[Any, Any, Any]
        if pyramid is None and moments and not hard and not wide and dense_triton.usable(chunk.values):
            arrays = dense_triton.segment_sums(chunk.values, chunk.offsets, parameters, raw=True)[:3]
        else:
            part = _sums(chunk, parameters, pyramid, hard, moments)
            arrays = (part[0], *raw_moments(*part, parameters, wide)) if moments else (*part, part[1])
        xp = array_namespace(arrays[0])
        if len(chunk) == len(bags):
            return arrays
        # one array for all: to put the parts together at the end would take twice the memory
        whole = whole or [xp.empty((len(bags), *a.shape[1:]), dtype=a.dtype, device=device(a)) for a in arrays]
        for a, b in zip(whole, arrays):
            a[done : done + len(chunk), ...] = b
        done += len(chunk)
    return whole[0], whole[1], whole[2]


def _bring(bags: Bags) -> Bags:
    return Bags(to_device(bags.values), bags.offsets, to_device(bags.positions))


def _sums(
    bags: Bags, parameters: GaussianParameters, pyramid: SpatialPyramid | None, hard: bool, moments: bool
) -> tuple[Any, Any]:
    """Standardised sums ``s0 (n, K)``, ``s12 (n, K, 2D)`` of the bags of one chunk; with a pyramid, of its cells."""
    values = bags.values
    if pyramid is None:
        return dense_sums(values, bags.offsets, parameters, hard, moments)
    if bags.positions is None:
        raise ValueError("a spatial pyramid needs to know where the patches are: these bags have no positions")
    xp = array_namespace(values)
    bag = xp.asarray(np.repeat(np.arange(len(bags)), bags.sizes), device=device(values))
    segments = bag * pyramid.n_atoms + pyramid.assign(bags.positions)
    order = xp.argsort(segments, stable=True)
    bounds = xp.arange(len(bags) * pyramid.n_atoms + 1, dtype=segments.dtype, device=device(values))
    offsets = to_host(xp.searchsorted(xp.take(segments, order), bounds))
    sums = dense_sums(xp.take(values, order, axis=0), offsets, parameters, hard, moments)
    shape = len(bags), pyramid.n_atoms
    s0, s12 = (xp.reshape(a, (*shape, prod(a.shape[1:]))) for a in sums)
    s0, s12 = (like(pyramid.membership, a) @ a for a in (s0, s12))
    return s0, xp.reshape(s12, (*s0.shape, -1 if moments else 0))
