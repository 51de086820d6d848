# SPDX-License-Identifier: BSD-3-Clause
"""Pictures for the page: small ones made once and kept on disk, large ones made when they are looked at.

What goes out is a JPEG of our own making, never the bytes of the file.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
from pathlib import Path

import numpy as np

from patchbag.images import load_image
from patchbag.page.album import Album
from patchbag.page.folder import inside
from patchbag.page.gallery import content_version

SMALL = 256
QUALITY = 82


def jpeg(path: Path, side: int, name: str) -> tuple[bytes, tuple[int, int]]:
    """An image as JPEG with sides of at most so many pixels, and its own width and height."""
    from PIL import Image

    loaded = load_image(path, mode="rgb", max_side=side, name=name)
    buffer = io.BytesIO()
    Image.fromarray(np.clip(loaded.array, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue(), loaded.original_size


class Pictures:
    """Pictures of an album; ImageError where there is none.

    Parameters
    ----------
    folder : where small ones of all folders are kept
    """

    def __init__(self, album: Album, folder: Path) -> None:
        self._album = album
        root = str(album.root).encode("utf-8", "surrogateescape")
        self._folder = folder / hashlib.blake2b(root, digest_size=10).hexdigest()

    def _place(self, image: int) -> Path:
        return self._folder / f"{image % 256:02x}" / f"{image}-{content_version(self._album, image)}.jpg"

    def made(self, image: int) -> bytes | None:
        """A small one, where it is there already."""
        try:
            return self._place(image).read_bytes()
        except OSError:
            return None

    def small(self, image: int) -> bytes:
        if (found := self.made(image)) is not None:
            return found
        made, place = self.large(image, SMALL), self._place(image)
        partial = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(made)
            os.replace(partial, place)
        except OSError:  # a full disk is no reason not to show it
            partial.unlink(missing_ok=True)
        return made

    def size(self, image: int) -> tuple[int, int]:
        """Width and height of an image."""
        self.large(image, SMALL)
        return self._album.shape[image]

    def large(self, image: int, side: int) -> bytes:
        name = self._album.names[image]
        made, self._album.shape[image] = jpeg(inside(self._album.root, name), side, name)
        return made
