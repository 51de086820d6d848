# SPDX-License-Identifier: BSD-3-Clause
"""Estimators by k-th nearest neighbours, against closed forms between Gaussians and literal loops."""

from __future__ import annotations

import math

import array_api_strict
import numpy as np
import pytest
from scipy.special import digamma

from patchbag.similarity.nearest import cross_entropy, divergence, entropy, kth_distances, log_unit_ball
from patchbag.similarity.smp import (
    LOW_PASS,
    SMPSimilarity,
    sampled_divergences,
    two_step_ranking,
)


def literal_kth(x, y, k, itself):
    out = []
    for i, a in enumerate(x):
        distances = sorted(math.dist(a, b) for j, b in enumerate(y) if not (itself and i == j))
        out.append(distances[k - 1])
    return np.array(out)


@pytest.mark.parametrize("d", [1, 3, 6, 18, 27])
@pytest.mark.parametrize("itself", [False, True])
def test_kth_distances_equal_a_literal_search(rng, d, itself):
    x = rng.normal(50, 3, (60, d)).astype(np.float32)  # far from the origin: products alone would lose digits
    y = x if itself else rng.normal(51, 3, (75, d)).astype(np.float32)
    assert kth_distances(x, y, 4, itself=itself) == pytest.approx(literal_kth(x, y, 4, itself), rel=1e-5)


def test_a_tree_and_products_find_the_same_distances(rng):
    x, y = rng.normal(size=(100, 3)), rng.normal(size=(2500, 3))
    tree = kth_distances(x, y, 5)
    assert tree == pytest.approx(literal_kth(x[:20], y, 5, False).tolist() + tree[20:].tolist(), rel=1e-6)


def test_arrays_of_another_library_give_the_same(rng):
    x, y = rng.normal(size=(40, 5)), rng.normal(size=(50, 5))
    a, b = array_api_strict.asarray(x), array_api_strict.asarray(y)
    assert np.asarray(kth_distances(a, b, 3)) == pytest.approx(kth_distances(x, y, 3), rel=1e-5)
    assert divergence(a, b, 3) == pytest.approx(divergence(x, y, 3), rel=1e-5)


def test_one_sample_against_many_is_one_against_each(rng, monkeypatch):
    from patchbag.similarity import nearest

    monkeypatch.setattr(nearest, "AT_A_TIME", 3000)
    x, y = rng.normal(size=(40, 5)), rng.normal(size=(4, 50, 5))
    found = nearest.kth_distances_to_many(array_api_strict.asarray(x), array_api_strict.asarray(y), 7)
    assert np.asarray(found) == pytest.approx(np.stack([kth_distances(x, one, 7) for one in y]), rel=1e-5)


def test_the_volume_of_the_unit_ball():
    assert [math.exp(log_unit_ball(d)) for d in (1, 2, 3)] == pytest.approx([2, math.pi, 4 / 3 * math.pi])


def test_formulas_are_the_papers(rng):
    x, y, k, d = rng.normal(size=(40, 4)), rng.normal(size=(50, 4)), 3, 4
    own, cross = literal_kth(x, x, k, True), literal_kth(x, y, k, False)
    ball = log_unit_ball(d)
    assert entropy(x, k, unbiased=False) == pytest.approx(np.log(40) + ball - np.log(k) + d * np.log(own).mean())
    assert entropy(x, k) == pytest.approx(np.log(39) + ball - digamma(k) + d * np.log(own).mean())
    assert cross_entropy(x, y, k, unbiased=False) == pytest.approx(
        np.log(50) + ball - np.log(k) + d * np.log(cross).mean()
    )
    expected = np.log(50 / 39) + d * np.log(cross).mean() - d * np.log(own).mean()
    assert divergence(x, y, k) == pytest.approx(expected)


@pytest.mark.parametrize(("d", "n", "tolerance"), [(1, 8000, 0.05), (2, 8000, 0.05), (5, 6000, 0.1), (9, 4000, 0.25)])
def test_estimates_come_close_to_the_closed_forms_of_gaussians(rng, d, n, tolerance):
    shift, scale = 0.8 / np.sqrt(d), 1.3
    x, y = rng.normal(size=(n, d)), shift + scale * rng.normal(size=(n, d))
    h = d / 2 * np.log(2 * np.pi * np.e)
    kl = 0.5 * (d / scale**2 + d * shift**2 / scale**2 - d + 2 * d * np.log(scale))
    assert entropy(x) == pytest.approx(h, abs=2 * tolerance)
    assert cross_entropy(x, y) == pytest.approx(h + kl, abs=2 * tolerance)
    assert divergence(x, y) == pytest.approx(kl, abs=2 * tolerance)


@pytest.mark.parametrize("d", [18, 27])
def test_in_many_dimensions_estimates_keep_the_order_of_divergences_and_come_nearer_with_more_points(rng, d):
    # balls that hold k of a few thousand points are wide there; the exact values are 3.0 and 4.5 at scale 1.6
    def estimate(n, scale):
        return divergence(rng.normal(size=(n, d)), scale * rng.normal(size=(n, d)))

    def exact(scale):
        return 0.5 * d * (1 / scale**2 - 1) + d * np.log(scale)

    same, wide, wider = (estimate(2000, scale) for scale in (1.0, 1.3, 1.6))
    assert abs(same) < 0.2 and 0 < wide < wider
    assert wider == pytest.approx(exact(1.6), rel=0.8)
    assert abs(estimate(6000, 1.6) - exact(1.6)) < abs(estimate(300, 1.6) - exact(1.6))


def test_equal_points_have_a_finite_entropy(rng):
    flat = np.zeros((30, 3))
    assert entropy(flat) == pytest.approx(np.log(29) - digamma(10) + log_unit_ball(3) + 3 * np.log(1e-3))
    assert np.isfinite(divergence(flat, rng.normal(size=(30, 3))))


def test_too_few_points_are_a_clear_error():
    with pytest.raises(ValueError, match="10 neighbours were asked for, but there are 9 points"):
        entropy(np.zeros((10, 2)))


# --- sparse multiscale patches -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def patches():
    from patchbag import MultiscalePatches

    rng = np.random.default_rng(0)
    x = np.arange(96)[None, :] + np.zeros((64, 1))
    images = []
    for period in (5, 5.5, 20, 21):
        wave = 120 + 80 * np.sin(2 * np.pi * x / period)[..., None] * np.array([1, 0.5, 0.2])
        images.append(np.clip(wave + rng.normal(0, 8, (64, 96, 3)), 0, 255).astype(np.uint8))
    return MultiscalePatches().transform(images)


def test_similarity_is_the_sum_of_the_divergences_of_scales(patches):
    from patchbag.features.laplacian import split_scales

    one, two = split_scales(patches[0]), split_scales(patches[2])
    expected = [divergence(a, b, min(10, len(a) - 1)) for a, b in zip(one, two)]
    similarity = SMPSimilarity().fit(patches)
    assert similarity.transform(patches[:1])[0, 2] == pytest.approx(-sum(expected), rel=1e-6)


def test_images_of_the_same_texture_are_nearest(patches):
    rows = SMPSimilarity().fit(patches).transform(patches)
    np.fill_diagonal(rows, -np.inf)
    assert rows.argmax(axis=1).tolist() == [1, 0, 3, 2]


def test_two_steps_rank_the_preselected_first_as_one_step_does(patches):
    full = -SMPSimilarity().fit(patches).transform(patches[:1])[0]
    assert two_step_ranking(patches[0], patches, 4).tolist() == np.argsort(full).tolist()
    assert two_step_ranking(patches[0], patches, 4, scales=LOW_PASS).tolist() == np.argsort(full).tolist()
    few = two_step_ranking(patches[0], patches, 2)
    assert sorted(few.tolist()) == [0, 1, 2, 3] and few[0] == 0


def test_the_first_step_takes_a_sample_of_the_query_at_every_scale_and_eleven_patches_of_small_ones(patches):
    from patchbag.features.laplacian import split_scales

    one, two = split_scales(patches[0]), split_scales(patches[2])
    assert [len(scale) for scale in one] == [96, 48, 24, 96]
    some = [scale[::step] for scale, step in zip(one, (8, 4, 2, 8))]
    parts = [cross_entropy(a, b, 10) - entropy(a, 10) for a, b in zip(some, two)]
    assert sampled_divergences(patches[0], [patches[2]]) == pytest.approx([sum(parts)], rel=1e-6)
    assert sampled_divergences(patches[0], [patches[2]], LOW_PASS) == pytest.approx([parts[3]], rel=1e-6)
