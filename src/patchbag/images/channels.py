# SPDX-License-Identifier: BSD-3-Clause
"""One or three channels of pictures that have more, or others than are wanted.

Pillow reads files of up to four channels, of eight bits where there are several.  Whoever names channels of a TIFF file
gets them as they are, by tifffile (which comes with scikit-image): microscopes and satellites write five and more, of
16 bits or floating point.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from patchbag.images.decoders import MAX_BYTES, TIFF, ImageError
from patchbag.images.decoding import Request


def choose(values: np.ndarray, channels: Sequence[int], name: str) -> np.ndarray:
    """(h, w, n) → (h, w) or (h, w, 3)."""
    values = values[:, :, None] if values.ndim == 2 else values
    if values.ndim != 3:
        raise ImageError(f"{name}: channels are those of (h, w, n), not of shape {values.shape}")
    _check(channels, values.shape[2], name)
    found = values[:, :, list(channels)]
    return found[:, :, 0] if len(channels) == 1 else found


def pick_channels(image: Image.Image, channels: Sequence[int], name: str) -> Image.Image:
    """The same of a Pillow image: "L", "RGB", or as it is where it has but one."""
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    _check(channels, len(image.getbands()), name)
    if len(image.getbands()) == 1:
        return image
    bands = [image.getchannel(number) for number in channels]
    return bands[0] if len(bands) == 1 else Image.merge("RGB", bands)


def read_channels(file: Any, asked: Request, check: Callable[..., None]) -> np.ndarray | None:
    """Channels of a TIFF file; None where it is none, or where Pillow has to read it."""
    assert asked.channels is not None
    start = file.read(4)
    file.seek(0)
    if start not in TIFF:
        return None
    try:
        import tifffile
    except ImportError:
        return None
    try:
        with tifffile.TiffFile(file) as opened:
            if asked.frame >= len(opened.pages):
                raise ImageError(f"{asked.name}: has no page {asked.frame} (counted from 0) of {len(opened.pages)}")
            page: Any = opened.pages[asked.frame]
            check((page.imagewidth, page.imagelength), asked.name, asked.max_pixels)
            _check(asked.channels, page.samplesperpixel, asked.name)
            if asked.raised is None and page.nbytes > MAX_BYTES // 4:
                raise ImageError(f"{asked.name}: takes more than {MAX_BYTES / 1e9:.1f} GB; raise --max-pixels")
            values = page.asarray()
    except ValueError as error:
        if isinstance(error, ImageError) or "imagecodecs" not in str(error):
            raise
        file.seek(0)
        return None  # compressed in a way that Pillow may know
    if values.ndim == 3 and page.planarconfig == 2:
        values = np.moveaxis(values, 0, 2)
    return choose(values, asked.channels, asked.name)


def _check(channels: Sequence[int], there: int, name: str) -> None:
    if max(channels) >= there:
        many = "1 channel" if there == 1 else f"{there} channels, the last is {there - 1}"
        raise ImageError(f"{name}: has no channel {max(channels)} (counted from 0); it has {many}")
