# SPDX-License-Identifier: BSD-3-Clause
"""The stages that recipes are made of: features, representations, similarities and classifiers, with their sizes."""

from collections.abc import Callable
from functools import partial
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from patchbag.channels import Channel
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.linear import LinearClassifier
from patchbag.classifiers.prototypes.multiclass import MulticlassLeveragedNeighbors
from patchbag.classifiers.prototypes.universal import UniversalNearestNeighbors
from patchbag.encodings.fisher import FisherVector
from patchbag.encodings.mean import MeanDescriptor
from patchbag.encodings.normalize import Normalizer
from patchbag.encodings.vlad import VLAD
from patchbag.encodings.words import BagOfWords
from patchbag.features.color import ColorStatistics
from patchbag.features.deep import DeepPatches
from patchbag.features.dense_sift import DenseSIFT
from patchbag.features.geometric_blur import GeometricBlur
from patchbag.features.gist import Gist
from patchbag.features.laplacian import MultiscalePatches
from patchbag.features.lbp import LocalBinaryPatterns
from patchbag.features.projection import BagPCA
from patchbag.mixture.adaptation import MAPAdaptation
from patchbag.mixture.gaussian import UniversalMixture
from patchbag.mixture.universal import UniversalStatistics
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
Stage = Callable[[], Steps]

# --- features --------------------------------------------------------------------------------------------------------

LEAST = 64  # pixels of the shorter side: smaller pictures have room for a few patches only

# ORH, the descriptors of most recipes: RootSIFT every 8 pixels in four sizes, as bytes
sift = partial(DenseSIFT, step=8, bin_sizes=(4, 6, 8, 10), root=True, dtype="uint8", min_side=LEAST)

FEATURES: dict[str, Callable[[], Any]] = {
    "sift": sift,
    # without patches that show nothing: as a Gaussian without width they would outweigh all others
    "sift-contrast": partial(sift, low_contrast="drop"),
    # COL, on the same lattice
    "color": partial(ColorStatistics, step=8, cell_sizes=(4, 6, 8, 10), dtype="uint8", min_side=LEAST),
    "gb": partial(GeometricBlur, 150, spacing=5.0, min_side=LEAST),
    "deep": partial(DeepPatches, dtype="float16"),
    "deep-pooled": partial(DeepPatches, output="pooled"),
    "gist": Gist,
    "lbp": LocalBinaryPatterns,
    "smp": MultiscalePatches,
}

# --- representations -------------------------------------------------------------------------------------------------

PYRAMID = ["1x1", "2x2", "3x1"]
# The papers' τ = 10 is for patches that hardly overlap; on this grid a descriptor is worth about a fifth of one.
RELEVANCE = 50.0
# Divergences of 50 dimensions are sharper than products of roots and need more smoothing.
SHARP_RELEVANCE = 200.0


def universal(images_per_component: float, largest: int, dimension: int, pyramid: list[str] | None = None) -> Any:
    """Bags → Statistics, with a mixture that grows with the number of images."""
    mixture = UniversalMixture("auto", images_per_component=images_per_component, max_components=largest)
    return UniversalStatistics(mixture, BagPCA(dimension), pyramid)


def vocabulary(images_per_word: float, largest: int, dimension: int, pyramid: list[str] | None = None) -> Any:
    """Bags → counts of words."""
    return universal(images_per_word, largest, dimension, pyramid).set_params(moments=False)


def encoding(statistics: Any, code: Any, normalize: list[str]) -> Steps:
    """Statistics → encoding → normalisation."""
    return [("statistics", statistics), ("encoding", code), ("normalize", Normalizer(normalize))]


def adapted_mixtures(relevance: float = RELEVANCE, largest: int = 128) -> Steps:
    """MAP-adapted mixtures (liu2010 §4.2)."""
    return [("statistics", universal(8, largest, 50)), ("adaptation", MAPAdaptation(relevance))]


def words() -> Steps:
    return [("statistics", vocabulary(1, 1024, 50)), ("encoding", BagOfWords())]


def embedded_words(embedding: Callable[[], Any]) -> Steps:
    """Words, and explicit vectors of a kernel of them (liu2010 ch. 7)."""
    return [*words(), ("embedding", embedding())]


def fisher(largest: int = 256, dimension: int = 64) -> Steps:
    return encoding(universal(8, largest, dimension, PYRAMID), FisherVector(), ["power", "l2"])


def vlad() -> Steps:
    return encoding(universal(8, 64, 64), VLAD(), ["power", "l2"])


def pooled() -> Steps:
    """The mean descriptor: square roots of its entries, minus the mean of all images, unit length."""
    return [
        ("pool", MeanDescriptor()),
        ("root", Normalizer(["power"])),
        ("center", StandardScaler(with_std=False)),
        ("normalize", Normalizer(["l2"])),
    ]


def directions(dimension: int) -> Steps:
    """The mean descriptor's directions: half-whitened principal components of unit length."""
    return [
        ("projection", BagPCA(dimension, whiten=0.5)),
        ("pool", MeanDescriptor()),
        ("normalize", Normalizer(["l2"])),
    ]


def projection(dimension: int) -> Steps:
    return [("projection", BagPCA(dimension))]


# --- similarities ----------------------------------------------------------------------------------------------------


def checked_kernel(similarity: Any) -> Steps:
    """A similarity, and a warning where it is not positive semidefinite: there the classifier is less accurate."""
    return [("similarity", similarity), ("definite", DefiniteKernel("warn"))]


def references(measure: str) -> Steps:
    """Mixture weights over the training images, and their square roots: a few weights are far larger than the rest."""
    weights = ReferenceWeights(measure, iterations=1, leave_out_self=False)
    return [("similarity", weights), ("normalize", Normalizer(["power"]))]


def pyramid_match() -> Any:
    """kapoor2010, "Dense PMK": uniform bins; levels and placements were chosen on Caltech-101, seeds 100 to 103."""
    return PyramidMatchKernel("uniform", n_levels=4, n_shifts=8, position_weight=1.0)


def branch(name: str, channel: str, representation: Steps, kernel: Any = None) -> tuple[str, Pipeline]:
    """A kernel on one of several kinds of features: inner products, unless it is another."""
    kernel = InnerProductKernel() if kernel is None else kernel
    return name, Pipeline([("channel", Channel(channel)), *representation, ("kernel", kernel)])


def all_kernels() -> KernelUnion:
    """Kernels that ``gp-combined`` can combine: the paper's four, and by name all others that are symmetric.

    Set kernels compare every feature of one image with every one of another: they are for the few of geometric blur.
    """
    branches = [
        branch("pmk", "sift", projection(10), pyramid_match()),
        branch("spm", "sift", projection(32), SpatialPyramidMatch(400)),
        branch("gb", "gb", projection(64), MinimumDistanceKernel()),
        branch("gbdist", "gb", projection(64), MinimumDistanceKernel(0.5)),
        branch("fisher", "sift", fisher()),
        branch("fisher-color", "color", fisher(64, 32)),
        branch("gmm-ppk", "sift", adapted_mixtures(), MixtureKernel("ppk", normalize=True)),
        branch("gmm-klk", "sift", adapted_mixtures(SHARP_RELEVANCE), MixtureKernel("klk")),
        branch("context-kl", "sift", adapted_mixtures(), ContextualSimilarity()),
        branch("words-chi2", "sift", words(), HistogramKernel("chi2", exponential=True)),
        *(branch(f"set-{name}", "gb", projection(10), SetKernel(name)) for name in SET_METHODS),
    ]
    return KernelUnion(branches, use=("pmk", "spm", "gb", "gbdist"))


def auto_kernels() -> KernelUnion:
    """Kernels of ``auto``: a network's pooled vector, and Fisher vectors of its patches, gradients and colours."""
    return KernelUnion(
        [
            branch("deep", "deep-pooled", pooled()),
            branch("deep-fisher", "deep", fisher(64)),
            branch("fisher", "sift", fisher(64)),
            branch("fisher-color", "color", fisher(64, 32)),
        ]
    )


# --- classifiers -----------------------------------------------------------------------------------------------------


def svm() -> Steps:
    return [("classifier", LinearClassifier())]


def linear_on_rows(C: float = 1.0, rows: str = "similarities") -> Steps:
    """A linear classifier on rows of similarities to the training images (liu2010 §4.3.1).

    The thesis trains a sparse logistic regression on the rows; squared loss is a little more accurate and much faster,
    and like it does not need the similarity to be a definite kernel.
    """
    return [("classifier", LinearClassifier("least-squares", C=C, rows=rows))]


def gaussian_process(repair: bool = False) -> Steps:
    """Kernels → Gaussian process, its noise and the weights of the kernels chosen by the evidence (kapoor2010 §6)."""
    return [("classifier", GaussianProcessClassifier(repair=repair))]


# several neighbourhoods, from close to wide, agree better with each other than one that had to be chosen
NEIGHBORHOODS = (5, 10, 20, 40)
KEPT = 0.5  # of the training images; less costs little
KEPT_PER_CLASS = 25  # at the least: of few images nearly all are needed


def prototypes(kernel: str, metric: str = "euclidean", one_versus_all: bool = False) -> Steps:
    """Boosted nearest neighbours: the training images that were selected vote (piro2010 ch. 4, 5)."""
    model = UniversalNearestNeighbors if one_versus_all else MulticlassLeveragedNeighbors
    options: dict[str, Any] = {"kernel": kernel, "metric": metric, "rounds": KEPT, "least": KEPT_PER_CLASS}
    return [("classifier", model(NEIGHBORHOODS, **options))]
