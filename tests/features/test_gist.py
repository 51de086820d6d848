"""Gist against the definition of Oliva and Torralba, written out with full-size transforms in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from patchbag import Gist
from patchbag.features.gist import filter_bank, gist, prefilter


def reference(image, n_scales=4, n_orientations=8, blocks=4):
    """Pre-filter and filter bank as in the authors' description, one full inverse transform per filter."""

    def grid(n):
        return np.meshgrid(np.arange(-n // 2, n // 2), np.arange(-n // 2, n // 2))

    v = np.pad(np.log(image + 1), 5, mode="symmetric")
    fx, fy = grid(len(v))
    low = np.fft.fftshift(np.exp(-(fx**2 + fy**2) / (4 / np.sqrt(np.log(2))) ** 2))
    u = v - np.real(np.fft.ifft2(np.fft.fft2(v) * low))
    u = (u / (0.2 + np.sqrt(np.abs(np.fft.ifft2(np.fft.fft2(u**2) * low)))))[5:-5, 5:-5]
    contrast = u
    u = np.pad(u, 32, mode="symmetric")
    n = len(u)
    fx, fy = grid(n)
    radius, angle = np.fft.fftshift(np.hypot(fx, fy)), np.fft.fftshift(np.angle(fx + 1j * fy))
    spectrum, out = np.fft.fft2(u), []
    for scale in range(n_scales):
        for orientation in range(n_orientations):
            t = angle + np.pi / n_orientations * orientation
            t = t - 2 * np.pi * (t > np.pi)
            width = 16 * n_orientations**2 / 32**2
            transfer = np.exp(-3.5 * (radius / n / (0.3 / 1.85**scale) - 1) ** 2 - 2 * width * np.pi * t**2)
            response = np.abs(np.fft.ifft2(spectrum * transfer))[32:-32, 32:-32]
            side = len(image) // blocks
            out.append(response.reshape(blocks, side, blocks, side).mean(axis=(1, 3)).ravel())
    return np.concatenate(out), contrast


def scene(seed):
    """Grey levels with structure at all scales."""
    rng = np.random.default_rng(seed)
    f = np.hypot(*np.meshgrid(np.fft.fftfreq(256), np.fft.fftfreq(256)))
    noise = np.real(np.fft.ifft2(np.fft.fft2(rng.normal(size=(256, 256))) / (f + 0.01)))
    noise[100:180, 40:60] += 3 * noise.std()
    return np.clip(128 + 60 * (noise - noise.mean()) / noise.std(), 0, 255)


@pytest.mark.parametrize("seed", range(3))
def test_gist_is_that_of_the_reference_definition(seed):
    expected, contrast = reference(scene(seed))
    found = gist(scene(seed))
    np.testing.assert_allclose(prefilter(scene(seed)), contrast, atol=2e-4)
    assert np.corrcoef(found, expected)[0, 1] > 0.995
    half = len(found) // 2  # the two finest scales are not sampled more coarsely
    np.testing.assert_allclose(found[:half], expected[:half], rtol=2e-3)
    np.testing.assert_allclose(found, expected, rtol=0.15)


def test_coarse_filters_are_transformed_at_coarse_sampling():
    sizes = [max(f.values.shape) for f in filter_bank(320, 4, 8)]
    assert sizes[0] == 320 and max(sizes[-8:]) <= 80


def test_an_edge_answers_to_filters_across_it():
    image = np.zeros((128, 128))
    image[:, 64:] = 200.0
    turned = image.T
    upright, lying = (gist(i).reshape(4, 8, 16).mean(axis=(0, 2)) for i in (image, turned))
    assert upright.argmax() == 0 and lying.argmax() == 4
    assert upright[0] > 3 * upright[4] and lying[4] > 3 * lying[0]


def test_it_does_not_depend_on_the_strength_of_the_light():
    image = scene(0)
    np.testing.assert_allclose(gist(image), gist(image * 0.5), rtol=0.12)


def test_colour_describes_every_channel():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (70, 90, 3), np.uint8)
    grey, colour = Gist(64).transform([image]), Gist(64, color=True).transform([image])
    assert (grey.dimension, colour.dimension, len(np.asarray(colour.values))) == (512, 1536, 1)
    same = np.repeat(image[:, :, :1], 3, axis=2)
    values = np.asarray(Gist(64, color=True).transform([same]).values)[0].reshape(3, 512)
    np.testing.assert_allclose(values[1], values[0])


def test_a_size_that_blocks_do_not_divide_is_an_error():
    with pytest.raises(ValueError, match="multiple of 32"):
        Gist(100).transform([np.zeros((50, 50), np.uint8)])


def test_a_blank_image_has_a_finite_descriptor():
    assert np.isfinite(np.asarray(Gist().transform([np.full((40, 30), 255, np.uint8)]).values)).all()
