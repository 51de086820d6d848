# SPDX-License-Identifier: BSD-3-Clause
"""Recipes: named pipelines from images to labels, with sizes that fit the data.

A recipe has four stages::

    features ──▶ representation ──▶ similarity ──▶ classifier

``features`` names entries of ``FEATURES``; the other stages are lists of steps.  ``make_recipe`` joins them to an
ordinary scikit-learn ``Pipeline``, whose parameters are reached in scikit-learn's way:
``make_recipe("fisher").set_params(statistics__mixture__n_components=64)``.  Other features may be chosen; where there
are several, each gets the recipe's stages, and their answers are averaged (liu2010 §4.3.1, "ORH+COL").

``add_recipe`` and ``FEATURES`` take new ones.  What concerns the machine (workers, seed, store) is in ``runtime``.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sklearn.pipeline import Pipeline

from patchbag.classifiers.fusion import LateFusionClassifier
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.pool import PoolClassifier
from patchbag.embeddings.additive import AdditiveKernelPCA, SquareRootMap
from patchbag.embeddings.kernel_pca import KernelPCAMap
from patchbag.embeddings.random_features import RandomFourierMap
from patchbag.encodings.latent_fisher import LatentFisherVector
from patchbag.encodings.lda import LDAFisherVector
from patchbag.encodings.polya import PolyaVector
from patchbag.encodings.topics import PLSAFisherVector
from patchbag.encodings.words import BagOfWords
from patchbag.features.channels import FeatureChannels
from patchbag.features.projection import BagPCA
from patchbag.mixture.gaussian import UniversalMixture
from patchbag.mixture.maximum_likelihood import MaximumLikelihoodMixtures
from patchbag.similarity.histograms.kernel import HistogramKernel
from patchbag.similarity.inner_product import InnerProductKernel
from patchbag.similarity.mixtures.context import ContextualSimilarity
from patchbag.similarity.mixtures.kernel import MixtureKernel
from patchbag.similarity.sets.spatial_match import SpatialPyramidMatch
from patchbag.stages import (
    FEATURES,
    PYRAMID,
    SHARP_RELEVANCE,
    Stage,
    Steps,
    adapted_mixtures,
    all_kernels,
    auto_kernels,
    checked_kernel,
    directions,
    embedded_words,
    encoding,
    fisher,
    gaussian_process,
    linear_on_rows,
    pooled,
    projection,
    prototypes,
    pyramid_match,
    references,
    svm,
    universal,
    vocabulary,
    words,
)


@dataclass(frozen=True)
class Recipe:
    """A named pipeline: what it is, where it is from, its stages; ``features`` are names of ``FEATURES``."""

    name: str
    summary: str
    paper: str
    representation: Stage
    similarity: Stage = list
    classifier: Stage = svm
    features: str | tuple[str, ...] = "sift"

    def stages(self) -> Steps:
        """The steps behind the features."""
        return [*self.representation(), *self.similarity(), *self.classifier()]


RECIPES: dict[str, Recipe] = {}


def add_recipe(*arguments: Any, **named: Any) -> Recipe:
    """Make a :class:`Recipe` known by its name; a name that is taken is an error."""
    recipe = Recipe(*arguments, **named)
    if recipe.name in RECIPES:
        raise ValueError(f"there is a recipe {recipe.name!r} already")
    RECIPES[recipe.name] = recipe
    return recipe


def make_recipe(name: str, features: str | Sequence[str] | None = None) -> Pipeline:
    """A new, unfitted pipeline of that name, on its own features or on others.

    Parameters
    ----------
    name : one of ``RECIPES``
    features : one or several of ``FEATURES``; the answers on several are averaged
    """
    if name not in RECIPES:
        close = difflib.get_close_matches(name, RECIPES, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(RECIPES))}"
        raise ValueError(f"there is no recipe {name!r}; {hint}")
    recipe = RECIPES[name]
    chosen = recipe.features if features is None else features
    names = [chosen] if isinstance(chosen, str) else list(chosen)
    unknown = [n for n in names if n not in FEATURES]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(f"features must be some of {', '.join(FEATURES)}, each once; got {features!r}")
    if not isinstance(recipe.features, str):
        if features is not None:
            raise ValueError(f"recipe {name!r} combines features of its own; choose among them with features.use")
        extra = [n for n in ("color",) if n not in names]  # described on request
        channels = FeatureChannels([(n, FEATURES[n]()) for n in (*names, *extra)], use=tuple(names))
        return Pipeline([("features", channels), *recipe.stages()])
    if len(names) == 1:
        return Pipeline([("features", FEATURES[names[0]]()), *recipe.stages()])
    fusion = LateFusionClassifier([(n, Pipeline(recipe.stages())) for n in names])
    return Pipeline([("features", FeatureChannels([(n, FEATURES[n]()) for n in names])), ("classifier", fusion)])


add_recipe("fisher", "improved Fisher vectors, spatial pyramid, linear SVM", "Perronnin et al. 2010", fisher)
add_recipe(
    "words",
    "soft bag of words, square root, linear SVM",
    "liu2010 §2.2.2",
    lambda: encoding(vocabulary(1, 1024, 64), BagOfWords(), ["power", "l2"]),
)
for name, section, kernel, embedding in (
    ("sqrt", "§7.2.1", "square roots (Bhattacharyya kernel)", SquareRootMap),
    ("addkpca", "§7.4", "explicit vectors of the χ² kernel", AdditiveKernelPCA),
    (
        "kpca",
        "§7.3",
        "explicit vectors of the exponential Bhattacharyya kernel",
        lambda: KernelPCAMap(HistogramKernel("bhattacharyya", exponential=True)),
    ),
    ("rff", "§7.5", "random Fourier features of the exponential Bhattacharyya kernel", RandomFourierMap),
):
    summary = f"soft bag of words, {kernel}, linear SVM"
    add_recipe(f"words-{name}", summary, f"liu2010 {section}", partial(embedded_words, embedding))
add_recipe(
    "polya",
    "Pólya Fisher kernel of word counts, spatial pyramid, linear SVM",
    "cinbis2012 §3.1",
    lambda: encoding(vocabulary(1, 1024, 64, PYRAMID), PolyaVector(count_scale=0.1), ["whiten", "l2"]),
)
add_recipe(
    "latent-fisher",
    "Fisher vectors of the latent mixture, spatial pyramid, linear SVM",
    "cinbis2012 §3.2",
    lambda: encoding(universal(8, 256, 64, PYRAMID), LatentFisherVector(), ["whiten", "l2"]),
)
add_recipe(
    "lda-fisher",
    "Fisher vectors of latent Dirichlet allocation, spatial pyramid, linear SVM",
    "cinbis2012 §3.3",
    lambda: encoding(vocabulary(2, 512, 64, PYRAMID), LDAFisherVector(count_scale=0.1), ["whiten", "l2"]),
)
add_recipe(
    "plsa-fisher",
    "Fisher vectors of PLSA topics, spatial pyramid, linear SVM",
    "cinbis2012 §3.3",
    lambda: encoding(vocabulary(2, 512, 64, PYRAMID), PLSAFisherVector(), ["whiten", "power", "l2"]),
)
add_recipe(
    "gmm-ppk",
    "adapted mixtures, rows of probability product kernels",
    "liu2010 ch. 4",
    adapted_mixtures,
    lambda: checked_kernel(MixtureKernel("ppk", normalize=True)),
    linear_on_rows,
    "sift-contrast",
)
add_recipe(
    "gmm-klk",
    "adapted mixtures, rows of Kullback-Leibler kernels",
    "liu2010 ch. 4",
    lambda: adapted_mixtures(SHARP_RELEVANCE),
    lambda: checked_kernel(MixtureKernel("klk")),
    linear_on_rows,
    "sift-contrast",
)
add_recipe(
    "gmm-mle",
    "mixtures trained on each image alone, rows of Kullback-Leibler kernels",
    "liu2010 §4.3.2",
    lambda: [("mixtures", MaximumLikelihoodMixtures(UniversalMixture(16), BagPCA(50)))],
    lambda: checked_kernel(MixtureKernel("klk", matching="matched")),
    linear_on_rows,
    "sift-contrast",
)
add_recipe(
    "mom-kl",
    "mixtures of reference images by KL",
    "liu2010 ch. 5",
    lambda: adapted_mixtures(SHARP_RELEVANCE),
    lambda: references("kl"),
    lambda: linear_on_rows(rows="shares"),
    "sift-contrast",
)
add_recipe(
    "mom-ppk",
    "mixtures of reference images by Bhattacharyya",
    "liu2010 ch. 5",
    adapted_mixtures,
    lambda: references("bhattacharyya"),
    lambda: linear_on_rows(rows="shares"),
    "sift-contrast",
)
add_recipe(
    "context-kl",
    "contextual similarity of adapted mixtures",
    "liu2010 ch. 6",
    adapted_mixtures,
    lambda: [("similarity", ContextualSimilarity(iterations=2))],
    lambda: linear_on_rows(0.03),
    "sift-contrast",
)
add_recipe(
    "words-chi2",
    "bag of words, rows of exponential χ² kernels",
    "liu2010 §4.3.3",
    words,
    lambda: [("similarity", HistogramKernel("chi2", exponential=True))],
    linear_on_rows,
)
add_recipe(
    "deep-linear", "pooled vectors of a network, linear SVM", "transfer learning", pooled, features="deep-pooled"
)
add_recipe(
    "deep-fisher",
    "Fisher vectors of a network's patches, spatial pyramid, linear SVM",
    "Cimpoi et al. 2015",
    lambda: fisher(64),
    features="deep",
)
add_recipe(
    "unn-gist",
    "Gist, votes of boosted nearest images, one class against the others",
    "piro2010 ch. 4",
    lambda: directions(128),
    classifier=lambda: prototypes("gaussian", one_versus_all=True),
    features="gist",
)
add_recipe(
    "mlnn-gist",
    "Gist, votes of boosted nearest images",
    "piro2010 ch. 5",
    lambda: directions(128),
    classifier=lambda: prototypes("gaussian"),
    features="gist",
)
add_recipe(
    "mlnn-words",
    "bag of words, votes of boosted nearest images by histogram intersection",
    "piro2010 ch. 5",
    lambda: encoding(vocabulary(1, 1500, 64), BagOfWords(), []),
    classifier=lambda: prototypes("intersection", "manhattan"),
)
add_recipe(
    "mlnn-fisher",
    "Fisher vectors, votes of boosted nearest images",
    "piro2010 ch. 5, Perronnin et al. 2010",
    fisher,
    lambda: [("kernel", InnerProductKernel())],
    lambda: prototypes("similarity", "similarity"),
)
add_recipe(
    "mlnn-deep",
    "pooled vectors of a network, votes of boosted nearest images",
    "piro2010 ch. 5",
    pooled,
    lambda: [("kernel", InnerProductKernel())],
    lambda: prototypes("similarity", "similarity"),
    "deep-pooled",
)
add_recipe(
    "gp-pmk",
    "pyramid match of descriptors with positions, Gaussian process",
    "kapoor2010 §5",
    lambda: projection(10),
    lambda: [("kernel", pyramid_match())],
    gaussian_process,
)
add_recipe(
    "gp-spm",
    "spatial pyramid match of visual words, Gaussian process",
    "kapoor2010 §5",
    lambda: projection(32),
    lambda: [("kernel", SpatialPyramidMatch(400))],
    gaussian_process,
)
add_recipe(
    "gp-fisher",
    "inner products of Fisher vectors, Gaussian process",
    "kapoor2010 §4, Perronnin et al. 2010",
    lambda: fisher(64),
    lambda: [("kernel", InnerProductKernel())],
    gaussian_process,
)
add_recipe(
    "deep-gp",
    "pooled vectors of a network, Gaussian process",
    "kapoor2010 §4",
    pooled,
    classifier=lambda: [("classifier", GaussianProcessClassifier(InnerProductKernel()))],
    features="deep-pooled",
)
add_recipe(
    "deep-pool",
    "pooled vectors of a network, images without a label teach as well",
    "Zhou et al. 2004",
    pooled,
    classifier=lambda: [("classifier", PoolClassifier())],
    features="deep-pooled",
)
add_recipe(
    "auto",
    "a network's pooled vectors and patches, gradients and colours, weights learned by evidence, Gaussian process",
    "kapoor2010 §6",
    lambda: [("kernels", auto_kernels())],
    # with one label per class nothing can be learned of the weights: the first kernel decides
    classifier=lambda: [("classifier", GaussianProcessClassifier(weights=(1.0, 0.01, 0.01, 0.01), spread=2.0))],
    features=("deep-pooled", "deep", "sift", "color"),
)
add_recipe(
    "gp-combined",
    "pyramid matches and geometric blur, weights learned by evidence, Gaussian process",
    "kapoor2010 §6",
    list,
    lambda: [("kernels", all_kernels())],
    lambda: gaussian_process(repair=True),  # GB is not a Mercer kernel
    ("sift", "gb"),
)
