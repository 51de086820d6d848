# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from typer.main import get_command

from patchbag.active.criteria import CRITERIA, doubt, influence, utilities, utilities_by_class
from patchbag.cli import app

RNG = np.random.default_rng(0)
MEAN, VARIANCE, NOISE = RNG.normal(size=(30, 4)), RNG.uniform(0.1, 2.0, 30), 0.05


def best(criterion, mean=MEAN):
    return int(np.argmax(utilities(criterion, mean, VARIANCE, NOISE, np.random.RandomState(0))))


def test_best_image_of_two_classes_is_that_of_table_1():
    y = MEAN[:, 0]
    both = np.stack([y, -y], axis=1)
    assert best("margin", both) == np.argmin(np.abs(y))
    assert best("variance", both) == np.argmax(VARIANCE)
    assert best("uncertainty", both) == np.argmin(np.abs(y) / np.sqrt(VARIANCE + NOISE))
    assert best("one_vs_all", both) == best("uncertainty", both)


def test_one_vs_all_is_the_best_over_all_problems():
    assert best("one_vs_all") == np.argmin((np.abs(MEAN) / np.sqrt(VARIANCE + NOISE)[:, None]).min(axis=1))


def test_influence_is_the_variance_removed_weighted_by_doubt():
    """Literally: condition a Gaussian on each image in turn and sum doubt times the fall of the variance."""
    a = RNG.normal(size=(12, 20))
    covariance = a @ a.T / 20
    doubts = RNG.random(12)
    expected = []
    for i in range(12):
        after = covariance - np.outer(covariance[i], covariance[i]) / (covariance[i, i] + NOISE)
        expected.append(doubts @ (np.diag(covariance) - np.diag(after)))
    np.testing.assert_allclose(influence(covariance, doubts, np.diag(covariance), NOISE), expected)


def test_uncertainty_is_twice_the_smaller_probability():
    p = norm.cdf(MEAN / np.sqrt(VARIANCE + NOISE)[:, None])
    expected = 2 * np.minimum(p, 1 - p)
    np.testing.assert_allclose(utilities_by_class("uncertainty", MEAN, VARIANCE, NOISE), expected)


def test_margin_and_variance_of_single_problems_are_those_of_table_1():
    margin = utilities_by_class("margin", MEAN, VARIANCE, NOISE)
    np.testing.assert_array_equal(margin.argmax(axis=0), np.abs(MEAN).argmin(axis=0))
    np.testing.assert_array_equal(np.argsort(-margin, axis=0), np.argsort(np.abs(MEAN), axis=0))
    np.testing.assert_array_equal(utilities_by_class("variance", MEAN, VARIANCE, NOISE), np.tile(VARIANCE, (4, 1)).T)


def test_doubt_is_the_probability_that_the_second_class_beats_the_leader():
    top = np.sort(MEAN, axis=1)[:, -2:]
    expected = 2 * norm.sf((top[:, 1] - top[:, 0]) / np.sqrt(2 * (VARIANCE + NOISE)))
    np.testing.assert_allclose(doubt(MEAN, VARIANCE, NOISE), expected)
    assert best("uncertainty") == np.argmax(expected)


def test_entropy_is_one_for_equal_means_and_small_for_a_clear_winner():
    mean = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]])
    value = utilities("entropy", mean, np.ones(2), 0.1, np.random.RandomState(0))
    assert value[0] == pytest.approx(1.0)
    assert value[1] < 0.01


def test_random_is_reproducible_and_unknown_criteria_are_named():
    a, b = (utilities("random", MEAN, VARIANCE, NOISE, np.random.RandomState(3)) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="criterion must be one of"):
        utilities("best", MEAN, VARIANCE, NOISE, np.random.RandomState(0))
    with pytest.raises(ValueError, match="no utilities for single classes"):
        utilities_by_class("entropy", MEAN, VARIANCE, NOISE)
    assert "uncertainty" in CRITERIA


def test_the_command_names_every_criterion():
    options = {option.name: option for option in get_command(app).commands["active"].params}
    assert all(criterion in options["criterion"].help for criterion in CRITERIA)
