# SPDX-License-Identifier: BSD-3-Clause
"""Published tables, run again: one TOML file each, our figure beside theirs.

A file names a data set (a folder below ``--data``), a protocol and runs::

    title = "Scene-15, 100 training images a class"
    source = "liu2010 §4.3.3"
    data = "scene15"
    train_per_class = 100
    splits = 10
    [settings]                                  # of every run that has such a parameter
    "statistics.mixture.n_components" = 128
    [[run]]
    name = "PPK"
    recipe = "gmm-ppk"
    published = 79.0
    settings = { "adaptation.relevance" = 10.0 }

The runs of a split share what they have in common: steps with equal parameters that stand at the beginning of several
recipes (features, universal model, statistics, adapted mixtures) are computed once.  ``universal = "corel1000"`` in a
run learns the PCA and the universal model from the images of that folder instead of the split's training images.
``classes = [...]`` restricts the data, ``without = [...]`` leaves classes out.  ``over = { "encoding.n_topics" = [2, 4]
}`` in a run repeats it for every value, which the plot shows as a curve (``published`` is then a list).  ``whole =
true`` uses the first cell of the pyramid alone, ``color = true`` averages the answers of orientations and colours.

Files with ``kind`` other than "evaluate" name a function of ``STUDIES``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from patchbag.bags import Bags
from patchbag.datasets import ImageFolder, open_folder, random_split
from patchbag.experiments.files import ExperimentError
from patchbag.metrics import mean_class_accuracy
from patchbag.recipes import make_recipe
from patchbag.records import Records
from patchbag.runtime import apply_runtime
from patchbag.settings import check_settings

CHUNK = 256


@dataclass
class RunResult:
    """Accuracies of one run over splits, in percent, beside the published figure."""

    name: str
    published: float | None = None
    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    x: Any = None
    series: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "mean": float(np.mean(self.accuracies)),
            "std": float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else 0.0,
            "published": self.published,
            "accuracies": self.accuracies,
            "seconds": self.seconds,
            "x": self.x,
            "series": self.series,
        }


def run_experiment(
    spec: dict[str, Any],
    data: Path | None,
    *,
    splits: int | None = None,
    n_jobs: int | None = None,
    cache: Any = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run an experiment and return its figures."""
    started = time.perf_counter()
    if spec["kind"] == "evaluate":
        rows = _run_grid(spec, data, splits or spec.get("splits", 10), n_jobs, cache, progress)
    else:
        from patchbag.experiments.studies import STUDIES

        if spec["kind"] not in STUDIES:
            raise ExperimentError(f"{spec['name']}: unknown kind {spec['kind']!r}")
        runtime = {"n_jobs": n_jobs, "cache": cache, "splits": splits or spec.get("splits", 10)}
        rows = STUDIES[spec["kind"]]({**spec, **runtime}, data, progress)
    about = {k: spec.get(k) for k in ("name", "title", "source", "data", "note", "axis")}
    return {**about, "splits": splits or spec.get("splits"), "runs": rows, "seconds": time.perf_counter() - started}


def open_data(spec: dict[str, Any], data: Path | None, name: str | None = None) -> ImageFolder:
    """The images of the experiment's data set (or of the folder ``name``)."""
    if data is None:
        raise ExperimentError("this experiment needs its data: give --data DIR or set PATCHBAG_DATA")
    folder = open_folder(data / (name or spec["data"]))
    if name is None and "classes" in spec:
        folder = folder.take(np.flatnonzero(np.isin(folder.labels, spec["classes"])))
    if name is None and "without" in spec:
        folder = folder.take(np.flatnonzero(~np.isin(folder.labels, spec["without"])))
    return folder


def run_pipeline(run: dict[str, Any], shared: dict[str, Any]) -> Pipeline:
    """The recipe of a run with the shared settings that it has, and its own; steps that pass through are taken out.

    With ``color`` the settings go to both branches, orientation and colour.
    """
    pipeline = make_recipe(run["recipe"], bool(run.get("color")))
    branches = [f"classifier__{name}__" for name, _ in pipeline[-1].branches] if run.get("color") else [""]
    for branch in branches:
        valid = pipeline.get_params(deep=True)
        settings = {f"{branch}{k.replace('.', '__')}": v for k, v in shared.items()}
        settings = {k: v for k, v in settings.items() if k in valid}
        settings |= {f"{branch}{k.replace('.', '__')}": v for k, v in run.get("settings", {}).items()}
        check_settings(pipeline, settings, f"run {run.get('name', 1)!r}: recipe {run['recipe']!r}")
        pipeline.set_params(**settings)
    pipeline.steps = [(name, step) for name, step in pipeline.steps if step != "passthrough"]
    if run.get("whole"):
        pipeline.steps.insert(2, ("whole", FunctionTransformer(whole_images)))
    if run.get("color"):  # the branches describe the images, each in its own way
        pipeline.steps.insert(0, ("images", FunctionTransformer(as_array)))
    return pipeline


def as_array(images: list[str]) -> np.ndarray:
    """Paths as an array, which can be cut by indices."""
    return np.array(images, dtype=object)


def check_runs(runs: list[dict[str, Any]], shared: dict[str, Any]) -> None:
    """Raise unless every run's recipe can be made and every shared setting is a parameter of one of them."""
    known: set[str] = set()
    for run in runs:
        names = run_pipeline(run, shared).get_params(deep=True)
        known |= {re.sub(r"^classifier__(orh|col)__", "", name) for name in names}
    unknown = [name for name in shared if name.replace(".", "__") not in known]
    if unknown and runs:
        raise ExperimentError(f"no run has a parameter {unknown[0]!r} for the settings of all runs")


def whole_images(statistics: Any) -> Any:
    """Of a pyramid's statistics those of its first cell, the whole image: they need not be collected again."""
    first = {name: values[:, :1] for name, values in statistics.arrays().items()}
    return replace(statistics, **first)


def expand_runs(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of an experiment, those with ``over`` once for each of its values."""
    runs = []
    for run in spec.get("run", []):
        over = run.get("over", {})
        if len(over) > 1:
            raise ExperimentError(f"{spec['name']}: run {run['name']!r} varies {len(over)} parameters; one is possible")
        if not over:
            runs.append(run)
        for parameter, values in over.items():
            published = run.get("published") or [None] * len(values)
            for value, theirs in zip(values, published, strict=True):
                settings = {**run.get("settings", {}), parameter: value}
                one = {"name": f"{run['name']}, {value}", "series": run["name"], "x": value, "published": theirs}
                runs.append({**run, **one, "settings": settings})
    return runs


def _run_grid(
    spec: dict[str, Any],
    data: Path | None,
    splits: int,
    n_jobs: int | None,
    cache: Any,
    progress: Callable[[str], None],
) -> list[dict[str, Any]]:
    runs = expand_runs(spec)
    check_runs(runs, spec.get("settings", {}))
    folder = open_data(spec, data)
    results = [RunResult(r["name"], r.get("published"), x=r.get("x"), series=r.get("series")) for r in runs]
    bags = _describe(runs, spec, folder, n_jobs, cache, progress)
    others = {
        name: _describe(runs, spec, open_data(spec, data, name), n_jobs, cache, progress)
        for name in {r["universal"] for r in runs if "universal" in r}
    }
    foreign = _foreign_statistics(runs, spec, bags, others, n_jobs, cache, progress)
    for i in range(splits):
        seed = spec.get("seed", 0) + i
        train, test = random_split(folder.labels, spec["train_per_class"], seed, spec.get("test_per_class"))
        pipelines = [
            apply_runtime(run_pipeline(r, spec.get("settings", {})), n_jobs=n_jobs, cache=cache, random_state=seed)
            for r in runs
        ]
        keys = [step_keys(p, r.get("universal")) for p, r in zip(pipelines, runs)]
        known: dict[Any, Any] = {}
        order = _neighbours(keys)
        for place, r in enumerate(order):
            progress(f"split {i + 1} of {splits}: {runs[r]['name']}")
            started = time.perf_counter()
            features = str(pipelines[r].steps[0][1])
            if r in foreign:
                known[keys[r][1]] = (foreign[r][train], foreign[r][test])
            elif keys[r][0] not in known:
                known[keys[r][0]] = (bags[features][train], bags[features][test])
            predicted = _fit_predict(pipelines[r], keys[r], known, folder.labels[train])
            results[r].accuracies.append(100 * mean_class_accuracy(folder.labels[test], predicted))
            results[r].seconds += time.perf_counter() - started
            progress(f"split {i + 1} of {splits}: {runs[r]['name']}: {results[r].accuracies[-1]:.2f}")
            needed = {key for later in order[place + 1 :] for key in keys[later]}
            known = {key: value for key, value in known.items() if key in needed}
    return [r.to_json() for r in results]


def _describe(
    runs: list[dict[str, Any]], spec: dict[str, Any], folder: ImageFolder, n_jobs: int | None, cache: Any, progress: Any
) -> dict[str, Bags]:
    """Bags of all images, once for every kind of features among the runs."""
    bags: dict[str, Bags] = {}
    for run in runs:
        pipeline = apply_runtime(
            run_pipeline(run, spec.get("settings", {})), n_jobs=n_jobs, cache=cache, random_state=spec.get("seed", 0)
        )
        features = pipeline.steps[0][1]
        if str(features) not in bags:
            progress(f"describing {len(folder)} images")
            bags[str(features)] = features.transform(folder.paths)
    return bags


def _foreign_statistics(
    runs: list[dict[str, Any]],
    spec: dict[str, Any],
    bags: dict[str, Bags],
    others: dict[str, dict[str, Bags]],
    n_jobs: int | None,
    cache: Any,
    progress: Callable[[str], None],
) -> dict[int, Any]:
    """Statistics of all images under a model of other images, by run: no split changes them."""
    made: dict[Any, Any] = {}
    foreign = {}
    for r, run in enumerate(runs):
        if "universal" not in run:
            continue
        pipeline = apply_runtime(
            run_pipeline(run, spec.get("settings", {})), n_jobs=n_jobs, cache=cache, random_state=spec.get("seed", 0)
        )
        key, features = step_keys(pipeline, run["universal"])[1], str(pipeline.steps[0][1])
        if key not in made:
            progress(f"universal model from {run['universal']}")
            made[key] = pipeline.steps[1][1].fit(others[run["universal"]][features]).transform(bags[features])
        foreign[r] = made[key]
    return foreign


def step_keys(pipeline: Pipeline, universal: str | None) -> list[tuple[str | None, ...]]:
    """What the result of each step depends on: two runs with equal keys up to a step have the same result there."""
    key: tuple[str | None, ...] = (str(pipeline.steps[0][1]), universal)
    keys = [key]
    for _, step in pipeline.steps[1:]:
        key = (*key, str(step.get_params()))
        keys.append(key)
    return keys


def _neighbours(keys: list[list[tuple[str | None, ...]]]) -> list[int]:
    """An order of the runs in which those with the same first steps follow each other, so that little is kept."""
    first: dict[Any, int] = {}
    for i, key in enumerate(keys):
        first.setdefault(key[min(1, len(key) - 1)], i)
    return sorted(range(len(keys)), key=lambda i: (first[keys[i][min(1, len(keys[i]) - 1)]], i))


def _fit_predict(
    pipeline: Pipeline,
    keys: list[tuple[str | None, ...]],
    known: dict[Any, Any],
    labels: np.ndarray,
) -> np.ndarray:
    """Labels of the test images.

    ``known`` holds datasets (training part, test part) by key and takes up those that are made here.
    """
    current: Any = known.get(keys[0])  # not needed where the first step is known
    steps, head = list(pipeline.steps[1:]), None
    for key in keys[1:]:
        if key not in known:
            step = clone(steps[0][1])
            if not hasattr(step, "transform"):
                break
            made = step.fit_transform(current[0], labels)
            steps.pop(0)
            if not isinstance(made, Bags | Records):
                head, current = step, (made, current[1])
                break
            known[key] = (made, step.transform(current[1]))
        else:
            steps.pop(0)
        current = known[key]
    # vectors and kernels of all test images together may be large: from here on in chunks
    model = clone(Pipeline(steps)).fit(current[0], labels)
    parts = []
    for start in range(0, len(current[1]), CHUNK):
        chunk = current[1][start : start + CHUNK]
        parts.append(model.predict(chunk if head is None else head.transform(chunk)))
    return np.concatenate(parts)
