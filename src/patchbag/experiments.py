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
``classes = [...]`` restricts the data.

Files with ``kind`` other than "evaluate" name a function of ``STUDIES``.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from patchbag.bags import Bags
from patchbag.datasets import ImageFolder, open_folder, random_split
from patchbag.metrics import mean_class_accuracy
from patchbag.recipes import apply_runtime, make_recipe
from patchbag.records import Records

CHUNK = 256


class ExperimentError(ValueError):
    """An experiment that is not there, or whose data are not."""


@dataclass
class RunResult:
    """Accuracies of one run over splits, in percent, beside the published figure."""

    name: str
    published: float | None = None
    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    x: Any = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "mean": float(np.mean(self.accuracies)),
            "std": float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else 0.0,
            "published": self.published,
            "accuracies": self.accuracies,
            "seconds": self.seconds,
            "x": self.x,
        }


def experiments_folder() -> Path:
    """Where the TOML files are: inside the installed package, or in the source tree."""
    here = Path(__file__).parent
    return next(
        (p for p in (here / "experiments", here.parents[1] / "experiments") if p.is_dir()), here / "experiments"
    )


def list_experiments() -> list[str]:
    root = experiments_folder()
    return sorted(str(p.relative_to(root).with_suffix("")) for p in root.rglob("*.toml"))


def load_experiment(name: str) -> dict[str, Any]:
    """The experiment of that name, such as ``liu2010/scene15``, or in that file."""
    path = Path(name) if name.endswith(".toml") else experiments_folder() / f"{name}.toml"
    if not path.is_file():
        raise ExperimentError(f"there is no experiment {name!r}; there are {', '.join(list_experiments()) or 'none'}")
    try:
        spec = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ExperimentError(f"{path}: {error}") from error
    spec.setdefault("kind", "evaluate")
    spec["name"] = name.removesuffix(".toml")
    return spec


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
        from patchbag.studies import STUDIES

        if spec["kind"] not in STUDIES:
            raise ExperimentError(f"{spec['name']}: unknown kind {spec['kind']!r}")
        runtime = {"n_jobs": n_jobs, "cache": cache, "splits": splits or spec.get("splits", 10)}
        rows = STUDIES[spec["kind"]]({**spec, **runtime}, data, progress)
    about = {k: spec.get(k) for k in ("name", "title", "source", "data", "note")}
    return {**about, "splits": splits or spec.get("splits"), "runs": rows, "seconds": time.perf_counter() - started}


def open_data(spec: dict[str, Any], data: Path | None, name: str | None = None) -> ImageFolder:
    """The images of the experiment's data set (or of the folder ``name``)."""
    if data is None:
        raise ExperimentError("this experiment needs its data: give --data DIR or set PATCHBAG_DATA")
    folder = open_folder(data / (name or spec["data"]))
    if name is None and "classes" in spec:
        folder = folder.take(np.flatnonzero(np.isin(folder.labels, spec["classes"])))
    return folder


def run_pipeline(run: dict[str, Any], shared: dict[str, Any]) -> Pipeline:
    """The recipe of a run with the shared settings that it has, and its own."""
    pipeline = make_recipe(run["recipe"])
    valid = pipeline.get_params(deep=True)
    settings = {k.replace(".", "__"): v for k, v in shared.items()}
    settings = {k: v for k, v in settings.items() if k in valid}
    settings |= {k.replace(".", "__"): v for k, v in run.get("settings", {}).items()}
    return pipeline.set_params(**settings)


def _run_grid(
    spec: dict[str, Any],
    data: Path | None,
    splits: int,
    n_jobs: int | None,
    cache: Any,
    progress: Callable[[str], None],
) -> list[dict[str, Any]]:
    folder = open_data(spec, data)
    runs = spec.get("run", [])
    results = [RunResult(r["name"], r.get("published"), x=r.get("x")) for r in runs]
    bags = _describe(runs, spec, folder, n_jobs, cache, progress)
    others = {
        name: _describe(runs, spec, open_data(spec, data, name), n_jobs, cache, progress)
        for name in {r["universal"] for r in runs if "universal" in r}
    }
    for i in range(splits):
        train, test = random_split(
            folder.labels, spec["train_per_class"], spec.get("seed", 0) + i, spec.get("test_per_class")
        )
        prefix: dict[Any, Any] = {}
        for run, result in zip(runs, results):
            progress(f"split {i + 1} of {splits}: {run['name']}")
            started = time.perf_counter()
            pipeline = apply_runtime(
                run_pipeline(run, spec.get("settings", {})),
                n_jobs=n_jobs,
                cache=cache,
                random_state=spec.get("seed", 0) + i,
            )
            key = str(pipeline.steps[0][1])
            foreign = others[run["universal"]][key] if "universal" in run else None
            predicted = _fit_predict(
                pipeline, bags[key], folder.labels, train, test, prefix, run.get("universal"), foreign
            )
            result.accuracies.append(100 * mean_class_accuracy(folder.labels[test], predicted))
            result.seconds += time.perf_counter() - started
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


def _fit_predict(
    pipeline: Pipeline,
    bags: Bags,
    labels: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
    prefix: dict[Any, Any],
    universal: str | None,
    foreign: Bags | None,
) -> np.ndarray:
    """Labels of the test images; datasets that are steps' results are taken from ``prefix`` where they are known."""
    key: tuple[Any, ...] = (str(pipeline.steps[0][1]), universal)
    if key not in prefix:
        prefix[key] = (bags[train], bags[test])
    current = prefix[key]
    steps = list(pipeline.steps[1:])
    head = None
    while steps and head is None:
        step = clone(steps[0][1])
        key = (*key, str(step.get_params()))
        if key not in prefix:
            if not hasattr(step, "transform"):
                break
            if foreign is not None and steps[0] is pipeline.steps[1]:
                made = step.fit(foreign).transform(current[0])
            else:
                made = step.fit_transform(current[0], labels[train])
            if isinstance(made, Bags | Records):
                prefix[key] = (made, step.transform(current[1]))
            else:
                head, current = step, (made, current[1])
        if head is None:
            current = prefix[key]
        steps.pop(0)
    # vectors and kernels of all test images together may be large: from here on in chunks
    model = clone(Pipeline(steps)).fit(current[0], labels[train])
    parts = []
    for start in range(0, len(test), CHUNK):
        chunk = current[1][start : start + CHUNK]
        parts.append(model.predict(chunk if head is None else head.transform(chunk)))
    return np.concatenate(parts)


def write_results(result: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """JSON with every figure, and a plot of ours beside the published ones."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    stem = result["name"].replace("/", "-")
    data_path, plot_path = folder / f"{stem}.json", folder / f"{stem}.png"
    data_path.write_text(json.dumps(result, indent=1))
    runs = [r for r in result["runs"] if r.get("mean") is not None]
    figure, axes = plt.subplots(figsize=(7.5, 0.45 * len(runs) + 1.4), layout="constrained")
    y = np.arange(len(runs))[::-1]
    axes.barh(y, [r["mean"] for r in runs], xerr=[r.get("std", 0) for r in runs], color="#2b66b1", height=0.6)
    marked = [(r["published"], at) for r, at in zip(runs, y) if r.get("published") is not None]
    if marked:
        axes.plot(*zip(*marked), "D", color="#b3402f", label="published")
        axes.legend(loc="lower right")
    axes.set_yticks(y, [r["name"] for r in runs])
    values = [r["mean"] for r in runs] + [m for m, _ in marked]
    span = max(max(values) - min(values), 1e-9)
    axes.set_xlim(max(0, min(values) - 0.6 * span - 1e-9), max(values) + 0.15 * span)
    axes.set_title(result.get("title") or stem, fontsize=10)
    figure.savefig(plot_path, dpi=130)
    plt.close(figure)
    return data_path, plot_path
