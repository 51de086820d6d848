# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

import patchbag.features.geometric_blur as blur_module
from oracles.geometric_blur import blur_at, descriptor, edge_energy
from patchbag.features.geometric_blur import (
    GeometricBlur,
    bilinear,
    edge_channels,
    edge_points,
    geometric_blur,
    ring_offsets,
    sample_blurred,
)
from patchbag.images.loading import ImageError


def picture(seed=0, size=(70, 90)):
    rng = np.random.default_rng(seed)
    image = np.full(size, 60.0)
    for _ in range(6):
        y, x = rng.integers(0, size[0] - 20), rng.integers(0, size[1] - 20)
        image[y : y + 20, x : x + 15] = rng.uniform(0, 255)
    return image.astype(np.uint8)


def test_descriptor_equals_gaussian_weighted_sums():
    channels = np.random.default_rng(0).random((2, 40, 50))
    points = np.array([[20.0, 18.0], [3.0, 36.0]])
    radii, counts = (0.0, 4.0, 9.0), (1, 4, 6)
    found = geometric_blur(channels, points, 0.5, 1.0, radii, counts)
    expected = [descriptor(channels, p, 0.5, 1.0, radii, counts) for p in points]
    # bilinear interpolation between pixels smooths a little more than the Gaussian alone
    np.testing.assert_allclose(found, expected, rtol=0.03, atol=1e-3)


def test_whole_pixels_are_exact():
    channels = np.random.default_rng(1).random((1, 60, 60))
    found = geometric_blur(channels, np.array([[30.0, 30.0]]), 0.5, 1.0, (0.0, 8.0), (1, 4))[0]
    expected = [blur_at(channels[0], 30, 30, 1.0)] + [
        blur_at(channels[0], 30 + dx, 30 + dy, 5.0) for dx, dy in ((8, 0), (0, 8), (-8, 0), (0, -8))
    ]
    np.testing.assert_allclose(found, expected, rtol=2e-3)


def test_a_wide_blur_is_the_same_on_a_coarser_grid(monkeypatch):
    rng = np.random.default_rng(2)
    signal = rng.random((83, 61)) * (rng.random((83, 61)) < 0.05)
    where = rng.uniform(-30, 110, (200, 2))
    for width in (7.0, 17.0, 30.0):  # grids of 2, 4 and 8 pixels
        found = sample_blurred(signal, where, width)
        with monkeypatch.context() as full:
            full.setattr(blur_module, "COARSE", 1e9)
            expected = sample_blurred(signal, where, width)
        np.testing.assert_allclose(found, expected, atol=0.02 * expected.max())


def test_the_root_comes_before_the_length():
    image = picture()
    plain = GeometricBlur(5, root=False).describe(image)[0].astype(float)
    rooted = GeometricBlur(5).describe(image)[0]
    np.testing.assert_allclose((rooted**2).sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(rooted**2, plain / plain.sum(axis=1, keepdims=True), atol=1e-6)


def test_channels_are_the_rectified_double_angle_energy():
    y, x = np.mgrid[:30, :30].astype(float)
    for gx, gy in ((3.0, 0.0), (1.0, 2.0), (-2.0, 1.0)):
        channels = edge_channels(100 + gx * x + gy * y, n_orientations=4)
        expected = [edge_energy(gx, gy, k * np.pi / 4) for k in range(4)]
        np.testing.assert_allclose(channels[:, 15, 15], expected, atol=1e-4)


def test_polarity_of_an_edge_does_not_matter():
    image = picture().astype(float)
    np.testing.assert_allclose(edge_channels(image), edge_channels(255 - image), atol=1e-3)


def test_blur_makes_a_distorted_descriptor_similar():
    """Far dots that each move by 4 pixels hardly change the descriptor; with the same blur everywhere they do."""
    rng = np.random.default_rng(0)
    first, second = np.zeros((1, 121, 121)), np.zeros((1, 121, 121))
    for angle in rng.uniform(0, 2 * np.pi, 40):
        radius, turn = rng.uniform(25, 50), rng.uniform(0, 2 * np.pi)
        x, y = 60 + radius * np.cos(angle), 60 + radius * np.sin(angle)
        first[0, int(y), int(x)] += 1
        second[0, int(y + 4 * np.sin(turn)), int(x + 4 * np.cos(turn))] += 1

    def similarity(alpha, beta):
        a, b = (geometric_blur(s, np.array([[60.0, 60.0]]), alpha, beta)[0].astype(float) for s in (first, second))
        return a @ b / np.sqrt((a @ a) * (b @ b))

    assert similarity(0.5, 1.0) > 0.97
    assert similarity(0.0, 1.0) < 0.6


def test_bilinear_interpolates_and_is_zero_outside():
    image = np.array([[1.0, 2.0], [3.0, 4.0]])
    where = np.array([[0.0, 0.0], [0.5, 0.5], [1.0, 0.0], [1.0, 1.0], [5.0, 0.0], [-3.0, 9.0]])
    np.testing.assert_allclose(bilinear(image, where), [1.0, 2.5, 2.0, 4.0, 0.0, 0.0])


def test_points_are_edges_apart_and_repeat_with_the_seed():
    channels = edge_channels(picture())
    points = edge_points(channels, 50, 6.0, 0.1, np.random.RandomState(0))
    energy = channels.sum(axis=0)
    x, y = points.astype(int).T
    assert np.all(energy[y, x] > 0.1 * energy.max())
    gaps = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))[~np.eye(len(points), dtype=bool)]
    assert gaps.min() >= 6.0
    np.testing.assert_array_equal(points, edge_points(channels, 50, 6.0, 0.1, np.random.RandomState(0)))
    assert len(edge_points(channels, 5, 1.0, 0.1, np.random.RandomState(1))) == 5


def test_points_are_drawn_in_proportion_to_the_energy():
    """Of four edge pixels, the first and the second point drawn, many times."""
    energy = np.array([1.0, 2.0, 3.0, 6.0])
    channels = np.zeros((2, 5, 9))
    channels[0, 2, 1:9:2] = 0.25 * energy
    channels[1, 2, 1:9:2] = 0.75 * energy
    random = np.random.RandomState(0)
    draws = np.array([edge_points(channels, 2, 1.0, 0.0, random)[:, 0] for _ in range(4000)]).astype(int) // 2
    share = energy / energy.sum()
    np.testing.assert_allclose(np.bincount(draws[:, 0], minlength=4) / 4000, share, atol=0.025)
    # without replacement: second j after first i with probability share_i share_j / (1 - share_i)
    pairs = share[:, None] * share / (1 - share[:, None])
    np.fill_diagonal(pairs, 0.0)
    np.testing.assert_allclose(np.bincount(draws[:, 1], minlength=4) / 4000, pairs.sum(axis=0), atol=0.025)


def test_extractor_gives_unit_descriptors_of_204_dimensions_inside_the_image():
    bags = GeometricBlur(n_points=40).transform([picture(0), picture(1)])
    assert bags.dimension == 204
    assert np.all(bags.sizes <= 40) and np.all(bags.sizes > 10)
    np.testing.assert_allclose((bags.values**2).sum(axis=1), 1.0, rtol=1e-5)
    assert bags.positions.min() > 0 and bags.positions.max() < 1
    again = GeometricBlur(n_points=40).transform([picture(1)])
    np.testing.assert_array_equal(again.values, bags[1])


def test_rings_have_their_radius():
    for radius, ring in zip((0.0, 4.0), ring_offsets((0.0, 4.0), (1, 8))):
        np.testing.assert_allclose(np.hypot(*ring.T), radius, atol=1e-12)


def test_an_image_without_edges_is_a_clear_error():
    with pytest.raises(ImageError, match=r"image 1 of 2, .* has no edges"):
        GeometricBlur().transform([picture(), np.full((40, 40), 7, np.uint8)])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_points": 0}, r"'n_points' parameter of GeometricBlur must be an int in the range \[1, 100000\]"),
        ({"threshold": 1.0}, "'threshold' parameter"),
        ({"alpha": -1.0}, "'alpha' parameter"),
        ({"counts": (1, 0)}, r"'counts' parameter .* one or more values, each an int in the range \[1"),
        ({"radii": (1.0,)}, "radii and counts must be of one length"),
        ({"random_state": None}, "'random_state' parameter"),
    ],
)
def test_bad_parameters_are_clear_errors(parameters, message):
    with pytest.raises(ValueError, match=message):
        GeometricBlur(**parameters).fit()
