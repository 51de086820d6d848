# SPDX-License-Identifier: BSD-3-Clause
"""Recipes: named pipelines from images to labels, with sizes that fit the data.

A recipe is a scikit-learn ``Pipeline`` whose first step takes images and whose last one is a classifier.  Its
parameters are reached in scikit-learn's way:
``make_recipe("fisher").set_params(statistics__mixture__n_components=64)``.

What concerns the machine and not the model (workers, cache, seed) is set by ``runtime.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from patchbag.channels import Channel
from patchbag.classifiers.fusion import LateFusion
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessCategorizer
from patchbag.classifiers.linear import LinearClassifier
from patchbag.encodings.fisher import FisherVector
from patchbag.encodings.latent_fisher import LatentFisherVector
from patchbag.encodings.lda import LDAFisher
from patchbag.encodings.normalize import Normalizer
from patchbag.encodings.polya import PolyaEncoding
from patchbag.encodings.topics import PLSAFisher
from patchbag.encodings.words import BagOfWords
from patchbag.features.channels import FeatureChannels
from patchbag.features.color import ColorStatistics
from patchbag.features.dense_sift import DenseSIFT
from patchbag.features.geometric_blur import GeometricBlur
from patchbag.features.projection import BagPCA
from patchbag.mixture.adaptation import MAPAdaptation
from patchbag.mixture.gaussian import UniversalMixture
from patchbag.mixture.maximum_likelihood import MaximumLikelihoodMixtures
from patchbag.mixture.statistics import UniversalStatistics
from patchbag.similarity.definite import DefiniteKernel
from patchbag.similarity.histograms.kernel import HistogramKernel
from patchbag.similarity.inner_product import InnerProductKernel
from patchbag.similarity.mixtures.context import ContextualSimilarity
from patchbag.similarity.mixtures.kernel import MixtureKernel
from patchbag.similarity.mixtures.references import ReferenceWeights
from patchbag.similarity.sets.kernel import METHODS as SET_METHODS
from patchbag.similarity.sets.kernel import SetKernel
from patchbag.similarity.sets.minimum_distance import MinimumDistanceKernel
from patchbag.similarity.sets.pyramid_match import PyramidMatchKernel
from patchbag.similarity.sets.spatial_match import SpatialPyramidMatch
from patchbag.similarity.union import KernelUnion

Steps = list[tuple[str, Any]]


def sift() -> DenseSIFT:
    """ORH, the descriptors of the recipes: RootSIFT every 8 pixels in four sizes, as bytes."""
    return DenseSIFT(step=8, bin_sizes=(4, 6, 8, 10), root=True, dtype="uint8")


def contrasted_sift() -> DenseSIFT:
    """The same without patches that show nothing: as a Gaussian without width they would outweigh all others."""
    return sift().set_params(low_contrast="drop")


@dataclass(frozen=True)
class Recipe:
    """A named pipeline: what it is, where it is from, its features and the steps behind them."""

    name: str
    summary: str
    paper: str
    build: Callable[[], Steps]
    features: Callable[[], Any] = sift


def color_statistics() -> ColorStatistics:
    """COL: colours of patches on the same lattice."""
    return ColorStatistics(step=8, cell_sizes=(4, 6, 8, 10), dtype="uint8")


def universal(images_per_component: float, largest: int, dimension: int, pyramid: list[str] | None = None) -> Any:
    """Bags → Statistics, with a mixture that grows with the number of images."""
    mixture = UniversalMixture("auto", images_per_component=images_per_component, max_components=largest)
    return UniversalStatistics(mixture, BagPCA(dimension), pyramid)


def vocabulary(images_per_word: float, largest: int, dimension: int, pyramid: list[str] | None = None) -> Any:
    """Bags → counts of words."""
    return universal(images_per_word, largest, dimension, pyramid).set_params(moments=False)


PYRAMID = ["1x1", "2x2", "3x1"]


def encoded(statistics: Any, encoding: Any, normalize: list[str]) -> Steps:
    """Statistics → encoding → normalisation → linear SVM."""
    return [
        ("statistics", statistics),
        ("encoding", encoding),
        ("normalize", Normalizer(normalize)),
        ("classifier", LinearClassifier()),
    ]


# The papers' τ = 10 is for patches that hardly overlap; on this grid a descriptor is worth about a fifth of one.
RELEVANCE = 50.0
# Divergences of 50 dimensions are sharper than products of roots and need more smoothing: on one split of Scene-15, KLK
# reaches 78.7, 77.0 and 84.2 % with τ = 50, 100 and 200 (the first two kernels are far from definite), MOM-KL 81.0,
# 82.1 and 82.5 %; PPK 85.9 % with 50.
SHARP_RELEVANCE = 200.0


def adapted(similarity: Any, C: float, *between: tuple[str, Any], relevance: float = RELEVANCE) -> Steps:
    """MAP-adapted mixtures → rows of similarities to the training images → a linear classifier (liu2010 §4.3.1).

    The thesis trains a sparse logistic regression on the rows (``SparseLogistic``); squared loss is a little more
    accurate and much faster, and like it does not need the similarity to be a definite kernel.
    """
    return [
        ("statistics", universal(8, 128, 50)),
        ("adaptation", MAPAdaptation(relevance)),
        ("similarity", similarity),
        *between,
        ("scale", StandardScaler()),
        ("classifier", LinearClassifier("least-squares", C=C)),
    ]


def definite() -> tuple[str, Any]:
    """A word where the kernel is not definite, as settings can make it: there the classifier loses points unseen."""
    return "definite", DefiniteKernel("warn")


def divergences() -> Steps:
    return adapted(MixtureKernel("klk"), 1.0, definite(), relevance=SHARP_RELEVANCE)


def unadapted() -> Steps:
    """The same with mixtures that are trained on each image alone, whose components have to be matched."""
    return [
        ("mixtures", MaximumLikelihoodMixtures(UniversalMixture(16), BagPCA(50))),
        *adapted(MixtureKernel("klk", matching="matched"), 1.0, definite())[2:],
    ]


def blended(measure: str, relevance: float) -> Steps:
    """Mixture weights over the training images; a root makes the few large ones comparable with the rest."""
    similarity = ReferenceWeights(measure, iterations=1, leave_out_self=False)
    return adapted(similarity, 1.0, ("normalize", Normalizer(["power"])), relevance=relevance)


def chi2_words() -> Steps:
    return [
        ("statistics", vocabulary(1, 1024, 50)),
        ("encoding", BagOfWords()),
        ("similarity", HistogramKernel("chi2", exponential=True)),
        ("scale", StandardScaler()),
        ("classifier", LinearClassifier("least-squares", C=1.0)),
    ]


def pyramid_match() -> Steps:
    """PCA 10 + position → pyramid match in uniform bins (kapoor2010, "Dense PMK").

    On Caltech-101, 15 training images a class, splits of seeds 100 to 103, GP: with 4 levels and position_weight=1, 8
    random placements of the grid 61.8 %, 4 of them 60.1; with 5 levels 56.1, with 3 (and 0.5) 43.7; with
    position_weight 0.7 or 1.3 and 4 placements 59.4 and 57.6.  Vocabulary-guided bins, 7 levels of 5 branches: 56.8.
    """
    kernel = PyramidMatchKernel("uniform", n_levels=4, n_shifts=8, position_weight=1.0)
    return [("projection", BagPCA(10)), ("kernel", kernel)]


def spatial_match() -> Steps:
    """Words × positions (kapoor2010, "Spatial PMK").

    On 20 classes of Caltech-101, 15 training images each, 3 splits: 77.7 %, with one size of patches 71.4.
    """
    return [("projection", BagPCA(32)), ("kernel", SpatialPyramidMatch(400))]


def on(channel: str, steps: Steps) -> Pipeline:
    """A branch of a KernelUnion: the steps, on one of the features."""
    return Pipeline([("channel", Channel(channel)), *steps])


def fisher_kernel(statistics: Any) -> Steps:
    return [*encoded(statistics, FisherVector(), ["power", "l2"])[:-1], ("kernel", InnerProductKernel())]


def all_kernels() -> KernelUnion:
    """Kernels that ``gp-combined`` can combine: the paper's four, and by name all others that are symmetric.

    Set kernels compare every feature of one image with every one of another: they are for the few of geometric blur.
    """
    vectors = fisher_kernel(universal(8, 256, 64, PYRAMID))
    colors = fisher_kernel(universal(8, 64, 32, PYRAMID))
    mixtures = adapted(MixtureKernel("ppk", normalize=True), 1.0)[:3]
    branches = [
        ("pmk", on("sift", pyramid_match())),
        ("spm", on("sift", spatial_match())),
        ("gb", on("gb", [("projection", BagPCA(64)), ("kernel", MinimumDistanceKernel())])),
        ("gbdist", on("gb", [("projection", BagPCA(64)), ("kernel", MinimumDistanceKernel(0.5))])),
        ("fisher", on("sift", vectors)),
        ("fisher-color", on("color", colors)),
        ("gmm-ppk", on("sift", mixtures)),
        ("gmm-klk", on("sift", divergences()[:3])),
        ("context-kl", on("sift", adapted(ContextualSimilarity(), 1.0)[:3])),
        ("words-chi2", on("sift", chi2_words()[:3])),
        *((f"set-{name}", on("gb", [("projection", BagPCA(10)), ("kernel", SetKernel(name))])) for name in SET_METHODS),
    ]
    return KernelUnion(branches, use=("pmk", "spm", "gb", "gbdist"))


def sift_and_blur() -> FeatureChannels:
    """SIFT and, on request, colours on a lattice; geometric blur at edges."""
    channels = [("sift", sift()), ("gb", GeometricBlur(150, spacing=5.0)), ("color", color_statistics())]
    return FeatureChannels(channels, use=("sift", "gb"))


def gaussian_process(steps: Steps, repair: bool = False) -> Steps:
    """Kernels → Gaussian process, its noise and the weights of the kernels chosen by the evidence (kapoor2010 §6)."""
    return [*steps, ("classifier", GaussianProcessCategorizer(repair=repair))]


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
            lambda: encoded(vocabulary(1, 1024, 64), BagOfWords(), ["power", "l2"]),
        ),
        Recipe(
            "polya",
            "Pólya Fisher kernel of word counts, spatial pyramid, linear SVM",
            "cinbis2012 §3.1",
            lambda: encoded(vocabulary(1, 1024, 64, PYRAMID), PolyaEncoding(count_scale=0.1), ["whiten", "l2"]),
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
            lambda: encoded(vocabulary(2, 512, 64, PYRAMID), LDAFisher(count_scale=0.1), ["whiten", "l2"]),
        ),
        Recipe(
            "plsa-fisher",
            "Fisher vectors of PLSA topics, spatial pyramid, linear SVM",
            "cinbis2012 §3.3",
            lambda: encoded(vocabulary(2, 512, 64, PYRAMID), PLSAFisher(), ["whiten", "power", "l2"]),
        ),
        Recipe(
            "gmm-ppk",
            "adapted mixtures, rows of probability product kernels",
            "liu2010 ch. 4",
            lambda: adapted(MixtureKernel("ppk", normalize=True), 1.0, definite()),
            contrasted_sift,
        ),
        Recipe(
            "gmm-klk",
            "adapted mixtures, rows of Kullback-Leibler kernels",
            "liu2010 ch. 4",
            divergences,
            contrasted_sift,
        ),
        Recipe(
            "gmm-mle",
            "mixtures trained on each image alone, rows of Kullback-Leibler kernels",
            "liu2010 §4.3.2",
            unadapted,
            contrasted_sift,
        ),
        Recipe(
            "mom-kl",
            "mixtures of reference images by KL",
            "liu2010 ch. 5",
            lambda: blended("kl", SHARP_RELEVANCE),
            contrasted_sift,
        ),
        Recipe(
            "mom-ppk",
            "mixtures of reference images by Bhattacharyya",
            "liu2010 ch. 5",
            lambda: blended("bhattacharyya", RELEVANCE),
            contrasted_sift,
        ),
        Recipe(
            "context-kl",
            "contextual similarity of adapted mixtures",
            "liu2010 ch. 6",
            lambda: adapted(ContextualSimilarity(iterations=2), 0.03),
            contrasted_sift,
        ),
        Recipe(
            "words-chi2",
            "bag of words, rows of exponential χ² kernels",
            "liu2010 §4.3.3",
            chi2_words,
        ),
        Recipe(
            "gp-pmk",
            "pyramid match of descriptors with positions, Gaussian process",
            "kapoor2010 §5",
            lambda: gaussian_process(pyramid_match()),
        ),
        Recipe(
            "gp-spm",
            "spatial pyramid match of visual words, Gaussian process",
            "kapoor2010 §5",
            lambda: gaussian_process(spatial_match()),
        ),
        Recipe(
            "gp-fisher",
            "inner products of Fisher vectors, Gaussian process",
            "kapoor2010 §4, Perronnin et al. 2010",
            lambda: gaussian_process(fisher_kernel(universal(8, 64, 64, PYRAMID))),
        ),
        Recipe(
            "gp-combined",
            "pyramid matches and geometric blur, weights learned by evidence, Gaussian process",
            "kapoor2010 §6",
            lambda: gaussian_process([("kernels", all_kernels())], repair=True),  # GB is not a Mercer kernel
            sift_and_blur,
        ),
    )
}


def make_recipe(name: str, color: bool = False) -> Pipeline:
    """A new, unfitted pipeline of that name; with ``color`` a second one on colours, and the mean of both answers."""
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}; there are {', '.join(sorted(RECIPES))}")
    orientation = Pipeline([("features", RECIPES[name].features()), *RECIPES[name].build()])
    if not color:
        return orientation
    if RECIPES[name].features not in (sift, contrasted_sift):
        raise ValueError(f"recipe {name!r} has features of its own that colours cannot replace; use it without colour")
    branch = Pipeline([("features", color_statistics()), *RECIPES[name].build()])
    return Pipeline([("classifier", LateFusion([("orh", orientation), ("col", branch)]))])
