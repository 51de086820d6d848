# SPDX-License-Identifier: BSD-3-Clause
"""Images from anywhere, decoded safely, upright, on one scale.

``load_image`` takes a path, the bytes of a file, a Pillow image or an array and returns grey levels or RGB on the scale
0..255, or raises :class:`ImageError` with the name of what it was given.  A file that is cut off, or that its decoder
finds fault with, is such an error.  Damage that the decoder cannot see, such as bytes overwritten in the middle of a
JPEG file (which has no checksum, unlike PNG), comes back as a picture with a spoilt part.

=====================  ================================================================================================
what comes in          what comes out
=====================  ================================================================================================
8-bit grey, RGB, CMYK  uint8; grey is Pillow's "L": (19595 R + 38470 G + 7471 B + 32768) >> 16, i.e. ITU-R 601-2
1-bit, bool            uint8, 0 and 255
palette                the colours it stands for
alpha (RGBA, LA, …)    composited on white, as a picture looks on a page: what is fully transparent has no colour
16-bit grey            float32; see below
float arrays           float32, multiplied by 255; the values must lie in 0..1
animated, multi-page   the first frame or page
camera RAW, HEIC       RGB, with the extras ``raw`` and ``heic``
5 channels, CMYKA, …   refused: no rule says which of them are the picture
EXIF orientation       applied; sizes are those of the upright picture
=====================  ================================================================================================

**16-bit images** rarely use their 16 bits: a scanner fills 12 of them, a microscope a hundred levels.  Where the 99.9th
percentile of an image is at least 2¹⁵ its levels are divided by 257, so that nothing is lost; else the levels between
its 0.1th and 99.9th percentile become 0..255, and those outside the ends.  At least ``LEAST_LEVELS`` levels are spread,
so that the noise of a black image stays dark.

Two limits keep a stranger's file from taking the machine down.  ``max_pixels`` is checked against the header, before
anything is decoded (a decompression bomb of a few kilobytes can claim gigabytes).  ``max_side`` scales larger pictures
down, and records the scale: JPEG files are decoded at a half, quarter or eighth of their size where that suffices, the
rest is Lanczos resampling.  Files that are not regular (pipes, devices) are refused, since reading them may never end.
A third limits the bytes that decoding takes (:mod:`patchbag.decoders`).  ``runtime_context(max_pixels=...)`` raises all
of them, and stands above ``max_pixels``.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from patchbag.decoders import MAX_BYTES, MAX_PIXELS, cost, in_turn, is_raw, known_formats, open_raw, unlimited
from patchbag.runtime import current_runtime, quiet

MAX_SIDE = 512
MIN_SIDE = 4
LEAST_LEVELS = 16
LARGE_SIDE = 4  # times max_side: a picture that much larger is reduced by whole factors first

Mode = Literal["grey", "rgb"]


class ImageError(ValueError):
    """An image that cannot be used; the message names it."""


@dataclass(frozen=True)
class LoadedImage:
    """A decoded picture.

    Attributes
    ----------
    array : (h, w) or (h, w, 3), uint8 or float32, on the scale 0..255
    original_size : (width, height) upright, before scaling down
    scale : width of ``array`` / width of the original, 1.0 if it was not scaled
    name : what the image is called in messages
    """

    array: np.ndarray
    original_size: tuple[int, int]
    scale: float
    name: str


def source_name(source: Any) -> str:
    """What to call an image in messages: its path, or a description of the object."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    if isinstance(source, Image.Image):
        return getattr(source, "filename", "") or f"{source.mode} image of {source.width}×{source.height}"
    if isinstance(source, bytes | bytearray | memoryview):
        return f"{len(source)} bytes"
    shape = getattr(source, "shape", None)
    return f"array of shape {tuple(shape)}" if shape is not None else type(source).__name__


def load_image(
    source: Any,
    *,
    mode: Mode = "grey",
    max_pixels: int | None = MAX_PIXELS,
    max_side: int | None = MAX_SIDE,
    name: str | None = None,
) -> LoadedImage:
    """Decode one image.

    Parameters
    ----------
    source : path, bytes of an image file, ``PIL.Image.Image``, or array (h, w), (h, w, 1), (h, w, 3) or (h, w, 4) of
        bool, uint8, uint16 or float in 0..1
    mode : "grey" for (h, w), "rgb" for (h, w, 3); a grey picture has three equal channels
    max_pixels : refuse larger pictures, None for no limit of ours
    max_side : scale pictures down so that no side is longer, None to leave the size alone
    name : what to call the image in errors, by default :func:`source_name`

    >>> load_image(np.zeros((600, 1024), np.uint8), max_side=512).scale
    0.5
    """
    if mode not in ("grey", "rgb"):
        raise ValueError(f'mode must be "grey" or "rgb", got {mode!r}')
    for limit, value in (("max_pixels", max_pixels), ("max_side", max_side)):
        if value is not None and value < 1:
            raise ValueError(f"{limit} must be a positive number or None, got {value!r}")
    name = source_name(source) if name is None else name
    raised = current_runtime().max_pixels
    max_pixels = max_pixels if raised is None else raised
    if is_raw(source):
        _opened(Path(source), name).close()
        with _explained(name):
            developed, original = open_raw(Path(source), max_side)
        _check_size(original, name, max_pixels)
        with _explained(name):
            return _finish(Image.fromarray(developed), original, name, mode, max_side)
    if isinstance(source, str | os.PathLike):
        with _opened(Path(source), name) as file:
            return _decode(file, name, mode, max_pixels, max_side)
    if isinstance(source, bytes | bytearray | memoryview):
        if len(source) == 0:
            raise ImageError(f"{name}: there are no bytes in it")
        return _decode(io.BytesIO(source), name, mode, max_pixels, max_side)
    if isinstance(source, Image.Image):
        _check_size(source.size, name, max_pixels)
        with _explained(name):
            return _finish(source, source.size, name, mode, max_side)
    return _from_array(source, name, mode, max_pixels, max_side)


def has_color(source: Any) -> bool:
    """Whether an image shows colours; a grey one saved as RGB, with a trace of tint from its compression, does not."""
    pixels = load_image(source, mode="rgb", max_side=128).array
    return float(np.ptp(pixels.astype(np.float32), axis=2).mean()) > 4.0


def _opened(path: Path, name: str) -> Any:
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
        raise ImageError(f"{name}: cannot be opened ({error})") from error


def _check_size(size: tuple[int, int], name: str, max_pixels: int | None) -> None:
    width, height = size
    if max_pixels is not None and width * height > max_pixels:
        raise ImageError(
            f"{name}: is {width}×{height}, {width * height:,} pixels, over the limit of {max_pixels:,}; "
            "scale it down, or raise --max-pixels (max_pixels)"
        )
    if min(width, height) < MIN_SIDE:
        raise ImageError(f"{name}: is {width}×{height} pixels; each side must have at least {MIN_SIDE}")


def _decode(file: Any, name: str, mode: Mode, max_pixels: int | None, max_side: int | None) -> LoadedImage:
    with _explained(name):
        try:
            with unlimited:
                image = Image.open(file, formats=known_formats())
        except UnidentifiedImageError:
            file.seek(0)
            start = file.read(12)
            heic = "; HEIC files need pillow-heif: pip install patchbag[heic]" if start[4:8] == b"ftyp" else ""
            raise ImageError(
                f"{name}: is not an image in a format that can be read (it starts {start!r}){heic}"
            ) from None
        with image:
            _check_size(image.size, name, max_pixels)
            original = image.size
            if image.format in ("JPEG", "MPO"):
                image.draft(None, _limited(original, max_side, name))
            size = cost(image)
            if size > MAX_BYTES and current_runtime().max_pixels is None and max_pixels is not None:
                raise ImageError(
                    f"{name}: is {original[0]}×{original[1]} pixels of {image.format}, which take {size / 1e9:.1f} GB "
                    f"to decode, over the limit of {MAX_BYTES / 1e9:.1f} GB; scale it down, or raise --max-pixels "
                    "(max_pixels of runtime_context)"
                )
            with in_turn(size):
                return _finish(image, original, name, mode, max_side)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn whatever Pillow raises into an ImageError, and keep its warnings in."""
    try:
        with quiet:  # of bombs, odd EXIF blocks, odd palettes: what matters of these is checked here
            yield
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageError(f"{name}: {error}") from error
    except Exception as error:  # a damaged file can make a decoder raise anything: OSError, SyntaxError, struct.error…
        raise ImageError(f"{name}: is damaged or cut off ({error})") from error


def _finish(image: Image.Image, original: tuple[int, int], name: str, mode: Mode, max_side: int | None) -> LoadedImage:
    """Decode, turn upright, flatten to grey or RGB, scale."""
    image.load()
    if max_side is not None and image.mode in ("L", "LA", "RGB", "RGBA", "CMYK"):
        factor = max(image.size) // (LARGE_SIDE * max_side)
        if factor > 1:  # before anything makes copies of it
            image = _reduced(image, factor)
    upright, turned = _upright(image)
    original = original[::-1] if turned else original
    target = _limited(original, max_side, name)
    flat = _flatten(upright, name, mode)
    if flat.size != target:
        flat = flat.resize(target, Image.Resampling.LANCZOS) if flat.mode != "F" else _resize_float(flat, target)
    array = np.asarray(flat)
    if mode == "rgb" and array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    return LoadedImage(array, original, target[0] / original[0], name)


def _reduced(image: Image.Image, factor: int) -> Image.Image:
    """The picture made smaller by a whole factor, with what it says of its orientation and transparency."""
    small = image.reduce(factor)
    small.info = dict(image.info)
    exif = image.getexif().get(ExifTags.Base.Orientation, 1)
    if exif != 1:
        small.getexif()[ExifTags.Base.Orientation] = exif
    return small


def _limited(size: tuple[int, int], max_side: int | None, name: str) -> tuple[int, int]:
    if max_side is None or max(size) <= max_side:
        return size
    scale = max_side / max(size)
    width, height = round(size[0] * scale), round(size[1] * scale)
    if min(width, height) < MIN_SIDE:
        raise ImageError(
            f"{name}: is {size[0]}×{size[1]} pixels, so narrow that scaling it down to max_side={max_side} would leave "
            f"fewer than {MIN_SIDE} across; raise max_side or cut it into pieces"
        )
    return width, height


def _upright(image: Image.Image) -> tuple[Image.Image, bool]:
    """The image as EXIF says it should be seen, and whether width and height changed places."""
    try:
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
        return ImageOps.exif_transpose(image), turned
    except Exception:  # an unreadable EXIF block says nothing about the orientation
        return image, False


def _flatten(image: Image.Image, name: str, mode: Mode) -> Image.Image:
    """An "L", "RGB" or "F" image on the scale 0..255, without alpha."""
    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_wide_to_float(np.asarray(image), name))
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        image = Image.new("RGB", image.size, "white")
        image.paste(coloured, mask=coloured.getchannel("A"))
    elif image.mode not in ("1", "L", "RGB"):
        image = image.convert("RGB")
    wanted = "L" if mode == "grey" else "RGB"
    return image if image.mode == wanted else image.convert(wanted)


def _wide_to_float(values: np.ndarray, name: str) -> np.ndarray:
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
        return (values * np.float32(255.0)).astype(np.float32)
    low, high = np.percentile(values[..., :3] if values.ndim == 3 else values, [0.1, 99.9])
    if high >= 1 << 15:
        return (values * np.float32(1 / 257)).astype(np.float32)
    spread = (values.astype(np.float32) - np.float32(low)) * np.float32(255.0 / max(high - low, LEAST_LEVELS))
    return np.clip(spread, 0, 255)


def _resize_float(image: Image.Image, target: tuple[int, int]) -> Image.Image:
    resized = np.asarray(image.resize(target, Image.Resampling.LANCZOS))
    return Image.fromarray(np.clip(resized, 0, 255))  # Lanczos overshoots; 8-bit modes clip by themselves


def _from_array(source: Any, name: str, mode: Mode, max_pixels: int | None, max_side: int | None) -> LoadedImage:
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
            f"{name}: an image array must be (h, w), (h, w, 1), (h, w, 3) or (h, w, 4), got shape {values.shape}"
        )
    height, width = values.shape[:2]
    _check_size((width, height), name, max_pixels)
    if values.dtype == bool:
        values = values.astype(np.uint8) * np.uint8(255)
    if values.dtype == np.uint8:
        return _finish(Image.fromarray(np.ascontiguousarray(values)), (width, height), name, mode, max_side)
    wide = _wide_to_float(values, name)
    if wide.ndim == 3:
        if wide.shape[2] == 4:
            alpha = values[:, :, 3:] / np.float32(65535 if values.dtype.kind == "u" else 1)
            wide = wide[:, :, :3] * alpha + 255 * (1 - alpha)
        if mode == "grey":
            wide = (wide @ (np.array([19595, 38470, 7471], np.float32) / 65536)).astype(np.float32)
    target = _limited((width, height), max_side, name)
    if target != (width, height):
        planes = [wide] if wide.ndim == 2 else [wide[:, :, c] for c in range(3)]
        planes = [np.asarray(_resize_float(Image.fromarray(np.ascontiguousarray(p)), target)) for p in planes]
        wide = planes[0] if wide.ndim == 2 else np.stack(planes, axis=2)
    if mode == "rgb" and wide.ndim == 2:
        wide = np.repeat(wide[:, :, None], 3, axis=2)
    return LoadedImage(np.ascontiguousarray(wide, dtype=np.float32), (width, height), target[0] / width, name)
