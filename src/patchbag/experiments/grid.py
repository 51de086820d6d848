# SPDX-License-Identifier: BSD-3-Clause
"""Recipes evaluated over random splits, what several runs have in common computed once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from patchbag.bags import Bags
from patchbag.datasets import ImageFolder, random_split
from patchbag.experiments.journal import Journal
from patchbag.experiments.matrices import plain_parameters
from patchbag.experiments.runs import check_runs, expand_runs, open_data, run_pipeline
from patchbag.metrics import mean_class_accuracy
from patchbag.records import Records
from patchbag.steps import apply_runtime

CHUNK = 256
# bytes of kernels or vectors of all images up to which runs that differ in later steps share them
SHARED = 1 << 28


@dataclass
class RunResult:
    """Accuracies of one run over splits, in percent, beside the published figure."""

    name: str
    published: float | None = None
    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    x: Any = None
    series: str | None = None

    def add(self, accuracy: float, seconds: float) -> None:
        self.accuracies.append(accuracy)
        self.seconds += seconds

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


def run_grid(
    spec: dict[str, Any],
    data: Path | None,
    splits: int,
    n_jobs: int | None,
    cache: Any,
    progress: Callable[[str], None],
    journal: Journal,
) -> list[dict[str, Any]]:
    """The figures of every run over random splits; those in the journal are not computed again."""
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
    origin = [spec.get(k) for k in ("data", "classes", "without", "train_per_class", "test_per_class")]
    for i in range(splits):
        seed = spec.get("seed", 0) + i
        train, test = random_split(folder.labels, spec["train_per_class"], seed, spec.get("test_per_class"))
        pipelines = [
            apply_runtime(run_pipeline(r, spec.get("settings", {})), n_jobs=n_jobs, cache=cache, random_state=seed)
            for r in runs
        ]
        keys = [step_keys(p, r.get("universal")) for p, r in zip(pipelines, runs)]
        entries = [
            Journal.key(*origin, len(folder), seed, r.get("universal"), plain_parameters(p))
            for p, r in zip(pipelines, runs)
        ]
        for result, entry in zip(results, entries):
            if journal.get(entry) is not None:
                result.add(**journal.get(entry))
        known: dict[Any, Any] = {}
        order = [r for r in _neighbours(keys) if journal.get(entries[r]) is None]
        for place, r in enumerate(order):
            progress(f"split {i + 1} of {splits}: {runs[r]['name']}")
            started = time.perf_counter()
            features = str(pipelines[r].steps[0][1])
            if r in foreign:
                known[keys[r][1]] = (foreign[r][train], foreign[r][test])
            elif keys[r][0] not in known:
                known[keys[r][0]] = (bags[features][train], bags[features][test])
            predicted = _fit_predict(pipelines[r], keys[r], known, folder.labels[train])
            accuracy = 100 * mean_class_accuracy(folder.labels[test], predicted)
            found = {"accuracy": accuracy, "seconds": time.perf_counter() - started}
            results[r].add(**found)
            journal.put(entries[r], found)
            progress(f"split {i + 1} of {splits}: {runs[r]['name']}: {accuracy:.2f}")
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
            images = len(current[0]) + len(current[1])
            small = isinstance(made, np.ndarray) and made.nbytes / len(made) * images <= SHARED
            if not small and not isinstance(made, Bags | Records):
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
