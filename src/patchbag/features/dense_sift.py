# SPDX-License-Identifier: BSD-3-Clause
"""Dense SIFT: histograms of gradient orientations on a regular grid of patches ("ORH" in liu2010, §4.3.1).

Each patch has 4 × 4 spatial bins of 8 orientations with trilinear votes: 128 dimensions, L2-normalised, clipped at 0.2
and normalised again, or RootSIFT.  How that is computed is told in :mod:`patchbag.features.orientation_histograms`;
this module adds the scales, the contrast threshold and the storage types.

**Scales.**  One descriptor size per entry of ``bin_sizes``; centres lie on one lattice for all of them (see
:mod:`patchbag.features.grid`).  Before each, the image is smoothed by a Gaussian with σ² =
(bin / magnification)² - 1/4, as for a keypoint of that scale in an image already blurred by half a pixel;
``magnification=None`` does not smooth.

**Contrast.**  The norm before normalisation is an average gradient in grey levels (0..255) per pixel, comparable
between bin sizes.  Where it is under ``contrast_threshold`` the direction is mostly noise, which normalisation would
blow up to full size.  By default such a patch is kept as a zero vector: "nothing here" is information (sky, walls,
X-ray background), the grid stays complete, and a mixture gives it a component of its own.  ``low_contrast="drop"``
removes it from the bag, unless the whole picture is flat: a bag without descriptors could not be compared with any.

**Storage.**  ``dtype="uint8"`` keeps round(512 v), at most 255: the precision SIFT has always been kept in, a quarter
of the memory and of the store.  At the default step and scales a 275 × 245 picture has 4,800 descriptors, so the 4,485
pictures of Scene-15 take 2.9 GB as bytes.  Divide by 512 to get back to unit length.

**Cost.**  A 512 × 512 image with 15,625 patches of one scale takes 4 to 5 ms on one core, about 20 times less than
OpenCV's SIFT on the same grid (``benchmarks/bench_dense_sift.py``).

**Deviations.**  Against VLFeat's PHOW: the grid is centred in the image, and smaller patches go closer to every border.

liu2010; A. Vedaldi & B. Fulkerson, VLFeat, 2008.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from numbers import Real
from typing import Any, Literal

import cv2
import numpy as np
from array_api_compat import array_namespace
from sklearn.utils._param_validation import Interval, StrOptions

from patchbag.bags import Bags
from patchbag.device import floating, to_device
from patchbag.features import grid
from patchbag.features.extraction import LENGTH, LENGTHS, FeatureExtractor
from patchbag.features.orientation_histograms import BINS, DIMENSION, dense_sift
from patchbag.features.sift_batch import dense_sift_batch
from patchbag.parameters import NOT_NEGATIVE, ONE_OR_MORE, estimator, parameter


@estimator
class DenseSIFT(FeatureExtractor):
    """Dense SIFT descriptors of grey images: 128 dimensions per patch.

    Parameters
    ----------
    step : distance between patch centres in pixels
    bin_sizes : one scale each, in pixels; a patch is 4 bins wide
    window : "flat" or "gaussian" weighting of the patch
    magnification : smoothing before each scale is bin / magnification; None for none
    root : RootSIFT
    contrast_threshold : grey levels (0..255) per pixel under which a patch counts as empty
    low_contrast : "zero" keeps an empty patch as a zero vector, "drop" removes it, unless the image has no others
    dtype : "float32"; "float16"; or "uint8", the descriptor times 512, rounded, at most 255
    min_side : pictures with a shorter side than that are enlarged first, None to leave them as they are
    max_side, max_pixels : see :func:`patchbag.images.loading.load_image`
    n_jobs : workers (threads, since the work lets go of Python's lock), None for those of the context, -1 for
        all cores

    >>> DenseSIFT(step=8, bin_sizes=(4,)).transform([np.zeros((64, 48), np.uint8)]).sizes
    array([35])
    """

    parallel = "threads"
    step: int = parameter(LENGTH, default=6)
    bin_sizes: Sequence[int] = parameter(LENGTHS, default=(4, 6, 8))
    _: KW_ONLY
    window: Literal["flat", "gaussian"] = parameter(StrOptions({"flat", "gaussian"}), default="flat")
    magnification: float | None = parameter(Interval(Real, 0.1, None, closed="left"), None, default=6.0)
    root: bool = parameter("boolean", default=False)
    contrast_threshold: float = parameter(NOT_NEGATIVE, default=1.0)
    low_contrast: Literal["zero", "drop"] = parameter(StrOptions({"zero", "drop"}), default="zero")
    dtype: Literal["float32", "float16", "uint8"] = parameter(
        StrOptions({"float32", "float16", "uint8"}), default="float32"
    )
    min_side: int | None = parameter(ONE_OR_MORE, None, default=None)

    def describe(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Descriptors (n, 128), scale after scale and row after row, and positions (n, 2) of one grey image."""
        height, width = image.shape
        xs, ys = self._lattices(width, height)
        ends = np.cumsum([len(x) * len(y) for x, y in zip(xs, ys)])
        values = np.empty((ends[-1], DIMENSION), np.uint8 if self.dtype == "uint8" else np.float32)
        norms = np.empty(len(values), np.float32)
        levels = image.astype(np.float32)
        for x, y, bin_size, end in zip(xs, ys, self.bin_sizes, ends):
            rows = slice(end - len(x) * len(y), end)
            _, norms[rows] = dense_sift(
                _smoothed(levels, _deviation(bin_size, self.magnification)),
                x,
                y,
                int(bin_size),
                window=self.window,
                root=self.root,
                threshold=self.contrast_threshold,
                out=values[rows],
            )
        where = np.concatenate([grid.positions(x, y, width, height) for x, y in zip(xs, ys)])
        if self.dtype == "float16":
            values = values.astype(np.float16)
        if self.low_contrast == "drop":
            enough = norms >= self.contrast_threshold
            if not enough.any():  # a flat picture is a picture too: it says "nothing here"
                return values, where
            values, where = values[enough], where[enough]
        return values, where

    def _lattices(self, width: int, height: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Centres of the patches along x and along y, for every size."""
        reaches = [(BINS - 1) / 2 * b for b in self.bin_sizes]
        return grid.lattices(width, height, self.step, reaches, "bin_sizes")

    def describe_batch(self, images: Any) -> Bags:
        """Bags of decoded grey images of one size, (n, height, width), on the device of the context.

        The same descriptors in the same order as :meth:`describe` within 1e-5 (roots 1e-4), or one step of a byte;
        patches without contrast stay, as zeros.
        """
        images = floating(to_device(images))
        xp, (n, height, width) = array_namespace(images), images.shape
        xs, ys = self._lattices(width, height)
        parts = [
            dense_sift_batch(
                images,
                x,
                y,
                int(bin_size),
                deviation=_deviation(bin_size, self.magnification),
                window=self.window,
                root=self.root,
                threshold=self.contrast_threshold,
                as_bytes=self.dtype == "uint8",
            )[0]
            for x, y, bin_size in zip(xs, ys, self.bin_sizes)
            if len(x) * len(y)
        ]
        values = xp.concat(parts, axis=1)
        where = np.concatenate([grid.positions(x, y, width, height) for x, y in zip(xs, ys)])
        size = int(values.shape[1])
        return Bags(xp.reshape(values, (n * size, DIMENSION)), np.arange(n + 1) * size, np.tile(where, (n, 1)))


def _deviation(bin_size: int, magnification: float | None) -> float:
    """Standard deviation of the smoothing before a scale; 0 for none."""
    variance = 0.0 if magnification is None else (bin_size / magnification) ** 2 - 0.25
    return float(max(variance, 0.0) ** 0.5)


def _smoothed(levels: np.ndarray, deviation: float) -> np.ndarray:
    if deviation <= 0:
        return levels
    return cv2.GaussianBlur(levels, (0, 0), deviation, borderType=cv2.BORDER_REPLICATE)
