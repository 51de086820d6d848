# SPDX-License-Identifier: BSD-3-Clause
"""Recipes: named pipelines from images to labels, with sizes that fit the data.

A recipe is a scikit-learn ``Pipeline`` whose first step takes images and whose last one is a classifier.  Its
parameters are reached in scikit-learn's way:
``make_recipe("fisher").set_params(statistics__mixture__n_components=64)``.

``apply_runtime`` sets what concerns the machine, not the model: processes, threads, the cache of features and the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sklearn.pipeline import Pipeline

from patchbag.classifiers.linear import LinearClassifier
from patchbag.encodings.fisher import FisherVector
from patchbag.encodings.normalize import Normalizer
from patchbag.encodings.words import BagOfWords
from patchbag.features.dense_sift import DenseSIFT
from patchbag.features.extraction import FeatureExtractor
from patchbag.features.projection import BagPCA
from patchbag.mixture.gaussian import UniversalMixture
from patchbag.mixture.statistics import UniversalStatistics


@dataclass(frozen=True)
class Recipe:
    """A named pipeline: what it is, where it is from, how to make it."""

    name: str
    summary: str
    paper: str
    build: Callable[[], Pipeline]


def sift() -> DenseSIFT:
    """The descriptors of the recipes: RootSIFT every 8 pixels in four sizes, as bytes."""
    return DenseSIFT(step=8, bin_sizes=(4, 6, 8, 10), root=True, dtype="uint8")


def words() -> Pipeline:
    """Soft bag of words, square root, linear SVM."""
    mixture = UniversalMixture("auto", images_per_component=1, max_components=1024)
    return Pipeline(
        [
            ("features", sift()),
            ("statistics", UniversalStatistics(mixture, BagPCA(64))),
            ("encoding", BagOfWords()),
            ("normalize", Normalizer(["power", "l2"])),
            ("classifier", LinearClassifier()),
        ]
    )


def fisher() -> Pipeline:
    """Improved Fisher vectors (square root, L2) of a spatial pyramid, linear SVM."""
    mixture = UniversalMixture("auto", images_per_component=8, max_components=256)
    return Pipeline(
        [
            ("features", sift()),
            ("statistics", UniversalStatistics(mixture, BagPCA(64), pyramid=["1x1", "2x2", "3x1"])),
            ("encoding", FisherVector()),
            ("normalize", Normalizer(["power", "l2"])),
            ("classifier", LinearClassifier()),
        ]
    )


RECIPES = {
    r.name: r
    for r in (
        Recipe("fisher", "improved Fisher vectors, spatial pyramid, linear SVM", "Perronnin et al. 2010", fisher),
        Recipe("words", "soft bag of words, square root, linear SVM", "liu2010 §2.2.2", words),
    )
}


def make_recipe(name: str) -> Pipeline:
    """A new, unfitted pipeline of that name."""
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}; there are {', '.join(sorted(RECIPES))}")
    return RECIPES[name].build()


def extractors(pipeline: Any) -> list[FeatureExtractor]:
    """The feature extractors of a pipeline, wherever they stand in it."""
    found = [v for v in pipeline.get_params(deep=True).values() if isinstance(v, FeatureExtractor)]
    return list({id(v): v for v in found}.values())


def apply_runtime(pipeline: Any, *, n_jobs: int | None, cache: Any, random_state: Any = None) -> Any:
    """Set processes, threads, cache and (where given) the seed on every step that has such a parameter."""
    settings: dict[str, Any] = {}
    for name in pipeline.get_params(deep=True):
        last = name.rsplit("__", 1)[-1]
        if last == "n_jobs" and name != "n_jobs":
            settings[name] = n_jobs
        elif last == "cache":
            settings[name] = cache
        elif last == "random_state" and random_state is not None:
            settings[name] = random_state
    return pipeline.set_params(**settings)
