# SPDX-License-Identifier: BSD-3-Clause
"""Tables of recipes, of classifiers on given kernels, and of VOC: runs of an experiment over splits."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC

from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.multilabel import MultilabelSVM
from patchbag.evaluation import Evaluation, compare
from patchbag.experiments.files import ExperimentError, study
from patchbag.experiments.kernels import kernels_of
from patchbag.experiments.runs import check_runs, data_folder, describe_runs, expand_runs, open_data, run_pipeline
from patchbag.protocol import PerClassSplit
from patchbag.runtime import runtime_context
from patchbag.similarity.union import KernelUnion
from patchbag.voc import open_voc

Row = dict[str, Any]
Tell = Callable[[str], None]
Journal = MutableMapping[str, Any]

# the paper's process; only the class is asked for, so that nothing is calibrated
PLAIN: dict[str, Any] = {"repair": True, "level": 0.0, "calibrate": False}
# classifiers on kernel matrices
CLASSIFIERS: dict[str, Callable[..., Any]] = {
    "gp": lambda **settings: GaussianProcessClassifier(**PLAIN | settings),
    "gp-classwise": lambda **settings: OneVsRestClassifier(GaussianProcessClassifier(**PLAIN | settings)),
    "svm": lambda **settings: OneVsRestClassifier(SVC(kernel="precomputed", **({"C": 1e4} | settings))),
    "nn": lambda: KNeighborsClassifier(1, metric="precomputed"),
}
GP = sorted(GaussianProcessClassifier().get_params())
PARAMETERS = {"gp": GP, "gp-classwise": GP, "svm": sorted(SVC().get_params()), "nn": []}


def make_row(name: str, values: Any, published: float | None = None, **more: Any) -> Row:
    """A figure, or the mean and the standard deviation of several."""
    several = np.atleast_1d(np.asarray(values, dtype=float))
    spread = float(several.std(ddof=1)) if len(several) > 1 else 0.0
    return {"name": name, "mean": float(several.mean()), "std": spread, "published": published, **more}


def row_of(run: dict[str, Any], result: Evaluation, **more: Any) -> Row:
    """A run's figures in percent, beside the published one."""
    accuracies = [100 * split.accuracy for split in result.splits]
    more |= {"x": run.get("x"), "series": run.get("series"), "seconds": result.seconds()["total"]}
    return make_row(run["name"], accuracies, run.get("published"), accuracies=accuracies, **more)


@study("evaluate", "data run", each="name recipe")
def recipe_table(spec: dict[str, Any], data: Path | None, progress: Tell, journal: Journal) -> list[Row]:
    """Recipes over random splits; what several runs have in common is computed once."""
    runs = expand_runs(spec)
    shared, seed = spec.get("settings", {}), spec.get("seed", 0)
    check_runs(runs, shared)
    collection = open_data(spec, data)
    others = {name: open_data(spec, data, name) for name in {run["universal"] for run in runs if "universal" in run}}
    pipelines = {run["name"]: run_pipeline(run, shared) for run in runs}
    X = describe_runs(collection, pipelines, progress)
    foreign: dict[str, Any] = {}
    counted: dict[str, Any] = {}
    for run in runs:
        pipeline = pipelines[run["name"]]
        if "universal" in run:
            key = joblib.hash((run["universal"], pipeline["features"], pipeline["statistics"]))
            if key not in foreign:
                progress(f"universal model from {run['universal']}")
                bags = others[run["universal"]].describe(pipeline["features"], on_error="raise").bags
                with runtime_context(seed=seed):
                    foreign[key] = pipeline["statistics"].fit(bags)
            if not foreign[key].moments and not run.get("whole"):  # counts, few enough to be there for all splits
                if key not in counted:
                    progress(f"words of {len(collection)} images")
                    counted[key] = foreign[key].transform(X[run["name"]])
                X[run["name"]] = counted[key]
                pipelines[run["name"]] = Pipeline(pipeline.steps[2:])
            else:
                pipeline.set_params(statistics=FrozenEstimator(foreign[key]))
    options: dict[str, Any] = {"seed": seed, "probabilities": False, "journal": journal, "progress": progress}
    options["pool"] = spec.get("pool", False)
    results: dict[str, Evaluation] = {}
    sizes = [run.get("train_per_class", spec.get("train_per_class")) for run in runs]
    for size in dict.fromkeys(sizes):
        cv: Any = StratifiedKFold(spec.get("folds", 2), shuffle=True, random_state=seed)
        if size is not None:
            cv = PerClassSplit(size, spec.get("test_per_class"), spec["splits"], seed)
        chosen = {run["name"]: pipelines[run["name"]] for run, own in zip(runs, sizes) if own == size}
        results |= compare(chosen, X, collection.labels, cv=cv, **options)
    found = [(run, results[run["name"]]) for run in runs]
    if spec.get("plot") != "confusion":
        return [row_of(run, result) for run, result in found]
    return [row_of(run, result, confusion=result.confusion.tolist(), classes=result.classes) for run, result in found]


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


@study("kernels", "data recipe run", each="name")
def kernel_table(spec: dict[str, Any], data: Path | None, progress: Tell, journal: Journal) -> list[Row]:
    """kapoor2010 table 2 and figures 3 to 7: classifiers and combinations on kernel matrices that are made once.

    ``over = { train_per_class = [2, 15] }`` in a run repeats it for these numbers of labels per class.
    """
    check_kernel_runs(spec)
    kernels, labels = kernels_of(spec, data, progress)
    seed = spec.get("seed", 0)
    rows = []
    for run in expand_runs(spec):
        names, classifier = list(run.get("kernels", kernels)), run.get("classifier", "gp")
        X = np.stack([kernels[name] for name in names], axis=2)
        if classifier in ("svm", "nn"):
            X = X.mean(axis=2)
        if classifier == "nn":
            X = X.max() - X  # the nearest is the most similar
        size = run.get("train_per_class", spec.get("train_per_class", 15))
        cv = PerClassSplit(size, spec.get("test_per_class"), spec["splits"], seed)
        models = {run["name"]: CLASSIFIERS[classifier](**run.get("settings", {}))}
        options: dict[str, Any] = {"seed": seed, "probabilities": False, "journal": journal, "progress": progress}
        result = compare(models, X, labels, cv=cv, **options)[run["name"]]
        weights = [split.weights for split in result.splits]
        rows.append(row_of(run, result, kernels=names, weights=weights if weights[0] is not None else None))
        rows[-1]["x"] = size
    return rows


@study("voc", "data run", each="name recipe")
def voc_table(spec: dict[str, Any], data: Path | None, progress: Tell, journal: Journal) -> list[Row]:
    """liu2010 §4.3.2, cinbis2012 tables 1 and 2: mean average precision on VOC 2007, trainval against test."""
    images = open_voc(data_folder(data) / spec["data"])
    train, test = (np.flatnonzero(np.isin(images.parts, parts)) for parts in (["train", "val"], ["test"]))
    rows = []
    for run in expand_runs(spec):
        pipeline = run_pipeline(run, spec.get("settings", {}))
        machines = MultilabelSVM(validation=images.parts[train] == "val")
        if isinstance(run.get("features"), list):  # the scores of the branches are averaged
            for _, branch in pipeline["classifier"].branches:
                branch.steps[-1] = ("classifier", machines)
        else:
            pipeline.steps[-1] = ("classifier", machines)
        options: dict[str, Any] = {"journal": journal, "progress": progress}
        result = compare({run["name"]: pipeline}, images.paths, images.truth, cv=[(train, test)], **options)
        found = result[run["name"]].splits[0].per_class
        named = {name: 100 * found[str(i)] for i, name in enumerate(images.classes)}
        rows.append(row_of(run, result[run["name"]], classes=named))
    return rows
