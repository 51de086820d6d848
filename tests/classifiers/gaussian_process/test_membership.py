# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from oracles.gaussian_process import winning_probability
from patchbag.classifiers.gaussian_process.membership import membership, winning_probabilities


def test_winning_probabilities_equal_adaptive_quadrature():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(6, 5)) * np.array([0.01, 0.1, 1, 5, 30, 100])[:, None]
    deviation = rng.uniform(0.2, 2.0, size=(6, 5))
    expected = [[winning_probability(m, s, c) for c in range(5)] for m, s in zip(mean, deviation)]
    np.testing.assert_allclose(winning_probabilities(mean, deviation), expected, atol=1e-7)


def winning_by_pieces(mean, deviation, c):
    """The same probability for deviations of very different size: quadrature between places where a class varies."""

    def integrand(v):
        others = np.delete(ndtr((v - mean) / deviation), c)
        return norm.pdf(v, mean[c], deviation[c]) * np.prod(others)

    ends = mean[c] + 9 * deviation[c] * np.array([-1, 1])
    breaks = np.ravel(mean + deviation * np.array([-8, -3, -1, 0, 1, 3, 8])[:, None])
    places = np.unique(np.concatenate([ends, np.clip(breaks, *ends)]))
    return sum(quad(integrand, a, b, epsabs=1e-9)[0] for a, b in pairwise(places))


@pytest.mark.parametrize("spread", [0.5, 1.0, 4.0])
def test_classes_of_very_different_deviation_equal_quadrature(spread):
    rng = np.random.default_rng(3)
    deviation = 10 ** rng.uniform(-spread, spread, size=(8, 4))
    mean = rng.normal(size=(8, 4)) * np.geomspace(1e-3, 1e3, 8)[:, None]
    expected = [[winning_by_pieces(m, s, c) for c in range(4)] for m, s in zip(mean, deviation)]
    np.testing.assert_allclose(winning_probabilities(mean, deviation), expected, atol=1e-6)


def test_a_narrow_class_is_not_lost_between_the_nodes_of_a_wide_one():
    p = winning_probabilities([[0.0, 0.5]], [[1.0, 1e-3]])
    np.testing.assert_allclose(p, [[1 - norm.cdf(0.5), norm.cdf(0.5)]], atol=1e-5)


@pytest.mark.parametrize("ratio", [3.9, 4.1])
def test_both_rules_agree_with_quadrature_where_they_meet_with_a_hundred_classes(ratio):
    mean, deviation = np.random.default_rng(4).normal(size=100) / 10, np.ones(100)
    deviation[0] = ratio
    expected = [winning_by_pieces(mean, deviation, c) for c in (0, 1)]
    np.testing.assert_allclose(winning_probabilities(mean[None], deviation[None])[0, :2], expected, atol=1e-5)


def test_certain_labels_give_the_limit_of_small_deviations():
    mean = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
    deviation = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    expected = [[0.0, 0.5, 0.5], [norm.sf(2.0), 0.0, norm.cdf(2.0)]]
    np.testing.assert_allclose(winning_probabilities(mean, deviation), expected, atol=1e-7)


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
    for s in (np.ones((9, 1)), np.array([1.0, 0.3, 0.01, 1e-3])):
        s = np.broadcast_to(s, mean.shape)
        blocks = winning_probabilities(mean, s, max_values=1)
        np.testing.assert_allclose(winning_probabilities(mean, s), blocks, rtol=1e-13)


def test_membership_is_the_probability_of_a_positive_label():
    np.testing.assert_allclose(membership(np.array([0.0, 1.0]), np.array([1.0, 2.0])), [0.5, norm.cdf(0.5)])
