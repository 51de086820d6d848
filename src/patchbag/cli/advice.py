# SPDX-License-Identifier: BSD-3-Clause
"""Which recipe for what: a sentence for each, what it reaches on one data set, and the parameters that matter.

What was measured is in ``measured.json``, written by ``benchmarks/measure_recipes.py``: COREL-1000, 10 labels per
class, one split.
"""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """Percent on COREL-1000, and seconds of training and images per second, both of processor time."""

    accuracy: float
    training: float
    speed: float


def measured() -> dict[str, Measured]:
    """What was measured of each recipe."""
    rows = json.loads((files("patchbag.cli") / "measured.json").read_text())
    return {name: Measured(**row) for name, row in rows.items()}


FEW = 15  # labels per class below which many images without a label teach more than several kernels


def recommended(labels: Sequence[Any]) -> str:
    """The recipe that ``auto`` stands for, given the labels of all images (None for those without)."""
    known = [label for label in labels if label is not None]
    few = len(known) < FEW * len(set(known)) and len(labels) > 2 * len(known)
    return "deep-pool" if few else "auto"


# use it when
ADVICE: dict[str, str] = {
    "auto": "you do not know yet, and have 15 or more labels per class",
    "deep-pool": "you have few labels and many images without one",
    "deep-linear": "photographs, and training should take seconds",
    "deep-fisher": "photographs whose details count, and 50 or more labels per class",
    "deep-gp": "photographs, and you need to know how sure each answer is",
    "fisher": "textures, X-rays, drawings: images unlike photographs, many labels",
    "latent-fisher": "as fisher, where the same patch comes many times in an image",
    "words": "the model should be small and its features easy to explain",
    "words-addkpca": "words, with the accuracy of a χ² kernel at the speed of a linear one",
    "words-sqrt": "you compare explicit vectors of kernels of words: the cheapest",
    "words-kpca": "you compare explicit vectors of kernels of words: of any kernel, from a sample of images",
    "words-rff": "you compare explicit vectors of kernels of words: random ones, as many as you like",
    "words-chi2": "words, and a few thousand training images at most",
    "polya": "words, where the same patch comes many times in an image",
    "lda-fisher": "you study topic models of visual words",
    "plsa-fisher": "you study topic models of visual words",
    "gmm-ppk": "you compare images by mixtures of their patches, up to a few thousand",
    "gmm-klk": "as gmm-ppk, by Kullback-Leibler divergence",
    "gmm-mle": "you want to see what adaptation brings over mixtures of single images",
    "mom-kl": "images should be explained as mixtures of training images",
    "mom-ppk": "images should be explained as mixtures of training images",
    "context-kl": "as gmm-klk, where much of every image is the same background",
    "unn-gist": "answers should be explained by similar training images; whole scenes",
    "mlnn-gist": "answers should be explained by similar training images; whole scenes",
    "mlnn-words": "answers should be explained by similar training images; few classes",
    "mlnn-fisher": "answers should be explained by similar training images; textures",
    "mlnn-deep": "answers should be explained by similar training images; photographs",
    "gp-pmk": "parts of an object move about in the image; up to a few thousand images",
    "gp-spm": "where things are in the image matters; up to a few thousand images",
    "gp-fisher": "as fisher, and you need to know how sure each answer is",
    "gp-combined": "objects, several kinds of features, and time",
}

# endings of the parameters that a person is most likely to change, in the order in which they are shown
MATTERING = {
    "n_components": "size of the model: Gaussians, words or dimensions; more needs more images",
    "step": "pixels between patches; smaller is slower and finer",
    "bin_sizes": "sizes of patches in pixels",
    "max_side": "images are scaled down to this longest side first",
    "model": "the network, or the loss of the classifier",
    "output": "which vectors of the network",
    "pyramid": "grids that keep apart where patches lie",
    "C": "how closely the training images are followed; auto chooses",
    "n_neighbors": "similar images that are asked",
    "n_levels": "levels of the pyramid",
    "n_words": "size of the vocabulary",
    "relevance": "how many patches the universal model is worth",
    "max_samples": "patches that the model is learned from",
    "kernel": "how images are compared",
    "rounds": "share or number of training images that vote",
    "least": "images per class that vote at the least",
}
