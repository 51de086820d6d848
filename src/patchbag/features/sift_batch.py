# SPDX-License-Identifier: BSD-3-Clause
r"""Dense SIFT of many decoded images of one size as matrix products: what a GPU runs.

The definition is that of :mod:`~patchbag.features.orientation_histograms`.  Smoothing, the column pass and the row pass
are linear and separable, so each is one matrix that does not depend on the image: with votes V (8, h, w) of the
smoothed image :math:`B_y I B_x^T`, all bins of all patches are

.. math:: S = A_y V A_x^T, \qquad A_y \in R^{s_y \times h}, \quad A_x \in R^{s_x \times w},

the triangles at the rows and columns where some patch has a bin, border pixels repeated.  Dense products of banded
matrices waste most of their operations, and are what a GPU does best: 2.6 · 10⁹ of them for four sizes of a 512 × 512
image.

Tolerance: float32 sums in another order and atan in place of its polynomial: 1e-5 of a descriptor (1e-4 of a RootSIFT,
whose roots enlarge the smallest numbers), one step of a byte.
"""

from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from array_api_compat import array_namespace, device

from patchbag.device import like
from patchbag.features.orientation_histograms import BYTE_SCALE, CLIP, DIMENSION, Axis, sample_axis


def sampling_matrix(axis: Axis, length: int) -> np.ndarray:
    """(samples, length): the kernel of every sample, where it lies; what lies outside falls on the border pixel."""
    taps = axis.kernels.shape[1]
    matrix = np.zeros((len(axis.first), length), np.float32)
    columns = np.clip(axis.first[:, None] + np.arange(taps), 0, length - 1)
    np.add.at(matrix, (np.arange(len(matrix))[:, None], columns), axis.kernels[axis.kernel])
    return matrix


@lru_cache(maxsize=64)
def blur_matrix(length: int, deviation: float) -> np.ndarray:
    """(length, length): OpenCV's Gaussian of that deviation, border pixels repeated."""
    size = round(8 * deviation + 1) | 1
    kernel = cv2.getGaussianKernel(size, deviation, cv2.CV_32F)[:, 0]
    columns = np.clip(np.arange(length)[:, None] + np.arange(size) - size // 2, 0, length - 1)
    matrix = np.zeros((length, length), np.float32)
    np.add.at(matrix, (np.arange(length)[:, None], columns), kernel)
    return matrix


def votes(images: Any) -> Any:
    """(n, 8, h, w): magnitudes of the gradients of (n, h, w), shared between two of eight orientations."""
    xp = array_namespace(images)

    def slope(a: Any) -> Any:  # along the last axis; one-sided at the border
        inner = (a[..., 2:] - a[..., :-2]) / 2
        return xp.concat([a[..., 1:2] - a[..., :1], inner, a[..., -1:] - a[..., -2:-1]], axis=-1)

    gx, gy = slope(images), xp.matrix_transpose(slope(xp.matrix_transpose(images)))
    ax, ay = xp.abs(gx), xp.abs(gy)
    share = xp.atan(xp.minimum(ax, ay) / (xp.maximum(ax, ay) + 1e-12)) * float(4 / np.pi)
    magnitude = xp.sqrt(gx * gx + gy * gy)
    diagonal = magnitude * share
    axis, zero = magnitude - diagonal, xp.zeros_like(gx)
    horizontal = xp.where(ax >= ay, axis, zero)
    vertical = axis - horizontal
    right, down = gx > 0, gy > 0
    to_right, to_left = xp.where(right, diagonal, zero), xp.where(right, zero, diagonal)
    return xp.stack(
        [
            xp.where(right, horizontal, zero),
            xp.where(down, to_right, zero),
            xp.where(down, vertical, zero),
            xp.where(down, to_left, zero),
            xp.where(right, zero, horizontal),
            xp.where(down, zero, to_left),
            xp.where(down, zero, vertical),
            xp.where(down, zero, to_right),
        ],
        axis=1,
    )


def dense_sift_batch(
    images: Any,
    x: np.ndarray,
    y: np.ndarray,
    bin_size: int,
    *,
    deviation: float = 0.0,
    window: str = "flat",
    root: bool = False,
    threshold: float = 0.0,
    as_bytes: bool = False,
) -> tuple[Any, Any]:
    """Descriptors (n, ny · nx, 128) and norms (n, ny · nx) of grey images (n, h, w), where they lie.

    ``deviation`` is that of the Gaussian they are smoothed by; the rest is as in ``dense_sift``.
    """
    xp, (n, height, width) = array_namespace(images), images.shape
    if deviation > 0:
        along = like(blur_matrix(width, deviation), images)
        images = like(blur_matrix(height, deviation), images) @ (images @ along.T)
    rows, columns = (sample_axis(c, bin_size, window) for c in (y, x))
    across, down = (like(sampling_matrix(a, s), images) for a, s in ((columns, width), (rows, height)))
    sampled = down @ (votes(images) @ across.T)
    for axis, found in ((2, rows), (3, columns)):
        sampled = xp.take(sampled, xp.asarray(found.sample.ravel(), device=device(images)), axis=axis)
    weights = np.outer(np.tile(rows.weight, len(y)), np.tile(columns.weight, len(x)))
    sampled = sampled * like(weights, images)
    bins = xp.reshape(sampled, (n, 8, len(y), 4, len(x), 4))
    h = xp.reshape(xp.permute_dims(bins, (0, 2, 4, 3, 5, 1)), (n, len(y) * len(x), DIMENSION))
    norms = xp.sqrt(xp.sum(h * h, axis=-1, keepdims=True))
    enough = norms >= max(threshold, 1e-12)
    h = xp.where(enough, h / xp.where(enough, norms, xp.ones_like(norms)), xp.zeros_like(h))
    h = xp.minimum(h, xp.full_like(h, CLIP))
    length = xp.sum(h, axis=-1, keepdims=True) if root else xp.sqrt(xp.sum(h * h, axis=-1, keepdims=True))
    h = h / xp.where(enough, length, xp.ones_like(length))
    h = xp.sqrt(h) if root else h
    if as_bytes:
        h = xp.astype(xp.minimum(h * BYTE_SCALE + 0.5, xp.full_like(h, 255.0)), xp.uint8)
    return h, norms[..., 0]
