# SPDX-License-Identifier: BSD-3-Clause
"""Learning curves: active learning against random selection, on kernels (kapoor2010) or on a pool of images."""

from collections.abc import Callable, Collection
from functools import cache, partial
from typing import Any

import joblib
import numpy as np
from sklearn.base import clone

from patchbag.active.criteria import CRITERIA
from patchbag.active.pool import pool_graph
from patchbag.active.pool_learner import RULES
from patchbag.active.simulation import LearningCurves, simulate
from patchbag.experiments.experiment import Experiment, Row, make_row
from patchbag.experiments.files import ExperimentError, study
from patchbag.experiments.kernels import kernels_of
from patchbag.experiments.runs import run_pipeline
from patchbag.memory import content_key
from patchbag.runtime import runtime_context


@study("active", "data recipe criteria at")
def active_curves(experiment: Experiment) -> list[Row]:
    """kapoor2010 figures 8 to 10 and table 4: accuracy by number of labels, criteria against random selection.

    ``binary = [...]`` plays each of these classes (``["*"]``: all) against the rest, and the curves are their mean;
    otherwise all classes take part at once.  ``strategies`` gives names to parameters of the learner to compare with.
    ``at`` lists the numbers of labels of the rows; ``splits`` is the number of runs.  The curves, with standard errors,
    and the confusion of all classes after the last label are in the JSON file.
    """
    spec = experiment.spec
    _check_criteria(spec, CRITERIA)
    if max(spec["at"]) > spec.get("n_labels", 100):
        raise ExperimentError(
            f"{spec['name']}: at goes up to {max(spec['at'])}, n_labels is {spec.get('n_labels', 100)}"
        )
    kernel = np.mean(list(kernels_of(experiment).values()), axis=0)
    labels = experiment.images.labels
    chosen = sorted(set(labels)) if spec.get("binary") == ["*"] else spec.get("binary", [])
    problems = {name: np.where(labels == name, name, "the rest") for name in chosen} or {"all classes": labels}
    options = {"n_start": 1, "n_test": 10}  # the paper's
    options |= {k: spec[k] for k in ("n_labels", "batch_size", "n_test", "n_start", "noise", "batch") if k in spec}
    criteria = {c: {"criterion": c} for c in spec["criteria"]} | spec.get("strategies", {})
    criteria["random"] = {"criterion": "random"}
    at_once = 1 if len(problems) == 1 else spec["splits"]  # each time the kernel is checked
    curves, contents = {}, joblib.hash(kernel)
    for name, truth in problems.items():
        experiment.progress(f"{name}: {spec['splits']} runs")
        curves[name] = replay(experiment, lambda: kernel, contents, truth, criteria, options, at_once)
    first = next(iter(curves.values()))
    mean = LearningCurves(
        first.n_labels, {c: np.mean([r.scores[c] for r in curves.values()], axis=0) for c in first.scores}
    )
    rows = curve_rows(mean, spec, first if len(curves) == 1 else None)
    if len(curves) > 1 and "gain" in spec:
        for name, part in curves.items():
            step = int(np.flatnonzero(part.n_labels >= spec["gain"])[0])
            gains = 100 * (part.scores[spec["criteria"][0]] - part.scores["random"])[:, step]
            error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
            rows.append(make_row(f"gain, {name}", gains.mean()) | {"std": error})
    return rows


@study("pool", "data recipe criteria at")
def pool_curves(experiment: Experiment) -> list[Row]:
    """Accuracy on all images without a label, by number of labels, for rules that ask a pool from nothing."""
    spec = experiment.spec
    _check_criteria(spec, RULES)
    pipeline = run_pipeline(spec, {})
    bags = experiment.describe({"": pipeline})[""]

    @cache
    def graph() -> Any:
        with runtime_context(seed=0):
            return pool_graph(clone(pipeline), bags)

    criteria = {name: {"rule": name} for name in [*spec["criteria"], "random"]}
    origin, options = (pipeline, content_key(bags)), {"n_labels": spec.get("n_labels", 100)}
    return curve_rows(replay(experiment, graph, origin, experiment.labels, criteria, options), spec)


def _check_criteria(spec: dict[str, Any], known: Collection[str]) -> None:
    wrong = [c for c in spec["criteria"] if c not in known]
    if wrong:
        raise ExperimentError(f"{spec['name']}: criteria must be among {', '.join(known)}, got {wrong[0]!r}")


def replay(
    experiment: Experiment,
    pool: Callable[[], Any],
    origin: Any,
    labels: np.ndarray,
    criteria: dict[str, dict[str, Any]],
    options: dict[str, Any],
    at_once: int = 1,
) -> LearningCurves:
    """Curves of the runs of :func:`simulate`, so many at once.

    The pool, known by its ``origin``, is made if the journal does not have all.
    """
    parts, n_runs = [], experiment.spec["splits"]
    for seed in range(0, n_runs, at_once):
        experiment.progress(f"run {seed + 1} of {n_runs}")
        some = {**options, "n_runs": min(at_once, n_runs - seed)}
        parts.append(experiment.recall(partial(_play, pool), labels, criteria, seed, some, origin=origin))
    scores = {name: np.concatenate([part["scores"][name] for part in parts]) for name in criteria}
    confusions = {name: np.sum([part["confusions"][name] for part in parts], axis=0) for name in criteria}
    return LearningCurves(np.array(parts[0]["n_labels"]), scores, confusions, np.unique(labels))


def _play(
    pool: Callable[[], Any], labels: np.ndarray, criteria: dict[str, dict[str, Any]], seed: int, options: dict[str, Any]
) -> dict[str, Any]:
    found = simulate(pool(), labels, criteria=criteria, random_state=seed, **options)
    scores, confusions = ({k: v.tolist() for k, v in of.items()} for of in (found.scores, found.confusions))
    return {"n_labels": found.n_labels.tolist(), "scores": scores, "confusions": confusions}


def curve_rows(mean: LearningCurves, spec: dict[str, Any], whole: LearningCurves | None = None) -> list[Row]:
    """Rows of the accuracies after ``at`` labels, with the curves, and the confusion of ``whole`` after the last."""
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
        if whole is not None and whole.classes is not None:
            rows[-1] |= {"confusion": whole.confusions[criterion].tolist(), "classes": whole.classes.tolist()}
        if criterion != "random":
            reached = mean.labels_to_reach(criterion, float(mean.mean("random")[-1]))
            needed = float("nan") if reached is None else float(reached)
            name = f"labels of {criterion} for what random reaches with {mean.n_labels[-1]}"
            if reached is not None:
                rows.append(make_row(name, needed, published.get(name)))
    return rows
