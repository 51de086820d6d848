# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

from oracles.gaussian_process import laplace
from patchbag.classifiers.gaussian_process.laplace import LaplacePosterior, find_mode, probit_derivatives


def problem():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, 2))
    kernel = 4.0 * np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(axis=2)) + 1e-3 * np.eye(10)
    return kernel, np.where(x[:, 0] + 0.3 * rng.normal(size=10) > 0, 1.0, -1.0)


def test_derivatives_equal_finite_differences():
    y = np.array([-8.0, -1.0, 0.0, 0.4, 3.0])
    t = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    h = 1e-5
    low, high = probit_derivatives(t, y - h), probit_derivatives(t, y + h)
    for order in range(3):
        numeric = (high[order] - low[order]) / (2 * h)
        np.testing.assert_allclose(probit_derivatives(t, y)[order + 1], numeric, rtol=1e-4, atol=1e-8)


def test_mode_and_evidence_equal_those_of_a_general_optimiser():
    kernel, targets = problem()
    expected_mode, w, evidence = laplace(kernel, targets)
    found = find_mode(kernel, targets)
    np.testing.assert_allclose(found.labels, expected_mode, atol=1e-4)
    np.testing.assert_allclose(found.root**2, w, atol=1e-4)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-4)


def test_prediction_equals_the_dense_formula():
    kernel, targets = problem()
    modes = [find_mode(kernel[:8, :8], sign * targets[:8]) for sign in (1, -1)]
    both = np.stack([targets[:8], -targets[:8]], axis=1)
    found = LaplacePosterior.from_kernel(kernel[:8, :8] - 1e-3 * np.eye(8), both, 1e-3)
    rows, diagonal = kernel[8:, :8], np.diag(kernel)[8:]
    mean, variance = found.mean(rows), found.variance(rows, diagonal)
    inverse = np.linalg.inv(kernel[:8, :8])
    for c, mode in enumerate(modes):
        np.testing.assert_allclose(mean[:, c], rows @ inverse @ mode.labels, atol=1e-6)
        covariance = np.linalg.inv(kernel[:8, :8] + np.diag(1 / mode.root**2))
        expected = diagonal - np.einsum("ij,jk,ik->i", rows, covariance, rows)
        np.testing.assert_allclose(variance[:, c], expected, atol=1e-8)
    assert found.log_evidence == pytest.approx(sum(mode.log_evidence for mode in modes))


def test_newton_converges_for_a_huge_prior_variance():
    kernel, targets = problem()
    found = find_mode(1e6 * kernel, targets)
    np.testing.assert_allclose(1e6 * kernel @ found.gradient, found.labels, rtol=1e-3, atol=1e-2)
    assert np.all(np.sign(found.labels) == targets)
