# SPDX-License-Identifier: BSD-3-Clause
"""What goes out of an image is a JPEG of our own making, never the bytes of its file."""

import io
import os
import secrets
from pathlib import Path

import numpy as np

from patchbag.images.loading import load_image
from patchbag.page.folder import inside

SMALL = 256
QUALITY = 82


def jpeg(root: Path, name: str, side: int) -> tuple[bytes, tuple[int, int]]:
    """An image as JPEG with sides of at most so many pixels, and its own width and height."""
    from PIL import Image

    loaded = load_image(inside(root, name), mode="rgb", max_side=side, name=name)
    buffer = io.BytesIO()
    Image.fromarray(np.clip(loaded.array, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue(), loaded.original_size


def keep(place: Path, made: bytes) -> None:
    """Write a small picture, whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        partial.write_bytes(made)
        os.replace(partial, place)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
