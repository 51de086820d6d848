# SPDX-License-Identifier: BSD-3-Clause
"""Small sets of images that nobody tuned anything for, made of what patchbag's dependencies bring along.

Each maker yields (class, PIL image).  Digits and faces are scikit-learn's and scikit-image's; letters and typefaces are
drawn with Matplotlib's fonts; tiles are cut from photographs and textures of scikit-image and scikit-learn;
spectrograms and charts are drawn from random signals.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Labelled = Iterator[tuple[str, Image.Image]]


def digits(random: np.random.RandomState) -> Labelled:
    """Handwritten digits of 8 × 8 pixels, 10 classes × 40."""
    from sklearn.datasets import load_digits

    data = load_digits()
    for c in range(10):
        for i in random.permutation(np.flatnonzero(data.target == c))[:40]:
            yield str(c), Image.fromarray((data.images[i] * 255 / 16).astype(np.uint8))


def faces(random: np.random.RandomState) -> Labelled:
    """Faces and other things, 25 × 25 pixels, 2 classes × 100 ("Labeled Faces in the Wild")."""
    from skimage.data import lfw_subset

    for i, pixels in enumerate(lfw_subset()):
        name = "a face" if i < 100 else "no face"
        yield name, Image.fromarray((255 * np.clip(pixels, 0, 1)).astype(np.uint8))


TYPEFACES = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSerif", "DejaVuSerif-Italic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmmi10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)


def _letter(letter: str, typeface: str, random: np.random.RandomState) -> Image.Image:
    import matplotlib

    path = Path(matplotlib.get_data_path(), "fonts/ttf", f"{typeface}.ttf")
    picture = Image.new("L", (64, 64), 255)
    font = ImageFont.truetype(path, random.randint(36, 52))
    draw = ImageDraw.Draw(picture)
    left, top, right, bottom = draw.textbbox((0, 0), letter, font=font)
    shift = random.randint(-4, 5, 2)
    at = (32 - (left + right) / 2 + shift[0], 32 - (top + bottom) / 2 + shift[1])
    draw.text(at, letter, fill=int(random.randint(0, 80)), font=font)
    return picture


def letters(random: np.random.RandomState) -> Labelled:
    """Capital letters in 16 typefaces, 26 classes × 16."""
    for letter in string.ascii_uppercase:
        for typeface in TYPEFACES:
            yield letter, _letter(letter, typeface, random)


def typefaces(random: np.random.RandomState) -> Labelled:
    """The same pictures by typeface: 16 classes × 26 that cut through what the pictures show."""
    for typeface in TYPEFACES:
        for letter in string.ascii_uppercase:
            yield typeface, _letter(letter, typeface, random)


def tiles(random: np.random.RandomState) -> Labelled:
    """Tiles of 14 photographs and textures, as in the demonstration, 30 of each at most."""
    from patchbag.demo import PHOTOGRAPHS, TILE, photograph

    for name in PHOTOGRAPHS:
        picture = photograph(name).convert("RGB")
        places = [(x, y) for x in range(picture.width // TILE) for y in range(picture.height // TILE)]
        for i in random.permutation(len(places))[:30]:
            x, y = (TILE * k for k in places[i])
            yield name, picture.crop((x, y, x + TILE, y + TILE))


SIGNALS: dict[str, Callable[[np.ndarray, np.random.RandomState], np.ndarray]] = {
    "chirp up": lambda t, r: np.sin(2 * np.pi * (r.uniform(100, 400) * t + r.uniform(300, 700) * t**2)),
    "chirp down": lambda t, r: np.sin(2 * np.pi * (r.uniform(1500, 1800) * t - r.uniform(300, 700) * t**2)),
    "steady tone": lambda t, r: np.sin(2 * np.pi * r.uniform(200, 1800) * t),
    "harmonics": lambda t, r: np.sin(2 * np.pi * r.uniform(120, 240) * np.outer(np.arange(1, 9), t)).sum(axis=0),
    "beats": lambda t, r: np.sin(2 * np.pi * r.uniform(300, 1500) * t) * (np.sin(2 * np.pi * r.uniform(3, 8) * t) > 0),
    "vibrato": lambda t, r: np.sin(
        2 * np.pi * r.uniform(500, 1500) * t + r.uniform(15, 40) * np.sin(2 * np.pi * r.uniform(3, 7) * t)
    ),
    "clicks": lambda t, r: 5.0 * (r.uniform(size=len(t)) < 0.002),
    "noise": lambda t, r: r.normal(size=len(t)),
}


def spectrograms(random: np.random.RandomState) -> Labelled:
    """Spectrograms of 8 kinds of sounds in noise, 8 classes × 40."""
    from scipy.signal import spectrogram

    t = np.arange(4096) / 4000
    for name, signal in SIGNALS.items():
        for _ in range(40):
            sound = signal(t, random) + random.uniform(0.1, 0.8) * random.normal(size=len(t))
            power = np.log(spectrogram(sound, nperseg=128, noverlap=96)[2][::-1] + 1e-6)
            low, high = power.min(), power.max()
            yield name, Image.fromarray((255 * (power - low) / (high - low)).astype(np.uint8)).resize((128, 96))


def charts(random: np.random.RandomState) -> Labelled:
    """Charts of random numbers as a program would draw them, 5 classes × 40, all of them wide."""
    for _ in range(40):
        values = np.abs(np.cumsum(random.normal(size=24))) + 0.5
        heights = 70 * values / values.max()
        ink = tuple(int(c) for c in random.randint(0, 180, 3))
        for name in ("bars", "line", "dots", "steps", "area"):
            picture = Image.new("RGB", (320, 80), "white")
            draw = ImageDraw.Draw(picture)
            points = [(13 * i + 8, 76 - h) for i, h in enumerate(heights)]
            if name == "bars":
                for x, y in points:
                    draw.rectangle((x - 4, y, x + 4, 78), fill=ink)
            elif name == "dots":
                for x, y in points:
                    draw.ellipse((x - 3, y - 3, x + 3, y + 3), fill=ink)
            elif name == "area":
                draw.polygon([(8, 78), *points, (points[-1][0], 78)], fill=ink)
            elif name == "line":
                draw.line(points, fill=ink, width=2)
            else:
                corners = [p for (x, y), (x2, _) in pairwise(points) for p in ((x, y), (x2, y))]
                draw.line(corners, fill=ink, width=2)
            yield name, picture


MAKERS: dict[str, Callable[[np.random.RandomState], Labelled]] = {
    make.__name__: make for make in (digits, faces, letters, typefaces, tiles, spectrograms, charts)
}


def write(name: str, folder: Path) -> Path:
    """A sub-folder per class with PNG files, of one of ``MAKERS``; what is there is left."""
    out = folder / name
    if not out.exists():
        for i, (label, picture) in enumerate(MAKERS[name](np.random.RandomState(0))):
            (out / label).mkdir(parents=True, exist_ok=True)
            picture.save(out / label / f"{i:04d}.png")
    return out
