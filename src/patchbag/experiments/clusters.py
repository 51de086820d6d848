# SPDX-License-Identifier: BSD-3-Clause
"""Clusters without labels, held against the classes that people gave: normalised mutual information.

A run names a recipe; its classifier is left out, and what comes before it is fitted on the images without their labels.
``train_per_class`` images of every class are drawn for each split.
"""

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import Pipeline

from patchbag.experiments.experiment import Experiment, Row, make_row
from patchbag.experiments.files import study
from patchbag.runtime import runtime_context
from patchbag.search.clusters import ImageClusters
from patchbag.similarity.base import is_kernel


@study("clusters", "data train_per_class run", each="name recipe")
def cluster_table(experiment: Experiment) -> list[Row]:
    """Mean over splits of 100 · NMI, with as many clusters as there are classes."""
    rows = []
    for run, steps, bags in experiment.described_runs():
        figures = []
        for seed, drawn, _ in experiment.splits():
            experiment.progress(f"{run['name']}, seed {seed}")
            figures.append(experiment.recall(_agreement, steps, bags[drawn], experiment.labels[drawn], seed))
        rows.append(make_row(run["name"], figures, run.get("published")))
    return rows


def _agreement(steps: Pipeline, bags: Any, truth: np.ndarray, seed: int) -> float:
    with runtime_context(seed=seed):
        given = "kernel" if is_kernel(steps[:-1]) else "vectors"
        X = np.asarray(clone(steps[1:-1]).fit_transform(bags))
        found = ImageClusters(len(np.unique(truth)), given=given).fit_predict(X)
    return float(100 * normalized_mutual_info_score(truth, found))
