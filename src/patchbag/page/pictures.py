# SPDX-License-Identifier: BSD-3-Clause
"""Pictures for the page: small ones made once, ahead, and kept on disk, large ones made when they are looked at."""

import contextlib
import hashlib
from collections.abc import Iterable
from pathlib import Path

from patchbag.page.ahead import Ahead
from patchbag.page.album import Album
from patchbag.page.gallery import content_version
from patchbag.page.jpegs import SMALL, jpeg, keep


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
        self._ahead = Ahead(album.root)

    def _place(self, image: int) -> Path:
        return self._folder / f"{image % 256:02x}" / f"{image}-{content_version(self._album, image)}.jpg"

    def made(self, image: int) -> bytes | None:
        """A small one, where it is there already."""
        try:
            return self._place(image).read_bytes()
        except OSError:
            return None

    def small(self, image: int) -> bytes:
        """A small one, made now if it was not made ahead."""
        if (found := self.made(image)) is not None:
            return found
        made = self.large(image, SMALL)
        with contextlib.suppress(OSError):  # a full disk is no reason not to show it
            keep(self._place(image), made)
        return made

    def size(self, image: int) -> tuple[int, int]:
        """Width and height of an image."""
        self.large(image, SMALL)
        return self._album.shape[image]

    def large(self, image: int, side: int) -> bytes:
        """One with sides of at most so many pixels."""
        made, self._album.shape[image] = jpeg(self._album.root, self._album.names[image], side)
        return made

    def make_ahead(self, ids: Iterable[int]) -> None:
        """Have small ones made in the background."""
        self._ahead.make([(self._album.names[i], str(self._place(i))) for i in ids])

    def stop(self) -> None:
        self._ahead.stop()
