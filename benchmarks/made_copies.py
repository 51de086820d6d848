# SPDX-License-Identifier: BSD-3-Clause
"""Copies of photographs, changed as people and programs change them; the same every time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

Change = Callable[[Image.Image, np.random.Generator], Image.Image]


def resize(factor: float) -> Change:
    return lambda image, rng: image.resize(tuple(round(factor * side) for side in image.size), Image.Resampling.LANCZOS)


def crop(area: float) -> Change:
    """A rectangle of the image's shape with a share of its area, anywhere."""

    def cut(image: Image.Image, rng: np.random.Generator) -> Image.Image:
        width, height = (round(area**0.5 * side) for side in image.size)
        left, top = int(rng.integers(image.width - width + 1)), int(rng.integers(image.height - height + 1))
        return image.crop((left, top, left + width, top + height))

    return cut


def light(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Brighter, with less contrast."""
    return ImageEnhance.Contrast(ImageEnhance.Brightness(image).enhance(1.3)).enhance(0.8)


def tint(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Faded and warmer, as an old print."""
    faded = np.asarray(ImageEnhance.Color(image).enhance(0.3), np.float32) * np.array([1.12, 1.0, 0.85])
    return Image.fromarray(np.clip(faded, 0, 255).astype(np.uint8))


def same(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    return image


# name -> what is done, quality of the JPEG file
CHANGES: dict[str, tuple[Change, int]] = {
    "resize-50": (resize(0.5), 92),
    "resize-150": (resize(1.5), 92),
    "jpeg-30": (same, 30),
    "jpeg-10": (same, 10),
    "light": (light, 92),
    "tint": (tint, 92),
    "crop-80": (crop(0.8), 92),
    "crop-50": (crop(0.5), 92),
}


def make_copies(folder: Path, output: Path) -> dict[str, list[tuple[str, str]]]:
    """Write a folder of changed copies per kind; returns (original, copy) of each kind."""
    originals = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".png"))
    made: dict[str, list[tuple[str, str]]] = {}
    for name, (change, quality) in CHANGES.items():
        rng = np.random.default_rng(0)
        made[name] = []
        for path in originals:
            target = output / name / f"{path.parent.name}-{path.stem}.jpg"
            target.parent.mkdir(parents=True, exist_ok=True)
            with Image.open(path) as image:
                changed = change(image.convert("RGB"), rng)
            if not target.exists():
                changed.save(target, "JPEG", quality=quality)
            made[name].append((str(path), str(target)))
    return made
