# SPDX-License-Identifier: BSD-3-Clause
"""Which formats of images are read, by whom, and what decoding them costs.

**A closed list.**  Pillow knows forty formats, some of which start interpreters (PostScript) or have hardly ever been
tested against hostile files; those of :data:`FORMATS` are read, and no others.  HEIC files of telephones need
``pillow-heif`` (``pip install patchbag[heic]``), raw files of cameras ``rawpy`` (``patchbag[raw]``).

**A budget of bytes.**  A file of four kilobytes can ask for gigabytes: a WebP decoder holds a picture four times over.
:func:`cost` says how many bytes decoding one takes (measured, and rounded up); a picture that would take more than
``MAX_BYTES`` is refused, unless a person has raised the limit of pixels.  Those of more than ``SMALL`` bytes take
shares of ``MAX_BYTES``, which all workers of all processes of a user have in common, and wait until there are enough.

**A limit of time.**  What takes ``LARGE`` bytes, or reads its pixels many times over (a JPEG file of many scans), is
decoded in a process of its own, which is stopped when it takes too long (:mod:`patchbag.images.decoding`).
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchbag.runtime import SharedContext

if TYPE_CHECKING:  # Pillow is imported where a file is read: who only asks which names are images does not wait for it
    from PIL import Image

for _decoder in ("PIL", "tifffile"):  # what they remark on in damaged files is for a program's log, not for a terminal
    logging.getLogger(_decoder).addHandler(logging.NullHandler())


class ImageError(ValueError):
    """An image that cannot be used; the message names it."""


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
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # how these files begin
RAW = (".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2")
EXTENSIONS = tuple(sorted({*RAW, *(ending for endings in FORMATS.values() for ending in endings)}))
MAX_PIXELS = 160_000_000
LARGE = 1 << 26
MAX_BYTES = 12 * LARGE  # less than 1 GB with the libraries and the other workers
SMALL = 1 << 24
LARGE_SIDE = 4  # times max_side: a picture that much larger is reduced by whole factors first
SCANNED = 200_000_000  # pixels, those of every scan counted
HELD = {"AVIF": 10, "HEIF": 10, "WEBP": 16}  # bytes of a decoder per pixel, by format, else by mode of the picture
HELD_BY_MODE = {"1": 2, "L": 1, "RGB": 4, "P": 9, "I;16": 10, "I": 12, "F": 16}  # else 8
MADE = 14  # bytes per pixel of what is made of it: upright, without alpha, resized


def reduction(size: tuple[int, int], max_side: int | None) -> int:
    """The whole factor by which a picture is reduced right after decoding, before it is copied."""
    return 1 if max_side is None else max(1, max(size) // (LARGE_SIDE * max_side))


def cost(image: Image.Image, original: tuple[int, int], max_side: int | None, scans: int = 1) -> int:
    """Bytes of memory that decoding takes, of a file of ``original`` size that is decoded to ``image.size``."""
    pixels = image.width * image.height
    held = HELD.get(image.format or "", HELD_BY_MODE.get(image.mode, 8)) * pixels
    if scans > 1:  # JPEG: the coefficients of all components are kept, in two bytes each
        held += 2 * len(image.getbands()) * original[0] * original[1]
    wide = image.mode.startswith("I") or image.mode == "F"
    return held + MADE * pixels // (1 if wide else reduction(image.size, max_side) ** 2)


def count_scans(image: Image.Image, file: Any) -> int:
    """Number of scans of a JPEG file; 1 for other formats."""
    if image.format not in ("JPEG", "MPO"):
        return 1
    place = file.tell()
    file.seek(0)
    scans = file.read().count(b"\xff\xda")  # inside of a scan 0xff is never followed by it
    file.seek(place)
    return max(1, scans)


@cache
def known_formats() -> list[str]:
    """The formats that this installation can read."""
    from PIL import Image

    Image.init()
    try:
        import pillow_heif

        pillow_heif.register_heif_opener()
    except ImportError:
        pass
    return [name for name in FORMATS if name in Image.OPEN]  # a build of Pillow may lack some


@contextmanager
def in_turn(size: int) -> Iterator[None]:
    """Wait until so many bytes of the budget, which all workers of a user share, are free, and hold them."""
    with ExitStack() as held:
        if size > SMALL:
            with suppress(ImportError, OSError):  # Windows; nowhere to write
                _take(min(-(-size // LARGE), MAX_BYTES // LARGE), held)
        yield


def _take(shares: int, held: ExitStack) -> None:
    import fcntl
    import tempfile

    from patchbag.storage.replacing import locked

    folder = Path(tempfile.gettempdir()) / f"patchbag-turns-{os.getuid()}"  # of the machine, whose memory it is
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    with locked(folder):  # one after the other, so that those who need much are not kept waiting by those who do not
        places = [folder / str(number) for number in range(MAX_BYTES // LARGE)]
        while True:
            for place in [*places]:
                handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(handle)
                    continue
                held.callback(os.close, handle)
                places.remove(place)
                shares -= 1
                if shares == 0:
                    return
            time.sleep(0.005)


@contextmanager
def _without_limit() -> Iterator[None]:
    from PIL import Image

    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


unlimited = SharedContext(_without_limit)  # our own limit holds


def opened(path: Path, name: str) -> Any:
    """A regular file that is not empty."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ImageError(f"{name}: is a folder, not an image file; list the files in it")
        if not stat.S_ISREG(status.st_mode):
            raise ImageError(f"{name}: is not a regular file")
        if status.st_size == 0:
            raise ImageError(f"{name}: the file is empty")
        return path.open("rb")
    except FileNotFoundError:
        raise ImageError(f"{name}: there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        if isinstance(error, ImageError):
            raise
        why = getattr(error, "strerror", None) or error
        raise ImageError(f"{name}: cannot be opened ({why})") from error


def identified(file: Any, name: str) -> Image.Image:
    """The picture in a file, of which only the header is read."""
    from PIL import Image, UnidentifiedImageError

    try:
        with unlimited:
            return Image.open(file, formats=known_formats())
    except UnidentifiedImageError:
        file.seek(0)
        start = file.read(12)
        hint = "; HEIC files need pillow-heif: pip install patchbag[heic]" if start[4:8] == b"ftyp" else ""
        if start[:4] in TIFF:
            hint = "; of a TIFF file with more than four channels, choose one or three by --channels (channels)"
        raise ImageError(f"{name}: is not an image in a format that can be read (it starts {start!r}){hint}") from None


def pages_and_depth(path: str) -> tuple[int, int]:
    """Pages (or frames) of a file, and bits of a level, 16 or 8; (1, 8) where it cannot be read."""
    try:
        with opened(Path(path), path) as file, identified(file, path) as image:
            return int(getattr(image, "n_frames", 1)), 16 if image.mode.startswith("I") else 8
    except Exception:  # whoever reads it says what is wrong with it
        return 1, 8


def is_raw(source: Any) -> bool:
    """Whether a path is named like the raw file of a camera."""
    return isinstance(source, str | os.PathLike) and os.fspath(source).lower().endswith(RAW)


def opened_raw(path: Path, name: str) -> Any:
    """A raw file, as rawpy has it: its header is read, its pixels not yet."""
    try:
        import rawpy
    except ImportError:
        raise ImageError(f"{name}: is a camera's raw file, which needs rawpy: pip install patchbag[raw]") from None
    return rawpy.imread(os.fspath(path))
