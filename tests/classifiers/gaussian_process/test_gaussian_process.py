# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from oracles.gaussian_process import joint_log_evidence, posterior
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.gaussian_process.combination import learn_combination
from patchbag.classifiers.gaussian_process.posterior import GaussianPosterior
from patchbag.classifiers.targets import in_proportion

RNG = np.random.default_rng(0)
N, M = 45, 15
Y = np.array(["bird", "cat", "dog"])[np.arange(N + M) % 3]
POINTS = RNG.normal(size=(3, 4))[np.arange(N + M) % 3] * 2.2 + RNG.normal(size=(N + M, 4))
GOOD, NOISE = rbf_kernel(POINTS, gamma=0.2), rbf_kernel(RNG.normal(size=(N + M, 4)), gamma=0.2)
TRAIN, TEST = [GOOD[:N, :N], NOISE[:N, :N]], [GOOD[N:, :N], NOISE[N:, :N]]


@pytest.fixture(scope="module")
def fitted():
    return GaussianProcessClassifier().fit(TRAIN, Y[:N])


def test_mean_variance_and_evidence_equal_the_paper_s_equations():
    model = GaussianProcessClassifier(optimize=None, noise=0.1, level=0.0, weights=[0.5, 2.0]).fit(TRAIN, Y[:N])
    kernel = 0.5 * TRAIN[0] + 2.0 * TRAIN[1]
    targets = np.where(Y[:N, None] == np.unique(Y), 1.0, -1.0)
    mean, variance = posterior(kernel, targets, 0.1, 0.5 * TEST[0] + 2.0 * TEST[1], np.full(M, 2.5))
    found_mean, found_variance = model.predict_soft_labels(TEST)
    np.testing.assert_allclose(found_mean, mean, atol=1e-10)
    np.testing.assert_allclose(found_variance, np.repeat(variance[:, None], 3, axis=1), atol=1e-10)
    assert model.log_evidence_ == pytest.approx(joint_log_evidence(kernel + 0.1 * np.eye(N), targets))
    expected = norm.cdf(mean / np.sqrt(variance + 0.1)[:, None])
    np.testing.assert_allclose(model.predict_membership(TEST), expected, atol=1e-10)


def test_the_level_of_a_class_is_a_constant_added_to_the_kernel():
    model = GaussianProcessClassifier(optimize=None, noise=0.1, level=0.7).fit(GOOD[:N, :N], Y[:N])
    expected = GaussianProcessClassifier(optimize=None, noise=0.1, level=0.0).fit(GOOD[:N, :N] + 0.7, Y[:N])
    for a, b in zip(model.predict_soft_labels(GOOD[N:, :N]), expected.predict_soft_labels(GOOD[N:, :N] + 0.7)):
        np.testing.assert_allclose(a, b, atol=1e-10)
    learned = GaussianProcessClassifier(level=0.7).fit(GOOD[:N, :N], Y[:N])
    found = learn_combination(GOOD[None, :N, :N], learned.posterior_.targets, level=0.7)
    np.testing.assert_allclose(learned.weights_, found.weights)
    assert learned.log_evidence_ == pytest.approx(found.log_evidence)


def test_learned_combination_prefers_the_informative_kernel_and_classifies(fitted):
    assert fitted.weights_[0] > 5 * fitted.weights_[1]
    assert np.all(fitted.log_weights_std_ > 0)
    assert np.mean(fitted.predict(TEST) == Y[N:]) > 0.75


def test_weights_and_noise_of_many_images_are_learned_of_a_sample_and_answers_of_all():
    model = GaussianProcessClassifier(n_evidence=21, random_state=3).fit(TRAIN, Y[:N])
    codes = np.unique(Y[:N], return_inverse=True)[1]
    chosen = in_proportion(codes, 21, np.random.RandomState(3))
    assert np.bincount(codes[chosen]).tolist() == [7, 7, 7]
    sample = GaussianProcessClassifier().fit([kernel[np.ix_(chosen, chosen)] for kernel in TRAIN], Y[chosen])
    np.testing.assert_allclose(model.weights_, sample.weights_)
    assert model.noise_ == pytest.approx(sample.noise_)
    fixed = GaussianProcessClassifier(weights=sample.weights_, noise=sample.noise_, optimize=None).fit(TRAIN, Y[:N])
    np.testing.assert_allclose(model.decision_function(TEST), fixed.decision_function(TEST), atol=1e-9)


def test_probabilities_sum_to_one_and_follow_the_decision(fitted):
    p = fitted.predict_proba(TEST)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(fitted.classes_[p.argmax(axis=1)], fitted.predict(TEST))
    np.testing.assert_array_equal(fitted.decision_function(TEST), fitted.predict_soft_labels(TEST)[0])


def test_two_classes_are_one_problem_and_their_probability_is_phi():
    two = Y != "dog"
    train, test = np.flatnonzero(two[:N]), N + np.flatnonzero(two[N:])
    model = GaussianProcessClassifier(optimize=None, noise=0.1, calibrate=False)
    model.fit(GOOD[np.ix_(train, train)], Y[train])
    mean, variance = model.predict_soft_labels(GOOD[np.ix_(test, train)])
    assert mean.shape == (len(test), 1)
    p = model.predict_proba(GOOD[np.ix_(test, train)])
    np.testing.assert_allclose(p[:, 1], norm.cdf(mean / np.sqrt(variance + 0.1))[:, 0])
    expected = np.where(p[:, 1] > 0.5, "cat", "bird")
    np.testing.assert_array_equal(model.predict(GOOD[np.ix_(test, train)]), expected)


def test_an_update_equals_fitting_with_the_image():
    model = GaussianProcessClassifier(optimize=None, noise=0.05)
    more = clone(model).fit(GOOD[: N + 2, : N + 2], Y[: N + 2])
    updated = model.fit(GOOD[:N, :N], Y[:N])
    updated.update(GOOD[N : N + 1, :N], Y[N])
    updated.update(GOOD[N + 1 : N + 2, : N + 1], [Y[N + 1]], diagonal=[1.0])
    rows = GOOD[N + 2 :, : N + 2]
    for a, b in zip(updated.predict_soft_labels(rows), more.predict_soft_labels(rows)):
        np.testing.assert_allclose(a, b, atol=1e-10)
    assert updated.log_evidence_ == pytest.approx(more.log_evidence_)


def test_an_update_uses_the_new_image_for_the_mean_self_kernel():
    model = GaussianProcessClassifier(optimize=None, noise=0.05).fit(GOOD[:N, :N], Y[:N])
    model.update(GOOD[N : N + 1, :N], Y[N], diagonal=[10.0])
    rows = GOOD[N + 1 :, : N + 1]
    expected = model.predict_soft_labels(rows, diagonal=np.full(len(rows), (N + 10.0) / (N + 1)))[1]
    np.testing.assert_allclose(model.predict_soft_labels(rows)[1], expected)


def test_a_refused_update_leaves_the_model_as_it_was():
    model = GaussianProcessClassifier(optimize=None, noise=0.05).fit(GOOD[:N, :N], Y[:N])
    before, evidence = model.predict_proba(GOOD[N:, :N]), model.log_evidence_
    for factor in (5.0, 1e200):
        with pytest.raises(ValueError, match="does not fit the training kernel: together they are not positive def"):
            model.update(factor * GOOD[N : N + 1, :N], Y[N])
    with pytest.raises(ValueError, match="got 2 labels"):
        model.update(GOOD[N : N + 1, :N], [Y[N], Y[N + 1]])
    with pytest.raises(ValueError, match="got 0 labels"):
        model.update(GOOD[N : N + 1, :N], [])
    np.testing.assert_array_equal(model.predict_proba(GOOD[N:, :N]), before)
    assert model.log_evidence_ == evidence
    model.update(GOOD[N : N + 1, :N], Y[N])


def test_probit_likelihood_classifies_and_calibrates():
    model = GaussianProcessClassifier(likelihood="probit").fit(TRAIN, Y[:N])
    p = model.predict_proba(TEST)
    assert np.mean(model.predict(TEST) == Y[N:]) > 0.75
    assert np.isfinite(p).all() and p.max() < 1.0
    mean, variance = model.predict_soft_labels(TEST)
    np.testing.assert_allclose(model.predict_membership(TEST), norm.cdf(mean / np.sqrt(1 + variance)))


@pytest.mark.parametrize("approximation", ["fitc", "nystroem"])
def test_inducing_images_report_their_error_and_approach_the_exact_process(approximation):
    exact = GaussianProcessClassifier(optimize=None, noise=0.1).fit(GOOD[:N, :N], Y[:N])
    expected = exact.predict_soft_labels(GOOD[N:, :N])[0]
    errors, differences = [], []
    for m in (5, 20, 45):
        model = GaussianProcessClassifier(optimize=None, noise=0.1, n_inducing=m, approximation=approximation)
        model.fit(GOOD[:N, :N], Y[:N])
        errors.append(model.trace_error_)
        differences.append(np.abs(model.predict_soft_labels(GOOD[N:, :N])[0] - expected).max())
    assert errors[0] > errors[1] > errors[2] and errors[2] < 1e-8
    assert differences[0] > differences[1] > differences[2] and differences[2] < 1e-6


def test_restarts_are_reproducible_and_not_worse(fitted):
    model = GaussianProcessClassifier(n_restarts=2, random_state=0)
    first, second = clone(model).fit(TRAIN, Y[:N]), clone(model).fit(TRAIN, Y[:N])
    np.testing.assert_array_equal(first.weights_, second.weights_)
    assert first.log_evidence_ >= fitted.log_evidence_ - 1e-6


def test_the_best_of_all_starts_is_kept(monkeypatch):
    starts, results = [], []

    def note(bases, targets, *, weights, **settings):
        starts.append(weights)
        results.append(learn_combination(bases, targets, weights=weights, **settings))
        return results[-1]

    monkeypatch.setattr("patchbag.classifiers.gaussian_process.classifier.learn_combination", note)
    model = GaussianProcessClassifier(weights=[0.1, 30.0], n_restarts=4, random_state=0, max_iter=1).fit(TRAIN, Y[:N])
    objectives = [found.objective for found in results]
    assert len(objectives) == 5 and len(np.unique(np.array(starts)[:, 0])) == 5
    assert 0 < np.argmin(objectives) < 4
    assert model.combination_ is results[np.argmin(objectives)]


def test_learned_noise_ends_at_its_floor_where_the_labels_have_none():
    codes = np.arange(30) % 3
    blocks = (codes[:, None] == codes).astype(float)
    for start, floor in ((1e-2, 1e-6), (1e-8, 1e-8)):
        model = GaussianProcessClassifier(noise=start).fit(blocks, codes)
        assert model.noise_ == pytest.approx(floor, rel=1e-2)


def test_the_unit_of_the_kernel_changes_neither_answers_nor_inducing_images():
    for settings in ({}, {"n_inducing": 20}):
        model = GaussianProcessClassifier(random_state=0, **settings)
        expected = clone(model).fit(TRAIN, Y[:N])
        for unit in (2e8, 1e-8):
            found = clone(model).fit([unit * TRAIN[0], TRAIN[1]], Y[:N])
            np.testing.assert_array_equal(found.inducing_, expected.inducing_)
            p = found.predict_proba([unit * TEST[0], TEST[1]])
            np.testing.assert_allclose(p, expected.predict_proba(TEST), atol=5e-3)


def test_fixed_weights_are_one_whatever_the_unit():
    model = GaussianProcessClassifier(optimize="noise").fit([3.0 * TRAIN[0], TRAIN[1]], Y[:N])
    np.testing.assert_array_equal(model.weights_, [1.0, 1.0])


def test_an_optimisation_that_runs_out_of_iterations_says_so(monkeypatch):
    monkeypatch.setattr("patchbag.classifiers.gaussian_process.classifier.MAX_ITER", 2)
    with pytest.warns(RuntimeWarning, match="had not converged after max_iter=2 iterations; raise max_iter"):
        GaussianProcessClassifier(max_iter=2).fit(TRAIN, Y[:N])


def test_repeated_images_with_tiny_noise_do_not_break_the_learning():
    twice = np.kron(np.ones((2, 2)), 1e6 * GOOD[:N, :N])
    model = GaussianProcessClassifier(noise=1e-9, optimize="weights").fit(twice, np.tile(Y[:N], 2))
    assert np.isfinite(model.log_evidence_)
    assert np.isfinite(model.predict_proba(twice[:5])).all()


def test_probabilities_are_finite_for_degenerate_kernels():
    same = np.ones((6, 6))
    labels = ["a", "b", "c", "a", "b", "c"]
    for noise in (1e-6, 1.0):
        for likelihood in ("gaussian", "probit"):
            model = GaussianProcessClassifier(noise=noise, likelihood=likelihood).fit(same, labels)
            assert np.isfinite(model.predict_proba(same)).all()
            assert np.isfinite(model.predict_proba(np.zeros((2, 6)), diagonal=[0.0, 0.0])).all()


@pytest.mark.parametrize(
    ("parameters", "labels", "message"),
    [
        ({}, ["a"] * N, r"all 45 labels are \['a'\]; a classifier needs at least two"),
        ({}, list(Y[: N - 1]), "45 images in the kernel but 44 labels"),
        ({"likelihood": "logit"}, Y[:N], "'likelihood' parameter of GaussianProcessClassifier must be"),
        ({"optimize": "no"}, Y[:N], "'optimize' parameter"),
        ({"approximation": "no"}, Y[:N], "'approximation' parameter"),
        ({"kernel": "rbf"}, Y[:N], "'kernel' parameter"),
        ({"noise": 0.0}, Y[:N], "'noise' parameter"),
        ({"l1": np.nan}, Y[:N], "'l1' parameter"),
        ({"l2": np.inf}, Y[:N], "'l2' parameter"),
        ({"n_restarts": -1}, Y[:N], "'n_restarts' parameter .* Got -1"),
        ({}, np.eye(3, dtype=int)[np.arange(N) % 3], r"one label for each image.* got an array of shape \(45, 3\)"),
        ({}, Y[:N, None], r"one label for each image.* got an array of shape \(45, 1\)"),
        ({"weights": [1.0]}, Y[:N], "weights must be 2 numbers"),
        ({"weights": [1.0, np.nan]}, Y[:N], "weights must be 2 numbers"),
        ({"n_inducing": 46}, Y[:N], "at most the 45"),
        ({"n_inducing": 5, "likelihood": "probit"}, Y[:N], "inducing images are for likelihood='gaussian'"),
    ],
)
def test_bad_training_input_is_a_clear_error(parameters, labels, message):
    with pytest.raises(ValueError, match=message):
        GaussianProcessClassifier(**parameters).fit(TRAIN, labels)


@pytest.mark.parametrize("settings", [{}, {"likelihood": "probit"}, {"n_inducing": 9}])
def test_no_images_have_no_probabilities(settings):
    for labels, n_classes in ((Y[:N], 3), (Y[:N] == "cat", 2)):
        model = GaussianProcessClassifier(optimize=None, **settings).fit(GOOD[:N, :N], labels)
        assert model.predict_proba(np.empty((0, N))).shape == (0, n_classes)
        assert len(model.predict(np.empty((0, N)))) == 0


@pytest.mark.parametrize("settings", [{}, {"weights": [100.0]}, {"likelihood": "probit"}, {"n_inducing": 9}])
def test_kernel_values_that_overflow_are_an_error_that_names_the_image(settings):
    model = GaussianProcessClassifier(optimize=None, **settings).fit(GOOD[:N, :N], Y[:N])
    rows = GOOD[N : N + 3, :N].copy()
    rows[1] = 1e308
    with pytest.raises(ValueError, match=r"image 1 of 3 are not finite: its kernel values reach 1e\+308"):
        model.predict_proba(rows)
    if "weights" in settings:
        with pytest.raises(ValueError, match="image 0 of 3 are not finite"):
            model.predict_soft_labels(GOOD[N : N + 3, :N], diagonal=[1.7e308, 1.0, 1.0])
    assert np.isfinite(model.predict_proba(1e100 * GOOD[N : N + 3, :N])).all()
    if "n_inducing" not in settings:
        repaired = clone(model).set_params(repair=True).fit(GOOD[:N, :N] - 0.5 * np.eye(N), Y[:N])
        with pytest.raises(ValueError, match="image 1 of 3 are not finite"):
            repaired.predict_proba(rows)


def test_bad_test_input_is_a_clear_error(fitted):
    with pytest.raises(ValueError, match="fitted with 2 kernels, got 1"):
        fitted.predict(TEST[0])
    with pytest.raises(ValueError, match="diagonal must hold 15 finite numbers"):
        fitted.predict_proba(TEST, diagonal=[1.0])
    with pytest.raises(ValueError, match="not one of the classes"):
        fitted.update([k[:1] for k in TEST], "horse")
    with pytest.raises(ValueError, match="one image at a time"):
        fitted.update(TEST, "cat")
    repaired = GaussianProcessClassifier(repair=True, optimize=None)
    values, vectors = np.linalg.eigh(GOOD[:N, :N])
    repaired.fit((vectors * np.append(-1.0, values[1:])) @ vectors.T, Y[:N])
    with pytest.raises(ValueError, match="cannot extend a repaired kernel"):
        repaired.update(GOOD[N : N + 1, :N], "cat")
    with pytest.raises(ValueError, match="negative value"):
        GaussianProcessClassifier("distance").fit(-GOOD[:N, :N], Y[:N])


def test_posterior_appended_label_by_label_equals_the_batch():
    targets = np.where(Y[:N, None] == np.unique(Y), 1.0, -1.0)
    whole = GaussianPosterior.from_kernel(GOOD[:N, :N], targets, 0.1)
    grown = GaussianPosterior.from_kernel(GOOD[:1, :1], targets[:1], 0.1)
    for i in range(1, N):
        grown = grown.append(GOOD[i, :i], 1.0, targets[i])
    np.testing.assert_allclose(grown.solution, whole.solution, atol=1e-9)
