# SPDX-License-Identifier: BSD-3-Clause
"""Small copies of images inside of a page."""

import base64
import io

import numpy as np

from patchbag.images.loading import ImageError, load_image

SIDE = 144


def thumbnail(path: str, side: int = 2 * SIDE) -> str:
    """A small JPEG of the image as a data address; empty if it cannot be read any more."""
    from PIL import Image

    try:
        array = load_image(path, mode="rgb", max_side=4 * SIDE).array
    except ImageError:
        return ""
    image = Image.fromarray(np.clip(array, 0, 255).astype(np.uint8))
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
