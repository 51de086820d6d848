"""A small folder with made vectors, served in this process."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from PIL import Image

from patchbag.page.session import Page

CLASSES = ("beach", "coast", "forest")
N = 60


def make_folder(root: Path, n: int = N) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for i in range(n):
        pixels = np.full((24, 32, 3), 60 * (i % 3) + 40, np.uint8) + rng.integers(0, 30, (24, 32, 3), np.uint8)
        Image.fromarray(pixels).save(root / f"{i:03d}.png")
    return root


def made_vectors(n: int = N) -> np.ndarray:
    """Image i is of class i mod 3."""
    rng = np.random.default_rng(1)
    return (np.eye(8)[np.arange(n) % 3] + 0.15 * rng.random((n, 8))).astype(np.float32)


def made_page(root: Path, n: int = N, **options) -> Page:
    options = {"vectors": made_vectors(n), "watch": False, "store": root / ".patchbag" / "store", "jobs": 1, **options}
    return Page(root, **options)


def settled(page: Page, seconds: float = 30.0) -> bool:
    """Wait until everything said so far is learned and predicted."""
    model, end = page.model, time.time() + seconds
    while time.time() < end:
        if model.learned >= page.album.version and model._told():
            return True
        time.sleep(0.01)
    return False


def truth(image: int) -> str:
    return CLASSES[image % 3]
