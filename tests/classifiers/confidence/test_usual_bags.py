"""Two p-values in one."""

from __future__ import annotations

import numpy as np

from patchbag.classifiers.confidence.usual_bags import RARE, either


def test_of_two_independent_p_values_one_is_made():
    """Uniform again: of typical images a share α has at most α, whatever α."""
    together = either(*np.random.default_rng(0).random((2, 200_000)))
    for level in (0.01, 0.05, 0.3, 0.8, 0.95):
        assert abs(np.mean(together <= level) - level) < 0.004


def test_a_bag_like_no_other_is_enough_and_an_ordinary_one_changes_nothing():
    assert either(np.array([0.6]), np.array([1e-6]))[0] < 1e-5
    by_class, by_bag = np.linspace(0.001, 1, 50), np.random.default_rng(0).uniform(2 * RARE, 1, 50)
    together = either(by_class, by_bag)
    assert (np.diff(together) > 0).all()  # no ties: the order of the images is the classifier's
    assert (together >= by_class).all()  # and two that are equal raise no false alarm
