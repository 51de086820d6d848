# SPDX-License-Identifier: BSD-3-Clause
"""Which recipe for what: a sentence for each, what it reaches on one data set, and the parameters that matter.

Accuracies are those of docs/results.md ("How sure"): Scene-15, SIFT or a network, 10 labels per class; and those that
``benchmarks/measure_recipes.py`` has written to ``measured.json``: COREL-1000, 10 labels per class, one split.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import NamedTuple


class Measured(NamedTuple):
    """Percent on COREL-1000, and seconds of training and images per second, both of processor time."""

    accuracy: float
    training: float
    speed: float


def measured() -> dict[str, Measured]:
    """What was measured of each recipe."""
    rows = json.loads((files("patchbag") / "measured.json").read_text())
    return {name: Measured(**row) for name, row in rows.items()}


class Advice(NamedTuple):
    """When to use a recipe, and its mean accuracy per class in percent on Scene-15 with 10 labels per class."""

    use_when: str
    accuracy: float | None = None


ADVICE: dict[str, Advice] = {
    "auto": Advice("you do not know yet, and have 15 or more labels per class"),
    "deep-pool": Advice("you have few labels and many images without one"),
    "deep-linear": Advice("photographs, and training should take seconds", 89.2),
    "deep-fisher": Advice("photographs whose details count, and 50 or more labels per class", 80.6),
    "deep-gp": Advice("photographs, and you need to know how sure each answer is"),
    "fisher": Advice("textures, X-rays, drawings: images unlike photographs, many labels", 72.8),
    "latent-fisher": Advice("as fisher, where the same patch comes many times in an image", 73.6),
    "words": Advice("the model should be small and its features easy to explain", 60.2),
    "words-addkpca": Advice("words, with the accuracy of a χ² kernel at the speed of a linear one"),
    "words-sqrt": Advice("you compare explicit vectors of kernels of words: the cheapest"),
    "words-kpca": Advice("you compare explicit vectors of kernels of words: of any kernel, from a sample of images"),
    "words-rff": Advice("you compare explicit vectors of kernels of words: random ones, as many as you like"),
    "words-chi2": Advice("words, and a few thousand training images at most", 64.6),
    "polya": Advice("words, where the same patch comes many times in an image", 70.4),
    "lda-fisher": Advice("you study topic models of visual words", 66.0),
    "plsa-fisher": Advice("you study topic models of visual words", 67.0),
    "gmm-ppk": Advice("you compare images by mixtures of their patches, up to a few thousand", 66.6),
    "gmm-klk": Advice("as gmm-ppk, by Kullback-Leibler divergence", 65.4),
    "gmm-mle": Advice("you want to see what adaptation brings over mixtures of single images"),
    "mom-kl": Advice("images should be explained as mixtures of training images", 60.8),
    "mom-ppk": Advice("images should be explained as mixtures of training images", 63.3),
    "context-kl": Advice("as gmm-klk, where much of every image is the same background", 67.8),
    "unn-gist": Advice("answers should be explained by similar training images; whole scenes"),
    "mlnn-gist": Advice("answers should be explained by similar training images; whole scenes"),
    "mlnn-words": Advice("answers should be explained by similar training images; few classes"),
    "mlnn-fisher": Advice("answers should be explained by similar training images; textures"),
    "mlnn-deep": Advice("answers should be explained by similar training images; photographs"),
    "gp-pmk": Advice("parts of an object move about in the image; up to a few thousand images"),
    "gp-spm": Advice("where things are in the image matters; up to a few thousand images", 66.3),
    "gp-fisher": Advice("as fisher, and you need to know how sure each answer is", 73.5),
    "gp-combined": Advice("objects, several kinds of features, and time"),
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
