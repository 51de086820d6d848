# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

from oracles.gaussian_process import joint_log_evidence
from patchbag.classifiers.gaussian_process import combination as kernel_combination
from patchbag.classifiers.gaussian_process.combination import (
    _Objective,
    _Parameters,
    learn_combination,
    unit_weights,
)
from patchbag.classifiers.gaussian_process.evidence import combine, log_evidence
from patchbag.classifiers.gaussian_process.laplace import laplace_evidence


def rbf(x, gamma=0.2):
    return np.exp(-gamma * ((x[:, None] - x[None]) ** 2).sum(axis=2))


def problem(n=30, n_classes=3, seed=0):
    """One informative kernel, one of noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    informative = rng.normal(size=(n_classes, 4))[y] * 2 + rng.normal(size=(n, 4))
    kernels = np.stack([rbf(informative), rbf(rng.normal(size=(n, 4)))])
    return kernels, np.where(y[:, None] == np.arange(n_classes), 1.0, -1.0)


def test_joint_evidence_equals_sum_of_normal_log_densities():
    kernels, targets = problem()
    covariance = combine(kernels, np.array([0.7, 0.2])) + 0.1 * np.eye(30)
    expected = joint_log_evidence(covariance, targets)
    assert log_evidence(covariance.copy(), targets)[0] == pytest.approx(expected, rel=1e-10)


def test_sensitivity_predicts_the_change_of_evidence():
    kernels, targets = problem()
    covariance = kernels[0] + 0.1 * np.eye(30)
    _, sensitivity = log_evidence(covariance.copy(), targets)
    step = 1e-5 * kernels[1]
    change = log_evidence(covariance + step, targets)[0] - log_evidence(covariance - step, targets)[0]
    assert (sensitivity * 2 * step).sum() == pytest.approx(change, rel=1e-5)


@pytest.mark.parametrize("distances", [False, True])
@pytest.mark.parametrize("evidence", [log_evidence, laplace_evidence])
def test_gradient_equals_finite_differences(distances, evidence):
    kernels, targets = problem(n=18)
    bases = -np.log(kernels) if distances else kernels
    start = _Parameters(np.array([0.8, 0.3]), np.array([1.3, 0.6]) if distances else None, 0.05)
    objective = _Objective(bases, targets, start, 0.3, True, True, 0.7, 0.4, 0.5, evidence, np.array([0.6, 2.0]))
    theta = objective.pack(start)
    _, gradient = objective(theta)
    for i in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[i] += 1e-5
        down[i] -= 1e-5
        numeric = (objective(up)[0] - objective(down)[0]) / 2e-5
        assert gradient[i] == pytest.approx(numeric, rel=2e-5, abs=1e-5)


def test_learning_reaches_a_stationary_point_and_prefers_the_informative_kernel():
    kernels, targets = problem(n=60)
    found = learn_combination(kernels, targets, tol=1e-12)
    assert found.weights[0] > 20 * found.weights[1]
    start = _Parameters(found.weights, None, found.noise)
    objective = _Objective(kernels, targets, start, 0.0, True, True, 0.0, 0.0, None, log_evidence, np.ones(2))
    assert abs(objective(objective.pack(start))[1]).max() < 1e-2
    assert found.log_evidence > log_evidence(combine(kernels, np.ones(2)) + 0.01 * np.eye(60), targets)[0]


def test_joint_weights_serve_all_classes_where_classwise_weights_differ():
    kernels, targets = problem(n=60)
    joint = learn_combination(kernels, targets).log_evidence
    classwise = sum(learn_combination(kernels, targets[:, [c]]).log_evidence for c in range(3))
    assert classwise > joint - 1e-3


def test_evidence_of_a_coarse_start_is_the_same_optimum(monkeypatch):
    monkeypatch.setattr(kernel_combination, "WARM_START_SIZE", 100)
    kernels, targets = problem(n=150)
    warm = learn_combination(kernels, targets, tol=1e-10)
    cold = learn_combination(kernels, targets, tol=1e-10, warm_start=False)
    np.testing.assert_allclose(warm.weights[0], cold.weights[0], rtol=1e-2)
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=0.05)


def test_an_image_in_two_classes_does_not_lead_astray(monkeypatch):
    """The coarse problem has no noise; in the full one two equal rows with different labels make it costly."""
    monkeypatch.setattr(kernel_combination, "WARM_START_SIZE", 100)
    rng, y = np.random.default_rng(0), np.arange(210) % 7
    informative = 6 * rng.normal(size=(7, 4))[y] + rng.normal(size=(210, 4))
    kernels = np.stack([*(rbf(informative, gamma) for gamma in (0.05, 0.2, 0.01)), rbf(rng.normal(size=(210, 4)))])
    first, second = np.flatnonzero(y == 0)[1], np.flatnonzero(y == 1)[2]
    kernels[:, second], kernels[:, :, second] = kernels[:, first], kernels[:, :, first]
    kernels[:, second, second] = kernels[:, first, first]
    targets = np.where(y[:, None] == np.arange(7), 1.0, -1.0)
    found = learn_combination(kernels, targets, level=1.0)
    near = learn_combination(kernels, targets, level=1.0, weights=found.weights, noise=0.03, warm_start=False)
    assert found.noise > 1e-3
    assert found.log_evidence > max(near.log_evidence - 1.0, 860)


@pytest.mark.parametrize("n_classes", [1, 4])
def test_the_coarse_start_has_a_third_of_every_class(n_classes, monkeypatch):
    monkeypatch.setattr(kernel_combination, "WARM_START_SIZE", 120)
    seen = []

    class Noted(_Objective):
        def __init__(self, bases, targets, *settings):
            seen.append(targets)
            super().__init__(bases, targets, *settings)

    monkeypatch.setattr(kernel_combination, "_Objective", Noted)
    kernels, targets = problem(n=120, n_classes=4)
    order = np.argsort(targets[:, 0], kind="stable")  # images come class by class in practice
    learn_combination(kernels[:, order][:, :, order], targets[order, :n_classes], max_iter=2)
    coarse, full = seen
    assert full.shape == (120, n_classes) and coarse.shape == (40, n_classes)
    np.testing.assert_array_equal((coarse > 0).sum(axis=0), np.full(n_classes, 10))


def test_regularisation_shrinks_the_weights():
    kernels, targets = problem(n=60)
    free = learn_combination(kernels, targets)
    for penalty in ({"l1": 50.0}, {"l2": 50.0}):
        assert learn_combination(kernels, targets, **penalty).weights.sum() < 0.8 * free.weights.sum()


@pytest.mark.parametrize("units", [(2e8, 2e8), (1e-8, 1e-8), (1e-12, 1e12), (1e-200, 1.0)])
def test_the_unit_of_a_kernel_does_not_matter(units, monkeypatch):
    monkeypatch.setattr(kernel_combination, "WARM_START_SIZE", 90)
    kernels, targets = problem(n=90)
    expected = learn_combination(kernels, targets)
    found = learn_combination(kernels * np.reshape(units, (2, 1, 1)), targets)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-3)
    assert found.noise == pytest.approx(expected.noise, rel=1e-2)
    assert found.weights[0] * units[0] == pytest.approx(expected.weights[0], rel=1e-2)
    assert found.log_weights_std[0] == pytest.approx(expected.log_weights_std[0], rel=1e-2)


@pytest.mark.parametrize("penalty", [{"l1": 50.0}, {"l2": 50.0}])
def test_penalties_and_starting_weights_are_those_of_the_kernels_as_given(penalty):
    kernels, targets = problem(n=60)
    found = learn_combination(4.0 * kernels[:1], targets, tol=1e-12, **penalty)
    objective = _Objective(
        4.0 * kernels[:1], targets, _Parameters(found.weights, None, found.noise), 0.0, True, True,
        penalty.get("l1", 0.0), penalty.get("l2", 0.0), None, log_evidence, np.ones(1),
    )  # fmt: skip
    assert abs(objective(objective.pack(objective.start))[1]).max() < 1e-2
    step = learn_combination(4.0 * kernels, targets, weights=[0.3, 0.4], max_iter=1)
    same = learn_combination(kernels, targets, weights=[1.2, 1.6], max_iter=1)
    np.testing.assert_allclose(4.0 * step.weights, same.weights)


def test_kernels_of_unit_diagonal_start_at_one_and_others_are_not_copied():
    kernels, targets = problem()
    np.testing.assert_array_equal(unit_weights(kernels * (1 + 1e-12)), [1.0, 1.0])
    np.testing.assert_allclose(unit_weights(kernels * np.array([4.0, 0.0]).reshape(2, 1, 1)), [0.25, 1.0])
    settings = _Parameters(np.ones(2), None, 0.1), 0.0, True, True, 0, 0, None, log_evidence
    objective = _Objective(4.0 * kernels, targets, *settings, np.ones(2))
    again = _Objective(objective.bases, targets, *settings, np.full(2, 0.25))
    assert again.bases is objective.bases
    np.testing.assert_allclose(again.bounds(1e-6)[0], np.log(0.25) + np.array([-18.0, 18.0]))


def test_with_a_prior_few_labels_keep_several_kernels_and_many_choose():
    rng = np.random.default_rng(3)
    y = np.arange(120) % 4
    good = [np.eye(4)[y] + spread * rng.normal(size=(120, 4)) for spread in (0.4, 0.6)]
    kernels = np.stack([rbf(x, 1.0) for x in (*good, rng.normal(size=(120, 4)))])
    targets = np.where(y[:, None] == np.arange(4), 1.0, -1.0)

    def shares(n, spread):
        weights = learn_combination(kernels[:, :n, :n], targets[:n], level=1.0, spread=spread).weights
        return weights / weights.sum()

    assert shares(8, None)[1] < 0.01 < 0.1 < shares(8, 2.0)[1]
    np.testing.assert_allclose(shares(120, 2.0), shares(120, None), atol=0.05)
    found = learn_combination(kernels[:, :8, :8] * 1e6, targets[:8], level=1.0, spread=2.0)
    np.testing.assert_allclose(found.weights / found.weights.sum(), shares(8, 2.0), rtol=1e-2)


def test_a_strong_penalty_does_not_turn_the_signal_into_noise():
    kernels, targets = problem(n=60)
    for penalty in ({"l1": 1e4}, {"l2": 1e6}):
        found = learn_combination(kernels, targets, **penalty)
        assert found.weights[0] > found.noise


def test_standard_deviation_of_the_scale_is_that_of_a_normal_variance():
    """For K = I and fixed noise 0 the evidence of log α is that of a variance: the Hessian is n C / 2."""
    targets = np.where(np.random.default_rng(0).random((200, 2)) < 0.5, 1.0, -1.0)
    found = learn_combination(np.eye(200)[None], targets, noise=1e-9, learn_noise=False, tol=1e-12)
    assert found.weights[0] == pytest.approx(1.0, rel=1e-3)
    assert found.log_weights_std[0] == pytest.approx(np.sqrt(2 / 400), rel=1e-2)


def test_length_scale_of_a_distance_is_found():
    rng = np.random.default_rng(3)
    x = rng.uniform(size=(80, 1)) * 10
    distance = (x - x.T) ** 2
    y = np.linalg.cholesky(np.exp(-2.0 * distance) + 1e-6 * np.eye(80)) @ rng.normal(size=(80, 6))
    found = learn_combination(distance[None], y, distances=True, tol=1e-12)
    assert abs(np.log(found.scales[0] / 2.0)) < 4 * found.log_scales_std[0] < 1.0


def test_nothing_to_learn_returns_the_start():
    kernels, targets = problem()
    found = learn_combination(kernels, targets, weights=[0.3, 0.4], noise=0.2, learn_weights=False, learn_noise=False)
    np.testing.assert_array_equal(found.weights, [0.3, 0.4])
    expected = joint_log_evidence(combine(kernels, np.array([0.3, 0.4])) + 0.2 * np.eye(30), targets)
    assert found.log_evidence == pytest.approx(expected, rel=1e-9)


def test_one_image_per_class_is_not_all_noise():
    """Images of different classes that resemble each other say that the kernel is useless; half is left to it."""
    targets = 2.0 * np.eye(6) - 1.0
    kernel = (0.6 + 0.4 * np.eye(6))[None]
    found = learn_combination(kernel, targets, level=1.0)
    variance = targets.var(axis=0).mean()
    assert found.noise <= 0.5 * variance * (1 + 1e-9)
    assert found.weights[0] > 0.1
