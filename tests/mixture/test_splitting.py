from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from patchbag import UniversalMixture
from patchbag.mixture.em import Sample, expectation
from patchbag.mixture.parameters import check_parameters
from patchbag.mixture.splitting import draw, principal_axes, relocate, split_along_axes, split_gain
from patchbag.mixture.training import FINAL_ITER, draft, overall_gaussian, split_heaviest


def around(*centres, size=700, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(c, 1, (size, len(c))) for c in centres])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "centres",
    [
        [(0, 0), (8, 0), (0, 8)],
        [(8, 0), (0, 8)],  # split along (1, 1), the two halves would share both clusters for ever
        [(0, 0), (8, -8), (-8, 8)],
        [(8, 0), (-8, 0), (0, 8), (0, -8)],
        [(0,), (9,)],
        8 * np.eye(5),
    ],
)
def test_clusters_are_found_wherever_they_lie(centres, seed):
    x = around(*centres, seed=seed)
    ours = UniversalMixture(len(centres)).fit(x)
    theirs = GaussianMixture(len(centres), covariance_type="diag", random_state=0).fit(x)
    assert ours.score(x) > theirs.score(x) - 0.01
    longer = UniversalMixture(len(centres), max_iter=60).fit(x)
    assert longer.converged_
    assert longer.score(x) > theirs.score(x) - 0.01


def test_training_again_gives_the_same_bits():
    x = around((0, 0), (8, 0), (0, 8), (3, 3))
    a, b = (UniversalMixture(4).fit(x) for _ in range(2))
    assert np.array_equal(a.means_, b.means_) and np.array_equal(a.log_likelihoods_, b.log_likelihoods_)


def test_convergence_is_not_claimed_without_the_check():
    x = around((0, 0), (8, 0), (0, 8))
    long = UniversalMixture(3, max_iter=60).fit(x)
    short = UniversalMixture(3, max_iter=len(long.log_likelihoods_)).fit(x)
    assert long.converged_ and not short.converged_


def test_the_axis_is_the_eigenvector_of_the_component():
    rng = np.random.default_rng(0)
    x = 0.6 * rng.normal(size=(4000, 5)) + np.outer(rng.normal(size=4000), [3, -1, 0.5, -2, 1]) + 3
    one = overall_gaussian(Sample(x))
    z = (x - one.means[0]) / np.sqrt(one.variances[0])
    values, vectors = np.linalg.eigh(z.T @ z)
    axis = principal_axes(Sample(x), np.zeros(4000), one, np.array([0]))[0]
    assert values[-1] > 3 * values[-2]
    assert abs(axis @ vectors[:, -1]) > 0.999


def test_a_split_grows_by_the_eigenvalue_of_its_direction():
    rng = np.random.default_rng(1)
    x = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 200_000)
    one = overall_gaussian(Sample(x))
    for direction, eigenvalue in (([1, 1], 1.6), ([1, -1], 0.4)):
        shift = 0.05 * np.array(direction)
        means = one.means + shift * np.sqrt(one.variances) * np.array([[1], [-1]])
        halves = check_parameters([0.5, 0.5], means, np.repeat(one.variances, 2, axis=0))
        s0, s12, _ = expectation(x, halves)
        moved = halves.scale * s12[0, :2] / s0[0] + halves.center - one.means[0]
        assert moved @ direction / (shift @ direction) == pytest.approx(eigenvalue, abs=0.05)


def test_halves_move_by_the_distance_of_every_dimension_but_at_least_by_one():
    one = check_parameters([1.0], np.zeros((1, 64)), np.full((1, 64), 4.0))
    axis = np.concatenate([np.full(32, 0.1), np.full(32, -0.02)])
    means = split_along_axes(one, np.array([0]), 0.2, axis[None]).means
    assert np.allclose(means, [[-0.4] * 32 + [0.4] * 32, [0.4] * 32 + [-0.4] * 32])
    one = check_parameters([1.0], np.zeros((1, 1)), np.full((1, 1), 4.0))
    assert split_along_axes(one, np.array([0]), 0.2, np.ones((1, 1))).means.ravel().tolist() == [-2, 2]


def test_relocation_takes_from_a_crowded_cluster_and_gives_to_a_shared_one():
    x = around((0, 0), (8, 0), (0, 8))
    stuck = check_parameters([1 / 6, 1 / 6, 2 / 3], [[0, 0.1], [0.1, 0], [4, 4]], [[1, 1], [1, 1], [17, 17]])
    sample = draw(Sample(x), 3)
    moved = relocate(stuck, sample, np.full(2, 0.01), 0.2)
    assert moved.weights.sum() == pytest.approx(1)
    assert np.allclose(moved.means[0], [0.05, 0.05]) and moved.weights[0] == pytest.approx(1 / 3)
    along = moved.means[2] - moved.means[1]
    assert along[0] * along[1] < 0 and np.abs(along).min() > 3
    assert np.allclose(moved.means[1:].mean(axis=0), [4, 4])


def test_the_gain_of_a_split_is_that_of_two_gaussians_over_one():
    x = around((-5, 0), (5, 0), size=2000)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    gain = split_gain(z, np.ones(4000), np.array([1.0, 0.0]), np.full(2, 1e-6))
    # the first dimension's deviation falls from sqrt(26) to 1, at the price of one bit per descriptor
    assert gain / 4000 == pytest.approx(0.5 * np.log(26) - np.log(2), abs=0.03)
    assert split_gain(z, np.ones(4000), np.array([0.0, 1.0]), np.full(2, 1e-6)) < gain
    assert split_gain(z[:1], np.ones(1), np.array([1.0, 0.0]), np.full(2, 1e-6)) == -np.inf


def test_descriptors_of_weight_zero_have_no_say():
    x = around((8, 0), (0, 8), (40, 40))
    weight = np.repeat([1.0, 1.0, 0.0], 700)
    sample = draw(Sample(x, weight), 1)
    one = overall_gaussian(Sample(x, weight))
    axis = principal_axes(sample, np.zeros(len(sample.values)), one, np.array([0]))[0]
    assert axis[0] * axis[1] < 0


def test_a_sample_is_spread_over_all_descriptors_and_bounded():
    x = np.arange(100_000, dtype=np.float32)[:, None]
    sample = draw(Sample(x), 4)
    assert 1024 <= len(sample.values) <= 2048 and sample.values[-1] > 99_900
    assert len(draw(Sample(x), 4096).values) <= 16384
    assert draw(Sample(x[:100].astype(np.float16), np.ones(100)), 4).values.dtype == np.float32


def test_repeated_descriptors_are_not_split():
    x = np.concatenate([np.zeros((500, 2)), around((8, 8), size=500)])
    parts = check_parameters([0.5, 0.5], [[0, 0], [8, 8]], [[0.01, 0.01], [1, 1]])
    three = split_heaviest(parts, Sample(x), 3, np.full(2, 0.01), 0.2)
    assert np.allclose(three.means[0], 0) and np.allclose(three.means[1:].mean(axis=0), 8)


def test_small_samples_are_seen_whole_in_every_iteration():
    sample = Sample(around((0, 0), (8, 0)))
    assert draft(sample, 1024) is sample


def test_a_large_sample_is_trained_on_a_draft_and_finished_on_all(monkeypatch):
    x, held_out = around(*8 * np.eye(5), size=2400), around(*8 * np.eye(5), size=500, seed=1)
    whole = UniversalMixture(5).fit(x)
    monkeypatch.setattr("patchbag.mixture.training.DRAFT_ROWS", (500, 1000))
    assert [len(draft(Sample(x), k).values) for k in (1, 3, 9)] == [500, 800, 1000]
    drafted = UniversalMixture(5).fit(x)
    assert len(drafted.log_likelihoods_) == FINAL_ITER < len(whole.log_likelihoods_)
    assert drafted.score(held_out) > whole.score(held_out) - 0.002
    # the last step is an EM step on all descriptors, and does not remember the draft
    assert drafted.score(x) == pytest.approx(whole.score(x), abs=1e-4)
    assert np.allclose(drafted.weights_, 0.2, atol=1e-3)
