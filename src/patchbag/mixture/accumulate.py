# SPDX-License-Identifier: BSD-3-Clause
r"""The E-step: from descriptors to soft counts and moments, at the price of two matrix products.

For every descriptor x_t and component k the posterior :math:`\gamma_{tk} = w_k N(x_t; k) / \sum_j w_j N(x_t; j)` weighs

.. math:: S^0_k = \sum_t \gamma_{tk}, \quad S^1_k = \sum_t \gamma_{tk} x_t, \quad S^2_k = \sum_t \gamma_{tk} x_t^2 .

A dense implementation is four matrix products of N × D × K: two for the log-densities, two for the moments.  In high
dimension the posterior of a descriptor is concentrated on a few components (about 22 of 256 for SIFT of photographs,
``benchmarks/bench_fisher.py`` counts them), so the log-densities are one BLAS product, while the moments are summed by
a loop over the components whose density is above ``CUTOFF`` of the best one's.  What is skipped weighs at most
K · CUTOFF of a descriptor.

Sums run over segments (a bag, a spatial cell of a bag, or everything): segment numbers say where a row goes.  The same
sums for arrays that are not NumPy's (CUDA tensors) are in ``dense``.

Precision: float64 descriptors are summed in float64, all others in float32, in both cases in coordinates standardised
by the mixture.  Turning the sums into moments of x itself, :func:`raw_moments`, loses (|mean| / σ)² units in the last
place of the second moment: where the mixture lies more than ``FAR`` deviations from the origin the moments are float64,
whatever the descriptors are.

Cost: 4·N·D·K floating-point operations in BLAS, about 4·N·D·22 outside.
"""

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from numba import njit

from patchbag.device import floating
from patchbag.mixture.parameters import LOG_ZERO, GaussianParameters

CUTOFF = 1e-6
# |mean| / σ above which second moments in float32 would lose more than two of their seven digits
FAR = 10.0
# Rows that are processed together: they and their log-densities stay in the second-level cache, as far as the matrix
# product is still efficient.
BLOCK_FLOATS = 1 << 16
BLOCK_ROWS = 256, 512
# components that are compared in one go
GROUP = 4


@njit(cache=True, nogil=True, fastmath=True)
def _expand(values, center, inverse_scale, out):  # pragma: no cover - compiled
    """Rows [z, z²] of the standardised descriptors."""
    n, d = values.shape
    for t in range(n):
        for j in range(d):
            z = (values[t, j] - center[j]) * inverse_scale[j]
            out[t, j] = z
            out[t, d + j] = z * z


@njit(cache=True, nogil=True, fastmath=True, inline="always")
def _larger(a, b):  # pragma: no cover - compiled
    return a if a > b else b


# fastmath reorders sums only; inputs are checked to be finite before.
@njit(cache=True, nogil=True, fastmath=True)
def _select(logits, bias, gap, top, hits, best, starts, chosen, share):  # pragma: no cover - compiled
    """Components whose log-density is at most ``gap`` below the row's best; how many of them there are in all rows.

    Those of row t are ``chosen[starts[t]:starts[t + 1]]``, and ``share`` says how far below they are.  Components
    k, k + K/4, k + 2K/4 and k + 3K/4 are a group (siblings, in a mixture made by splitting), and only groups whose
    largest value is near enough are looked into.  It is written for the compiler: maxima that it can vectorise, no
    branch on a condition that nobody can predict, no index that could be negative.
    """
    n, k = logits.shape
    g = k // GROUP
    quarter = g // 4
    count = 0
    starts[0] = 0
    for t in range(n):
        for i in range(g):
            a = _larger(logits[t, i] + bias[i], logits[t, i + g] + bias[i + g])
            b = _larger(logits[t, i + 2 * g] + bias[i + 2 * g], logits[t, i + 3 * g] + bias[i + 3 * g])
            top[i] = _larger(a, b)
        a = b = c = d = top[0]
        for i in range(quarter):
            a, b = _larger(a, top[i]), _larger(b, top[i + quarter])
            c, d = _larger(c, top[i + 2 * quarter]), _larger(d, top[i + 3 * quarter])
        for i in range(4 * quarter, g):
            a = _larger(a, top[i])
        highest = _larger(_larger(a, b), _larger(c, d))
        best[t] = highest
        lowest = highest - gap
        n_hits = 0
        for i in range(g):
            hits[np.uint64(n_hits)] = i
            n_hits += top[i] >= lowest
        for i in range(n_hits):
            first = hits[i]
            for j in range(GROUP):
                component = np.uint64(first + j * g)
                value = logits[t, component] + bias[component]
                chosen[np.uint64(count)] = component
                share[np.uint64(count)] = value - highest
                count += value >= lowest
        starts[t + 1] = count
    return count


@njit(cache=True, nogil=True, fastmath=True)
def _add(starts, chosen, share, best, rows, segments, importance, s0, s12):  # pragma: no cover - compiled
    """Add the posteriors of a block of rows and their moments to the segments' sums; return Σ log p(x_t)."""
    width = s12.shape[2]
    log_likelihood = 0.0
    for t in range(len(starts) - 1):
        total = share.dtype.type(0)
        for i in range(starts[t], starts[t + 1]):
            total += share[i]
        log_likelihood += importance[t] * (float(best[t]) + np.log(float(total)))
        factor = importance[t] / total
        # in a loop of its own: the counts shall not depend on whether there are moments to be summed
        for i in range(starts[t], starts[t + 1]):
            share[i] *= factor
        segment = segments[t]
        for i in range(starts[t], starts[t + 1]):
            k = chosen[i]
            s0[segment, k] += share[i]
            for j in range(width):
                s12[segment, k, j] += share[i] * rows[t, j]
    return log_likelihood


def compute_dtype(dtype: Any) -> np.dtype:
    """float64 descriptors (of either byte order) are processed in float64, everything else in float32."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float64 if dtype.kind == "f" and dtype.itemsize >= 8 else np.float32)


def accumulate(
    values: np.ndarray,
    segments: np.ndarray,
    n_segments: int,
    parameters: GaussianParameters,
    importance: np.ndarray | None = None,
    cutoff: float = CUTOFF,
    moments: bool = True,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Standardised sums of one job: ``s0 (S, K)``, ``s12 (S, K, 2D)`` of [z, z²], and Σ log p(x).

    If a descriptor is NaN or infinite the log-likelihood is NaN, and the sums are not to be used.

    Parameters
    ----------
    values : (N, D)
    segments : (N,) number of the segment that each descriptor belongs to
    importance : (N,) sample weights, ones by default
    cutoff : components whose density is below this fraction of the best one's are left out; at 1 only the best stays
    moments : False leaves out the moments; s12 is then (S, K, 0)
    """
    dtype = compute_dtype(values.dtype)
    n, d = values.shape
    k = parameters.n_components
    padding = -k % GROUP
    center, inverse_scale = parameters.center.astype(dtype), (1 / parameters.scale).astype(dtype)
    projection = np.asfortranarray(np.pad(parameters.projection.astype(dtype), ((0, 0), (0, padding))))
    bias = np.pad(parameters.bias.astype(dtype), (0, padding), constant_values=LOG_ZERO)
    importance = np.ones(n, dtype) if importance is None else importance.astype(dtype)
    # with room for the padding, which is chosen where all components are less likely than LOG_ZERO (means of 1e25)
    s0, s12 = np.zeros((n_segments, k + padding), dtype), np.zeros((n_segments, k + padding, 2 * d * moments), dtype)
    block = min(int(np.clip(BLOCK_FLOATS // k, *BLOCK_ROWS)), max(n, 1))
    rows, logits = np.empty((block, 2 * d), dtype), np.empty((block, k + padding), dtype)
    top, hits = np.empty((k + padding) // GROUP, dtype), np.empty((k + padding) // GROUP + 1, np.uint32)
    best, starts = np.empty(block, dtype), np.empty(block + 1, np.int64)
    chosen, share = np.empty(logits.size + 1, np.uint32), np.empty(logits.size + 1, dtype)
    gap = dtype.type(-np.log(cutoff))
    log_likelihood = 0.0
    for start in range(0, n, block):
        part = slice(start, min(start + block, n))
        m = part.stop - start
        # Numba knows neither half precision nor foreign byte orders
        _expand(np.ascontiguousarray(values[part], dtype), center, inverse_scale, rows[:m])
        # one fast product finds NaN and infinity, which the compiled sums must not see
        if not np.isfinite(np.vdot(rows[:m], rows[:m])):
            log_likelihood = float("nan")
            break
        np.matmul(rows[:m], projection, out=logits[:m])
        count = _select(logits[:m], bias, gap, top, hits, best, starts, chosen, share)
        np.exp(share[:count], out=share[:count])
        log_likelihood += _add(starts[: m + 1], chosen, share, best, rows, segments[part], importance[part], s0, s12)
    return np.ascontiguousarray(s0[:, :k]), np.ascontiguousarray(s12[:, :k]), log_likelihood


def raw_moments(s0: Any, s12: Any, parameters: GaussianParameters, wide: bool = False) -> tuple[Any, Any]:
    """Moments of x = c + s·z from the sums of [z, z²]: ``s1``, ``s2`` of shape (..., K, D).

    They have the dtype of the sums, or float64 if ``wide`` (see the module's text; ``parameters.distance > FAR``).
    """
    xp = array_namespace(s0)
    d = parameters.dimension
    # rounded as the standardisation rounded them, before they are widened
    c = xp.asarray(parameters.center, dtype=s0.dtype, device=device(s0))
    s = xp.asarray(parameters.scale, dtype=s0.dtype, device=device(s0))
    if wide:
        c, s, s0, s12 = (xp.astype(a, xp.float64, copy=False) for a in (c, s, s0, s12))
    offset = c * s0[..., None]
    s1 = s * s12[..., :d] + offset
    return s1, s * s * s12[..., d:] + c * (2 * s1 - offset)


def log_densities(values: Any, parameters: GaussianParameters) -> Any:
    """ln w_k N(x_t; k) for every row and component, on the array type and device of ``values``: (N, K)."""
    xp = array_namespace(values)
    values = floating(values)
    where = {"dtype": values.dtype, "device": device(values)}
    z = (values - xp.asarray(parameters.center, **where)) / xp.asarray(parameters.scale, **where)
    rows = xp.concat([z, z * z], axis=1)
    return rows @ xp.asarray(parameters.projection, **where) + xp.asarray(parameters.bias, **where)
