# SPDX-License-Identifier: BSD-3-Clause
"""Which formats of images are read, by whom, and what decoding them costs.

**A closed list.**  Pillow knows forty formats, some of which start interpreters (PostScript) or have hardly ever been
tested against hostile files; those of :data:`FORMATS` are read, and no others.  HEIC files of telephones need
``pillow-heif`` (``pip install patchbag[heic]``), raw files of cameras ``rawpy`` (``patchbag[raw]``).

**A budget of bytes.**  A file of four kilobytes can ask for gigabytes: a WebP decoder holds a picture about five times
over.  :data:`COST` says how many bytes a format takes per pixel; a picture that would take more than ``MAX_BYTES`` is
refused, unless a person has raised the limit of pixels, and one that takes more than ``LARGE`` waits until no other
large one is being decoded, by whatever worker of whatever process of the same user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from patchbag.replacing import locked
from patchbag.runtime import SharedContext, store_folder

# the formats that are read, and how their files are named
FORMATS = {
    "AVIF": (".avif",),
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "HEIF": (".heic", ".heif"),
    "JPEG": (".jfif", ".jpe", ".jpeg", ".jpg"),
    "MPO": (),  # several pictures in a file that is named like JPEG
    "PNG": (".png",),
    "PPM": (".pgm", ".pnm", ".ppm"),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
}
RAW = (".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2")
EXTENSIONS = tuple(sorted({*RAW, *(ending for endings in FORMATS.values() for ending in endings)}))
MAX_PIXELS = 160_000_000
MAX_BYTES = 1 << 30
LARGE = 1 << 26
COST = {"AVIF": 20, "HEIF": 20, "WEBP": 20}  # bytes per pixel; others 8, of more than 8 bits 14


def cost(image: Image.Image) -> int:
    """Bytes that decoding a picture takes, about."""
    wide = image.mode.startswith("I") or image.mode == "F"
    return image.width * image.height * (14 if wide else COST.get(image.format or "", 8))


@cache
def known_formats() -> list[str]:
    """Those that this installation can read."""
    Image.init()
    try:
        import pillow_heif

        pillow_heif.register_heif_opener()
    except ImportError:
        pass
    return [name for name in FORMATS if name in Image.OPEN]  # a build of Pillow may lack some


@contextmanager
def in_turn(size: int) -> Iterator[None]:
    """Large pictures one after the other, in all workers."""
    with locked(store_folder()) if size > LARGE else nullcontext():
        yield


@contextmanager
def _without_limit() -> Iterator[None]:
    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


unlimited = SharedContext(_without_limit)  # our own limit holds


def is_raw(source: Any) -> bool:
    """Whether a path is named like the raw file of a camera."""
    return isinstance(source, str | os.PathLike) and os.fspath(source).lower().endswith(RAW)


def open_raw(path: Path, max_side: int | None) -> tuple[np.ndarray, tuple[int, int]]:
    """RGB of a raw file, developed as its camera would, at half its size where that suffices; and its full size."""
    try:
        import rawpy
    except ImportError:
        raise ValueError("is a camera's raw file, which needs rawpy: pip install patchbag[raw]") from None
    with rawpy.imread(os.fspath(path)) as raw:
        width, height = raw.sizes.iwidth, raw.sizes.iheight
        half = max_side is not None and max(width, height) >= 2 * max_side
        return raw.postprocess(half_size=half), (width, height)
