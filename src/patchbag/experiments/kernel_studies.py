# SPDX-License-Identifier: BSD-3-Clause
"""Studies of kapoor2010 on kernel matrices between all images: classifiers, combinations and active learning."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

from patchbag.active.criteria import CRITERIA
from patchbag.active.simulation import LearningCurves, simulate
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessCategorizer
from patchbag.datasets import random_split
from patchbag.experiments.files import ExperimentError
from patchbag.experiments.journal import Journal
from patchbag.experiments.matrices import kernels_of, plain_parameters
from patchbag.experiments.runs import expand_runs, run_pipeline
from patchbag.metrics import mean_class_accuracy
from patchbag.similarity.union import KernelUnion

Row = dict[str, Any]
Tell = Callable[[str], None]

# classifiers on kernel matrices, and the parameters that a run may set
PARAMETERS = {
    "gp": sorted(GaussianProcessCategorizer().get_params()),
    "svm": sorted(SVC().get_params()),
    "nn": [],
}


def make_row(name: str, value: float, published: float | None = None, **more: Any) -> Row:
    return {"name": name, "mean": float(value), "std": 0.0, "published": published, **more}


def check_kernel_runs(spec: dict[str, Any]) -> None:
    """Raise unless the runs name kernels, classifiers and settings that there are: before images are described."""
    kernel = run_pipeline(spec, {}).steps[-2][1]
    known = [name for name, _ in kernel.chosen()] if isinstance(kernel, KernelUnion) else [spec["recipe"]]
    for run in spec.get("run", []):
        where = f"{spec['name']}, run {run['name']!r}"
        unknown = [name for name in run.get("kernels", []) if name not in known]
        if unknown:
            raise ExperimentError(f"{where}: no kernel {unknown[0]!r}; there are {', '.join(known)} (kernels.use)")
        classifier = run.get("classifier", "gp")
        if classifier not in PARAMETERS:
            raise ExperimentError(f"{where}: classifier must be one of {', '.join(PARAMETERS)}, got {classifier!r}")
        parameters = PARAMETERS[classifier]
        strange = [name for name in run.get("settings", {}) if name not in parameters]
        if strange:
            raise ExperimentError(
                f"{where}: {classifier} has no parameter {strange[0]!r}; it has {', '.join(parameters)}"
            )


def _classify(
    name: str, settings: dict[str, Any], stack: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[np.ndarray, Any]:
    """Labels of the test images by one of the paper's classifiers, and the weights of the kernels where it has any."""
    gram, rows = stack[train][:, train], stack[test][:, train]
    if name == "gp":
        # only the class is asked for, so nothing is calibrated
        model = GaussianProcessCategorizer(**({"repair": True, "calibrate": False} | settings)).fit(gram, labels[train])
        return model.predict(rows), model.weights_
    gram, rows = gram.mean(axis=2), rows.mean(axis=2)
    if name == "svm":
        svm = OneVsRestClassifier(SVC(kernel="precomputed", **({"C": 1e4} | settings))).fit(gram, labels[train])
        return svm.predict(rows), None
    return labels[train][rows.argmax(axis=1)], None


def given_kernels(spec: dict[str, Any], data: Path | None, progress: Tell) -> list[Row]:
    """kapoor2010 table 2 and figures 3 to 7: classifiers and combinations on kernel matrices that are made once.

    ``over = { train_per_class = [2, 15] }`` in a run repeats it for these numbers of labels a class.
    """
    check_kernel_runs(spec)
    kernels, labels = kernels_of(spec, data, progress)
    journal = spec["journal"]
    origin = [spec.get(k) for k in ("data", "classes", "without", "test_per_class")]
    origin += [len(labels), plain_parameters(run_pipeline(spec, {}))]
    rows = []
    for run in expand_runs(spec):
        progress(run["name"])
        stack = np.stack([kernels[name] for name in run.get("kernels", kernels)], axis=2)
        size = run.get("train_per_class", spec.get("train_per_class", 15))
        classifier, settings = run.get("classifier", "gp"), run.get("settings", {})
        found = []
        for i in range(spec["splits"]):
            seed = spec.get("seed", 0) + i
            entry = Journal.key(*origin, run.get("kernels"), classifier, settings, size, seed)
            if journal.get(entry) is None:
                started = time.perf_counter()
                train, test = random_split(labels, size, seed, spec.get("test_per_class"))
                predicted, weights = _classify(classifier, settings, stack, labels, train, test)
                accuracy = 100 * mean_class_accuracy(labels[test], predicted)
                one = {"accuracy": accuracy, "seconds": time.perf_counter() - started}
                journal.put(entry, one | {"weights": None if weights is None else np.asarray(weights).tolist()})
            found.append(journal.get(entry))
        accuracies = [one["accuracy"] for one in found]
        row = make_row(run["name"], float(np.mean(accuracies)), run.get("published"), accuracies=accuracies, x=size)
        row["series"], row["kernels"] = run.get("series"), list(run.get("kernels", kernels))
        row["std"] = float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0
        row["seconds"] = sum(one["seconds"] for one in found)
        row["weights"] = [one["weights"] for one in found] if found[0]["weights"] is not None else None
        rows.append(row)
        progress(f"{run['name']}: {row['mean']:.2f}")
    return rows


def active_curves(spec: dict[str, Any], data: Path | None, progress: Tell) -> list[Row]:
    """kapoor2010 figures 8 to 10 and table 4: accuracy by number of labels, criteria against random selection.

    ``binary = [...]`` plays each of these classes (``["*"]``: all) against the rest, and the curves are their mean;
    otherwise all classes take part at once.  ``strategies`` gives names to parameters of the learner to compare with.
    ``at`` lists the numbers of labels of the rows; ``splits`` is the number of runs.  The curves, with standard errors,
    and the confusion of all classes after the last label are in the JSON file.
    """
    wrong = [c for c in spec["criteria"] if c not in CRITERIA]
    if wrong:
        raise ExperimentError(f"{spec['name']}: criteria must be among {', '.join(CRITERIA)}, got {wrong[0]!r}")
    if max(spec["at"]) > spec.get("n_labels", 100):
        raise ExperimentError(
            f"{spec['name']}: at goes up to {max(spec['at'])}, n_labels is {spec.get('n_labels', 100)}"
        )
    kernels, labels = kernels_of(spec, data, progress)
    kernel = np.mean(list(kernels.values()), axis=0)
    chosen = sorted(set(labels)) if spec.get("binary") == ["*"] else spec.get("binary", [])
    problems = {name: np.where(labels == name, name, "the rest") for name in chosen} or {"all classes": labels}
    options = {k: spec[k] for k in ("n_labels", "batch_size", "n_test", "n_start", "noise", "batch") if k in spec}
    curves = {}
    for name, truth in problems.items():
        progress(f"{name}: {spec['splits']} runs")
        criteria = {c: {"criterion": c} for c in spec["criteria"]} | spec.get("strategies", {})
        criteria["random"] = {"criterion": "random"}
        curves[name] = simulate(kernel, truth, criteria=criteria, n_runs=spec["splits"], random_state=0, **options)
    first = next(iter(curves.values()))
    mean = LearningCurves(
        first.n_labels, {c: np.mean([r.scores[c] for r in curves.values()], axis=0) for c in first.scores}
    )
    published = spec.get("published", {})
    rows = []
    for criterion in mean.scores:
        for at in spec["at"]:
            step = int(np.flatnonzero(mean.n_labels >= at)[0])
            name = f"{criterion}, {mean.n_labels[step]} labels"
            row = make_row(name, 100 * mean.mean(criterion)[step], published.get(name), x=at)
            row["std"] = 100 * float(mean.standard_error(criterion)[step])
            rows.append(row)
        rows[-1] |= {"curve_name": criterion, "n_labels": mean.n_labels.tolist()}
        rows[-1]["curve"] = (100 * mean.mean(criterion)).tolist()
        rows[-1]["curve_error"] = (100 * mean.standard_error(criterion)).tolist()
        if len(curves) == 1 and first.classes is not None:
            rows[-1] |= {"confusion": first.confusions[criterion].tolist(), "classes": first.classes.tolist()}
        if criterion != "random":
            reached = mean.labels_to_reach(criterion, float(mean.mean("random")[-1]))
            needed = float("nan") if reached is None else float(reached)
            name = f"labels of {criterion} for what random reaches with {mean.n_labels[-1]}"
            if reached is not None:
                rows.append(make_row(name, needed, published.get(name)))
    if len(curves) > 1 and "gain" in spec:
        for name, part in curves.items():
            step = int(np.flatnonzero(part.n_labels >= spec["gain"])[0])
            gains = 100 * (part.scores[spec["criteria"][0]] - part.scores["random"])[:, step]
            error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
            rows.append(make_row(f"gain, {name}", gains.mean()) | {"std": error})
    return rows
