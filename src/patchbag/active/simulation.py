# SPDX-License-Identifier: BSD-3-Clause
r"""Replaying active learning on a pool whose labels are known.

Every strategy asks for labels, one round after the other, from nothing: no label, no list of classes.  After each round
the mean accuracy per class on all images that have no label yet is measured; an image of a class that has not been
found is a wrong one.  The curves carry the standard error over runs.

kapoor2010, figures 8 to 10, begins with ``n_start`` labelled images of each class and measures on ``n_test`` images per
class that are never asked for; strategies of a run then start from the same images, so that their difference is paired.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from patchbag.active.learner import ActiveLearner, check_pool_kernel
from patchbag.active.pool_learner import RULES, PoolLearner
from patchbag.metrics import mean_class_accuracy
from patchbag.protocol import PerClassSplit
from patchbag.similarity.graph.image_graph import ImageGraph


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

    def plot(self, axes: Any = None, title: str = "") -> Any:
        """Mean accuracies with standard errors on Matplotlib's ``axes``, by default new ones; returns them."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(6.5, 4.2), layout="constrained").subplots()
        for name, color in zip(self.scores, ("#2b66b1", "#b3402f", "#4d8f4d", "#8a5fb0", "#b08a2b", "#555555")):
            mean, error = 100 * self.mean(name), 100 * self.standard_error(name)
            every = max(1, len(mean) // 15)
            axes.errorbar(self.n_labels, mean, error, label=name, color=color, capsize=2, errorevery=every)
        axes.set(xlabel="labels", ylabel="mean accuracy per class, %", title=title)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend()
        return axes

    def labels_to_reach(self, name: str, score: float) -> int | None:
        """Number of labels from which on the mean curve stays at ``score`` or above; None if there is no such."""
        below = np.flatnonzero(self.mean(name) < score)
        first = int(below[-1]) + 1 if len(below) else 0
        return int(self.n_labels[first]) if first < len(self.n_labels) else None


def simulate(
    pool: Any,
    y: Any,
    *,
    criteria: Any = None,
    n_labels: int = 100,
    batch_size: int = 1,
    n_runs: int = 10,
    n_test: int = 0,
    n_start: int = 0,
    random_state: int = 0,
    **settings: Any,
) -> LearningCurves:
    """Replay active learning against random selection on a labelled pool.

    Parameters
    ----------
    pool : an ImageGraph, for strategies of :class:`PoolLearner`; or a kernel (N, N), for those of
        :class:`ActiveLearner`
    y : (N,) true labels
    criteria : strategies, by name of the rule or criterion; or a dict of name to parameters of the learner (default:
        that of the learner, and "random")
    n_labels : labels at the end of a run
    batch_size : labels asked for in a round
    n_runs : runs with different draws
    n_test : test images of each class; 0 for all images without a label
    n_start : labelled images of each class at the start; 0 to start from nothing
    settings : of every learner, unless a strategy has its own; random selection has no use for ``batch``.  The protocol
        of kapoor2010 is ``batch="per_class"`` with a ``batch_size`` of the number of classes
    """
    y = np.asarray(y)
    strategies, make = _strategies(pool, len(y), criteria, settings)
    classes, sizes = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"all {len(y)} labels are {classes.tolist()}; a simulation needs at least two classes")
    small = sizes < n_test + n_start + (n_test > 0)
    if small.any():
        raise ValueError(
            f"class {classes[small][0]} has {sizes[small][0]} images, too few for {n_test} test and {n_start} first"
        )
    begin = n_start * len(classes)
    available = len(y) - n_test * len(classes) - (n_test == 0)
    if not begin < n_labels <= available:
        raise ValueError(f"n_labels must be more than the {begin} first labels and at most {available}, got {n_labels}")
    steps = np.append(np.arange(max(begin, 1), n_labels, batch_size), n_labels)
    scores = {name: np.zeros((n_runs, len(steps))) for name in strategies}
    confusions = {name: np.zeros((len(classes), len(classes)), dtype=int) for name in strategies}
    nobody = (np.empty(0, int), np.empty(0, int))
    splits = PerClassSplit(n_start, n_test or 1, n_runs, random_state).split(y, y)
    for run, (first, test) in enumerate(splits if n_start + n_test else [nobody] * n_runs):
        test = test if n_test else nobody[1]
        for name, parameters in strategies.items():
            learner = make({**parameters, "random_state": random_state + run})
            learner.skip(test).teach(first, y[first])
            for step, target in enumerate(steps):
                if target > learner.n_labels_:
                    asked = learner.query(int(target - learner.n_labels_))
                    learner.teach(asked, y[asked])
                judged = test if n_test else np.setdiff1d(np.arange(len(y)), list(learner.labels_))
                predicted = learner.predict()[judged]
                scores[name][run, step] = mean_class_accuracy(y[judged], predicted)
            confusions[name] += confusion_matrix(y[judged], predicted, labels=classes)
    return LearningCurves(steps, scores, confusions, classes)


def _strategies(
    pool: Any, n: int, criteria: Any, settings: dict[str, Any]
) -> tuple[dict[str, Any], Callable[..., Any]]:
    """Parameters of the learner of each strategy, and what makes a learner of the pool from them."""
    graph = isinstance(pool, ImageGraph)
    size = (len(pool),) if graph else np.shape(pool)
    if size != ((n,) if graph else (n, n)):
        raise ValueError(f"the {'graph' if graph else 'kernel'} has shape {size} but there are {n} labels")
    chosen = "rule" if graph else "criterion"
    if criteria is None:
        criteria = (RULES[0], "random") if graph else ("uncertainty", "random")
    named = criteria if isinstance(criteria, dict) else {name: {chosen: name} for name in criteria}
    named = {name: {**settings, **parameters} for name, parameters in named.items()}
    if graph:
        return named, lambda parameters: PoolLearner(**parameters).fit(pool)
    kernel = check_pool_kernel(pool, any(parameters.get("repair") for parameters in named.values()))
    return named, lambda parameters: ActiveLearner(**parameters)._fit(kernel)
