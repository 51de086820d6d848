# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

from oracles.gaussian_process import inducing_covariance, joint_log_evidence, posterior
from patchbag.classifiers.gaussian_process.nystroem import choose_inducing, fit_inducing

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
KERNEL = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
TARGETS = np.where(RNG.random((30, 2)) < 0.5, 1.0, -1.0)
TRAIN, ROWS, DIAGONAL = KERNEL[:30, :30], KERNEL[30:, :30], np.ones(10)


@pytest.mark.parametrize("method", ["nystroem", "fitc"])
def test_posterior_and_evidence_equal_the_dense_formulas(method):
    inducing = choose_inducing(TRAIN, 12)
    found = fit_inducing(TRAIN[:, inducing], np.ones(30), inducing, TARGETS, 0.1, method)
    q, covariance = inducing_covariance(TRAIN, inducing, 0.1, method)
    assert found.log_evidence == pytest.approx(joint_log_evidence(covariance, TARGETS), rel=1e-6)
    assert found.trace_error == pytest.approx(np.trace(TRAIN - q) / 30, rel=1e-6)
    k_uu = np.linalg.inv(TRAIN[np.ix_(inducing, inducing)])
    q_rows = ROWS[:, inducing] @ k_uu @ TRAIN[inducing]
    mean, variance = found.mean(ROWS[:, inducing]), found.variance(ROWS[:, inducing], DIAGONAL)
    np.testing.assert_allclose(mean, q_rows @ np.linalg.solve(covariance, TARGETS), atol=1e-6)
    expected = DIAGONAL - np.einsum("ij,ji->i", q_rows, np.linalg.solve(covariance, q_rows.T))
    np.testing.assert_allclose(variance, expected, atol=1e-6)


@pytest.mark.parametrize("method", ["nystroem", "fitc"])
def test_all_images_inducing_is_the_exact_process(method):
    found = fit_inducing(TRAIN, np.ones(30), np.arange(30), TARGETS, 0.1, method)
    mean, variance = posterior(TRAIN, TARGETS, 0.1, ROWS, DIAGONAL)
    np.testing.assert_allclose(found.mean(ROWS), mean, atol=1e-5)
    np.testing.assert_allclose(found.variance(ROWS, DIAGONAL), variance, atol=1e-5)
    assert found.trace_error < 1e-8


def test_pivoted_choice_explains_more_variance_than_a_random_one():
    def error(inducing):
        return fit_inducing(TRAIN[:, inducing], np.ones(30), inducing, TARGETS, 0.1).trace_error

    random = [error(np.random.default_rng(i).choice(30, 8, replace=False)) for i in range(20)]
    assert error(choose_inducing(TRAIN, 8)) < np.median(random)


def test_choice_stops_when_repeated_images_add_nothing():
    repeated = np.kron(np.ones((2, 2)), TRAIN[:5, :5])
    assert len(choose_inducing(repeated, 9)) == 5


def test_more_inducing_images_than_the_rank_in_single_precision():
    points = np.random.default_rng(1).normal(size=(30, 4)).astype(np.float32)
    kernel = (points @ points.T).astype(float)
    found = fit_inducing(kernel, np.diagonal(kernel), np.arange(30), TARGETS, 0.1)
    mean = posterior(kernel, TARGETS, 0.1, kernel[:5], np.diagonal(kernel)[:5])[0]
    np.testing.assert_allclose(found.mean(kernel[:5]), mean, atol=1e-3)
    with pytest.raises(ValueError, match="not positive definite"):
        fit_inducing(kernel - np.eye(30), np.diagonal(kernel), np.arange(30), TARGETS, 0.1)
