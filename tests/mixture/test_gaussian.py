from __future__ import annotations

import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.mixture import GaussianMixture

from oracles import mixture as oracle
from patchbag import Bags, UniversalMixture
from patchbag.mixture.em import expectation, maximization, reseed, split
from patchbag.mixture.gaussian import suggest_components
from patchbag.mixture.parameters import check_parameters

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "vlfeat_fisher_small.npz")


@pytest.fixture(scope="module")
def clusters() -> np.ndarray:
    rng = np.random.default_rng(3)
    centres = rng.normal(0, 4, (6, 8))
    return centres[rng.integers(0, 6, 6000)] + rng.normal(0, 1, (6000, 8))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("init", ["split", "kmeans"])
def test_the_log_likelihood_never_decreases(clusters, dtype, init):
    fit = UniversalMixture(9, init=init, max_iter=25, tol=0, random_state=0).fit(clusters.astype(dtype))
    assert len(fit.log_likelihoods_) == 25
    assert np.diff(fit.log_likelihoods_).min() > -2e-6 * abs(fit.lower_bound_)
    assert fit.log_likelihoods_[-1] > fit.log_likelihoods_[0]


def test_one_em_step_equals_the_literal_one(clusters):
    x = clusters[:300]
    start = check_parameters(np.ones(3) / 3, x[:3], np.ones((3, 8)) * x.var(axis=0))
    s0, s12, log_likelihood = expectation(x, start)
    step = maximization(s0, s12, start, np.zeros(8))
    parts = (start.weights, start.means, start.variances)
    t0, t1, t2 = oracle.statistics(x, *parts)
    assert log_likelihood == pytest.approx(oracle.log_likelihood(x, *parts))
    assert np.allclose(step.weights, t0 / 300, atol=1e-6)
    assert np.allclose(step.means, t1 / t0[:, None], atol=1e-4)
    assert np.allclose(step.variances, t2 / t0[:, None] - (t1 / t0[:, None]) ** 2, atol=1e-3)


def test_five_em_iterations_agree_with_vlfeat():
    parameters = check_parameters(GOLDEN["weights"], GOLDEN["means"], GOLDEN["vars"])
    for _ in range(5):
        s0, s12, log_likelihood = expectation(GOLDEN["descriptors"], parameters)
        parameters = maximization(s0, s12, parameters, np.zeros(parameters.dimension))
    assert np.allclose(parameters.means, GOLDEN["em5_means"], rtol=2e-3, atol=2e-3)
    assert np.allclose(parameters.variances, GOLDEN["em5_vars"], rtol=5e-3, atol=2e-3)
    assert log_likelihood == pytest.approx(float(GOLDEN["em5_loglik_sum"]), rel=1e-4)


def test_splitting_is_as_likely_as_scikit_learns_mixture(clusters):
    ours = UniversalMixture(6, max_iter=50, tol=1e-6).fit(clusters)
    theirs = GaussianMixture(6, covariance_type="diag", random_state=0, n_init=2).fit(clusters)
    assert ours.score(clusters) > theirs.score(clusters) - 0.05
    assert np.allclose(ours.score_samples(clusters).mean(), ours.score(clusters), rtol=1e-6)
    assert np.allclose(ours.predict_proba(clusters[:5]).sum(axis=1), 1)


def test_splitting_moves_the_means_apart_and_keeps_mass_and_variance():
    parent = check_parameters([0.25, 0.75], [[0.0], [10.0]], [[4.0], [1.0]])
    child = split(parent, np.array([0]), 0.2)
    assert child.weights.tolist() == [0.125, 0.75, 0.125]
    assert child.means.ravel().tolist() == [-0.4, 10.0, 0.4]
    assert child.variances.ravel().tolist() == [4.0, 1.0, 4.0]


def test_sample_weights_count_as_repetitions(clusters):
    x = clusters[:400].astype(np.float64)
    weight = np.arange(400) % 3
    weighted = UniversalMixture(3, max_iter=5, tol=0).fit(x, sample_weight=weight)
    repeated = UniversalMixture(3, max_iter=5, tol=0).fit(np.repeat(x, weight, axis=0))
    assert np.allclose(weighted.means_, repeated.means_, atol=1e-6)
    assert np.allclose(weighted.variances_, repeated.variances_, atol=1e-5)


def test_partial_fit_over_batches_comes_close_to_fit(clusters):
    online = UniversalMixture(6, random_state=0)
    for _ in range(3):
        for start in range(0, 6000, 1500):
            online.partial_fit(clusters[start : start + 1500])
    assert online.score(clusters) > UniversalMixture(6, random_state=0).fit(clusters).score(clusters) - 0.2


def test_em_over_mapped_bags_gives_the_same_mixture_and_never_holds_the_file(tmp_path):
    """At once and in batches; bytes, which would be four times the file as floats."""
    rng = np.random.default_rng(4)
    values = np.clip(60 * rng.integers(0, 4, (100_000, 1)) + rng.normal(30, 9, (100_000, 16)), 0, 255).astype(np.uint8)
    here = Bags(np.tile(values, (16, 1)), np.arange(1601) * 1000)  # more than the draft that EM begins with
    here.save(tmp_path / "bags")
    mapped = Bags.load(tmp_path / "bags")
    options = {"max_samples": None, "max_iter": 2, "split_iter": 1, "random_state": 0, "n_jobs": 1}
    found = []
    for bags in (mapped, here):
        whole, online = UniversalMixture(4, **options), UniversalMixture(4, **options)
        tracemalloc.start()
        whole.fit(bags)
        for start in range(0, 1600, 200):
            online.partial_fit(bags[start : start + 200])
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        found.append((whole.means_, online.means_))
        if bags is mapped:
            assert held < here.values.nbytes
        assert online.mass_ == pytest.approx(1_600_000)
    np.testing.assert_array_equal(found[0], found[1])


def test_one_partial_fit_equals_one_em_step(clusters):
    online = UniversalMixture(3).partial_fit(clusters)
    s0, s12, _ = expectation(clusters, online.parameters_)
    before = online.parameters_
    online.totals_ = (np.zeros(3), np.zeros((3, 16)))
    online.partial_fit(clusters)
    assert np.allclose(online.means_, maximization(s0, s12, before, online.floor_).means)


def test_fit_forgets_the_batches_before_it(clusters):
    online = UniversalMixture(2).partial_fit(clusters)
    online.fit(clusters + 100)
    online.partial_fit(clusters + 100)
    assert np.allclose(online.means_.mean(axis=0), 100, atol=8)
    assert online.mass_ == pytest.approx(12000)


def test_a_batch_after_fit_is_one_em_step_on_the_sums_of_both(clusters):
    first, second = clusters[:4000], clusters[4000:]
    fitted = UniversalMixture(3, max_iter=300, tol=1e-12, variance_floor=1e-6).fit(first)
    before = fitted.parameters_
    sums = [expectation(part, before) for part in (first, second)]
    expected = maximization(sums[0][0] + sums[1][0], sums[0][1] + sums[1][1], before, np.zeros(8))
    fitted.partial_fit(second)
    # at the maximum the model's own sums are those of its data
    assert np.allclose(fitted.weights_, expected.weights, atol=1e-4)
    assert np.allclose(fitted.means_, expected.means, atol=2e-3)
    assert np.allclose(fitted.variances_, expected.variances, atol=2e-2)


def test_given_parameters_are_trained_further_if_their_mass_is_known(clusters):
    fitted = UniversalMixture(3).fit(clusters[:3000])
    parts = (fitted.weights_, fitted.means_, fitted.variances_)
    given = UniversalMixture.from_parameters(*parts, mass=3000)
    assert np.allclose(given.partial_fit(clusters[3000:]).means_, fitted.partial_fit(clusters[3000:]).means_)
    assert given.mass_ == pytest.approx(6000)
    with pytest.raises(ValueError, match=r"how many descriptors.*from_parameters\(\.\.\., mass="):
        UniversalMixture.from_parameters(*parts).partial_fit(clusters)
    with pytest.raises(ValueError, match="mass must be a positive number"):
        UniversalMixture.from_parameters(*parts, mass=0)


def test_a_later_batch_may_be_smaller_than_the_mixture(clusters):
    online = UniversalMixture(6).partial_fit(clusters[:500])
    assert online.partial_fit(clusters[500:502]).mass_ == pytest.approx(502)
    with pytest.raises(ValueError, match="trained on 8-D descriptors, got 3-D"):
        online.partial_fit(clusters[:, :3])
    with pytest.raises(ValueError, match="at least one descriptor"):
        online.partial_fit(clusters[:0])


def test_the_automatic_size_is_chosen_once(bags):
    online = UniversalMixture("auto", images_per_component=1).partial_fit(bags[:20])
    assert online.partial_fit(bags[20:22]).n_components_ == len(online.weights_) == 16


def test_the_unit_of_sample_weights_does_not_matter(clusters):
    x = clusters[:600]
    plain = UniversalMixture(4, min_count=20).fit(x)
    for unit in (1e-4, 1e4):
        scaled = UniversalMixture(4, min_count=20).fit(x, sample_weight=np.full(600, unit))
        assert np.allclose(scaled.means_, plain.means_)
        assert scaled.mass_ == pytest.approx(600 * unit)
    with pytest.raises(ValueError, match="all sample weights are zero"):
        UniversalMixture(4).fit(x, sample_weight=np.zeros(600))


def test_bags_are_scored_like_their_descriptors(bags, mixture):
    assert np.array_equal(mixture.score_samples(bags), mixture.score_samples(bags.values))
    assert np.array_equal(mixture.predict_proba(list(bags)), mixture.predict_proba(bags.values))
    for method in (mixture.score_samples, mixture.predict_proba, mixture.score):
        with pytest.raises(ValueError, match="trained on 5-D descriptors, got 2-D"):
            method(bags.values[:, :2])


def test_variances_stay_above_the_floor():
    x = np.repeat(np.eye(3), 50, axis=0)  # three points: variances would fall to zero
    fit = UniversalMixture(3, variance_floor=0.01, max_iter=50).fit(x)
    assert np.all(fit.variances_ >= 0.01 * x.var(axis=0) * (1 - 1e-9))
    assert np.isfinite(fit.score(x))


def test_empty_components_are_reseeded_with_a_warning(clusters):
    before = check_parameters([0.9, 0.0, 0.1], [[0.0], [5.0], [9.0]], [[4.0], [1.0], [1.0]])
    after = reseed(before, np.array([1]), np.array([0]), 0.2)
    assert np.allclose(after.weights, [0.45, 0.45, 0.1])
    assert np.allclose(after.means.ravel(), [-0.4, 0.4, 9.0])
    assert np.allclose(after.variances.ravel(), [4.0, 4.0, 1.0])
    with pytest.warns(UserWarning, match="fewer than 1500 and had to be re-seeded"):
        UniversalMixture(6, min_count=1500).fit(clusters)


def test_more_components_than_distinct_points_still_gives_finite_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = UniversalMixture(8, max_iter=5).fit(np.repeat([[0.0, 1.0], [2.0, 3.0]], 10, axis=0))
    assert np.isfinite(fit.means_).all() and np.isfinite(fit.lower_bound_)


def test_a_constant_dimension_does_no_harm(clusters):
    x = np.concatenate([clusters[:500], np.full((500, 1), 7.0)], axis=1)
    fit = UniversalMixture(3).fit(x)
    assert np.allclose(fit.means_[:, -1], 7)
    assert np.isfinite(fit.score(x))


def test_the_seed_decides_the_sample(clusters):
    a, b, c = (UniversalMixture(3, max_samples=500, random_state=s).fit(clusters) for s in (0, 0, 1))
    assert np.array_equal(a.means_, b.means_)
    assert not np.array_equal(a.means_, c.means_)


def test_bad_input_is_a_clear_error(clusters):
    with pytest.raises(ValueError, match="4 descriptors cannot train 6 Gaussians"):
        UniversalMixture(6).fit(clusters[:4])
    with pytest.raises(ValueError, match="'init' parameter of UniversalMixture must be a str among"):
        UniversalMixture(2, init="magic").fit(clusters)
    with pytest.raises(ValueError, match="'n_components' parameter of UniversalMixture must be an int in the range"):
        UniversalMixture(0).fit(clusters)
    with pytest.raises(ValueError, match="descriptor 5 of 100 is NaN"):
        UniversalMixture(2).fit(np.where(np.arange(100)[:, None] == 5, np.nan, clusters[:100]))
    with pytest.raises(ValueError, match="finite numbers"):
        UniversalMixture(2).fit(clusters, sample_weight=-np.ones(6000))
    with pytest.raises(ValueError, match="counts images"):
        UniversalMixture("auto").fit(clusters)


def test_the_automatic_size_grows_with_the_number_of_images(bags):
    assert [suggest_components(n, 8, 256) for n in (10, 200, 1500, 10**6)] == [8, 16, 128, 256]
    fit = UniversalMixture("auto", images_per_component=1).fit(bags)
    assert fit.n_components_ == len(fit.weights_) == 16
    assert clone(fit).n_components == "auto"


def test_bags_and_arrays_train_the_same_mixture(bags):
    assert np.array_equal(UniversalMixture(3).fit(bags).means_, UniversalMixture(3).fit(bags.values).means_)
    assert isinstance(bags, Bags)
