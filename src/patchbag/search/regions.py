# SPDX-License-Identifier: BSD-3-Clause
"""A part of an image as a query: the rectangle that shows what is looked for."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from patchbag.images.loading import MIN_SIDE, ImageError, load_image, source_name


def cut_out(image: Any, crop: Sequence[float]) -> np.ndarray:
    """The rectangle (left, top, right, bottom) of an image, in shares of its width and height, RGB."""
    left, top, right, bottom = check_crop(crop)
    array = load_image(image, mode="rgb", max_side=None).array
    height, width = array.shape[:2]
    part = array[round(top * height) : round(bottom * height), round(left * width) : round(right * width)]
    if min(part.shape[:2]) < MIN_SIDE:
        name = source_name(image)
        raise ImageError(f"{name}: the part has {part.shape[1]}×{part.shape[0]} pixels; {MIN_SIDE}×{MIN_SIDE} is least")
    return np.ascontiguousarray(np.clip(np.rint(part), 0, 255).astype(np.uint8))


def check_crop(crop: Sequence[float]) -> tuple[float, float, float, float]:
    """The four shares; ValueError where they are no rectangle inside the image."""
    if len(crop) != 4 or not (0 <= crop[0] < crop[2] <= 1 and 0 <= crop[1] < crop[3] <= 1):
        raise ValueError(
            f"a part of an image is left, top, right, bottom in shares of its width and height, such as "
            f"0.25, 0.25, 0.75, 0.75; got {', '.join(f'{number:g}' for number in crop)}"
        )
    return crop[0], crop[1], crop[2], crop[3]
