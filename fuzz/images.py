"""Mutated image files of every format that is read: a picture, or an ImageError.

A file is made by Pillow from a small picture (grey, colour, palette, alpha, 16 bit; several qualities), then bytes are
changed, cut out, repeated, exchanged with those of another file, or numbers in its header are made large.  It is read
by its content and by a path with any ending, as a stranger's file would be; of one in 16 another page or some channels
are read.  One in 200 is large, or of many scans, so
that it is decoded by a helper.  It needs no more than NumPy, Pillow and lazy_loader beside the source of patchbag.
"""

from __future__ import annotations

import io
import os
import random
import struct
import sys
import tempfile
import zlib
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

import campaign  # noqa: E402
import numpy as np  # noqa: E402

MODES = {
    "AVIF": ("RGB", "RGBA"),
    "BMP": ("L", "RGB", "P", "1"),
    "GIF": ("P", "L"),
    "HEIF": ("RGB",),
    "JPEG": ("L", "RGB", "CMYK"),
    "MPO": ("RGB",),
    "PNG": ("L", "RGB", "RGBA", "P", "1", "I;16", "LA"),
    "PPM": ("L", "RGB"),
    "TIFF": ("L", "RGB", "RGBA", "I;16", "F", "1", "CMYK"),
    "WEBP": ("RGB", "RGBA"),
}
PARTS = ({"frame": 1}, {"channels": (0,)}, {"channels": (2, 1, 0)}, {"frame": 1, "channels": (1,)})


def seeds() -> list[tuple[str, bytes]]:
    """Sound files of every format and mode."""
    from PIL import Image

    from patchbag.images.decoders import known_formats

    rng, found = np.random.default_rng(0), []
    levels = np.cumsum(rng.integers(-9, 10, (40, 52, 3)), axis=1).astype(np.uint8)
    for kind in known_formats():
        for mode in MODES[kind]:
            picture = Image.fromarray(levels)
            if mode in ("I;16", "F"):
                wide = levels[..., 0].astype(np.uint16) * 200
                picture = Image.fromarray(wide if mode == "I;16" else (wide / 65535).astype(np.float32))
            elif mode != "RGB":
                picture = picture.convert(mode)
            file = io.BytesIO()
            more = [picture] if kind in ("GIF", "MPO") else []
            picture.save(file, kind, **({"save_all": True, "append_images": more} if more else {}))
            found.append((kind, file.getvalue()))
    return found


def large_seeds() -> list[tuple[str, bytes]]:
    """Sound files that take much memory or time."""
    from bombs import PICTURES, many_scans
    from PIL import Image

    from patchbag.images.decoders import known_formats

    found = [("JPEG", many_scans(1000, 300))]
    for kind, (mode, _, options) in PICTURES.items():
        if kind.upper() in known_formats():
            file = io.BytesIO()
            Image.new(mode, (2300, 2500), 7).save(file, kind.upper(), **options)
            found.append((kind.upper(), file.getvalue()))
    return found


def mutate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The file with something about it changed."""
    b = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        place = rng.randrange(len(b)) if rng.random() < 0.5 else rng.randrange(min(64, len(b)))
        change = rng.randrange(7)
        if change == 0:
            b[place] ^= 1 << rng.randrange(8)
        elif change == 1:
            b[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif change == 2:
            b[place : place + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\1", b"\0\0\xff\xff"))
        elif change == 3:
            del b[place : place + rng.choice((1, 2, 16, 200))]
        elif change == 4:
            b[place:place] = b[place : place + rng.choice((1, 8, 64))] * rng.choice((1, 4, 100))
        elif change == 5:
            start = rng.randrange(len(other))
            b[place : place + 32] = other[start : start + 32]
        else:
            del b[place:]
        if not b:
            return b"\0"
    return bytes(b)


def sealed(data: bytes) -> bytes:
    """A PNG file with the checksums that belong to it: what is inside gets as far as the decoder."""
    found, place = [data[:8]], 8
    while place + 12 <= len(data):
        size = min(int.from_bytes(data[place : place + 4], "big"), len(data) - place - 12)
        content = data[place + 4 : place + 8 + size]
        found.append(struct.pack(">I", size) + content + struct.pack(">I", zlib.crc32(content)))
        place += size + 12
    return b"".join(found)


def prepare() -> campaign.Case:
    from patchbag.images.decoders import EXTENSIONS
    from patchbag.images.decoding import processes
    from patchbag.images.loading import ImageError, load_image

    known, large = seeds(), large_seeds()
    folder = campaign.folder()

    def case(seed: int, folder: tempfile.TemporaryDirectory[str] = folder) -> str:
        rng = random.Random(seed)
        kind, data = rng.choice(large if rng.random() < 0.005 else known)
        data = mutate(data, known[rng.randrange(len(known))][1], rng)
        if kind == "PNG" and rng.random() < 0.7:
            data = sealed(data)
        path = Path(folder.name) / f"x{rng.choice(EXTENSIONS)}"
        part = rng.choice(PARTS) if rng.random() < 1 / 16 else {}
        try:
            if rng.random() < 0.5:
                path.write_bytes(data)
                image = load_image(path, mode=rng.choice(("grey", "rgb")), **part)
                os.unlink(path)
            else:
                side = rng.choice((None, 16, 512))
                image = load_image(data, mode=rng.choice(("grey", "rgb")), max_side=side, **part)
        except ImageError:
            return f"{kind} refused"
        if not np.isfinite(image.array).all() or image.array.min() < 0 or image.array.max() > 255:
            raise ArithmeticError(f"{kind}: values outside of 0..255")
        return f"{kind} read"

    case.processes = processes  # type: ignore[attr-defined]
    return case


if __name__ == "__main__":
    campaign.main(__file__, prepare)
