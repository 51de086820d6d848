# SPDX-License-Identifier: BSD-3-Clause
"""Levels of 16 bits and of floating point, and arrays in place of pictures, on the scale 0..255.

**16-bit images** rarely use their 16 bits: a scanner fills 12 of them, a microscope a hundred levels.  Where the 99.9th
percentile of an image is at least 2¹⁵ its levels are divided by 257, so that nothing is lost; else the levels between
its 0.1th and 99.9th percentile become 0..255, and those outside the ends.  At least ``LEAST_LEVELS`` levels are spread,
so that the noise of a black image stays dark.  Percentiles are read off the histogram of the levels: no copy, no sort.
"""

from typing import Any

import numpy as np
from PIL import Image

from patchbag.images.decoders import ImageError

LEAST_LEVELS = 16
BLOCK = 1 << 22  # values at a time


def checked_array(source: Any, name: str) -> np.ndarray:
    """(h, w), (h, w, 3) or (h, w, 4) of bool, uint8, uint16 or float."""
    values = np.asarray(source)
    if values.dtype.kind not in "buif" or (values.dtype.kind in "ui" and values.dtype.name not in ("uint8", "uint16")):
        raise ImageError(
            f"{name}: an image must be a path, bytes, a PIL image or an array of bool, uint8, uint16 or float in 0..1; "
            f"got {type(source).__name__} of {values.dtype}"
        )
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (3, 4)):
        raise ImageError(
            f"{name}: an image array must be (h, w), (h, w, 1), (h, w, 3) or (h, w, 4), got shape {values.shape}; "
            "of more channels choose one or three (channels)"
        )
    return values


def flat_levels(values: np.ndarray, name: str, grey: bool) -> np.ndarray:
    """uint16 or float of one, three or four channels to (h, w) or (h, w, 3) float32 in 0..255, on white."""
    wide = wide_to_float(values, name)
    if wide.ndim == 3:
        if wide.shape[2] == 4:
            alpha = values[:, :, 3:] / np.float32(65535 if values.dtype.kind == "u" else 1)
            wide = wide[:, :, :3] * alpha + 255 * (1 - alpha)
        if grey:
            wide = (wide @ (np.array([19595, 38470, 7471], np.float32) / 65536)).astype(np.float32)
    return wide


def wide_to_float(values: np.ndarray, name: str) -> np.ndarray:
    """uint16, int32 holding 16 bits, or float in 0..1, to float32 in 0..255."""
    whole = values.dtype.kind != "f"
    if not whole and not np.isfinite(values).all():
        raise ImageError(f"{name}: holds NaN or infinite values")
    top = 65535 if whole else 1.0
    low, high = values.min(), values.max()
    if low < 0 or high > top:
        raise ImageError(
            f"{name}: {values.dtype} values must lie in 0..{top:g}, these lie in {low:g}..{high:g}; rescale them"
        )
    if not whole:
        return (values * np.float32(255.0)).astype(np.float32, copy=False)
    low, high = _percentiles(values[..., :3] if values.ndim == 3 else values, 0.1, 99.9)
    spread = values.astype(np.float32)
    if high >= 1 << 15:
        spread *= np.float32(1 / 257)
        return spread
    spread -= np.float32(low)
    spread *= np.float32(255.0 / max(high - low, LEAST_LEVELS))
    return np.clip(spread, 0, 255, out=spread)


def _percentiles(values: np.ndarray, *percents: float) -> list[float]:
    """``np.percentile`` of integers in 0..65535.

    >>> _percentiles(np.arange(7), 50.0, 95.0) == [3.0, 5.7]
    True
    """
    rows = max(1, BLOCK // max(1, values[0].size))
    counts = np.zeros(1 << 16, np.int64)
    for start in range(0, len(values), rows):
        counts += np.bincount(values[start : start + rows].ravel(), minlength=1 << 16)
    upto = np.cumsum(counts)
    places = [(upto[-1] - 1) * percent / 100 for percent in percents]
    below, above = (np.searchsorted(upto, [int(place) + more for place in places], "right") for more in (0, 1))
    above = np.minimum(above, np.flatnonzero(counts)[-1])
    return [float(b + (a - b) * (place % 1)) for a, b, place in zip(above, below, places)]


def resize_float(image: Image.Image, target: tuple[int, int]) -> Image.Image:
    """An "F" image of another size."""
    resized = np.asarray(image.resize(target, Image.Resampling.LANCZOS))
    return Image.fromarray(np.clip(resized, 0, 255))  # Lanczos overshoots; 8-bit modes clip by themselves
