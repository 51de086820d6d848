# SPDX-License-Identifier: BSD-3-Clause
"""Kernel matrices between all images of a data set, made once and kept beside the features for all experiments.

As in kapoor2010, what a kernel learns (PCA, words, bins, scale), it learns from all images, without their labels.  A
matrix is found again by the content of the images, by every parameter of its features and its kernel, and by the code
that makes it.
"""

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from patchbag.channels import Channel
from patchbag.collection import Collection
from patchbag.collection.store import Store
from patchbag.experiments.experiment import Experiment
from patchbag.experiments.runs import run_pipeline
from patchbag.features.channels import FeatureChannels
from patchbag.memory import content_key, figure_key
from patchbag.runtime import runtime_context
from patchbag.similarity.union import KernelUnion
from patchbag.storage.replacing import replacing


def kernel_branches(spec: dict[str, Any]) -> tuple[Any, dict[str, Pipeline]]:
    """The features of a recipe, and by name the steps that make a kernel of them."""
    pipeline = run_pipeline(spec, {})
    kernel = pipeline.steps[-2][1]
    branches = kernel.chosen() if isinstance(kernel, KernelUnion) else [(spec["recipe"], pipeline[1:-1])]
    return pipeline["features"], dict(branches)


def kernels_of(experiment: Experiment) -> dict[str, np.ndarray]:
    """The kernels of the experiment's recipe between all images of the data set, by name."""
    features, branches = kernel_branches(experiment.spec)
    kernels = {}
    for name, branch in branches.items():
        experiment.progress(f"kernel {name} of {len(experiment.images)} images")
        described = _describe(experiment.images, features, branch)
        kernels[name] = _stored(branch, described, experiment.seed)
    return kernels


def _describe(collection: Collection, features: Any, branch: Any) -> Any:
    """What a branch works on: all images, described by the feature that it names."""
    if not isinstance(features, FeatureChannels):
        return collection.describe(features, on_error="raise").bags
    use = [step.name for _, step in branch.steps if isinstance(step, Channel)]
    return collection.describe(FeatureChannels(features.channels, use=use), on_error="raise").bags


def make_kernel(branch: Any, described: Any, seed: int) -> np.ndarray:
    """(n, n) kernel between all images."""
    with runtime_context(seed=seed):
        return np.asarray(branch.fit_transform(described), dtype=float)


def _stored(branch: Any, described: Any, seed: int) -> np.ndarray:
    path = Store().folder / "kernels" / f"{figure_key(content_key(described), clone(branch), seed)}.npy"
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError):  # not there, or cut off
        pass
    gram = make_kernel(branch, described, seed)
    with replacing(path) as file:
        np.save(file, gram)
    return gram
