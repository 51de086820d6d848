# SPDX-License-Identifier: BSD-3-Clause
r"""Local binary patterns, uniform and invariant to rotation (Ojala et al. 2002).

A pixel is compared with P points on a circle of radius R around it, bilinearly interpolated:

.. math:: LBP^{riu2}_{P,R} = \begin{cases} \sum_p [v_p \ge v_c] & \text{at most two changes around the circle} \\
    P + 1 & \text{else,} \end{cases}

which takes P + 2 values, whatever the direction of the light's gradient and its strength.  A descriptor is the
histogram of these values in one of ``cells`` × ``cells`` parts of the image, each radius's summing to one and all
together too: 10 + 18 + 26 = 54 numbers for 8, 16 and 24 points at radii 1, 2 and 3.  Pixels nearer to the border than R
do not count.  Cost: P comparisons per pixel.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from patchbag.features.extraction import COUNT, LENGTHS, FeatureExtractor
from patchbag.images.loading import ImageError
from patchbag.parameters import estimator, parameter

FLAT = 1e-6  # differences of grey levels that are rounding


@njit(cache=True, nogil=True)
def _codes(image, radius, points):  # pragma: no cover - compiled
    height, width = image.shape
    out = np.empty((height - 2 * radius, width - 2 * radius), np.int64)
    dy, dx = np.empty(points), np.empty(points)
    for p in range(points):
        angle = 2.0 * np.pi * p / points
        # whole pixels where the circle meets them, without the rounding of sine and cosine
        dy[p], dx[p] = round(-radius * np.sin(angle), 9), round(radius * np.cos(angle), 9)
    y0, x0 = np.floor(dy).astype(np.int64), np.floor(dx).astype(np.int64)
    fy, fx = dy - y0, dx - x0
    for y in range(radius, height - radius):
        for x in range(radius, width - radius):
            centre = image[y, x]
            ones, changes, first, last = 0, 0, False, False
            for p in range(points):
                a, b = y + y0[p], x + x0[p]
                value = image[a, b] * (1 - fy[p]) * (1 - fx[p])
                if fx[p] > 0:
                    value += image[a, b + 1] * (1 - fy[p]) * fx[p]
                if fy[p] > 0:
                    value += image[a + 1, b] * fy[p] * (1 - fx[p])
                    if fx[p] > 0:
                        value += image[a + 1, b + 1] * fy[p] * fx[p]
                bit = value - centre >= -FLAT
                ones += bit
                if p == 0:
                    first = bit
                elif bit != last:
                    changes += 1
                last = bit
            changes += last != first
            out[y - radius, x - radius] = ones if changes <= 2 else points + 1
    return out


def local_binary_patterns(image: np.ndarray, radius: int = 1, points: int = 8) -> np.ndarray:
    """(h - 2R, w - 2R) rotation-invariant uniform patterns, 0..P + 1, of a grey image."""
    return np.asarray(_codes(np.asarray(image, np.float64), radius, points))


@estimator
class LocalBinaryPatterns(FeatureExtractor):
    """Histograms of uniform, rotation-invariant local binary patterns.

    Parameters
    ----------
    cells : parts per side, each with its own histogram
    radii : in pixels; a circle of radius R has 8 R points
    max_side, max_pixels : see :func:`patchbag.images.loading.load_image`
    n_jobs : workers (threads), None for those of the context, -1 for all cores

    >>> LocalBinaryPatterns().transform([np.zeros((64, 48), np.uint8)]).dimension
    54
    """

    parallel = "threads"
    cells: int = parameter(COUNT, default=4)
    radii: Sequence[int] = parameter(LENGTHS, default=(1, 2, 3))

    def describe(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Histograms (cells², d), row after row, and the centres of their parts."""
        height, width = image.shape
        need = self.cells + 2 * max(self.radii)
        if min(height, width) < need:
            raise ImageError(
                f"is {width}×{height} pixels, smaller than {need}×{need} (cells, radii); enlarge it or leave it out"
            )
        parts = []
        for radius in self.radii:
            points = 8 * int(radius)
            codes = local_binary_patterns(image, int(radius), points)
            rows, columns = (np.arange(n) * self.cells // n for n in codes.shape)
            cell = rows[:, None] * self.cells + columns
            counts = np.bincount((cell * (points + 2) + codes).ravel(), minlength=self.cells**2 * (points + 2))
            parts.append(counts.reshape(self.cells**2, -1) / np.bincount(cell.ravel())[:, None] / len(self.radii))
        centres = (np.arange(self.cells) + 0.5) / self.cells
        positions = np.stack([np.tile(centres, self.cells), np.repeat(centres, self.cells)], axis=1)
        return np.concatenate(parts, axis=1).astype(np.float32), positions
