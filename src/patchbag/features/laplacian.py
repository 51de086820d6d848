# SPDX-License-Identifier: BSD-3-Clause
r"""Sparse multiscale patches (SMP): neighbourhoods of Laplacian pyramid coefficients in Y, U and V (piro2010 §2.2).

**Pyramid** (Burt & Adelson 1983).  With w = [1 4 6 4 1] / 16 in both directions::

    G_0 = image,   G_{j+1} = every second pixel of w * G_j,   L_j = G_j - expand(G_{j+1})

Three bands L_0, L_1, L_2 and the low-pass G_3 are used, of each of the three channels (ITU-R 601 Y, U, V).

**Patches.**  At scale j and place k, of each channel the coefficient, its four neighbours and its parent one step
coarser (2.1), the channels side by side (2.2): 18 numbers::

    (w_{j,k}, w_{j,k±(1,0)}, w_{j,k±(0,1)}, w_{j-1,k}),   channel after channel

The low-pass gives 3 × 3 neighbourhoods of the three channels: 27 numbers.  Outside of the image the nearest pixel
stands in.

**Sparse.**  Only the patches of largest energy (sum of squares) are kept: 1/64, 1/32 and 1/16 of the three bands, and
all of the low-pass (§2.4.2.2): 4,224 patches of a 384 × 256 image.

Layout of a descriptor: its scale (0 finest, 3 the low-pass), then 27 numbers, the last 9 of which are 0 in the bands.
``split_scales`` takes them apart.

Deviation.  The thesis does not say what the parent is in the coarsest of the three bands; here it is the next band
L_3, so that all 18 numbers are differences (the low-pass would outweigh the other five).
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from itertools import pairwise
from numbers import Real
from typing import ClassVar

import cv2
import numpy as np

from patchbag.features.extraction import Described, FeatureExtractor, Several
from patchbag.images.loading import ImageError, Mode
from patchbag.parameters import ONE_OR_MORE, estimator, parameter

BANDS = 3
PARTS = (1 / 64, 1 / 32, 1 / 16, 1.0)
DIMENSIONS = (18, 18, 18, 27)
WIDTH = 28
LEAST_SIDE = 2 ** (BANDS + 2)
# ITU-R 601: Y, U = 0.492 (B - Y), V = 0.877 (R - Y)
_LUMA = np.array([0.299, 0.587, 0.114])
YUV = np.stack([_LUMA, 0.492 * (np.eye(3)[2] - _LUMA), 0.877 * (np.eye(3)[0] - _LUMA)]).astype(np.float32)
CROSS = ((0, 0), (0, -1), (0, 1), (-1, 0), (1, 0))  # (y, x)
SQUARE = tuple((y, x) for y in (-1, 0, 1) for x in (-1, 0, 1))


def laplacian_pyramid(image: np.ndarray, levels: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Bands, finest first, and the low-pass of an image (h, w, channels) float32."""
    bands = []
    for _ in range(levels):
        smaller = cv2.pyrDown(image)
        bands.append(image - cv2.pyrUp(smaller, dstsize=(image.shape[1], image.shape[0])))
        image = smaller
    return bands, image


def neighbourhoods(band: np.ndarray, offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """(h, w, channels, offsets) values around each place; outside of the band the nearest one stands in."""
    height, width = band.shape[:2]
    padded = cv2.copyMakeBorder(band, 1, 1, 1, 1, cv2.BORDER_REPLICATE)
    shifted = [padded[1 + y : 1 + y + height, 1 + x : 1 + x + width] for y, x in offsets]
    return np.stack(shifted, axis=-1)


def multiscale_patches(image: np.ndarray) -> list[np.ndarray]:
    """All patches of an RGB image (h, w, 3): three bands (h_j, w_j, 18), and the low-pass (h_3, w_3, 27)."""
    yuv = np.ascontiguousarray(image, np.float32) @ YUV.T
    bands, _ = laplacian_pyramid(yuv, BANDS + 1)
    _, low = laplacian_pyramid(yuv, BANDS)
    patches = []
    for band, parent in pairwise(bands):
        height, width = band.shape[:2]
        above = parent[np.arange(height)[:, None] // 2, np.arange(width) // 2]
        around = np.concatenate([neighbourhoods(band, CROSS), above[..., None]], axis=-1)
        patches.append(around.reshape(height, width, -1))
    patches.append(neighbourhoods(low, SQUARE).reshape(*low.shape[:2], -1))
    return patches


def split_scales(values: np.ndarray) -> list[np.ndarray]:
    """Descriptors (n, 28) of one image to patches by scale: three times (n_j, 18), and (n_3, 27)."""
    ends = np.searchsorted(values[:, 0], np.arange(BANDS + 2))
    return [
        np.ascontiguousarray(values[start:end, 1 : 1 + width])
        for start, end, width in zip(ends[:-1], ends[1:], DIMENSIONS)
    ]


@estimator
class MultiscalePatches(FeatureExtractor):
    """Sparse multiscale patches of Laplacian pyramids.

    Parameters
    ----------
    parts : shares of the patches that are kept of the three bands and the low-pass, largest energies first
    max_side, max_pixels : see :func:`patchbag.images.loading.load_image`
    n_jobs : workers, None for those of the context, -1 for all cores

    >>> MultiscalePatches().transform([np.zeros((256, 384), np.uint8)]).values.shape
    (4224, 28)
    """

    mode: ClassVar[Mode] = "rgb"
    parallel = "threads"

    parts: Sequence[float] = parameter(Several(Real, 0, 1, closed="right"), default=PARTS)
    _: KW_ONLY
    max_side: int | None = parameter(ONE_OR_MORE, None, default=384)

    def describe(self, image: np.ndarray) -> Described:
        """Patches scale after scale, in each by falling energy, and their positions."""
        if min(image.shape[:2]) < LEAST_SIDE:
            raise ImageError(
                f"is {image.shape[1]}×{image.shape[0]} pixels, too small for a pyramid of {BANDS} bands; each side "
                f"must have at least {LEAST_SIDE}; enlarge it or leave it out"
            )
        if len(self.parts) != BANDS + 1:
            raise ValueError(
                f"parts must be {BANDS + 1} shares, one per band and one of the low-pass; got {self.parts}"
            )
        found, where = [], []
        for scale, (grid, part) in enumerate(zip(multiscale_patches(image), self.parts)):
            height, width = grid.shape[:2]
            rows = grid.reshape(height * width, -1)
            count = max(1, round(part * len(rows)))
            chosen = np.argsort(-np.einsum("ij,ij->i", rows, rows), kind="stable")[:count]
            values = np.zeros((count, WIDTH), np.float32)
            values[:, 0] = scale
            values[:, 1 : 1 + rows.shape[1]] = rows[chosen]
            y, x = np.divmod(chosen, width)
            found.append(values)
            where.append(np.stack([(x + 0.5) / width, (y + 0.5) / height], axis=1))
        return np.concatenate(found), np.concatenate(where).astype(np.float32)
