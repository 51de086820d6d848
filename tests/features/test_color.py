# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

from oracles.features import color_cells
from patchbag.features.color import ColorStatistics, color_statistics
from patchbag.images.loading import ImageError


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, 256, (33, 41, 3), dtype=np.uint8)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("cell_size", [1, 2, 5])
def test_equals_the_mean_and_deviation_of_each_cell(image, dtype, cell_size):
    left, top = np.array([0, 3, 41 - 4 * cell_size]), np.array([1, 33 - 4 * cell_size])
    got = color_statistics(image.astype(dtype), left, top, cell_size)
    for row, (y, x) in enumerate((y, x) for y in top for x in left):
        np.testing.assert_allclose(got[row], color_cells(image, x, y, cell_size), atol=1e-5)


def test_positions_are_the_centres_of_the_patches_that_were_measured(image):
    values, where = ColorStatistics(step=5, cell_sizes=(3,)).describe(image)
    for value, (x, y) in zip(values, where):
        left, top = x * 41 - 6, y * 33 - 6
        assert left == pytest.approx(round(left), abs=1e-4)
        np.testing.assert_allclose(value, color_cells(image, round(left), round(top), 3), rtol=1e-5, atol=1e-4)


def test_scales_are_described_one_after_the_other(image):
    both, _ = ColorStatistics(step=5, cell_sizes=(3, 4)).describe(image)
    large, where = ColorStatistics(step=5, cell_sizes=(4,)).describe(image)
    np.testing.assert_array_equal(both[-len(large) :], large)
    assert both.shape[1] == 96
    assert len(where) == len(large) == 6 * 4


def test_a_grey_image_has_three_equal_channels_and_a_flat_one_no_deviation(image):
    bags = ColorStatistics(cell_sizes=(4,)).transform([image[..., 0], np.full((20, 20), 77, np.uint8)])
    cells = bags[0].reshape(-1, 16, 2, 3)
    np.testing.assert_array_equal(cells[..., 0], cells[..., 1])
    np.testing.assert_array_equal(cells[..., 0], cells[..., 2])
    np.testing.assert_array_equal(bags[1].reshape(-1, 16, 2, 3)[0, 0], [[77, 77, 77], [0, 0, 0]])


def test_bytes_are_rounded_levels(image):
    exact, _ = ColorStatistics().describe(image)
    rounded, _ = ColorStatistics(dtype="uint8").describe(image)
    assert rounded.dtype == np.uint8
    assert np.abs(exact - rounded).max() <= 0.5001


def test_an_image_smaller_than_the_patch_is_a_clear_error():
    with pytest.raises(ImageError, match="15×40 pixels, smaller than the smallest patch of 16×16"):
        ColorStatistics().transform([np.zeros((40, 15, 3), np.uint8)])


@pytest.mark.parametrize("parameters", [{"step": 0}, {"cell_sizes": ()}, {"cell_sizes": (1.5,)}, {"dtype": "int"}])
def test_bad_parameters_are_named(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        ColorStatistics(**parameters).fit()
