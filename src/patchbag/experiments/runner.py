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
recipes (features, universal model, statistics, adapted mixtures, kernels) are computed once.

``classes = [...]`` restricts the data, ``without = [...]`` leaves classes out.  In a run:

* ``over = { "encoding.n_topics" = [2, 4] }`` repeats it for every value, which the plot shows as a curve
  (``published`` is then a list, NaN where there is none);
* ``universal = "corel1000"`` learns the PCA and the universal model from the images of that folder instead of the
  split's training images;
* ``classifier = "sparse-logistic"`` puts another of ``CLASSIFIERS`` at the end of the recipe, on rows of similarities
  as they are;
* ``whole = true`` uses the first cell of the pyramid alone;
* ``color = true`` averages the answers of orientations and colours.

Files with ``kind`` other than "evaluate" name a function of ``STUDIES``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from patchbag.experiments.files import ExperimentError
from patchbag.experiments.grid import run_grid
from patchbag.experiments.journal import Journal
from patchbag.experiments.studies import STUDIES


def run_experiment(
    spec: dict[str, Any],
    data: Path | None,
    *,
    splits: int | None = None,
    n_jobs: int | None = None,
    cache: Any = None,
    progress: Callable[[str], None] = lambda _: None,
    journal: Journal | None = None,
) -> dict[str, Any]:
    """Run an experiment and return its figures; those in the journal are not computed again."""
    journal = Journal() if journal is None else journal
    started = time.perf_counter()
    if spec["kind"] == "evaluate":
        rows = run_grid(spec, data, splits or spec.get("splits", 10), n_jobs, cache, progress, journal)
    elif spec["kind"] not in STUDIES:
        raise ExperimentError(f"{spec['name']}: unknown kind {spec['kind']!r}")
    else:
        runtime = {"n_jobs": n_jobs, "cache": cache, "splits": splits or spec.get("splits", 10)}
        runtime["journal"] = journal
        rows = STUDIES[spec["kind"]]({**spec, **runtime}, data, progress)
    about = {k: spec.get(k) for k in ("name", "title", "source", "data", "note", "axis", "plot")}
    return {**about, "splits": splits or spec.get("splits"), "runs": rows, "seconds": time.perf_counter() - started}
