# SPDX-License-Identifier: BSD-3-Clause
"""Tables of recipes, of classifiers on given kernels, and of VOC: runs of an experiment over splits."""

from collections.abc import Callable
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
from patchbag.collection import open_collection
from patchbag.datasets.voc import open_voc
from patchbag.evaluation import Evaluation, compare, evaluate
from patchbag.experiments.experiment import Experiment, Row, make_row
from patchbag.experiments.files import ExperimentError, study
from patchbag.experiments.kernels import kernel_branches, kernels_of
from patchbag.experiments.runs import run_pipeline
from patchbag.runtime import runtime_context


def paper_process() -> GaussianProcessClassifier:
    """kapoor2010's process; only the class is asked for, so that nothing is calibrated."""
    return GaussianProcessClassifier(repair=True, level=0.0, calibrate=False)


# on kernel matrices
CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "gp": paper_process,
    "gp-classwise": lambda: OneVsRestClassifier(paper_process()),
    "svm": lambda: OneVsRestClassifier(SVC(kernel="precomputed", C=1e4)),
    "nn": lambda: KNeighborsClassifier(1, metric="precomputed"),
}


def row_of(run: dict[str, Any], result: Evaluation, **more: Any) -> Row:
    """A run's figures in percent, beside the published one."""
    accuracies = [100 * split.accuracy for split in result.splits]
    more |= {"x": run.get("x"), "series": run.get("series"), "seconds": result.seconds()["total"]}
    return make_row(run["name"], accuracies, run.get("published"), accuracies=accuracies, **more)


@study("evaluate", "data run", each="name recipe")
def recipe_table(experiment: Experiment) -> list[Row]:
    """Recipes over random splits; what several runs have in common is computed once."""
    spec, runs = experiment.spec, experiment.runs
    pipelines = experiment.pipelines()
    others = {
        name: open_collection(experiment.folder(name)).labelled()
        for name in {run["universal"] for run in runs if "universal" in run}
    }
    X = experiment.describe(pipelines)
    universal: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    for run in runs:
        if "universal" not in run:
            continue
        pipeline = pipelines[run["name"]]
        key = joblib.hash((run["universal"], pipeline["features"], pipeline["statistics"]))
        if key not in universal:
            experiment.progress(f"universal model from {run['universal']}")
            bags = others[run["universal"]].describe(pipeline["features"], on_error="raise").bags
            with runtime_context(seed=experiment.seed):
                universal[key] = pipeline["statistics"].fit(bags)
        if not universal[key].moments and not run.get("whole"):  # counts, few enough to be there for all splits
            if key not in counts:
                experiment.progress(f"words of {len(experiment.images)} images")
                counts[key] = universal[key].transform(X[run["name"]])
            X[run["name"]] = counts[key]
            pipelines[run["name"]] = Pipeline(pipeline.steps[2:])
        else:
            pipeline.set_params(statistics=FrozenEstimator(universal[key]))
    results: dict[str, Evaluation] = {}
    sizes = [run.get("train_per_class", spec.get("train_per_class")) for run in runs]
    for size in dict.fromkeys(sizes):
        folds = StratifiedKFold(spec.get("folds", 2), shuffle=True, random_state=experiment.seed)
        chosen = {run["name"]: pipelines[run["name"]] for run, own in zip(runs, sizes) if own == size}
        cv = folds if size is None else experiment.splitter(size)
        results |= evaluations(experiment, chosen, X, cv=cv, pool=spec.get("pool", False))
    found = [(run, results[run["name"]]) for run in runs]
    if spec.get("plot") != "confusion":
        return [row_of(run, result) for run, result in found]
    return [row_of(run, result, confusion=result.confusion.tolist(), classes=result.classes) for run, result in found]


def evaluations(
    experiment: Experiment, models: dict[str, Any], X: Any, cv: Any, pool: bool = False
) -> dict[str, Evaluation]:
    """Evaluations of models; only the class is asked for."""
    return compare(
        models,
        X,
        experiment.images.labels,
        cv=cv,
        seed=experiment.seed,
        probabilities=False,
        pool=pool,
        journal=experiment.journal,
        progress=experiment.progress,
    )


def check_kernel_runs(spec: dict[str, Any]) -> None:
    """Raise ExperimentError where a run names an unknown kernel, classifier or setting."""
    _, known = kernel_branches(spec)
    for run in spec.get("run", []):
        where = f"{spec['name']}, run {run['name']!r}"
        unknown = [name for name in run.get("kernels", []) if name not in known]
        if unknown:
            raise ExperimentError(f"{where}: no kernel {unknown[0]!r}; there are {', '.join(known)} (kernels.use)")
        kernel_classifier(run, where)


def kernel_classifier(run: dict[str, Any], where: str) -> Any:
    """The classifier of a run, with the run's settings."""
    name, settings = run.get("classifier", "gp"), run.get("settings", {})
    if name not in CLASSIFIERS:
        raise ExperimentError(f"{where}: classifier must be one of {', '.join(CLASSIFIERS)}, got {name!r}")
    model = CLASSIFIERS[name]()
    machine = getattr(model, "estimator", model)  # that of a class, where each has its own
    parameters = machine.get_params()
    strange = [name for name in settings if name not in parameters]
    if strange:
        raise ExperimentError(
            f"{where}: {name} has no parameter {strange[0]!r}; it has {', '.join(sorted(parameters))}"
        )
    machine.set_params(**settings)
    return model


@study("kernels", "data recipe run", each="name")
def kernel_table(experiment: Experiment) -> list[Row]:
    """kapoor2010 table 2 and figures 3 to 7: classifiers and combinations on kernel matrices that are made once.

    ``over = { train_per_class = [2, 15] }`` in a run repeats it for these numbers of labels per class.
    """
    check_kernel_runs(experiment.spec)
    kernels = kernels_of(experiment)
    rows = []
    for run in experiment.runs:
        names, classifier = list(run.get("kernels", kernels)), run.get("classifier", "gp")
        X = np.stack([kernels[name] for name in names], axis=2)
        if classifier in ("svm", "nn"):
            X = X.mean(axis=2)
        if classifier == "nn":
            X = X.max() - X  # the nearest is the most similar
        cv = experiment.splitter(run.get("train_per_class", experiment.spec.get("train_per_class", 15)))
        model = kernel_classifier(run, run["name"])
        result = evaluations(experiment, {run["name"]: model}, X, cv=cv)[run["name"]]
        weights = [split.weights for split in result.splits]
        rows.append(row_of(run, result, kernels=names, weights=weights if weights[0] is not None else None))
        rows[-1]["x"] = cv.train_per_class
    return rows


@study("voc", "data run", each="name recipe")
def voc_table(experiment: Experiment) -> list[Row]:
    """liu2010 §4.3.2, cinbis2012 tables 1 and 2: mean average precision on VOC 2007, trainval against test."""
    images = open_voc(experiment.folder(experiment.spec["data"]))
    train, test = (np.flatnonzero(np.isin(images.parts, parts)) for parts in (["train", "val"], ["test"]))
    rows = []
    for run in experiment.runs:
        pipeline = run_pipeline(run, experiment.spec.get("settings", {}))
        machines = MultilabelSVM(validation=images.parts[train] == "val")
        if isinstance(run.get("features"), list):  # the scores of the branches are averaged
            for _, branch in pipeline["classifier"].branches:
                branch.steps[-1] = ("classifier", machines)
        else:
            pipeline.steps[-1] = ("classifier", machines)
        options: dict[str, Any] = {"journal": experiment.journal, "progress": experiment.progress}
        result = evaluate(pipeline, images.paths, images.truth, cv=[(train, test)], **options)
        found = result.splits[0].per_class
        named = {name: 100 * found[str(i)] for i, name in enumerate(images.classes)}
        rows.append(row_of(run, result, classes=named))
    return rows
