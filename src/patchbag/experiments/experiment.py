# SPDX-License-Identifier: BSD-3-Clause
"""An experiment while it runs: what its file asks for, the images, the runs and their splits, and what it has found."""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
from sklearn.pipeline import Pipeline

from patchbag.collection import Collection, open_collection
from patchbag.collection.files import content_digest
from patchbag.datasets.imagenet import VOC_SYNSETS, open_imagenet
from patchbag.datasets.irma import open_irma
from patchbag.experiments.files import ExperimentError
from patchbag.experiments.runs import branch_prefixes, expand_runs, run_pipeline
from patchbag.memory import figure_key
from patchbag.protocol import PerClassSplit

Row = dict[str, Any]
Figure = TypeVar("Figure")

# how the labels of a data set are kept
LAYOUTS: dict[str, Callable[[Path], Collection]] = {
    "folders": open_collection,
    "imagenet": open_imagenet,
    "imagenet-voc": partial(open_imagenet, classes=VOC_SYNSETS),
    "irma": open_irma,
}


def make_row(name: str, values: Any, published: float | None = None, **more: Any) -> Row:
    """A figure, or the mean and the standard deviation of several."""
    several = np.atleast_1d(np.asarray(values, dtype=float))
    spread = float(several.std(ddof=1)) if len(several) > 1 else 0.0
    return {"name": name, "mean": float(several.mean()), "std": spread, "published": published, **more}


def file_contents(paths: Sequence[str]) -> str:
    """A digest of the bytes of files."""
    digest: str = joblib.hash([content_digest(path) for path in paths])
    return digest


@dataclass
class Experiment:
    """What a study works on.

    Parameters
    ----------
    spec : what the file says
    data : the folder of the data sets
    progress : told what is being done
    journal : figures that were found before
    """

    spec: dict[str, Any]
    data: Path | None = None
    progress: Callable[[str], None] = lambda _: None
    journal: MutableMapping[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        return int(self.spec.get("seed", 0))

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        return expand_runs(self.spec)

    def folder(self, name: str) -> Path:
        """The folder of a data set; an error where nobody said where the data are."""
        if self.data is None:
            raise ExperimentError("this experiment needs its data: give --data DIR or set PATCHBAG_DATA")
        return self.data / name

    @cached_property
    def images(self) -> Collection:
        """The labelled images of the data set, as the file restricts them."""
        layout = self.spec.get("layout", "folders")
        if layout not in LAYOUTS:
            raise ExperimentError(f"layout must be one of {', '.join(sorted(LAYOUTS))}, got {layout!r}")
        images = LAYOUTS[layout](self.folder(self.spec["data"])).labelled()
        if "classes" in self.spec:
            images = images[np.isin(images.labels, self.spec["classes"])]
        if "without" in self.spec:
            images = images[~np.isin(images.labels, self.spec["without"])]
        if "images_per_class" in self.spec:
            order = np.random.RandomState(self.seed).permutation(len(images))
            chosen = [order[images.labels[order] == c][: self.spec["images_per_class"]] for c in images.classes]
            images = images[np.sort(np.concatenate(chosen))]
        return images

    @cached_property
    def labels(self) -> np.ndarray:
        return self.images.labels.astype(str)

    def pipelines(self) -> dict[str, Pipeline]:
        """The recipe of every run; an error where a setting of all runs is a parameter of none of them."""
        shared = self.spec.get("settings", {})
        made = {run["name"]: run_pipeline(run, shared) for run in self.runs}
        known = {
            name.removeprefix(prefix)
            for pipeline in made.values()
            for prefix in branch_prefixes(pipeline)
            for name in pipeline.get_params(deep=True)
        }
        unknown = [name for name in shared if name.replace(".", "__") not in known]
        if unknown and made:
            raise ExperimentError(f"no run has a parameter {unknown[0]!r} for the settings of all runs")
        return made

    def describe(self, pipelines: dict[str, Pipeline]) -> dict[str, Any]:
        """All images as each of the pipelines takes them; those with equal features share them."""
        described: dict[str, Any] = {}
        found = {}
        for name, pipeline in pipelines.items():
            key = joblib.hash(pipeline["features"])
            if key not in described:
                self.progress(f"describing {len(self.images)} images")
                described[key] = self.images.describe(pipeline["features"], on_error="raise").bags
            found[name] = described[key]
        return found

    def described_runs(self) -> Iterator[tuple[dict[str, Any], Pipeline, Any]]:
        """Each run, its recipe, and all images as that takes them."""
        pipelines = self.pipelines()
        described = self.describe(pipelines)
        for run in self.runs:
            yield run, pipelines[run["name"]], described[run["name"]]

    def splitter(self, train_per_class: int | None = None) -> PerClassSplit:
        """The random splits of the file, for another number of training images per class where one is given."""
        size = self.spec["train_per_class"] if train_per_class is None else train_per_class
        return PerClassSplit(size, self.spec.get("test_per_class"), self.spec["splits"], self.seed)

    def splits(self, train_per_class: int | None = None) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The seed, the training images and the test images of every split."""
        for i, (train, test) in enumerate(self.splitter(train_per_class).split(self.labels, self.labels)):
            yield self.seed + i, train, test

    def recall(self, find: Callable[..., Figure], *arguments: Any, origin: Any = None) -> Figure:
        """``find(*arguments)``, plain numbers and lists, which the journal has or is given.

        A figure is known by the code, the kind of the experiment, the arguments, and ``origin``: whatever else it
        depends on.
        """
        contents = [getattr(argument, "fingerprint", None) or argument for argument in arguments]
        key = figure_key(self.spec["kind"], contents, origin)
        if key not in self.journal:
            self.journal[key] = find(*arguments)
        found: Figure = self.journal[key]
        return found
