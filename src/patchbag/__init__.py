# SPDX-License-Identifier: BSD-3-Clause
"""patchbag: categorise and search images by their local features, and say how sure it is.

The public names live in small modules and are imported when first used, so that ``import patchbag`` costs
milliseconds although Numba, scikit-learn and OpenCV stand behind it.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# public name -> module that defines it
_HOME = {
    "ActiveLearner": "patchbag.active.learner",
    "BagOfWords": "patchbag.encodings.words",
    "BagPCA": "patchbag.features.projection",
    "Bags": "patchbag.bags",
    "Categorizer": "patchbag.categorizer",
    "Channel": "patchbag.channels",
    "Channels": "patchbag.channels",
    "ColorStatistics": "patchbag.features.color",
    "ContextualSimilarity": "patchbag.similarity.mixtures.context",
    "DenseSIFT": "patchbag.features.dense_sift",
    "FeatureChannels": "patchbag.features.channels",
    "FisherVector": "patchbag.encodings.fisher",
    "GaussianProcessCategorizer": "patchbag.classifiers.gaussian_process.classifier",
    "GaussianProcessQuery": "patchbag.active.query",
    "GeometricBlur": "patchbag.features.geometric_blur",
    "HistogramKernel": "patchbag.similarity.histograms.kernel",
    "ImageError": "patchbag.images",
    "InnerProductKernel": "patchbag.similarity.inner_product",
    "KernelUnion": "patchbag.similarity.union",
    "LDAFisher": "patchbag.encodings.lda",
    "LateFusion": "patchbag.classifiers.fusion",
    "LatentFisherVector": "patchbag.encodings.latent_fisher",
    "LinearClassifier": "patchbag.classifiers.linear",
    "MAPAdaptation": "patchbag.mixture.adaptation",
    "MaximumLikelihoodMixtures": "patchbag.mixture.maximum_likelihood",
    "MinimumDistanceKernel": "patchbag.similarity.sets.minimum_distance",
    "MixtureKernel": "patchbag.similarity.mixtures.kernel",
    "Mixtures": "patchbag.mixture.adaptation",
    "Normalizer": "patchbag.encodings.normalize",
    "PLSAFisher": "patchbag.encodings.topics",
    "PerDescriptor": "patchbag.features.projection",
    "PolyaEncoding": "patchbag.encodings.polya",
    "PyramidMatchKernel": "patchbag.similarity.sets.pyramid_match",
    "ReferenceWeights": "patchbag.similarity.mixtures.references",
    "SparseLogistic": "patchbag.classifiers.sparse_logistic",
    "SpatialPyramid": "patchbag.mixture.spatial",
    "SpatialPyramidMatch": "patchbag.similarity.sets.spatial_match",
    "Statistics": "patchbag.mixture.statistics",
    "UniversalMixture": "patchbag.mixture.gaussian",
    "UniversalStatistics": "patchbag.mixture.statistics",
    "VLAD": "patchbag.encodings.vlad",
    "as_bags": "patchbag.bags",
    "average_precision": "patchbag.metrics",
    "load_image": "patchbag.images",
    "make_recipe": "patchbag.recipes",
    "mean_class_accuracy": "patchbag.metrics",
    "simulate": "patchbag.active.simulation",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'patchbag' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
