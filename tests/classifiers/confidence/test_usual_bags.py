"""Two p-values in one."""

from __future__ import annotations

import numpy as np

from patchbag.classifiers.confidence.usual_bags import SHARE, either


def test_of_two_independent_p_values_one_is_made():
    """Uniform again: of typical images a share α has at most α, whatever α."""
    together = either(*np.random.default_rng(0).random((2, 200_000)))
    for level in (0.01, 0.05, 0.3, 0.8, 0.95):
        assert abs(np.mean(together <= level) - level) < 0.004


def test_two_equal_p_values_raise_no_false_alarm():
    p = np.linspace(0, 1, 1001)
    assert (either(p, p) >= p - 1e-12).all()


def test_a_bag_like_no_other_is_enough_and_an_ordinary_one_changes_nothing():
    assert either(np.array([0.6]), np.array([1e-6]))[0] < 1e-5
    by_class = np.linspace(0.001, 1 - SHARE, 50)
    assert (np.diff(either(by_class, np.ones(50))) > 0).all()  # no ties: the order of the images is the classifier's
