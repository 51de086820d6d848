# SPDX-License-Identifier: BSD-3-Clause
r"""Histograms of gradient orientations on a grid of patches: the mathematics of dense SIFT at one scale.

**Definition.**  A patch with centre (cx, cy) has 4 × 4 spatial bins, ``bin_size`` pixels apart, with centres
:math:`c + (b - 3/2)\,\mathrm{bin}`, b = 0..3, and 8 orientation bins, 45° apart, the first one along +x, turning
towards +y (down).  A pixel p with gradient magnitude m and angle θ votes trilinearly::

    h[y, x, t] = sum_p  m(p) g(p) tri((p_x - c_x[x]) / bin) tri((p_y - c_y[y]) / bin) tri((θ(p) - 45° t) / 45°) / bin²
    tri(u) = max(0, 1 - |u|),   g = Gaussian window, σ = 2 bin around the patch centre

The layout is ``index = t + 8 * (x + 4 * y)``.  The histogram is divided by its L2 norm, clipped at 0.2 and divided by
its norm again (Lowe, IJCV 2004).  RootSIFT (Arandjelović & Zisserman, CVPR 2012) then takes the square root of the
L1-normalised histogram: Euclidean distance becomes Hellinger distance.

**What is computed.**  Everything but the gradient is linear and separable, so nothing is computed per patch until the
last step:

1. Gradients by central differences (one-sided at the border).  Eight bins of 45° are exactly the octants: with
   a = min(|gx|, |gy|) / max(|gx|, |gy|) and f = atan(a) / 45° in [0, 1], the share f of the magnitude goes to the
   diagonal bin that the signs name and 1 - f to the axis bin that the larger component names.  atan is a polynomial
   (error 2e-6), so a row of votes is straight vector code.
2. A column pass and a row pass with the triangle, evaluated only at the rows and columns where some patch has a bin.
   If ``step`` divides ``bin_size``, neighbouring patches share their bins.
3. Per patch, 16 runs of 8 numbers are gathered, weighted, normalised, clipped and written.

The votes live in a ring buffer of the few image rows that the column pass is looking at: memory beyond the result is a
few hundred kilobytes whatever the image.

**Windows.**  ``window="flat"`` replaces g inside each spatial bin by its mean there, one number per bin (the
approximation VLFeat calls flat window, its default in PHOW).  ``window="gaussian"`` is exact: triangle times Gaussian
is separable too, one kernel per bin index, at about twice the time since bins are not shared.

**Cost.**  O(pixels × bin_size) vector operations for the votes and 128 numbers per patch
(``benchmarks/bench_dense_sift.py``).

**Deviations.**  Against Lowe: no rotation, and the Gaussian window is 2 bins wide, as in VLFeat.  Bin centres stay
inside the image, but the outer half of a border bin may not: the votes of the last row or column are repeated there.

liu2010 §4.3.1; D. Lowe, IJCV 60(2), 2004; A. Vedaldi & B. Fulkerson, VLFeat, 2008 (its output, for comparison).
"""

from typing import Literal, NamedTuple

import numpy as np
from numba import njit

BINS = 4
ORIENTATIONS = 8
DIMENSION = BINS * BINS * ORIENTATIONS
CLIP = 0.2
WINDOW = 2.0  # deviation of the Gaussian window in bins
# a descriptor rarely exceeds one half in any dimension: 512 steps to 1 use the range of a byte well
BYTE_SCALE = 512.0

# odd polynomial for atan(a) / 45°, 0 <= a <= 1, equi-ripple, error 2.1e-6
_A1, _A3, _A5, _A7, _A9, _A11 = (
    np.float32(c) for c in (1.27321054, -0.423508532, 0.246423226, -0.14823872, 0.067032607, -0.0149212365)
)
_CLIP = np.float32(CLIP)
_BYTE_SCALE = np.float32(BYTE_SCALE)
_TINY = np.float32(1e-12)


class Axis(NamedTuple):
    """Where and with which kernel one axis is sampled, and which sample is bin b of patch i."""

    first: np.ndarray  # (samples,) first pixel under the kernel, may be negative
    kernel: np.ndarray  # (samples,) row of ``kernels``
    kernels: np.ndarray  # (kinds, taps)
    sample: np.ndarray  # (patches, 4) index into ``first``
    weight: np.ndarray  # (4,) of each bin


def sample_axis(centres: np.ndarray, bin_size: int, window: str) -> Axis:
    """Where the bins of patches with these centres are sampled along one axis."""
    offsets = (np.arange(BINS) - (BINS - 1) / 2) * bin_size
    bins = centres[:, None] + offsets
    fraction = float(bins[0, 0] - np.floor(bins[0, 0]))
    taps = np.arange(-bin_size, bin_size + 1) - fraction
    triangle = np.maximum(0, 1 - np.abs(taps) / bin_size) / bin_size
    sigma = WINDOW * bin_size
    gaussians = np.exp(-0.5 * ((taps + offsets[:, None]) / sigma) ** 2)
    if window == "gaussian":
        kernels, weight = triangle * gaussians, np.ones(BINS)
        centre, sample = np.floor(bins).ravel(), np.arange(bins.size).reshape(bins.shape)
        kernel = np.tile(np.arange(BINS), len(centres))
    else:
        kernels, weight = triangle[None], (gaussians * (triangle > 0)).sum(1) / np.count_nonzero(triangle)
        centre, sample = np.unique(np.floor(bins), return_inverse=True)
        kernel = np.zeros(len(centre), np.int64)
    used = np.flatnonzero(kernels.any(0))
    kernels = kernels[:, used[0] : used[-1] + 1]
    first = centre.astype(np.int64) - bin_size + used[0]
    return Axis(first, kernel, kernels.astype(np.float32), sample.reshape(bins.shape), weight)


def dense_sift(
    image: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    bin_size: int,
    *,
    window: Literal["flat", "gaussian"] = "flat",
    root: bool = False,
    threshold: float = 0.0,
    out: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """SIFT descriptors of one bin size on the grid ``y`` × ``x`` of patch centres.

    Parameters
    ----------
    image : (h, w) uint8 or float, grey levels 0..255
    x, y : (nx,), (ny,) ascending centres in pixels with a common fraction; bins (1.5 * bin_size away) inside the image
    bin_size : distance between spatial bins in pixels
    window, root : see the module's text
    threshold : descriptors whose norm is below it become zero
    out : (ny * nx, 128) float32 or uint8 (then round(512 v), at most 255), filled if given

    Returns
    -------
    descriptors : (ny * nx, 128), row after row of the grid
    norms : (ny * nx,) float32, before normalisation
    """
    if out is None:
        out = np.empty((len(y) * len(x), DIMENSION), np.float32)
    norms = np.empty(len(out), np.float32)
    if len(out) == 0:
        return out, norms
    height, width = image.shape
    if image.dtype.kind == "f" and not np.isfinite(image).all():
        raise ValueError("the image holds NaN or infinite values")
    for centres, length, name in ((x, width, "x"), (y, height, "y")):
        if centres[0] - 1.5 * bin_size < 0 or centres[-1] + 1.5 * bin_size > length - 1:
            raise ValueError(f"{name} centres must be {1.5 * bin_size:g} pixels inside the {width}×{height} image")
    rows, columns = sample_axis(y, bin_size, window), sample_axis(x, bin_size, window)
    taps = rows.kernels.shape[1]
    last = np.maximum.accumulate(np.minimum(rows.first + taps, height))
    ring = int(np.max(last - np.maximum(rows.first, 0)))
    # columns left and right of the image that a kernel reaches
    margin = max(0, -int(columns.first.min()), int(columns.first.max()) + taps - width)
    # as many gathered rows must stay as one row of patches spans
    keep = int(np.max(rows.sample[:, -1] - rows.sample[:, 0])) + 1
    _describe(
        _extrapolated(image),
        (rows.first, rows.kernel, rows.kernels, rows.sample),
        (columns.first + margin, columns.kernel, columns.kernels, columns.sample),
        np.outer(rows.weight, columns.weight).astype(np.float32),
        (ring, margin, keep),
        np.float32(threshold),
        root,
        out,
        norms,
    )
    return out, norms


def _extrapolated(image: np.ndarray) -> np.ndarray:
    # a linear border makes the central difference one-sided there
    padded = np.empty((image.shape[0] + 2, image.shape[1] + 2), np.float32)
    inside = padded[:, 1:-1]
    inside[1:-1] = image
    inside[0] = 2 * inside[1] - inside[2]
    inside[-1] = 2 * inside[-2] - inside[-3]
    padded[:, 0] = 2 * padded[:, 1] - padded[:, 2]
    padded[:, -1] = 2 * padded[:, -2] - padded[:, -3]
    return padded


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "nnan", "ninf"})
def _vote(above, here, below, votes):
    """Magnitude of one row's gradients shared between two of eight orientations: ``votes`` (8, width)."""
    half, one, zero = np.float32(0.5), np.float32(1), np.float32(0)
    for x in range(votes.shape[1]):
        gx = half * (here[x + 2] - here[x])
        gy = half * (below[x + 1] - above[x + 1])
        ax, ay = abs(gx), abs(gy)
        large, small = max(ax, ay), min(ax, ay)
        a = small / (large + _TINY)
        s = a * a
        share = a * (_A1 + s * (_A3 + s * (_A5 + s * (_A7 + s * (_A9 + s * _A11)))))
        magnitude = np.sqrt(gx * gx + gy * gy)
        diagonal = magnitude * share
        axis = magnitude * (one - share)
        horizontal = axis if ax >= ay else zero
        vertical = axis - horizontal
        right = diagonal if gx > zero else zero
        left = diagonal - right
        votes[0, x] = horizontal if gx > zero else zero
        votes[1, x] = right if gy > zero else zero
        votes[2, x] = vertical if gy > zero else zero
        votes[3, x] = left if gy > zero else zero
        votes[4, x] = zero if gx > zero else horizontal
        votes[5, x] = zero if gy > zero else left
        votes[6, x] = zero if gy > zero else vertical
        votes[7, x] = zero if gy > zero else right


@njit(cache=True, nogil=True, fastmath={"contract"})
def _column_pass(ring, first, kernel, height, flat):
    """``flat (8 * width,)``: the votes of the rows under the kernel, weighted; border rows are repeated."""
    size = ring.shape[0]
    flat[:] = np.float32(0)
    for k in range(0, len(kernel) - 1, 2):
        one = ring[min(max(first + k, 0), height - 1) % size]
        two = ring[min(max(first + k + 1, 0), height - 1) % size]
        w1, w2 = kernel[k], kernel[k + 1]
        for i in range(len(flat)):
            flat[i] += w1 * one[i] + w2 * two[i]
    if len(kernel) % 2:
        one = ring[min(max(first + len(kernel) - 1, 0), height - 1) % size]
        w1 = kernel[len(kernel) - 1]
        for i in range(len(flat)):
            flat[i] += w1 * one[i]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _row_pass(flat, mixed, margin, columns, out):
    """Turn (8, width) into (width, 8), repeat its ends, and filter it at the sampled columns: ``out`` (samples, 8)."""
    first, kernel, kernels, _ = columns
    width = len(flat) // 8
    for x in range(width):
        for t in range(8):
            mixed[margin + x, t] = flat[t * width + x]
    for x in range(margin):
        for t in range(8):
            mixed[x, t] = mixed[margin, t]
            mixed[margin + width + x, t] = mixed[margin + width - 1, t]
    taps = kernels.shape[1]
    for c in range(len(first)):
        weights = kernels[kernel[c]]
        start = first[c]
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = np.float32(0)
        for k in range(taps):
            w, m = weights[k], mixed[start + k]
            s0 += w * m[0]
            s1 += w * m[1]
            s2 += w * m[2]
            s3 += w * m[3]
            s4 += w * m[4]
            s5 += w * m[5]
            s6 += w * m[6]
            s7 += w * m[7]
        o = out[c]
        o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7] = s0, s1, s2, s3, s4, s5, s6, s7


@njit(inline="always")
def _finish(h, threshold, root, out):
    """Normalise, clip, normalise, optionally root, one histogram ``h (128,)`` into ``out``; the norm it had.

    Its sums are added in an order that the compiler chooses.  Compiled on its own too, it would be chosen twice: the
    process that compiles and those that load what it compiled would differ in the last bits.
    """
    square = np.float32(0)
    for q in range(128):
        square += h[q] * h[q]
    norm = np.sqrt(square)
    if norm < threshold or norm < _TINY:
        for q in range(128):
            out[q] = 0
        return norm
    scale = np.float32(1) / norm
    square = np.float32(0)
    total = np.float32(0)
    for q in range(128):
        v = min(h[q] * scale, _CLIP)
        h[q] = v
        square += v * v
        total += v
    if root:
        scale = np.float32(1) / total
        for q in range(128):
            h[q] = np.sqrt(h[q] * scale)
    else:
        scale = np.float32(1) / np.sqrt(square)
        for q in range(128):
            h[q] *= scale
    if out.itemsize == 1:
        for q in range(128):
            out[q] = np.int32(min(h[q] * _BYTE_SCALE + np.float32(0.5), np.float32(255)))
    else:
        for q in range(128):
            out[q] = h[q]
    return norm


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "nnan", "ninf"})
def _describe(padded, rows, columns, weights, sizes, threshold, root, out, norms):
    """Stream down the image: vote rows enter a ring, sampled rows enter a second ring, patches are gathered from it."""
    height, width = padded.shape[0] - 2, padded.shape[1] - 2
    ring_size, margin, keep = sizes
    first, kernel, kernels, row_of = rows
    column_of = columns[3]
    votes = np.empty((ring_size, 8 * width), np.float32)
    flat = np.empty(8 * width, np.float32)
    mixed = np.empty((width + 2 * margin, 8), np.float32)
    sampled = np.empty((keep, len(columns[0]), 8), np.float32)
    h = np.empty(128, np.float32)
    taps = kernels.shape[1]
    voted = 0
    filtered = 0
    nx = len(column_of)
    for i in range(len(row_of)):
        while filtered <= row_of[i, 3]:
            while voted < min(first[filtered] + taps, height):
                _vote(padded[voted], padded[voted + 1], padded[voted + 2], votes[voted % ring_size].reshape(8, width))
                voted += 1
            _column_pass(votes, first[filtered], kernels[kernel[filtered]], height, flat)
            _row_pass(flat, mixed, margin, columns, sampled[filtered % keep])
            filtered += 1
        for j in range(nx):
            for by in range(4):
                line = sampled[row_of[i, by] % keep]
                for bx in range(4):
                    w, cell, base = weights[by, bx], line[column_of[j, bx]], 32 * by + 8 * bx
                    for t in range(8):
                        h[base + t] = w * cell[t]
            norms[i * nx + j] = _finish(h, threshold, root, out[i * nx + j])
