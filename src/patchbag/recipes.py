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

from patchbag.classifiers.fusion import LateFusion
from patchbag.classifiers.linear import LinearClassifier
from patchbag.classifiers.sparse_logistic import SparseLogistic
from patchbag.encodings.fisher import FisherVector
from patchbag.encodings.latent_fisher import LatentFisherVector
from patchbag.encodings.lda import LDAFisher
from patchbag.encodings.normalize import Normalizer
from patchbag.encodings.polya import PolyaEncoding
from patchbag.encodings.topics import PLSAFisher
from patchbag.encodings.words import BagOfWords
from patchbag.features.color import ColorStatistics
from patchbag.features.dense_sift import DenseSIFT
from patchbag.features.extraction import FeatureExtractor
from patchbag.features.projection import BagPCA
from patchbag.mixture.adaptation import MAPAdaptation
from patchbag.mixture.gaussian import UniversalMixture
from patchbag.mixture.statistics import UniversalStatistics
from patchbag.similarity.context import ContextualSimilarity
from patchbag.similarity.histograms import HistogramKernel
from patchbag.similarity.mixtures import MixtureKernel
from patchbag.similarity.references import ReferenceWeights

Steps = list[tuple[str, Any]]


@dataclass(frozen=True)
class Recipe:
    """A named pipeline: what it is, where it is from, and the steps behind the features."""

    name: str
    summary: str
    paper: str
    build: Callable[[], Steps]


def sift() -> DenseSIFT:
    """ORH, the descriptors of the recipes: RootSIFT every 8 pixels in four sizes, as bytes."""
    return DenseSIFT(step=8, bin_sizes=(4, 6, 8, 10), root=True, dtype="uint8")


def color_statistics() -> ColorStatistics:
    """COL: colours of patches on the same lattice."""
    return ColorStatistics(step=8, cell_sizes=(4, 6, 8, 10), dtype="uint8")


def universal(images_per_component: float, largest: int, dimension: int, pyramid: list[str] | None = None) -> Any:
    """Bags → Statistics, with a mixture that grows with the number of images."""
    mixture = UniversalMixture("auto", images_per_component=images_per_component, max_components=largest)
    return UniversalStatistics(mixture, BagPCA(dimension), pyramid)


PYRAMID = ["1x1", "2x2", "3x1"]


def encoded(statistics: Any, encoding: Any, normalize: list[str]) -> Steps:
    """Statistics → encoding → normalisation → linear SVM."""
    return [
        ("statistics", statistics),
        ("encoding", encoding),
        ("normalize", Normalizer(normalize)),
        ("classifier", LinearClassifier()),
    ]


def adapted(similarity: Any) -> Steps:
    """MAP-adapted mixtures → rows of similarities → sparse logistic regression (liu2010 §4.3.1)."""
    return [
        ("statistics", universal(8, 128, 50)),
        ("adaptation", MAPAdaptation()),
        ("similarity", similarity),
        ("classifier", SparseLogistic(ignore_self=True, scale="global")),
    ]


def blended(measure: str) -> Steps:
    """Mixture weights over the training images; their square roots make the few large ones comparable."""
    steps = adapted(ReferenceWeights(measure))
    return [*steps[:-1], ("normalize", Normalizer(["power"])), ("classifier", SparseLogistic(scale="global"))]


def chi2_words() -> Steps:
    return [
        ("statistics", universal(1, 1024, 50)),
        ("encoding", BagOfWords()),
        ("similarity", HistogramKernel("chi2", exponential=True)),
        ("classifier", SparseLogistic(ignore_self=True, scale="global")),
    ]


RECIPES = {
    r.name: r
    for r in (
        Recipe(
            "fisher",
            "improved Fisher vectors, spatial pyramid, linear SVM",
            "Perronnin et al. 2010",
            lambda: encoded(universal(8, 256, 64, PYRAMID), FisherVector(), ["power", "l2"]),
        ),
        Recipe(
            "words",
            "soft bag of words, square root, linear SVM",
            "liu2010 §2.2.2",
            lambda: encoded(universal(1, 1024, 64), BagOfWords(), ["power", "l2"]),
        ),
        Recipe(
            "polya",
            "Pólya Fisher kernel of word counts, spatial pyramid, linear SVM",
            "cinbis2012 §3.1",
            lambda: encoded(universal(1, 1024, 64, PYRAMID), PolyaEncoding(count_scale=0.1), ["whiten", "l2"]),
        ),
        Recipe(
            "latent-fisher",
            "Fisher vectors of the latent mixture, spatial pyramid, linear SVM",
            "cinbis2012 §3.2",
            lambda: encoded(universal(8, 256, 64, PYRAMID), LatentFisherVector(), ["whiten", "l2"]),
        ),
        Recipe(
            "lda-fisher",
            "Fisher vectors of latent Dirichlet allocation, spatial pyramid, linear SVM",
            "cinbis2012 §3.3",
            lambda: encoded(universal(2, 512, 64, PYRAMID), LDAFisher(count_scale=0.1), ["whiten", "l2"]),
        ),
        Recipe(
            "plsa-fisher",
            "Fisher vectors of PLSA topics, spatial pyramid, linear SVM",
            "cinbis2012 §3.3",
            lambda: encoded(universal(2, 512, 64, PYRAMID), PLSAFisher(), ["whiten", "power", "l2"]),
        ),
        Recipe(
            "gmm-ppk",
            "adapted mixtures, probability product kernel, sparse logistic regression",
            "liu2010 ch. 4",
            lambda: adapted(MixtureKernel("ppk")),
        ),
        Recipe(
            "gmm-klk",
            "adapted mixtures, Kullback-Leibler kernel, sparse logistic regression",
            "liu2010 ch. 4",
            lambda: adapted(MixtureKernel("klk")),
        ),
        Recipe(
            "mom-kl",
            "mixtures of reference images by KL, sparse logistic regression",
            "liu2010 ch. 5",
            lambda: blended("kl"),
        ),
        Recipe(
            "mom-ppk",
            "mixtures of reference images by Bhattacharyya, sparse logistic regression",
            "liu2010 ch. 5",
            lambda: blended("bhattacharyya"),
        ),
        Recipe(
            "context-kl",
            "contextual similarity of adapted mixtures, sparse logistic regression",
            "liu2010 ch. 6",
            lambda: adapted(ContextualSimilarity(iterations=3)),
        ),
        Recipe(
            "words-chi2",
            "bag of words, exponential χ² similarities, sparse logistic regression",
            "liu2010 §4.3.3",
            chi2_words,
        ),
    )
}


def make_recipe(name: str, color: bool = False) -> Pipeline:
    """A new, unfitted pipeline of that name; with ``color`` a second one on colours, and the mean of both answers."""
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}; there are {', '.join(sorted(RECIPES))}")
    orientation = Pipeline([("features", sift()), *RECIPES[name].build()])
    if not color:
        return orientation
    branch = Pipeline([("features", color_statistics()), *RECIPES[name].build()])
    return Pipeline([("classifier", LateFusion([("orh", orientation), ("col", branch)]))])


def parts(pipeline: Any) -> list[Any]:
    """The pipeline and the fitted pipelines inside it."""
    found = [pipeline]
    for _, step in getattr(pipeline, "steps", []):
        for _, branch in getattr(step, "branches_", []):
            found += parts(branch)
    return found


def extractors(pipeline: Any) -> list[FeatureExtractor]:
    """The feature extractors of a pipeline, wherever they stand in it."""
    found: dict[str, FeatureExtractor] = {}
    for part in parts(pipeline):
        for value in part.get_params(deep=True).values():
            if isinstance(value, FeatureExtractor):
                found.setdefault(str(value.get_params()), value)
    return list(found.values())


def apply_runtime(pipeline: Any, *, n_jobs: int | None, cache: Any, random_state: Any = None) -> Any:
    """Set processes, cache and (where given) the seed on every step that has such a parameter."""
    for part in parts(pipeline):
        settings: dict[str, Any] = {}
        for name in part.get_params(deep=True):
            last = name.rsplit("__", 1)[-1]
            if last == "n_jobs" and name != "n_jobs":
                settings[name] = n_jobs
            elif last == "cache":
                settings[name] = cache
            elif last == "random_state" and random_state is not None:
                settings[name] = random_state
        part.set_params(**settings)
    return pipeline
