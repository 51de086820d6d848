"""Local binary patterns against loops, and what makes them invariant."""

from __future__ import annotations

import numpy as np
import pytest

from patchbag import ImageError, LocalBinaryPatterns
from patchbag.features.lbp import local_binary_patterns


def literal(image, radius, points):
    height, width = image.shape
    out = np.zeros((height - 2 * radius, width - 2 * radius), int)
    for y in range(radius, height - radius):
        for x in range(radius, width - radius):
            bits = []
            for p in range(points):
                a = y - radius * np.sin(2 * np.pi * p / points)
                b = x + radius * np.cos(2 * np.pi * p / points)
                i, j = int(np.floor(a + 1e-9)), int(np.floor(b + 1e-9))
                s, t = max(a - i, 0), max(b - j, 0)
                i1, j1 = min(i + 1, height - 1), min(j + 1, width - 1)
                value = (1 - s) * ((1 - t) * image[i, j] + t * image[i, j1])
                value += s * ((1 - t) * image[i1, j] + t * image[i1, j1])
                bits.append(value - image[y, x] >= -1e-6)
            changes = sum(bits[p] != bits[p - 1] for p in range(points))
            out[y - radius, x - radius] = sum(bits) if changes <= 2 else points + 1
    return out


@pytest.mark.parametrize(("radius", "points"), [(1, 8), (2, 16), (3, 24)])
def test_patterns_are_those_of_the_definition(radius, points):
    image = np.random.default_rng(0).integers(0, 256, (17, 15)).astype(float)
    np.testing.assert_array_equal(local_binary_patterns(image, radius, points), literal(image, radius, points))


def test_histograms_sum_to_one_and_quarter_turns_change_nothing():
    image = np.random.default_rng(1).integers(0, 256, (40, 40), np.uint8)
    whole = LocalBinaryPatterns(1)
    first, turned = (np.asarray(whole.transform([i]).values)[0] for i in (image, np.rot90(image).copy()))
    np.testing.assert_allclose(first.sum(), 1, rtol=1e-6)
    np.testing.assert_allclose(first, turned, atol=1e-6)
    brighter = (image // 2 + 60).astype(np.uint8)
    np.testing.assert_allclose(np.asarray(whole.transform([(image // 2).astype(np.uint8)]).values)[0],
                               np.asarray(whole.transform([brighter]).values)[0], atol=1e-6)  # fmt: skip


def test_cells_describe_their_own_parts():
    image = np.zeros((64, 64), np.uint8)
    image[:32, :32] = np.random.default_rng(2).integers(0, 256, (32, 32))
    bags = LocalBinaryPatterns(2).transform([image])
    values = np.asarray(bags.values)
    assert values.shape == (4, 54) and np.allclose(values[3, 8], 1 / 3)  # flat: all points are as bright
    assert not np.allclose(values[0], values[3])
    np.testing.assert_allclose(np.asarray(bags.positions)[0], [0.25, 0.25])


def test_an_image_smaller_than_the_circles_is_named():
    with pytest.raises(ImageError, match="smaller than"):
        LocalBinaryPatterns().transform([np.zeros((9, 30), np.uint8)])
