# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from patchbag.active.simulation import LearningCurves, simulate

RNG = np.random.default_rng(0)


def unbalanced():
    """A frequent class that is easy and two rare ones: random selection wastes its labels on the first."""
    sizes = [140, 30, 30]
    y = np.repeat([0, 1, 2], sizes)
    x = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]])[y] + RNG.normal(size=(200, 2))
    return rbf_kernel(x, gamma=0.3), y


KERNEL, Y = unbalanced()


def test_uncertainty_learns_faster_than_random_on_unbalanced_classes():
    curves = simulate(KERNEL, Y, n_labels=25, n_runs=12, random_state=0)
    np.testing.assert_array_equal(curves.n_labels, np.arange(3, 26))
    assert curves.mean("uncertainty")[-10:].mean() > curves.mean("random")[-10:].mean() + 0.01
    target = curves.mean("random")[-1]
    assert curves.labels_to_reach("uncertainty", target) < 25


def test_strategies_start_from_the_same_images_and_runs_repeat():
    a = simulate(KERNEL, Y, n_labels=8, n_runs=3, random_state=1)
    b = simulate(KERNEL, Y, n_labels=8, n_runs=3, random_state=1)
    np.testing.assert_array_equal(a.scores["uncertainty"][:, 0], a.scores["random"][:, 0])
    np.testing.assert_array_equal(a.scores["uncertainty"], b.scores["uncertainty"])


def test_cold_start_batches_and_own_strategies():
    criteria = {"mine": {"criterion": "influence", "cold_start": "farthest"}}
    curves = simulate(KERNEL, Y, criteria=criteria, n_labels=20, n_start=0, batch_size=6, n_runs=2, random_state=0)
    np.testing.assert_array_equal(curves.n_labels, [1, 7, 13, 19, 20])
    assert curves.mean("mine")[-1] > curves.mean("mine")[0]


def test_curves_carry_mean_and_standard_error():
    curves = LearningCurves(np.array([1, 2]), {"a": np.array([[0.0, 0.5], [0.2, 0.7]])})
    np.testing.assert_allclose(curves.mean("a"), [0.1, 0.6])
    np.testing.assert_allclose(curves.standard_error("a"), [0.1, 0.1])
    assert curves.labels_to_reach("a", 0.5) == 2
    assert curves.labels_to_reach("a", 0.9) is None
    falls = LearningCurves(np.array([1, 2, 3, 4]), {"a": np.array([[0.6, 0.4, 0.7, 0.8]])})
    assert falls.labels_to_reach("a", 0.5) == 3  # that it starts above is no merit of the labels


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": Y[:5]}, "but there are 5 labels"),
        ({"y": np.zeros(200)}, "needs at least two classes"),
        ({"n_test": 29}, "class 1 has 30 images"),
        ({"n_labels": 3}, "more than the 3 first labels and at most 170"),
    ],
)
def test_bad_input_is_a_clear_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        simulate(KERNEL, **{"y": Y, **arguments})
