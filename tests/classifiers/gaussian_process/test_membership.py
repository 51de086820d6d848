# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
from scipy.stats import norm

from oracles.gaussian_process import winning_probability
from patchbag.classifiers.gaussian_process.membership import membership, winning_probabilities


def test_winning_probabilities_equal_adaptive_quadrature():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(6, 5)) * np.array([0.01, 0.1, 1, 5, 30, 100])[:, None]
    for deviation in (rng.uniform(0.2, 2.0, size=(6, 1)), rng.uniform(0.2, 2.0, size=(6, 5))):
        expected = [[winning_probability(z, np.ones(5), c) for c in range(5)] for z in mean / deviation]
        np.testing.assert_allclose(winning_probabilities(mean, deviation), expected, atol=1e-7)


def test_certain_labels_give_the_limit_of_small_deviations():
    mean = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
    np.testing.assert_allclose(winning_probabilities(mean, np.zeros((2, 1))), [[0, 0.5, 0.5], [0, 0, 1]], atol=1e-7)


def test_two_classes_have_a_closed_form():
    mean = np.array([[0.3, -0.2], [2.0, 5.0]])
    p = winning_probabilities(mean, np.array([[0.7], [1.1]]))
    np.testing.assert_allclose(p[:, 0], norm.cdf((mean[:, 0] - mean[:, 1]) / np.sqrt(2) / [0.7, 1.1]), atol=1e-9)


def test_common_deviation_ranks_classes_as_the_means_do_and_never_gives_nan():
    mean = np.random.default_rng(1).normal(size=(50, 101)) * 100
    p = winning_probabilities(mean, np.full((50, 1), 1e-4))
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(p.argmax(axis=1), mean.argmax(axis=1))


def test_small_blocks_give_the_same_answer():
    mean = np.random.default_rng(2).normal(size=(9, 4))
    blocks = winning_probabilities(mean, np.ones((9, 1)), max_values=1)
    np.testing.assert_allclose(winning_probabilities(mean, np.ones((9, 1))), blocks, rtol=1e-13)


def test_membership_is_the_probability_of_a_positive_label():
    np.testing.assert_allclose(membership(np.array([0.0, 1.0]), np.array([1.0, 2.0])), [0.5, norm.cdf(0.5)])
