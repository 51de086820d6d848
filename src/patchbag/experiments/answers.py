# SPDX-License-Identifier: BSD-3-Clause
"""What classifiers say beyond one class: second choices (piro2010, table 5.2), and what a person should distrust.

``ranks``: how often the true class is among the first r (``at``), mean over the classes.

``calibration``: mean stated probability of the predicted class beside the share that is right, for so many labels per
class (``at``); the draw in which they are furthest apart; the logarithmic loss, and what it would be with the best
power of all probabilities, known only afterwards.

``distrust``: every class in turn is left out of training, or a random half of them at once (``half = true``), and
their images are tested with those of the others, for so many labels per class (``at``).  Of the images of known
classes: how far stated probabilities are from how often they are right, how often a set of classes that should hold the
true one in 90 % does, and how many are taken for unlike anything seen.  Of those of the classes left out: how many are,
how sure the classifier is of the wrong class that it must give them, and how well typicality tells them from the known
ones (area under the curve; 50 is a guess).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import Pipeline

from patchbag.categorizer import Categorizer
from patchbag.evaluation import score_classes
from patchbag.experiments.experiment import Experiment, Row, make_row
from patchbag.experiments.files import study
from patchbag.runtime import runtime_context

COVERAGE = 0.9
POWERS = np.geomspace(0.25, 4.0, 41)  # of probabilities, normalised again; 1 in the middle
STRANGE = 0.05  # the typicality below which an image is taken for unlike anything seen


def _left_out(spec: dict[str, Any], labels: np.ndarray, seed: int) -> list[np.ndarray]:
    """Classes that are left out together."""
    classes = np.unique(labels)
    if not spec.get("half", False):
        return [np.array([left]) for left in classes]
    return [np.random.RandomState(seed).permutation(classes)[(len(classes) + 1) // 2 :]]


def _on_splits(
    experiment: Experiment, find: Callable[..., Any], sizes: list[int], leave_out: bool = False
) -> Iterator[tuple[dict[str, Any], int, list[Any]]]:
    """Each run, a number of labels per class, and what is found on every split (without some classes in training)."""
    labels = experiment.labels
    for run, pipeline, bags in experiment.described_runs():
        for n in sizes:
            found = []
            for seed, train, test in experiment.splits(n):
                experiment.progress(f"{run['name']}, {n} per class, seed {seed}")
                for left in _left_out(experiment.spec, labels, seed) if leave_out else [np.array([])]:
                    some = train[~np.isin(labels[train], left)]
                    found.append(experiment.recall(find, pipeline, bags, labels, some, test, seed))
            yield run, n, found


def _rows(run: dict[str, Any], n: int, figures: dict[str, Sequence[float]]) -> list[Row]:
    """Means over splits of what was found under each name."""
    published, name = run.get("published", {}), f"{run['name']}, {n} per class"
    return [make_row(f"{name}: {what}", values, published.get(what)) for what, values in figures.items()]


@study("ranks", "data at train_per_class run", each="name recipe")
def rank_table(experiment: Experiment) -> list[Row]:
    """Mean over the classes of how often the true class is among the first r; the classes are in the JSON file."""
    rows: list[Row] = []
    for run, _, found in _on_splits(experiment, _places, [experiment.spec["train_per_class"]]):
        published = run.get("published", {})
        for r in experiment.spec["at"]:
            shares = {c: [100 * float(np.mean(np.less(split[c], r))) for split in found] for c in found[0]}
            each = {c: float(np.mean(values)) for c, values in shares.items()}
            of_splits = np.mean(list(shares.values()), axis=0)
            rows.append(make_row(f"{run['name']}: r = {r}", of_splits, published.get(f"r = {r}"), classes=each))
    return rows


def _trained(pipeline: Pipeline, bags: Any, labels: np.ndarray, train: np.ndarray, seed: int) -> Pipeline:
    with runtime_context(seed=seed):
        return clone(pipeline).fit(bags[train], labels[train])


def _places(
    pipeline: Pipeline, bags: Any, labels: np.ndarray, train: np.ndarray, test: np.ndarray, seed: int
) -> dict[str, list[int]]:
    """By class, how many classes are thought more probable than the true one, of each test image."""
    model = _trained(pipeline, bags, labels, train, seed)
    order = np.argsort(-model.predict_proba(bags[test]), axis=1, kind="stable")
    places = np.argmax(model.classes_[order] == labels[test][:, None], axis=1)
    return {str(c): places[labels[test] == c].tolist() for c in np.unique(labels)}


@study("calibration", "data at run", each="name recipe")
def calibration_table(experiment: Experiment) -> list[Row]:
    """Right, stated and furthest apart in percent, losses in nats, of every number of labels per class."""
    rows: list[Row] = []
    for run, n, found in _on_splits(experiment, _calibration, experiment.spec["at"]):
        right, stated, losses = zip(*found)
        loss = np.mean(losses, axis=0)
        figures = {
            "right": right,
            "stated": stated,
            "furthest apart": [float(np.abs(np.subtract(stated, right)).max())],
            "log loss": [float(loss[len(POWERS) // 2])],
            "log loss at the best power": [float(loss.min())],
        }
        rows += _rows(run, n, figures)
    return rows


def _calibration(
    pipeline: Pipeline, bags: Any, labels: np.ndarray, train: np.ndarray, test: np.ndarray, seed: int
) -> tuple[float, float, list[float]]:
    """Percent that are right, mean stated probability, and the loss at every power of the probabilities."""
    model = _trained(pipeline, bags, labels, train, seed)
    p, truth = model.predict_proba(bags[test]), labels[test]
    raised = p ** POWERS[:, None, None]
    raised /= raised.sum(axis=2, keepdims=True)
    losses = [float(log_loss(truth, q, labels=model.classes_)) for q in raised]
    right = float(np.mean(model.classes_[p.argmax(axis=1)] == truth))
    return 100 * right, 100 * float(p.max(axis=1).mean()), losses


def _distrust(
    pipeline: Pipeline, bags: Any, labels: np.ndarray, train: np.ndarray, test: np.ndarray, seed: int
) -> dict[str, float]:
    """What a model says of test images, some of classes that it does not know."""
    with runtime_context(seed=seed):
        model = Categorizer(pipeline, random_state=seed).fit(bags[train], labels[train])
    said, classes = model.judge(bags[test], COVERAGE), model.classes_.tolist()
    new = ~np.isin(labels[test], classes)
    known, p, sets = labels[test][~new], said.probabilities, said.sets[~new]
    judged = score_classes(known, p[~new], classes, len(train), {})
    figures = {
        "accuracy": judged.accuracy,
        "calibration error": judged.calibration_error,
        f"{100 * COVERAGE:.0f} % sets that hold the class": sets[
            np.arange(len(known)), np.searchsorted(classes, known)
        ].mean(),
        "classes per set": sets.sum(axis=1).mean() / 100,
        "known images taken for strange": np.mean(said.typicality[~new] <= STRANGE),
        "images of a class never seen taken for strange": np.mean(said.typicality[new] <= STRANGE),
        "probability of the wrong class that these get": p[new].max(axis=1).mean(),
        "area under the curve, known against never seen": roc_auc_score(~new, said.typicality),
    }
    return {what: 100 * float(value) for what, value in figures.items()}


@study("distrust", "data at run", each="name recipe")
def distrust_table(experiment: Experiment) -> list[Row]:
    """Calibration, sets and images unlike all training images, with classes left out of training; all in percent."""
    rows: list[Row] = []
    for run, n, found in _on_splits(experiment, _distrust, experiment.spec["at"], leave_out=True):
        rows += _rows(run, n, {what: [figures[what] for figures in found] for what in found[0]})
    return rows
