# SPDX-License-Identifier: BSD-3-Clause
"""Published studies that are not a table of recipes: toy, discount curves, cost, given kernels, active learning.

Each takes an experiment's specification, with ``splits``, ``n_jobs``, ``cache`` and ``journal`` of the run in it, and
returns its rows: name, our figure as ``mean``, and the published one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from patchbag.datasets import random_split
from patchbag.experiments.files import ExperimentError
from patchbag.experiments.journal import Journal
from patchbag.experiments.matrices import kernels_of, plain_parameters
from patchbag.experiments.runs import expand_runs, run_pipeline
from patchbag.metrics import mean_class_accuracy
from patchbag.runtime import apply_runtime

Row = dict[str, Any]
Tell = Callable[[str], None]

# fine enough that sums over it are integrals to ten digits
GRID = np.linspace(-16, 16, 64_001)
STEP = GRID[1] - GRID[0]


def _row(name: str, value: float, published: float | None = None, **more: Any) -> Row:
    return {"name": name, "mean": float(value), "std": 0.0, "published": published, **more}


def _density(means: list[float]) -> np.ndarray:
    """Equal mixture of unit Gaussians on the grid."""
    return np.mean([np.exp(-0.5 * (GRID - m) ** 2) for m in means], axis=0) / np.sqrt(2 * np.pi)


def toy_example(spec: dict[str, Any], data: Path | None, progress: Tell) -> list[Row]:
    r"""liu2010 §5.2: q = ½N(2, 1) + ½N(−2, 1) beside its halves p1, p2 and the shifted p3(δ).

    δ at which p3 is as far from q as p1 is, by numerical integration; and the mixture weights of q over the three.
    """
    from patchbag.mixture.adaptation import Mixtures
    from patchbag.similarity.references import reference_weights

    def skl(p: np.ndarray, q: np.ndarray) -> float:
        return float(((p - q) * np.log(p / q)).sum() * STEP)

    def bha(p: np.ndarray, q: np.ndarray) -> float:
        return float(np.sqrt(p * q).sum() * STEP)

    q, p1 = _density([2, -2]), _density([-2])
    rows = []
    for name, measure, published in (("δ of equal SKL", skl, 2.0), ("δ of equal Bhattacharyya", bha, 1.5)):
        goal = measure(q, p1)
        delta = brentq(lambda d, m=measure, g=goal: m(q, _density([2 + d, -2 - d])) - g, 0.01, 6)
        rows.append(_row(name, delta, published))

    def mixture(means: list[list[float]]) -> Mixtures:
        k = len(means[0])
        return Mixtures(np.full((len(means), k), 1 / k), np.array(means)[..., None], np.ones((len(means), k, 1)))

    delta = rows[0]["mean"]
    weights = reference_weights(
        mixture([[2.0, -2.0]]),
        mixture([[-2.0, -2.0], [2.0, 2.0], [2 + delta, -2 - delta]]),
        matching="all",
        iterations=1000,
    )
    for name, weight, published in zip(("p1", "p2", "p3"), weights[0], (0.5, 0.5, 0.0)):
        rows.append(_row(f"weight of {name} at convergence", weight, published))
    return rows


def discount_curves(spec: dict[str, Any], data: Path | None, progress: Tell) -> list[Row]:
    """cinbis2012 figure 5: how far ψ(α + n), rescaled to [0, 1], is from √n, for n up to 100."""
    from patchbag.encodings.polya import discount_curve

    n = np.arange(101.0)
    root = np.sqrt(n / 100)
    rows = []
    for alpha in (0.01, 0.1, 1.0, 10.0, 100.0, 1e4):
        curve = discount_curve(alpha, n)
        rows.append(_row(f"α = {alpha:g}: curve at n = 25", curve[25], None, curve=curve.tolist()))
    rows.append(_row("√n at n = 25", root[25], None, curve=root.tolist()))
    rows.append(_row("linear at n = 25", 0.25, None))
    return rows


def mixture_cost(spec: dict[str, Any], data: Path | None, progress: Tell) -> list[Row]:
    """liu2010 §4.3.2.4: adaptation in milliseconds an image, kernels in microseconds a pair, 128 Gaussians × 50-D."""
    from patchbag import Bags, UniversalMixture
    from patchbag.mixture.adaptation import MAPAdaptation
    from patchbag.mixture.maximum_likelihood import maximum_likelihood
    from patchbag.similarity.mixtures import product_kernel, symmetric_kl

    rng = np.random.default_rng(0)
    bags = Bags(rng.normal(size=(60_000, 50)).astype(np.float32), np.arange(0, 60_001, 1000))
    mixture = UniversalMixture(128, max_iter=3).fit(bags)
    progress("statistics and adaptation")

    def clock(function: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
        result = function()
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            function()
            times.append(time.perf_counter() - started)
        return min(times), result

    seconds, statistics = clock(lambda: mixture.statistics(bags))
    adaptation = MAPAdaptation().fit(statistics)
    more, adapted = clock(lambda: adaptation.transform(statistics))
    rows = [
        _row("statistics of an image of 1,000 descriptors, ms", 1e3 * seconds / 60),
        _row("MAP adaptation of an image in all, ms", 1e3 * (seconds + more) / 60, 15.0),
    ]
    many = adapted[np.arange(600) % 60]
    progress("kernels")
    for name, kernel, published in (("symmetric KL", symmetric_kl, 80.0), ("PPK", product_kernel, 400.0)):
        seconds, _ = clock(partial(kernel, many, many))
        rows.append(_row(f"one-to-one {name}, µs a pair", 1e6 * seconds / 600**2, published))
    progress("one-to-many kernels and maximum likelihood")
    few = adapted[:20]
    for name, kernel in (
        ("symmetric KL (matched)", partial(symmetric_kl, few, few, "matched")),
        ("PPK", partial(product_kernel, few, few, matching="one-to-many")),
    ):
        seconds, _ = clock(kernel, 1)
        rows.append(_row(f"one-to-many {name}, µs a pair", 1e6 * seconds / 20**2))
    seconds, _ = clock(partial(maximum_likelihood, bags[:8], UniversalMixture(128)), 1)
    rows.append(_row("maximum likelihood of an image, ms", 1e3 * seconds / 8, 430.0))
    return rows


def _classify(
    name: str, settings: dict[str, Any], stack: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[np.ndarray, Any]:
    """Labels of the test images by one of the paper's classifiers, and the weights of the kernels where it has any."""
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import SVC

    from patchbag.classifiers.gaussian_process import GaussianProcessCategorizer

    gram, rows = stack[train][:, train], stack[test][:, train]
    if name == "gp":
        model = GaussianProcessCategorizer(repair=True, **settings).fit(gram, labels[train])
        return model.predict(rows), model.weights_
    gram, rows = gram.mean(axis=2), rows.mean(axis=2)
    if name == "svm":
        svm = OneVsRestClassifier(SVC(kernel="precomputed", **({"C": 1e4} | settings))).fit(gram, labels[train])
        return svm.predict(rows), None
    if name == "nn":
        return labels[train][rows.argmax(axis=1)], None
    raise ValueError(f"classifier must be gp, svm or nn, got {name!r}")


def given_kernels(spec: dict[str, Any], data: Path | None, progress: Tell) -> list[Row]:
    """kapoor2010 table 2 and figures 3 to 7: classifiers and combinations on kernel matrices that are made once.

    ``over = { train_per_class = [2, 15] }`` in a run repeats it for these numbers of labels a class.
    """
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
        row = _row(run["name"], float(np.mean(accuracies)), run.get("published"), accuracies=accuracies, x=size)
        row["series"] = run.get("series")
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
    are in the JSON file.
    """
    from patchbag.active.simulation import LearningCurves, simulate

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
            row = _row(name, 100 * mean.mean(criterion)[step], published.get(name), x=at)
            row["std"] = 100 * float(mean.standard_error(criterion)[step])
            rows.append(row)
        rows[-1] |= {"curve_name": criterion, "n_labels": mean.n_labels.tolist()}
        rows[-1]["curve"] = (100 * mean.mean(criterion)).tolist()
        rows[-1]["curve_error"] = (100 * mean.standard_error(criterion)).tolist()
        if criterion != "random":
            reached = mean.labels_to_reach(criterion, float(mean.mean("random")[-1]))
            needed = float("nan") if reached is None else float(reached)
            name = f"labels of {criterion} for what random reaches with {mean.n_labels[-1]}"
            if reached is not None:
                rows.append(_row(name, needed, published.get(name)))
    if len(curves) > 1 and "gain" in spec:
        for name, part in curves.items():
            step = int(np.flatnonzero(part.n_labels >= spec["gain"])[0])
            gains = 100 * (part.scores[spec["criteria"][0]] - part.scores["random"])[:, step]
            error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
            rows.append(_row(f"gain, {name}", gains.mean()) | {"std": error})
    return rows


def voc_table(spec: dict[str, Any], data: Path | None, progress: Tell) -> list[Row]:
    """liu2010 §4.3.2, cinbis2012 tables 1 and 2: mean average precision on VOC 2007, trainval against test."""
    from patchbag.voc import evaluate_voc

    if data is None:
        raise ExperimentError("this experiment needs its data: give --data DIR or set PATCHBAG_DATA")
    rows = []
    for run in expand_runs(spec):
        progress(run["name"])
        started = time.perf_counter()
        pipeline = apply_runtime(
            run_pipeline(run, spec.get("settings", {})), n_jobs=spec["n_jobs"], cache=spec["cache"], random_state=0
        )
        branches = [branch for _, branch in pipeline[-1].branches] if run.get("color") else [pipeline]
        found = evaluate_voc([branch[:-1] for branch in branches], data / spec["data"])
        row = _row(run["name"], found["mean"], run.get("published"), x=run.get("x"), series=run.get("series"))
        rows.append(row | {"classes": found["classes"], "C": found["C"], "seconds": time.perf_counter() - started})
    return rows


STUDIES: dict[str, Callable[[dict[str, Any], Path | None, Tell], list[Row]]] = {
    "toy": toy_example,
    "discount": discount_curves,
    "mixture-cost": mixture_cost,
    "kernels": given_kernels,
    "active": active_curves,
    "voc": voc_table,
}
