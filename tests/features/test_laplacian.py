# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

from patchbag import ImageError, MultiscalePatches
from patchbag.features.laplacian import DIMENSIONS, YUV, laplacian_pyramid, multiscale_patches, split_scales


@pytest.fixture
def image(rng) -> np.ndarray:
    return rng.integers(0, 256, (64, 96, 3), np.uint8)


def literal_reduce(plane: np.ndarray) -> np.ndarray:
    """Every second pixel after [1 4 6 4 1] / 16 in both directions, mirrored at the border without repeating it."""
    taps = np.array([1, 4, 6, 4, 1]) / 16
    padded = np.pad(plane, 2, mode="reflect")
    out = np.zeros(((plane.shape[0] + 1) // 2, (plane.shape[1] + 1) // 2))
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            window = padded[2 * y : 2 * y + 5, 2 * x : 2 * x + 5]
            out[y, x] = taps @ window @ taps
    return out


def test_the_pyramid_uses_the_five_tap_binomial_and_adds_up_to_the_image(rng):
    import cv2

    plane = rng.random((32, 48)).astype(np.float32) * 255
    bands, low = laplacian_pyramid(plane, 2)
    smaller = literal_reduce(plane)
    assert literal_reduce(smaller) == pytest.approx(low, abs=1e-3)
    again = bands[1] + cv2.pyrUp(low, dstsize=(24, 16))
    assert again == pytest.approx(smaller, abs=1e-3)
    assert bands[0] + cv2.pyrUp(again, dstsize=(48, 32)) == pytest.approx(plane, abs=1e-3)


def test_a_patch_holds_a_coefficient_its_neighbours_and_its_parent_channel_by_channel(image):
    yuv = image.astype(np.float32) @ YUV.T
    bands, _ = laplacian_pyramid(yuv, 4)
    patches = multiscale_patches(image)
    for scale in range(3):
        y, x, band = 5, 4, bands[scale]
        expected = [
            value
            for c in range(3)
            for value in (
                band[y, x, c], band[y, x - 1, c], band[y, x + 1, c], band[y - 1, x, c], band[y + 1, x, c],
                bands[scale + 1][y // 2, x // 2, c],
            )
        ]  # fmt: skip
        assert patches[scale][y, x] == pytest.approx(np.array(expected), abs=1e-3)


def test_the_low_pass_gives_squares_of_nine_in_three_channels(image):
    _, low = laplacian_pyramid(image.astype(np.float32) @ YUV.T, 3)
    patch = multiscale_patches(image)[3][3, 4].reshape(3, 3, 3)
    for c in range(3):
        assert patch[c] == pytest.approx(low[2:5, 3:6, c], abs=1e-3)


def test_the_patches_of_largest_energy_are_kept(image):
    everything = multiscale_patches(image)
    bag = MultiscalePatches().transform([image])
    kept = split_scales(bag.values)
    assert [len(part) for part in kept] == [64 * 96 // 64, 32 * 48 // 32, 16 * 24 // 16, 8 * 12]
    assert tuple(part.shape[1] for part in kept) == DIMENSIONS
    for part, grid in zip(kept, everything):
        energies = np.sort((grid.reshape(-1, grid.shape[2]) ** 2).sum(axis=1))[::-1]
        assert (part**2).sum(axis=1) == pytest.approx(energies[: len(part)], rel=1e-5)


def test_positions_are_where_the_patches_are(image):
    picture = np.full((64, 96, 3), 90, np.uint8)
    picture[40:44, 16:20] = 255
    bag = MultiscalePatches().transform([picture])
    finest = bag.values[:, 0] == 0
    assert bag.positions[finest][:10] == pytest.approx(np.tile([18 / 96, 42 / 64], (10, 1)), abs=0.05)


def test_grey_images_have_no_colour_and_small_ones_are_refused(rng):
    grey = rng.integers(0, 256, (40, 40), np.uint8)
    assert split_scales(MultiscalePatches().transform([grey]).values)[0][:, 6:] == pytest.approx(0, abs=1e-3)
    with pytest.raises(ImageError, match="too small for a pyramid"):
        MultiscalePatches().transform([grey[:20]])
    with pytest.raises(ValueError, match="4 shares"):
        MultiscalePatches(parts=(0.5, 0.5)).transform([grey])
