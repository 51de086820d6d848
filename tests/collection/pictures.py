# SPDX-License-Identifier: BSD-3-Clause
"""A feature that counts, and small pictures."""

from __future__ import annotations

import os
import time

import numpy as np
from PIL import Image

from patchbag.features.extraction import FeatureExtractor
from patchbag.images.decoders import MAX_PIXELS
from patchbag.images.loading import MAX_SIDE, ImageError


class Rows(FeatureExtractor):
    """The rows of an image cut to four columns, and a count of how often it was asked."""

    calls = 0
    parallel = "threads"

    def __init__(self, factor=1.0, n_jobs=None, max_side=MAX_SIDE, max_pixels=MAX_PIXELS):
        self.factor = factor
        self.n_jobs = n_jobs
        self.max_side = max_side
        self.max_pixels = max_pixels

    def describe(self, image):
        type(self).calls += 1
        if image[0, 0] == 13:
            raise ImageError("brings bad luck")
        if image[0, 0] == 14:
            return np.empty((0, 4), np.float32), np.empty((0, 2), np.float32)
        values = image[:, :4].astype(np.float32) * self.factor
        return values, np.full((len(values), 2), 0.5, np.float32)


def save(path, level=None, height=20, age=60):
    """A small picture of its own, or of one grey level, that was last changed a minute ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(list(os.fsencode(path.name)))
    pixels = (
        rng.integers(20, 256, (height, 8), dtype=np.uint8) if level is None else np.full((height, 8), level, np.uint8)
    )
    with path.open("wb") as file:
        Image.fromarray(pixels).save(file, "PNG")
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def assert_same(one, other):
    assert one.values.dtype == other.values.dtype
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.offsets, other.offsets)
    np.testing.assert_array_equal(one.positions, other.positions)
