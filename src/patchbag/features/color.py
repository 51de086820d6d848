# SPDX-License-Identifier: BSD-3-Clause
"""Local colour statistics: the mean and standard deviation of R, G and B in 4 × 4 cells of each patch ("COL").

liu2010 §4.3.1 uses "RGB statistics (96 dimensional features)" on the grid of the SIFT descriptors without spelling them
out; 96 = 4 × 4 cells × 3 channels × (mean, standard deviation) is the reading of the XRCE papers of that time.  With P
the pixels of a cell and v a channel::

    mean = sum_P v / |P|,    deviation = sqrt( sum_P v² / |P| - mean² )

Layout: ``index = s + 6 * (x + 4 * y)`` with s = mean R, G, B, deviation R, G, B; grey levels 0..255, so a deviation is
at most 127.5.  A grey image has three equal channels: 64 of the 96 numbers then repeat others, which PCA removes.

**What is computed.**  Two integral images (sums of v and of v²) in float64, in which sums of bytes and of their squares
are exact; each cell takes four reads of each.

**Scales.**  One patch size per entry of ``cell_sizes``, the side of a cell in pixels; the patch has 4 × 4 cells and
lies wholly inside the image.  Centres share one lattice (:mod:`patchbag.features.grid`).  A patch of even side has its
centre between pixels.  ``dtype="uint8"`` rounds to whole grey levels, for the store.

**Cost.**  O(pixels) for the integral images and 600 additions per patch.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import ClassVar, Literal

import cv2
import numpy as np
from sklearn.utils._param_validation import StrOptions

from patchbag.features import grid
from patchbag.features.extraction import LENGTH, LENGTHS, FeatureExtractor
from patchbag.images.loading import Mode
from patchbag.parameters import ONE_OR_MORE, estimator, parameter

CELLS = 4
DIMENSION = CELLS * CELLS * 6


def color_statistics(image: np.ndarray, left: np.ndarray, top: np.ndarray, cell_size: int) -> np.ndarray:
    """Means and deviations in the cells of the patches whose first pixels are the grid ``top`` × ``left``.

    Parameters
    ----------
    image : (h, w, 3) uint8 or float
    left, top : (nx,), (ny,) integers
    cell_size : side of a cell in pixels

    Returns
    -------
    (ny * nx, 96) float64
    """
    levels = image if image.dtype == np.uint8 else np.asarray(image, np.float64)
    sums, squares = cv2.integral2(levels, sdepth=cv2.CV_64F, sqdepth=cv2.CV_64F)
    edges = np.arange(CELLS + 1) * cell_size
    rows, columns = (top[:, None] + edges).ravel(), (left[:, None] + edges).ravel()

    def cells(integral: np.ndarray) -> np.ndarray:
        corners = integral[rows[:, None], columns].reshape(len(top), CELLS + 1, len(left), CELLS + 1, 3)
        return np.diff(np.diff(corners, axis=1), axis=3) / cell_size**2

    mean = cells(sums)
    deviation = np.sqrt(np.maximum(cells(squares) - mean**2, 0))
    both = np.concatenate([mean, deviation], axis=-1)
    return both.transpose(0, 2, 1, 3, 4).reshape(-1, DIMENSION)


@estimator
class ColorStatistics(FeatureExtractor):
    """Mean and standard deviation of RGB in 4 × 4 cells: 96 dimensions per patch.

    Parameters
    ----------
    step : distance between patch centres in pixels
    cell_sizes : one scale each, in pixels; a patch is 4 cells wide
    dtype : "float32", "float16" or "uint8" (rounded), all on the scale 0..255
    min_side : pictures with a shorter side than that are enlarged first, None to leave them as they are
    max_side, max_pixels : see :func:`patchbag.images.loading.load_image`
    n_jobs : workers (threads, since the work lets go of Python's lock), None for those of the context, -1 for
        all cores
    """

    mode: ClassVar[Mode] = "rgb"
    parallel = "threads"
    step: int = parameter(LENGTH, default=6)
    cell_sizes: Sequence[int] = parameter(LENGTHS, default=(4, 6, 8))
    _: KW_ONLY
    dtype: Literal["float32", "float16", "uint8"] = parameter(
        StrOptions({"float32", "float16", "uint8"}), default="float32"
    )
    min_side: int | None = parameter(ONE_OR_MORE, None, default=None)

    def describe(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Descriptors (n, 96), scale after scale and row after row, and positions (n, 2) of one RGB image."""
        height, width = image.shape[:2]
        reaches = [(CELLS * c - 1) / 2 for c in self.cell_sizes]
        xs, ys = grid.lattices(width, height, self.step, reaches, "cell_sizes")
        parts, where = [], []
        for x, y, cell_size, reach in zip(xs, ys, self.cell_sizes, reaches):
            if len(x) and len(y):
                left, top = (np.floor(c - reach).astype(np.int64) for c in (x, y))
                values = color_statistics(image, left, top, int(cell_size))
                parts.append((np.rint(values) if self.dtype == "uint8" else values).astype(self.dtype))
                where.append(grid.positions(left + reach, top + reach, width, height))
        return np.concatenate(parts), np.concatenate(where)
