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

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import Pipeline

from patchbag.categorizer import Categorizer
from patchbag.evaluation import score_classes
from patchbag.experiments.files import study
from patchbag.experiments.journal import recall
from patchbag.experiments.runs import check_runs, describe_runs, expand_runs, open_data, run_pipeline
from patchbag.experiments.tables import Journal, Row, Tell, make_row
from patchbag.memory import content_key
from patchbag.protocol import PerClassSplit
from patchbag.runtime import runtime_context

COVERAGE = 0.9
POWERS = np.geomspace(0.25, 4.0, 41)  # of probabilities, normalised again; 1 in the middle
STRANGE = 0.05  # the typicality below which an image is taken for unlike anything seen


def _described(
    spec: dict[str, Any], data: Path | None, progress: Tell
) -> Iterator[tuple[dict[str, Any], Any, Any, np.ndarray]]:
    """Each run, its pipeline, and the bags and labels of the images."""
    runs, shared = expand_runs(spec), spec.get("settings", {})
    check_runs(runs, shared)
    images = open_data(spec, data)
    pipelines = {run["name"]: run_pipeline(run, shared) for run in runs}
    described = describe_runs(images, pipelines, progress)
    for run in runs:
        yield run, pipelines[run["name"]], described[run["name"]], images.labels.astype(str)


def _splits(spec: dict[str, Any], labels: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Seed, training and test images of each split."""
    seed = spec.get("seed", 0)
    cv = PerClassSplit(spec["train_per_class"], spec.get("test_per_class"), spec["splits"], seed)
    for i, (train, test) in enumerate(cv.split(labels, labels)):
        yield seed + i, train, test


def _rows(run: dict[str, Any], found: dict[str, list[float]], more: dict[str, dict[str, Any]]) -> Iterator[Row]:
    """Means over splits of what was found under each name."""
    published = run.get("published", {})
    for what, values in found.items():
        yield make_row(f"{run['name']}: {what}", values, published.get(what), **more.get(what, {}))


@study("ranks", "data at train_per_class run", each="name recipe")
def rank_table(spec: dict[str, Any], data: Path | None, progress: Tell, journal: Journal) -> list[Row]:
    """Mean over the classes of how often the true class is among the first r; the classes are in the JSON file."""
    rows: list[Row] = []
    for run, pipeline, bags, labels in _described(spec, data, progress):
        classes = np.unique(labels)
        found: dict[str, list[list[float]]] = {f"r = {r}": [] for r in spec["at"]}
        for seed, train, test in _splits(spec, labels):
            progress(f"{run['name']}, seed {seed}")
            origin = ("ranks", pipeline, content_key(bags), labels, train, test, seed)
            place = np.array(recall(journal, origin, partial(_places, pipeline, bags, labels, train, test, seed)))
            for r in spec["at"]:
                found[f"r = {r}"].append([100 * float(np.mean(place[labels[test] == c] < r)) for c in classes])
        each = {what: {"classes": dict(zip(classes.tolist(), np.mean(v, axis=0)))} for what, v in found.items()}
        rows += _rows(run, {what: np.mean(v, axis=1).tolist() for what, v in found.items()}, each)
    return rows


def _places(
    pipeline: Pipeline, bags: Any, labels: np.ndarray, train: np.ndarray, test: np.ndarray, seed: int
) -> list[int]:
    """How many classes are thought more probable than the true one, of each test image."""
    with runtime_context(seed=seed):
        model = clone(pipeline).fit(bags[train], labels[train])
    order = np.argsort(-model.predict_proba(bags[test]), axis=1, kind="stable")
    places: list[int] = np.argmax(model.classes_[order] == labels[test][:, None], axis=1).tolist()
    return places


@study("calibration", "data at run", each="name recipe")
def calibration_table(spec: dict[str, Any], data: Path | None, progress: Tell, journal: Journal) -> list[Row]:
    """Right, stated and furthest apart in percent, losses in nats, of every number of labels per class."""
    rows: list[Row] = []
    for run, pipeline, bags, labels in _described(spec, data, progress):
        for n in spec["at"]:
            right: list[Any] = []
            stated: list[Any] = []
            losses: list[Any] = []
            for seed, train, test in _splits(spec | {"train_per_class": n}, labels):
                origin = ("calibration", pipeline, content_key(bags), labels, train, test, seed)
                of_split = partial(_calibration, pipeline, bags, labels, train, test, seed)
                for values, value in zip((right, stated, losses), recall(journal, origin, of_split)):
                    values.append(value)
                progress(f"{run['name']}, {n} per class: {right[-1]:.1f} % right, {stated[-1]:.1f} stated")
            loss = np.mean(losses, axis=0)
            figures = {
                "right": right,
                "stated": stated,
                "furthest apart": [float(np.abs(np.subtract(stated, right)).max())],
                "log loss": [float(loss[len(POWERS) // 2])],
                "log loss at the best power": [float(loss.min())],
            }
            rows += _rows(run | {"name": f"{run['name']}, {n} per class"}, figures, {})
    return rows


def _calibration(
    pipeline: Pipeline, bags: Any, labels: np.ndarray, train: np.ndarray, test: np.ndarray, seed: int
) -> tuple[float, float, list[float]]:
    """Percent that are right, mean stated probability, and the loss at every power of the probabilities."""
    with runtime_context(seed=seed):
        model = clone(pipeline).fit(bags[train], labels[train])
    p, truth = model.predict_proba(bags[test]), labels[test]
    raised = p ** POWERS[:, None, None]
    raised /= raised.sum(axis=2, keepdims=True)
    losses = [float(log_loss(truth, q, labels=model.classes_)) for q in raised]
    right = float(np.mean(model.classes_[p.argmax(axis=1)] == truth))
    return 100 * right, 100 * float(p.max(axis=1).mean()), losses


def _left_out(spec: dict[str, Any], labels: np.ndarray, seed: int) -> list[np.ndarray]:
    """Classes that are left out together."""
    classes = np.unique(labels)
    if not spec.get("half", False):
        return [np.array([left]) for left in classes]
    return [np.random.RandomState(seed).permutation(classes)[(len(classes) + 1) // 2 :]]


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
    return {what: float(value) for what, value in figures.items()}


@study("distrust", "data at run", each="name recipe")
def distrust_table(spec: dict[str, Any], data: Path | None, progress: Tell, journal: Journal) -> list[Row]:
    """Calibration, sets and images unlike all training images, with classes left out of training; all in percent."""
    rows: list[Row] = []
    for run, pipeline, bags, labels in _described(spec, data, progress):
        for n in spec["at"]:
            found: dict[str, list[float]] = {}
            for seed, train, test in _splits(spec | {"train_per_class": n}, labels):
                for left in _left_out(spec, labels, seed):
                    some = train[~np.isin(labels[train], left)]
                    origin = ("distrust", pipeline, content_key(bags), labels, some, test, seed)
                    figures = recall(journal, origin, partial(_distrust, pipeline, bags, labels, some, test, seed))
                    for what, value in figures.items():
                        found.setdefault(what, []).append(100 * value)
                    progress(f"{run['name']}, {n} per class: {found[what][-1]:.1f} % area under the curve")
            rows += _rows(run | {"name": f"{run['name']}, {n} per class"}, found, {})
    return rows
