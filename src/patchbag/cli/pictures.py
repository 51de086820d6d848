# SPDX-License-Identifier: BSD-3-Clause
"""An image in the terminal, by the best means that it has: kitty's or iTerm's protocol, sixels, or half blocks.

A half block is a character whose upper and lower halves have a colour each: two pixels per character, which is enough
to tell a beach from a forest, in any terminal with 24-bit colours.
"""

import base64
import io
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from patchbag.images.loading import ImageError, load_image

MEANS = ("auto", "kitty", "iterm", "sixel", "blocks", "none")
WIDTH = 60  # characters
PIXELS = 480  # on the longer side, where there are real pixels
COLORS = 64  # of sixels
KITTY_CHUNK = 4096


def best_means(environment: Mapping[str, str], is_terminal: bool) -> str:
    """What the terminal can show, by what it says of itself; "none" where there is no terminal."""
    if not is_terminal or environment.get("TERM") == "dumb":
        return "none"
    terminal, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if "KITTY_WINDOW_ID" in environment or "kitty" in terminal or program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm") or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    if "sixel" in terminal or terminal in ("mlterm", "foot", "yaft-256color"):
        return "sixel"
    return "blocks"


def picture(path: str | os.PathLike[str], means: str, width: int = WIDTH) -> str:
    """What to write to the terminal so that it shows an image; nothing where the image cannot be read.

    Half blocks are ``width`` characters wide, so that they fit into a table.
    """
    if means == "none":
        return ""
    try:
        side = PIXELS if width == WIDTH else 4 * width
        array = load_image(path, mode="rgb", max_side=side, name=Path(path).name).array
    except ImageError:
        return ""
    image = Image.fromarray(np.clip(np.rint(array), 0, 255).astype(np.uint8))
    if means == "blocks":
        return half_blocks(image, width)
    return {"kitty": kitty, "iterm": iterm, "sixel": sixels}[means](image)


def half_blocks(image: Image.Image, width: int = WIDTH) -> str:
    """Two pixels per character, one above the other."""
    width = min(width, image.width)
    rows = max(1, round(width * image.height / image.width / 2))
    pixels = np.asarray(image.resize((width, 2 * rows), Image.Resampling.BOX))
    lines = []
    for upper, lower in zip(pixels[::2], pixels[1::2]):
        colors = np.hstack([upper, lower]).tolist()
        cells = ["\x1b[38;2;{};{};{};48;2;{};{};{}m▀".format(*color) for color in colors]
        lines.append("".join(cells) + "\x1b[0m")
    return "\n".join(lines)


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def kitty(image: Image.Image) -> str:
    """kitty's graphics protocol: base64 of a PNG, in chunks."""
    data = base64.standard_b64encode(_png(image)).decode()
    parts = [data[start : start + KITTY_CHUNK] for start in range(0, len(data), KITTY_CHUNK)]
    first = ["a=T,f=100,", *[""] * (len(parts) - 1)]
    more = [1] * (len(parts) - 1) + [0]
    return "".join(f"\x1b_G{head}m={m};{part}\x1b\\" for head, m, part in zip(first, more, parts))


def iterm(image: Image.Image) -> str:
    """iTerm's inline images: base64 of a PNG."""
    data = _png(image)
    return f"\x1b]1337;File=inline=1;size={len(data)}:{base64.standard_b64encode(data).decode()}\x07"


def sixels(image: Image.Image) -> str:
    """Six rows at a time, colour after colour: each character has a bit for every one of the six pixels of a column."""
    small = image.quantize(COLORS)
    palette = np.array(small.getpalette()).reshape(-1, 3) * 100 // 255
    pixels = np.asarray(small)
    out = ["\x1bPq", f'"1;1;{image.width};{image.height}']
    out += [f"#{i};2;{r};{g};{b}" for i, (r, g, b) in enumerate(palette.tolist())]
    for top in range(0, len(pixels), 6):
        band = pixels[top : top + 6]
        bits = 1 << np.arange(len(band))
        lines = []
        for color in np.unique(band):
            values = bits @ (band == color)
            lines.append(f"#{color}" + "".join(chr(63 + int(value)) for value in values))
        out.append("$".join(lines) + "-")
    return "".join(out) + "\x1b\\"
