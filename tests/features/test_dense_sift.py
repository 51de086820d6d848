# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import skimage.data
from sklearn.base import clone

from oracles.features import sift, sift_histogram
from patchbag.bags import Bags
from patchbag.channels import Channels
from patchbag.features import grid
from patchbag.features.dense_sift import DenseSIFT
from patchbag.features.orientation_histograms import dense_sift
from patchbag.images.loading import ImageError

GOLDEN = Path(__file__).parents[1] / "data" / "vlfeat_dsift_camera.npz"


@pytest.fixture(scope="module")
def camera():
    return skimage.data.camera()


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (31, 37), dtype=np.uint8)


@pytest.mark.parametrize(("key", "window"), [("flat", "flat"), ("gauss", "gaussian")])
def test_agrees_with_vlfeat(camera, key, window):
    golden = np.load(GOLDEN)
    centres = 9.0 + 8 * np.arange(62)
    ours, _ = dense_sift(camera, centres, centres, 6, window=window)
    assert np.array_equal(golden["frames"][1], [centres[16], centres[0]])
    theirs = golden[f"{key}_descriptors"].astype(np.float32)
    cosine = np.sum(ours[golden["rows"]] * theirs, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosine[golden[f"{key}_clear"]].mean() > 0.9999
    assert cosine.min() > 0.999


def test_the_window_matters_to_the_comparison_with_vlfeat(camera):
    golden = np.load(GOLDEN)
    centres = 9.0 + 8 * np.arange(62)
    flat, gauss = (dense_sift(camera, centres, centres, 6, window=w)[0][golden["rows"]] for w in ("flat", "gaussian"))
    theirs = golden["gauss_descriptors"].astype(np.float32)
    assert np.abs(gauss - theirs).mean() < 0.3 * np.abs(flat - theirs).mean()


@pytest.mark.parametrize("window", ["flat", "gaussian"])
@pytest.mark.parametrize(
    ("bin_size", "step", "fraction"), [(4, 4, 0.0), (4, 3, 0.0), (3, 5, 0.5), (3, 4, 0.0), (1, 6, 0.5)]
)
def test_equals_the_literal_histogram(small, window, bin_size, step, fraction):
    first = np.ceil(1.5 * bin_size - fraction) + fraction
    x = np.arange(first, 37 - 1.5 * bin_size, step)
    y = np.arange(first, 31 - 1.5 * bin_size, step)
    got, norms = dense_sift(small, x, y, bin_size, window=window)
    corners = {0, len(x) - 1, len(x) * (len(y) // 2) + len(x) // 2, len(got) - 1}
    for row in corners:
        expected, norm = sift(small, x[row % len(x)], y[row // len(x)], bin_size, window)
        np.testing.assert_allclose(got[row], expected, atol=3e-6)
        assert norms[row] == pytest.approx(norm, rel=1e-5)


def test_root_sift_equals_its_definition(small):
    got, _ = dense_sift(small, np.array([15.0]), np.array([14.0]), 4, root=True)
    expected, _ = sift(small, 15, 14, 4, "flat", root=True)
    np.testing.assert_allclose(got[0], expected, atol=3e-6)
    assert np.linalg.norm(got[0]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("turn", range(8))
def test_a_ramp_votes_for_the_orientation_it_rises_in(turn):
    y, x = np.mgrid[:32, :32]
    angle = turn * np.pi / 4
    ramp = 100 + 2 * (np.cos(angle) * x + np.sin(angle) * y)
    got, norms = dense_sift(ramp, np.array([15.0]), np.array([15.0]), 4)
    by_orientation = got.reshape(16, 8)
    assert by_orientation[:, turn].min() > 0.1
    np.testing.assert_allclose(np.delete(by_orientation, turn, axis=1), 0, atol=1e-5)
    assert norms[0] == pytest.approx(np.linalg.norm(sift_histogram(ramp, 15, 15, 4, "flat")), rel=1e-5)


def test_layout_is_orientation_then_x_then_y():
    image = np.zeros((32, 32), np.float32)
    image[:, 20:] = 200  # rises along x, to the right of the centre: x bin 2, with the edge at 19.5 = 15 + 1.1 bins
    got, _ = dense_sift(image, np.array([15.0]), np.array([15.0]), 4)
    cells = got.reshape(4, 4, 8)
    assert np.count_nonzero(cells[:, :, 1:]) == 0
    assert np.all(cells[:, 2:, 0] > 0) and np.all(cells[:, :2, 0] == 0)


def test_streaming_down_a_tall_image_equals_describing_its_parts(camera):
    whole, _ = dense_sift(camera[:, :64], np.array([20.0, 32.0]), np.arange(20.0, 490, 7), 5)
    for i, y in enumerate(np.arange(20.0, 490, 7)):
        top = int(y) - 19
        part, _ = dense_sift(camera[top : top + 40, :64], np.array([20.0, 32.0]), np.array([19.0 + y % 1]), 5)
        np.testing.assert_allclose(whole[2 * i : 2 * i + 2], part, atol=1e-6)


def test_a_patch_on_its_own_equals_the_patch_in_a_grid(camera):
    x, y = grid.axis_centres(80, 3, 9.0), grid.axis_centres(60, 5, 9.0)
    for window in ("flat", "gaussian"):
        together, _ = dense_sift(camera[:60, :80], x, y, 6, window=window)
        alone, _ = dense_sift(camera[:60, :80], x[4:5], y[3:4], 6, window=window)
        np.testing.assert_allclose(alone[0], together[3 * len(x) + 4], atol=1e-6)


def test_bytes_are_the_rounded_floats(camera):
    as_floats, where = DenseSIFT(8, (4, 6)).describe(camera[:100, :120])
    as_bytes, there = DenseSIFT(8, (4, 6), dtype="uint8").describe(camera[:100, :120])
    as_halves, _ = DenseSIFT(8, (4, 6), dtype="float16").describe(camera[:100, :120])
    assert (as_floats.dtype, as_bytes.dtype, as_halves.dtype) == (np.float32, np.uint8, np.float16)
    np.testing.assert_array_equal(as_bytes, np.minimum(np.floor(as_floats * np.float32(512) + np.float32(0.5)), 255))
    np.testing.assert_array_equal(as_halves, as_floats.astype(np.float16))
    np.testing.assert_array_equal(where, there)


def test_every_byte_type_of_image_gives_the_same_descriptors(camera):
    for dtype in (np.float32, np.float64):
        a, _ = DenseSIFT(8).describe(camera[:64, :64].astype(dtype))
        b, _ = DenseSIFT(8).describe(camera[:64, :64])
        np.testing.assert_array_equal(a, b)


def test_the_same_image_gives_the_same_bits(camera):
    first, _ = DenseSIFT(5).describe(camera)
    second, _ = DenseSIFT(5).describe(camera)
    np.testing.assert_array_equal(first, second)


def test_the_process_that_compiles_gives_the_bits_of_those_that_load_what_it_compiled(tmp_path):
    script = (
        "import numpy as np; from patchbag import DenseSIFT; rng = np.random.default_rng(0); "
        "image = np.repeat(np.repeat(rng.integers(0, 256, (16, 16), np.uint8), 5, 0), 5, 1); "
        "print(DenseSIFT(step=8, dtype='float32').transform([image]).values.tobytes().hex())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
            check=True, capture_output=True,
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert runs[0] == runs[1] and len(runs[0]) > 1000


def test_descriptors_do_not_change_with_brightness_or_contrast(camera):
    patch = camera[200:264, 100:164] / 2.0
    one, _ = dense_sift(patch, np.array([30.0]), np.array([30.0]), 6)
    other, _ = dense_sift(1.7 * patch + 20, np.array([30.0]), np.array([30.0]), 6)
    np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.fixture
def half_flat():
    image = np.full((64, 128), 90, np.uint8)
    image[:, 64:] = np.random.default_rng(0).integers(0, 256, (64, 64))
    return image


def test_patches_without_contrast_are_zero_or_dropped(half_flat):
    kept, where = DenseSIFT(4, (4,), contrast_threshold=1.0).describe(half_flat)
    empty = ~kept.any(axis=1)
    assert np.all(empty[where[:, 0] < 0.4]) and not np.any(empty[where[:, 0] > 0.6])
    np.testing.assert_allclose(np.linalg.norm(kept[~empty], axis=1), 1, atol=1e-5)
    dropped, there = DenseSIFT(4, (4,), contrast_threshold=1.0, low_contrast="drop").describe(half_flat)
    np.testing.assert_array_equal(dropped, kept[~empty])
    np.testing.assert_array_equal(there, where[~empty])


def test_a_flat_image_is_zero_vectors_also_where_empty_patches_are_dropped():
    flat = np.full((40, 40), 7, np.uint8)
    assert not DenseSIFT(contrast_threshold=0).transform([flat]).values.any()
    kept = DenseSIFT(low_contrast="drop").transform([flat])
    assert len(kept.values) > 0 and not kept.values.any()


def test_scales_follow_each_other_and_large_ones_are_left_out_of_small_images(camera):
    values, where = DenseSIFT(6, (4, 8)).describe(camera[:60, :70])
    fine, there = DenseSIFT(6, (4, 8, 30)).describe(camera[:60, :70])
    np.testing.assert_array_equal(values, fine)
    np.testing.assert_array_equal(where, there)
    x, y = grid.lattice(70, 6, [6.0, 12.0]), grid.lattice(60, 6, [6.0, 12.0])
    assert len(values) == len(x[0]) * len(y[0]) + len(x[1]) * len(y[1])
    assert where.min() > 0 and where.max() < 1


def test_smoothing_follows_the_magnification(camera):
    plain, _ = DenseSIFT(16, (8,), magnification=None, contrast_threshold=0).describe(camera)
    x = grid.axis_centres(512, 16, 12.0)
    expected, _ = dense_sift(camera, x, x, 8)
    np.testing.assert_array_equal(plain, expected)
    smooth, _ = DenseSIFT(16, (8,), magnification=3.0, contrast_threshold=0).describe(camera)
    assert np.abs(smooth - plain).mean() > 0.005


def test_an_image_smaller_than_the_patch_is_a_clear_error():
    with pytest.raises(ImageError, match=r"image 1 of 2.*12×40 pixels, smaller than the smallest patch of 13×13"):
        DenseSIFT().transform([np.eye(13, dtype=np.uint8), np.zeros((40, 12), np.uint8)])
    assert DenseSIFT().transform([np.eye(13, dtype=np.uint8)]).sizes.tolist() == [1]


def test_the_pure_function_refuses_centres_outside_and_nan(camera):
    with pytest.raises(ValueError, match="x centres must be 6 pixels inside"):
        dense_sift(camera, np.array([5.0]), np.array([9.0]), 4)
    with pytest.raises(ValueError, match="NaN"):
        dense_sift(np.full((32, 32), np.nan), np.array([15.0]), np.array([15.0]), 4)


@pytest.mark.parametrize(
    "parameters",
    [
        {"step": 0},
        {"step": 2.5},
        {"step": "4"},
        {"bin_sizes": ()},
        {"bin_sizes": (4, 2.5)},
        {"window": "round"},
        {"dtype": "int8"},
        {"low_contrast": "keep"},
        {"magnification": 0},
        {"contrast_threshold": -1},
        {"contrast_threshold": np.nan},
    ],
)
def test_bad_parameters_are_named(parameters, camera):
    extractor = DenseSIFT(**parameters)
    with pytest.raises(ValueError, match=next(iter(parameters))):
        extractor.fit([camera])
    with pytest.raises(ValueError, match=next(iter(parameters))):
        extractor.transform([camera])


def test_parameters_survive_cloning():
    extractor = DenseSIFT(5, (4, 12), root=True, dtype="uint8")
    assert clone(extractor).get_params() == extractor.get_params()


def test_bags_are_not_described_again():
    bags = Bags.from_list([np.ones((40, 128))])
    assert DenseSIFT().transform(bags) is bags
    channels = Channels(sift=bags)
    assert DenseSIFT().transform(channels) is channels
