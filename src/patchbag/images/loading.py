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
16-bit grey            float32, spread over the scale (:mod:`patchbag.images.levels`)
float array or TIFF    float32, multiplied by 255; the values must lie in 0..1
animated, multi-page   the first frame or page, or the one chosen by ``frame``
camera RAW, HEIC       RGB, with the extras ``raw`` and ``heic``
5 channels, CMYKA, …   refused: no rule says which of them are the picture; one or three are chosen by ``channels``
EXIF orientation       applied; sizes are those of the upright picture
=====================  ================================================================================================

Two limits keep a stranger's file from taking the machine down.  ``max_pixels`` is checked against the header, before
anything is decoded (a decompression bomb of a few kilobytes can claim gigabytes).  ``max_side`` scales larger pictures
down, and records the scale: JPEG files are decoded at a half, quarter or eighth of their size where that suffices, the
rest is Lanczos resampling.  Files that are not regular (pipes, devices) are refused, since reading them may never end.
Others limit the bytes and the time that decoding takes (:mod:`patchbag.images.decoders`): a picture that takes much
of either is decoded in another process.  ``runtime_context(max_pixels=...)`` raises all of them, and stands
above ``max_pixels``.
"""

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps

from patchbag.images import decoding
from patchbag.images.channels import choose, pick_channels, read_channels
from patchbag.images.decoders import (
    LARGE,
    MAX_BYTES,
    MAX_PIXELS,
    SCANNED,
    ImageError,
    cost,
    count_scans,
    identified,
    in_turn,
    is_raw,
    opened,
    opened_raw,
    reduction,
)
from patchbag.images.decoding import Mode
from patchbag.images.levels import checked_array, flat_levels, resize_float, wide_to_float
from patchbag.runtime import allowed_pixels, current_runtime, quiet

MAX_SIDE = 512
MIN_SIDE = 4


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
    frame: int | None = None,
    channels: Iterable[int] | None = None,
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
    frame : which page of a TIFF file, or frame of an animation; the first is 0; None for that of ``runtime_context``
    channels : which channels, one for grey or three for red, green and blue; None for that of ``runtime_context``, or
        all of them
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
    raised = allowed_pixels()
    max_pixels = max_pixels if raised is None else raised
    seconds = decoding.SECONDS if raised is None else decoding.PATIENT
    now = current_runtime()
    frame = (now.frame or 0) if frame is None else frame
    channels = now.channels if channels is None else tuple(channels)
    if frame < 0 or (channels is not None and (len(channels) not in (1, 3) or min(channels) < 0)):
        raise ValueError(f"frame must be 0 or more, channels one or three numbers; got {frame!r} and {channels!r}")
    asked = decoding.Request(name, mode, max_pixels, max_side, raised, seconds, frame, channels)
    if isinstance(source, str | os.PathLike):
        with opened(Path(source), name) as file:
            return _decode(file, replace(asked, path=os.path.abspath(source)))
    if isinstance(source, bytes | bytearray | memoryview):
        if len(source) == 0:
            raise ImageError(f"{name}: there are no bytes in it")
        return _decode(io.BytesIO(source), asked)
    if isinstance(source, Image.Image):
        _check_size(source.size, name, max_pixels)
        with _explained(name):
            source = source if channels is None else pick_channels(source, channels, name)
            return _finish(source, source.size, name, mode, max_side)
    chosen = source if channels is None else choose(np.asarray(source), channels, name)
    return _from_array(chosen, name, mode, max_pixels, max_side)


def _check_size(size: tuple[int, int], name: str, max_pixels: int | None) -> None:
    width, height = size
    if max_pixels is not None and width * height > max_pixels:
        raise ImageError(
            f"{name}: is {width}×{height}, {width * height:,} pixels, over the limit of {max_pixels:,}; "
            "scale it down, or raise --max-pixels (max_pixels)"
        )
    if min(width, height) < MIN_SIDE:
        raise ImageError(f"{name}: is {width}×{height} pixels; each side must have at least {MIN_SIDE}")


def _decode(file: Any, asked: decoding.Request, here: bool = False) -> LoadedImage:
    """The picture in a file, decoded in this process where that is done quickly, or where it is ``here`` to be done."""
    name, max_side = asked.name, asked.max_side
    with _explained(name):
        if is_raw(asked.path):
            return _develop(asked) if here else _decode_elsewhere(file, asked)
        if asked.channels is not None and (array := read_channels(file, asked, _check_size)) is not None:
            return _from_array(array, name, asked.mode, asked.max_pixels, max_side)
        with identified(file, name) as image:
            if asked.frame:
                _turn_to(image, asked.frame, name)
            _check_size(image.size, name, asked.max_pixels)
            original = image.size
            if image.format in ("JPEG", "MPO"):
                image.draft(None, _limited(original, max_side, name))
            scans = count_scans(image, file)
            size = cost(image, original, max_side, scans)
            if size > MAX_BYTES and asked.raised is None and asked.max_pixels is not None:
                raise ImageError(
                    f"{name}: is {original[0]}×{original[1]} pixels of {image.format}, which take {size / 1e9:.1f} GB "
                    f"to decode, over the limit of {MAX_BYTES / 1e9:.1f} GB; scale it down, or raise --max-pixels "
                    "(max_pixels of runtime_context)"
                )
            if not here and (size > LARGE or scans * original[0] * original[1] > SCANNED):
                with in_turn(size):
                    return _decode_elsewhere(file, asked)
            with nullcontext() if here else in_turn(size):
                chosen = image if asked.channels is None else pick_channels(image, asked.channels, name)
                return _finish(chosen, original, name, asked.mode, max_side)


def _turn_to(image: Image.Image, frame: int, name: str) -> None:
    there = getattr(image, "n_frames", 1)
    if frame >= there:
        pages = "1 page" if there == 1 else f"{there} pages, the last is {there - 1}"
        raise ImageError(f"{name}: has no page {frame} (counted from 0); it has {pages}")
    image.seek(frame)


def _decode_elsewhere(file: Any, asked: decoding.Request) -> LoadedImage:
    if asked.path is None:
        file.seek(0)
    try:
        answer, levels = decoding.decode_elsewhere(asked, b"" if asked.path else file.read())
    except decoding.Stopped as stopped:
        raise ImageError(f"{asked.name}: {stopped}") from None
    except OSError:  # no process can be started: it is the caller's own that may have to be stopped
        file.seek(0)
        return _decode(file, asked, here=True)
    if levels is None:
        raise ImageError(answer["error"])
    width, height = answer["size"]
    return LoadedImage(levels, (width, height), answer["scale"], asked.name)


def load_here(asked: decoding.Request, data: bytes) -> LoadedImage:
    """What ``load_image`` gives, in this process in any case."""
    with io.BytesIO(data) if asked.path is None else opened(Path(asked.path), asked.name) as file:
        return _decode(file, asked, here=True)


def _develop(asked: decoding.Request) -> LoadedImage:
    """A camera's raw file."""
    assert asked.path is not None
    with opened_raw(Path(asked.path), asked.name) as raw:
        original = raw.sizes.iwidth, raw.sizes.iheight
        _check_size(original, asked.name, asked.max_pixels)
        half = asked.max_side is not None and max(original) >= 2 * asked.max_side
        developed = Image.fromarray(raw.postprocess(half_size=half))  # as the camera would
    return _finish(developed, original, asked.name, asked.mode, asked.max_side)


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
    factor = reduction(image.size, max_side)
    if factor > 1 and not (image.mode.startswith("I") or image.mode == "F"):  # before anything makes copies of it
        image = _reduced(image, factor)
    upright, turned = _upright(image)
    original = original[::-1] if turned else original
    target = _limited(original, max_side, name)
    flat = _flatten(upright, name, mode)
    if flat.size != target:
        flat = flat.resize(target, Image.Resampling.LANCZOS) if flat.mode != "F" else resize_float(flat, target)
    array = np.asarray(flat)
    if mode == "rgb" and array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    return LoadedImage(array, original, target[0] / original[0], name)


def _reduced(image: Image.Image, factor: int) -> Image.Image:
    """The picture made smaller by a whole factor, with what it says of its orientation and transparency."""
    if image.mode not in ("L", "LA", "RGB", "RGBA", "CMYK"):
        plain = "RGBA" if image.has_transparency_data else "L" if image.mode == "1" else "RGB"
        small = image.convert(plain).reduce(factor)
    else:
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
            f"{name}: is {size[0]}×{size[1]} pixels, so narrow that scaling it down to {max_side} (max_side) would "
            f"leave fewer than {MIN_SIDE} across; cut it into pieces"
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
        return Image.fromarray(wide_to_float(np.asarray(image), name))
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        image = Image.new("RGB", image.size, "white")
        image.paste(coloured, mask=coloured.getchannel("A"))
    elif image.mode not in ("1", "L", "RGB"):
        image = image.convert("RGB")
    wanted = "L" if mode == "grey" else "RGB"
    return image if image.mode == wanted else image.convert(wanted)


def _from_array(source: Any, name: str, mode: Mode, max_pixels: int | None, max_side: int | None) -> LoadedImage:
    values = checked_array(source, name)
    height, width = values.shape[:2]
    _check_size((width, height), name, max_pixels)
    if values.dtype == bool:
        values = values.astype(np.uint8) * np.uint8(255)
    if values.dtype == np.uint8:
        return _finish(Image.fromarray(np.ascontiguousarray(values)), (width, height), name, mode, max_side)
    wide = flat_levels(values, name, mode == "grey")
    target = _limited((width, height), max_side, name)
    if target != (width, height):
        planes = [wide] if wide.ndim == 2 else [wide[:, :, c] for c in range(3)]
        planes = [np.asarray(resize_float(Image.fromarray(np.ascontiguousarray(p)), target)) for p in planes]
        wide = planes[0] if wide.ndim == 2 else np.stack(planes, axis=2)
    if mode == "rgb" and wide.ndim == 2:
        wide = np.repeat(wide[:, :, None], 3, axis=2)
    return LoadedImage(np.ascontiguousarray(wide, dtype=np.float32), (width, height), target[0] / width, name)


if __name__ == "__main__":
    decoding.serve(load_here)
