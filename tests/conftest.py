"""Data that many tests share: small, made here, the same every time."""

from __future__ import annotations

import os

import numpy as np
import pytest
from PIL import Image

from patchbag import Bags, UniversalMixture

ANGLES = {"bars": 0.0, "diagonals": 0.8, "stripes": 1.57}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def own_store(tmp_path, monkeypatch):
    """A store of described features that is this test's alone."""
    monkeypatch.setenv("PATCHBAG_CACHE", str(tmp_path / "store"))
    monkeypatch.delenv("PATCHBAG_CACHE_SIZE", raising=False)
    return tmp_path / "store"


@pytest.fixture(scope="session")
def bags() -> Bags:
    """30 bags of 20-60 descriptors in 5-D from three clusters, with positions."""
    rng = np.random.default_rng(1)
    centres = rng.normal(0, 3, (3, 5))
    sizes = rng.integers(20, 60, 30)
    arrays = [centres[rng.integers(0, 3, n)] + rng.normal(0, 1, (n, 5)) for n in sizes]
    return Bags.from_list(arrays, [rng.random((n, 2)) for n in sizes])


@pytest.fixture(scope="session")
def mixture(bags: Bags) -> UniversalMixture:
    return UniversalMixture(4, random_state=0).fit(bags)


def texture(name: str, seed: int, side: int = 72) -> np.ndarray:
    """A noisy grating; its direction is the class."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    angle = ANGLES[name] + rng.normal(0, 0.08)
    wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * rng.uniform(0.5, 0.8) + rng.uniform(0, 6))
    return np.clip(127 + 70 * wave + rng.normal(0, 12, wave.shape), 0, 255).astype(np.uint8)


@pytest.fixture(scope="session")
def textures() -> tuple[list[np.ndarray], np.ndarray]:
    """36 grey images of three classes, and their labels."""
    labels = np.repeat(sorted(ANGLES), 12)
    return [texture(name, seed) for seed, name in enumerate(labels)], labels


@pytest.fixture
def picture_folder(tmp_path, textures):
    """The same images as a folder with a sub-folder per class."""
    images, labels = textures
    for i, (image, label) in enumerate(zip(images, labels)):
        (tmp_path / "pictures" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "pictures" / label / f"{i:02d}.png")
    return tmp_path / "pictures"


@pytest.fixture
def cannot_be_read(monkeypatch):
    """Call it with the name of a folder; root, who may read everything, runs the tests in many places."""
    look = os.scandir

    def close(name):
        def closed(path):
            if str(path).endswith(name):
                raise PermissionError(13, "Permission denied", str(path))
            return look(path)

        monkeypatch.setattr(os, "scandir", closed)

    return close
