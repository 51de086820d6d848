# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from scipy import special
from sklearn.exceptions import ConvergenceWarning

from oracles.polya import draw_polya, polya_log_likelihood
from patchbag.encodings.conjugate import LARGEST, SMALLEST, fit_gamma, fit_polya, polya_terms


def test_derivatives_of_the_likelihood_equal_finite_differences():
    rng = np.random.default_rng(0)
    counts, alpha, h = rng.gamma(0.7, 2.0, (6, 4)), rng.gamma(2.0, 1.0, 4), 1e-5
    terms = polya_terms(counts, alpha)
    assert terms.value == pytest.approx(sum(polya_log_likelihood(row, alpha) for row in counts), rel=1e-12)
    for k in range(4):
        step = h * np.eye(4)[k]
        up, down = polya_terms(counts, alpha + step), polya_terms(counts, alpha - step)
        assert (up.value - down.value) / (2 * h) == pytest.approx(terms.g[k] - terms.G, abs=1e-7)
        second = ((up.g - up.G) - (down.g - down.G)) / (2 * h)
        np.testing.assert_allclose(second, terms.H - np.diag(terms.h)[k], atol=1e-6)


@pytest.mark.parametrize("strength", [0.3, 3.0, 100.0])
def test_fit_recovers_the_dirichlet_that_made_the_counts(strength):
    rng = np.random.default_rng(1)
    alpha = strength * rng.dirichlet(np.full(8, 3.0))
    fitted = fit_polya(draw_polya(alpha, 3000, 200, rng))
    np.testing.assert_allclose(fitted, alpha, rtol=0.12)


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_gradient_vanishes_at_the_fit_also_for_counts_below_one(scale):
    rng = np.random.default_rng(2)
    counts = scale * draw_polya(0.2 * np.ones(12), 300, 60, rng)
    alpha = fit_polya(counts, tol=1e-9)
    terms = polya_terms(counts, alpha)
    assert (alpha > SMALLEST).all()
    assert np.abs(alpha * (terms.g - terms.G)).max() < 1e-4
    for k in range(12):
        other = alpha * np.where(np.arange(12) == k, 1.05, 1.0)
        assert polya_terms(counts, other).value < terms.value


def test_fit_does_not_depend_on_the_start():
    counts = draw_polya(np.array([0.1, 0.5, 2.0, 4.0]), 200, 50, np.random.default_rng(3))
    far = fit_polya(counts, initial=np.array([100.0, 1e-3, 5e3, 1.0]), tol=1e-9)
    np.testing.assert_allclose(far, fit_polya(counts, tol=1e-9), rtol=1e-4)


def test_counts_without_burstiness_run_to_the_bound_with_the_right_proportions():
    p = np.array([0.1, 0.2, 0.7])
    alpha = fit_polya(np.tile(100 * p, (50, 1)))
    assert alpha.sum() == pytest.approx(LARGEST)
    np.testing.assert_allclose(alpha / alpha.sum(), p, rtol=1e-3)


def test_a_word_that_never_occurs_is_held_at_the_lower_bound():
    counts = draw_polya(np.ones(3), 100, 50, np.random.default_rng(4))
    counts[:, 1] = 0
    alpha = fit_polya(counts)
    assert alpha[1] == SMALLEST
    assert (alpha[[0, 2]] > 0.1).all()


def test_too_few_iterations_give_a_warning():
    counts = draw_polya(np.array([0.1, 0.5, 2.0, 4.0]), 200, 50, np.random.default_rng(3))
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        fit_polya(counts, max_iter=1)


def test_gamma_is_recovered_from_its_expectations():
    a, b = np.array([0.01, 0.3, 1.0, 7.0, 3e4]), np.array([2.0, 0.1, 5.0, 1.0, 1e3])
    fitted_a, fitted_b = fit_gamma(a / b, special.digamma(a) - np.log(b))
    np.testing.assert_allclose(fitted_a, a, rtol=1e-6)
    np.testing.assert_allclose(fitted_b, b, rtol=1e-6)


def test_gamma_of_a_constant_is_held_at_the_largest_shape():
    a, b = fit_gamma(np.array([2.0]), np.log([2.0]))
    assert a == LARGEST
    assert a / b == pytest.approx(2.0)
