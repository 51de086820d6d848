# SPDX-License-Identifier: BSD-3-Clause
"""Clusters without labels, held against the classes that people gave: normalised mutual information.

A run names a recipe; its classifier is left out, and what comes before it is fitted on the images without their labels.
``train_per_class`` images of every class are drawn for each split.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import Pipeline

from patchbag.experiments.files import study
from patchbag.experiments.journal import recall
from patchbag.experiments.runs import check_runs, describe_runs, open_data, run_pipeline
from patchbag.experiments.tables import Journal, Row, Tell, make_row
from patchbag.memory import content_key
from patchbag.protocol import PerClassSplit
from patchbag.runtime import runtime_context
from patchbag.search.clusters import ImageClusters
from patchbag.similarity.base import is_kernel


@study("clusters", "data train_per_class run", each="name recipe")
def cluster_table(spec: dict[str, Any], data: Path | None, progress: Tell, journal: Journal) -> list[Row]:
    """Mean over splits of 100 · NMI, with as many clusters as there are classes."""
    shared, seed = spec.get("settings", {}), spec.get("seed", 0)
    check_runs(spec["run"], shared)
    images = open_data(spec, data)
    classes, codes = np.unique(images.labels, return_inverse=True)
    splitter = PerClassSplit(spec["train_per_class"], None, spec["splits"], seed)
    splits = [drawn for drawn, _ in splitter.split(np.zeros(len(images)), images.labels)]
    pipelines = {run["name"]: run_pipeline(run, shared) for run in spec["run"]}
    described = describe_runs(images, pipelines, progress)
    rows = []
    for run in spec["run"]:
        steps, figures = pipelines[run["name"]], []
        for i, drawn in enumerate(splits):
            progress(f"{run['name']}, split {i + 1} of {len(splits)}")
            bags, truth = described[run["name"]][drawn], codes[drawn]
            origin = ("clusters", steps, content_key(bags), truth, seed + i)
            figures.append(recall(journal, origin, partial(_agreement, steps, bags, truth, len(classes), seed + i)))
        rows.append(make_row(run["name"], figures, run.get("published")))
    return rows


def _agreement(steps: Pipeline, bags: Any, truth: np.ndarray, n_classes: int, seed: int) -> float:
    with runtime_context(seed=seed):
        given = "kernel" if is_kernel(steps[:-1]) else "vectors"
        X = np.asarray(clone(steps[1:-1]).fit_transform(bags))
        found = ImageClusters(n_classes, given=given).fit_predict(X)
    return float(100 * normalized_mutual_info_score(truth, found))
