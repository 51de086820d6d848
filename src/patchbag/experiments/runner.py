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

``folds = 10`` instead of ``train_per_class`` is a cross-validation.  ``pool = true`` lets the test images teach,
without their labels, in recipes that can.

Files with another ``kind`` than "evaluate" are run by the function that :func:`~patchbag.experiments.files.study` marks
with it.
"""

import time
from collections.abc import Callable, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Any

from patchbag.experiments.experiment import Experiment
from patchbag.experiments.files import STUDIES

# each registers the kinds of files that it runs
for module in (
    "tables", "answers", "clusters", "curves", "neighbors", "planes", "points", "retrieval", "robustness", "studies",
):  # fmt: skip
    import_module(f"patchbag.experiments.{module}")


def run_experiment(
    spec: dict[str, Any],
    data: Path | None,
    *,
    splits: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
    journal: MutableMapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run an experiment and return its figures; those in the journal are not computed again."""
    started = time.perf_counter()
    spec = {**spec, "splits": splits or spec.get("splits", 10)}
    rows = STUDIES[spec["kind"]].run(Experiment(spec, data, progress, {} if journal is None else journal))
    about = {k: spec.get(k) for k in ("name", "title", "source", "data", "note", "axis", "plot", "splits")}
    return {**about, "runs": rows, "seconds": time.perf_counter() - started}
