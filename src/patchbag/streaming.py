# SPDX-License-Identifier: BSD-3-Clause
"""Training on more images than memory, or the disk, holds descriptors of.

    found = fit_streamed(categorizer, paths, labels, "vectors.npy", on_error="skip")

1. The steps up to the vectors (projection, universal mixture) are fitted on ``SAMPLE`` images, evenly spaced.
2. All images are described and encoded in one job each chunk (:func:`~patchbag.encodings.stream.encode_images`), on
   whatever workers the context has: descriptors are not kept, and of 100,000 images float16 vectors go to the disk.
3. Up to ``IN_MEMORY`` of vectors go to the recipe's own linear machines, which want all of them at once.  More are read
   in stripes by stochastic gradients (:class:`~patchbag.classifiers.stochastic.StochasticLinearClassifier`, calibrated
   on rows that it leaves out).

Where the path ends in ``.zarr`` it is the address of an array that the workers write and read themselves
(:mod:`~patchbag.encodings.stored`), and stochastic gradients run on them too, each on a part of the vectors.  Up to
``IN_MEMORY`` of vectors the machines are the recipe's either way, of the same vectors but for rounding.

The categorizer is then like any other: it predicts, says how sure it is, and is saved as one file.
"""

import os
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from patchbag.categorizer import Categorizer
from patchbag.classifiers.confidence.usual_bags import UsualBags
from patchbag.classifiers.linear import LinearClassifier
from patchbag.classifiers.stochastic import StochasticLinearClassifier
from patchbag.encodings.stored import StoredVectors
from patchbag.encodings.stream import Encoded, encode_images
from patchbag.features.extraction import FeatureExtractor, Progress
from patchbag.runtime import runtime_context

SAMPLE = 2000
IN_MEMORY = 2 << 30  # bytes of vectors that the recipe's own machines are given at once


def require_streamable(categorizer: Categorizer) -> None:
    """ValueError unless the recipe is a feature, steps up to one vector per image, and linear machines."""
    pipeline = categorizer.pipeline()
    last = pipeline[-1]
    linear = isinstance(last, LinearClassifier) and last.rows == "vectors"
    machines = linear or isinstance(last, StochasticLinearClassifier)
    if not isinstance(pipeline[0], FeatureExtractor) or not machines:
        raise ValueError(
            f"recipe {categorizer.recipe!r} cannot be streamed: only one feature, vectors and linear machines can, "
            "such as fisher, words, polya or deep-fisher"
        )


def fit_streamed(
    categorizer: Categorizer,
    images: Sequence[Any],
    labels: Any,
    path: str | os.PathLike[str],
    *,
    sample: int = SAMPLE,
    on_error: Literal["raise", "skip"] = "raise",
    progress: Progress | None = None,
) -> Encoded:
    """Fit a categorizer; gives the vectors, the images that they are of, and those that failed.

    Parameters
    ----------
    categorizer : of a recipe with one feature, vectors and linear machines
    images : paths that mean the same on every worker
    labels : (n,) one per image
    path : of the ``.npy`` file of vectors, or address of a Zarr array (``.zarr``); only needed while this function runs
    sample : images that projection and mixture are learned from
    on_error : "raise" stops at the first image that fails, "skip" leaves it out and lists it
    progress : called as ``progress(done, total)``, first for the sample, then for all images
    """
    require_streamable(categorizer)
    labels = np.asarray(labels)
    if len(images) != len(labels):
        raise ValueError(f"{len(images)} images but {len(labels)} labels")
    with runtime_context(n_jobs=categorizer.n_jobs, seed=categorizer.random_state):
        pipeline = categorizer.pipeline()
        features, encoder = pipeline[0].fit(), pipeline[1:-1]
        rows = np.unique(np.linspace(0, len(images) - 1, min(len(images), sample)).astype(int))
        bags, kept, _ = features.extract([images[i] for i in rows], on_error=on_error, progress=progress)
        encoder.fit(bags, labels[rows[kept]])
        usual = UsualBags.from_bags(bags)
        del bags
        found = encode_images(features, encoder, images, path, on_error=on_error, progress=progress)
        machines, vectors, targets = pipeline[-1], found.vectors, labels[found.kept]
        if np.prod(vectors.shape) * np.dtype(np.float32).itemsize <= IN_MEMORY:
            if isinstance(vectors, StoredVectors):  # they are in random order
                back = np.argsort(found.kept)
                vectors, targets = vectors[:][back], targets[back]
            vectors = vectors.astype(np.float32)
        elif isinstance(machines, LinearClassifier):
            machines = StochasticLinearClassifier()
        if isinstance(machines, StochasticLinearClassifier):
            machines.set_params(probability=True)
        machines.fit(vectors, targets)
    pipeline.steps[-1] = (pipeline.steps[-1][0], machines)
    categorizer.recipe_, categorizer.classes_, categorizer.usual_ = pipeline, machines.classes_, usual
    return found
