# SPDX-License-Identifier: BSD-3-Clause
r"""Replaying active learning on a pool whose labels are known (kapoor2010, figures 8 to 10).

Each run draws a test set (``n_test`` images per class) and one labelled image of each class, then lets every strategy
ask for labels of the rest, one round after the other, and measures after each round the mean recognition rate per
class on the test set (the paper's metric).  All strategies of a run start from the same images, so that their
difference is paired; the curves carry the standard error over runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from patchbag.active.checks import check_pool_kernel
from patchbag.active.learner import ActiveLearner
from patchbag.metrics import mean_class_accuracy
from patchbag.protocol import PerClassSplit


@dataclass(frozen=True)
class LearningCurves:
    """``n_labels (rounds,)`` and for each strategy ``scores[name] (runs, rounds)``, the mean accuracy per class.

    ``confusions[name] (C, C)`` counts test images of all runs after the last round, true classes in rows and predicted
    ones in columns, in the order of ``classes``.
    """

    n_labels: np.ndarray
    scores: dict[str, np.ndarray]
    confusions: dict[str, np.ndarray] = field(default_factory=dict)
    classes: np.ndarray | None = None

    def mean(self, name: str) -> np.ndarray:
        """(rounds,) mean over runs."""
        return self.scores[name].mean(axis=0)

    def standard_error(self, name: str) -> np.ndarray:
        """(rounds,) standard error of the mean; 0 for a single run."""
        runs = len(self.scores[name])
        return self.scores[name].std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else np.zeros(len(self.n_labels))

    def labels_to_reach(self, name: str, score: float) -> int | None:
        """Number of labels from which on the mean curve stays at ``score`` or above; None if there is no such."""
        below = np.flatnonzero(self.mean(name) < score)
        first = int(below[-1]) + 1 if len(below) else 0
        return int(self.n_labels[first]) if first < len(self.n_labels) else None


def simulate(
    kernel: Any,
    y: Any,
    *,
    criteria: Any = ("uncertainty", "random"),
    n_labels: int = 100,
    batch_size: int = 1,
    n_runs: int = 10,
    n_test: int = 10,
    n_start: int = 1,
    noise: float = 1e-2,
    batch: str = "diverse",
    repair: bool = False,
    random_state: int = 0,
) -> LearningCurves:
    """Replay active learning against random selection on a labelled pool.

    Parameters
    ----------
    kernel : (N, N)
    y : (N,) true labels
    criteria : strategies, by name of the criterion; or a dict of name to ActiveLearner parameters
    n_labels : labels at the end of a run
    batch_size : labels asked for in a round
    n_runs : runs with different test sets and first images
    n_test : test images of each class
    n_start : labelled images of each class at the start; 0 for a cold start
    noise, batch : of every ActiveLearner, unless a strategy has its own; random selection has no use for ``batch``.
        The paper's protocol is ``batch="per_class"`` with a ``batch_size`` of the number of classes
    repair : clip the negative eigenvalues of a kernel that is not positive semidefinite, which is an error otherwise
    """
    kernel, y = np.asarray(kernel, dtype=float), np.asarray(y)
    if kernel.shape != (len(y), len(y)):
        raise ValueError(f"the kernel has shape {kernel.shape} but there are {len(y)} labels")
    strategies = criteria if isinstance(criteria, dict) else {name: {"criterion": name} for name in criteria}
    classes, sizes = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"all {len(y)} labels are {classes.tolist()}; a simulation needs at least two classes")
    small = sizes <= n_test + n_start
    if small.any():
        raise ValueError(
            f"class {classes[small][0]} has {sizes[small][0]} images, too few for {n_test} test and {n_start} first"
        )
    begin = n_start * len(classes)
    available = len(y) - n_test * len(classes)
    if not begin < n_labels <= available:
        raise ValueError(f"n_labels must be more than the {begin} first labels and at most {available}, got {n_labels}")
    steps = np.append(np.arange(max(begin, 1), n_labels, batch_size), n_labels)
    kernel = check_pool_kernel(kernel, repair)
    scores = {name: np.zeros((n_runs, len(steps))) for name in strategies}
    confusions = {name: np.zeros((len(classes), len(classes)), dtype=int) for name in strategies}
    for run, (first, test) in enumerate(PerClassSplit(n_start, n_test, n_runs, random_state).split(y, y)):
        for name, parameters in strategies.items():
            settings = {"noise": noise, "batch": batch, **parameters, "random_state": random_state + run}
            learner = ActiveLearner(**settings)._fit(kernel).skip(test)
            learner.teach(first, y[first])
            for step, target in enumerate(steps):
                if target > learner.n_labels_:
                    asked = learner.query(int(target - learner.n_labels_))
                    learner.teach(asked, y[asked])
                predicted = learner.predict()[test]
                scores[name][run, step] = mean_class_accuracy(y[test], predicted)
            confusions[name] += confusion_matrix(y[test], predicted, labels=classes)
    return LearningCurves(steps, scores, confusions, classes)
