# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from patchbag.active import simulation
from patchbag.active.learner import ActiveLearner
from patchbag.active.simulation import LearningCurves, simulate
from patchbag.metrics import mean_class_accuracy
from patchbag.similarity.graph.image_graph import ImageGraph

RNG = np.random.default_rng(0)


def unbalanced():
    """A frequent class that is easy and two rare ones: random selection wastes its labels on the first."""
    sizes = [140, 30, 30]
    y = np.repeat([0, 1, 2], sizes)
    x = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]])[y] + RNG.normal(size=(200, 2))
    return rbf_kernel(x, gamma=0.3), y


KERNEL, Y = unbalanced()
PAPER = {"n_start": 1, "n_test": 10}  # kapoor2010


def test_uncertainty_learns_faster_than_random_on_unbalanced_classes():
    curves = simulate(KERNEL, Y, n_labels=25, n_runs=12, **PAPER)
    np.testing.assert_array_equal(curves.n_labels, np.arange(3, 26))
    assert curves.mean("uncertainty")[-10:].mean() > curves.mean("random")[-10:].mean() + 0.01
    target = curves.mean("random")[-1]
    assert curves.labels_to_reach("uncertainty", target) < 25


def test_strategies_start_from_the_same_images_and_runs_repeat():
    a = simulate(KERNEL, Y, n_labels=8, n_runs=3, random_state=1, **PAPER)
    b = simulate(KERNEL, Y, n_labels=8, n_runs=3, random_state=1, **PAPER)
    np.testing.assert_array_equal(a.scores["uncertainty"][:, 0], a.scores["random"][:, 0])
    np.testing.assert_array_equal(a.scores["uncertainty"], b.scores["uncertainty"])


def test_cold_start_batches_and_own_strategies():
    criteria = {"mine": {"criterion": "influence", "cold_start": "farthest"}}
    curves = simulate(KERNEL, Y, criteria=criteria, n_labels=20, batch_size=6, n_runs=2)
    np.testing.assert_array_equal(curves.n_labels, [1, 7, 13, 19, 20])
    assert curves.mean("mine")[-1] > curves.mean("mine")[0]


class Witness(ActiveLearner):
    """Remembers every learner that a simulation made."""

    made: ClassVar[list[ActiveLearner]] = []

    def _fit(self, kernel, y=None):
        self.batches_ = []
        Witness.made.append(self)
        return super()._fit(kernel, y)

    def query(self, batch_size=1, **options):
        asked = super().query(batch_size, **options)
        self.batches_.append(asked)
        return asked


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(Witness, "made", [])
    monkeypatch.setattr(simulation, "ActiveLearner", Witness)
    return Witness.made


def test_test_images_are_never_asked_for(made):
    available = len(Y) - 3 * 10
    simulate(KERNEL, Y, n_labels=available, n_runs=2, batch_size=40, **PAPER)
    assert len(made) == 4
    for learner in made:
        assert learner.n_labels_ == available and not learner.available_.any()
        unlabelled = np.setdiff1d(np.arange(len(Y)), list(learner.labels_))
        np.testing.assert_array_equal(np.unique(Y[unlabelled], return_counts=True)[1], [10, 10, 10])


def test_the_papers_protocol_picks_one_image_a_class_and_round(made):
    four = np.arange(200) % 4
    criteria = ["uncertainty", "margin", "variance", "random"]
    options = {"n_labels": 22, "batch_size": 4, "batch": "per_class", "noise": 1e-5, "n_runs": 1, **PAPER}
    curves = simulate(KERNEL + 0.1 * (four[:, None] == four), four, criteria=criteria, **options)
    np.testing.assert_array_equal(curves.n_labels, [4, 8, 12, 16, 20, 22])
    assert [learner.criterion for learner in made] == criteria
    for learner in made:
        assert (learner.noise, learner.batch) == (1e-5, "per_class")
        assert [len(set(asked)) for asked in learner.batches_] == [4, 4, 4, 4, 2]
    assert all(np.isfinite(scores).all() for scores in curves.scores.values())


def test_noise_and_batch_reach_the_learners_unless_a_strategy_has_its_own(made):
    own = {"plain": {"criterion": "uncertainty"}, "own": {"criterion": "uncertainty", "batch": "top", "noise": 0.5}}
    simulate(KERNEL, Y, criteria=own, n_labels=9, batch_size=3, n_runs=1, noise=0.2, batch="per_class", **PAPER)
    assert [(learner.noise, learner.batch) for learner in made] == [(0.2, "per_class"), (0.5, "top")]


def test_kernels_that_are_not_definite_are_refused_or_repaired():
    broken = KERNEL - 0.6 * np.eye(200)
    with pytest.raises(ValueError, match=r"not positive semidefinite.*repair=True"):
        simulate(broken, Y, n_labels=8, n_runs=1)
    curves = simulate(broken, Y, n_labels=8, n_runs=1, repair=True, random_state=0)
    assert all(np.isfinite(scores).all() for scores in curves.scores.values())


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
        simulate(KERNEL, **{"y": Y, **PAPER, **arguments})


def test_a_graph_is_asked_from_nothing_and_judged_on_all_images_without_a_label(monkeypatch):
    y = np.repeat(np.array(["a", "b", "c"]), [60, 60, 6])
    graph = ImageGraph.from_vectors(np.eye(8)[np.searchsorted(["a", "b", "c"], y)] + 0.15 * RNG.random((126, 8)))
    judged = []
    monkeypatch.setattr(
        simulation,
        "mean_class_accuracy",
        lambda truth, predicted: (judged.append(len(truth)), mean_class_accuracy(truth, predicted))[1],
    )
    curves = simulate(graph, y, n_labels=4, n_runs=3)
    assert list(curves.scores) == ["representative", "random"]
    assert judged == [125, 124, 123, 122] * 6
    assert curves.mean("representative")[2] == 1.0 > curves.mean("random")[2]
    assert curves.confusions["representative"].sum() == 3 * 122
