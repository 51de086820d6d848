# SPDX-License-Identifier: BSD-3-Clause
"""Published tables, run again: one TOML file each, our figure beside theirs.

A file names a data set (a folder below ``--data``), a protocol and runs::

    title = "Scene-15, 100 training images per class"
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

``classes = [...]`` restricts the data, ``without = [...]`` leaves classes out, ``images_per_class = 250`` draws so many
of each; ``layout = "irma"`` is for labels that are not the names of sub-folders.  ``plot = "confusion"`` draws what the
first run takes images of each class for.  In a run:

* ``over = { "encoding.n_topics" = [2, 4] }`` repeats it for every value, which the plot shows as a curve
  (``published`` is then a list, NaN where there is none);
* ``universal = "corel1000"`` learns the PCA and the universal model from the images of that folder instead of the
  split's training images;
* ``classifier = "sparse-logistic"`` puts another of ``CLASSIFIERS`` at the end of the recipe, on rows of similarities
  as they are;
* ``whole = true`` uses the first cell of the pyramid alone;
* ``features = ["sift", "color"]`` averages the answers on several features.

``folds = 10`` instead of ``train_per_class`` is a cross-validation.  ``pool = true`` lets test images teach without
their labels, where a recipe learns from such.

Files with ``kind`` other than "evaluate" name another function of ``KINDS``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from patchbag.experiments.answers import calibration_table, distrust_table, rank_table
from patchbag.experiments.clusters import cluster_table
from patchbag.experiments.curves import active_curves, pool_curves
from patchbag.experiments.neighbors import neighbor_study
from patchbag.experiments.planes import plane_maps, risk_curves
from patchbag.experiments.points import ripley_curves, uci_table
from patchbag.experiments.retrieval import retrieval_table
from patchbag.experiments.robustness import robustness_table
from patchbag.experiments.studies import discount_curves, eigenfunctions, mixture_cost, toy_example
from patchbag.experiments.tables import Row, Tell, kernel_table, recipe_table, voc_table

KINDS: dict[str, Callable[[dict[str, Any], Path | None, Tell, MutableMapping[str, Any]], list[Row]]] = {
    "evaluate": recipe_table,
    "kernels": kernel_table,
    "voc": voc_table,
    "active": active_curves,
    "pool": pool_curves,
    "clusters": cluster_table,
    "retrieval": retrieval_table,
    "robustness": robustness_table,
    "toy": toy_example,
    "discount": discount_curves,
    "eigenfunctions": eigenfunctions,
    "mixture-cost": mixture_cost,
    "ranks": rank_table,
    "calibration": calibration_table,
    "distrust": distrust_table,
    "ripley": ripley_curves,
    "plane": plane_maps,
    "risk": risk_curves,
    "uci": uci_table,
    "neighbors": neighbor_study,
}


def run_experiment(
    spec: dict[str, Any],
    data: Path | None,
    *,
    splits: int | None = None,
    progress: Tell = lambda _: None,
    journal: MutableMapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run an experiment and return its figures; those in the journal are not computed again."""
    started = time.perf_counter()
    spec = {**spec, "splits": splits or spec.get("splits", 10)}
    rows = KINDS[spec["kind"]](spec, data, progress, {} if journal is None else journal)
    about = {k: spec.get(k) for k in ("name", "title", "source", "data", "note", "axis", "plot", "splits")}
    return {**about, "runs": rows, "seconds": time.perf_counter() - started}
