# SPDX-License-Identifier: BSD-3-Clause
"""The kernel between all images of a pool, and their graph, out of a recipe: its steps up to the classifier, which
need no labels.

A kernel is taken as it is, clipped where it is not positive semidefinite; of vectors the inner products count.  Several
kernels are added, with weights from the evidence of the labels there are (from three per class on), else equal ones.
"""

from typing import Any

import numpy as np

from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.gaussian_process.kernel_stack import check_kernel
from patchbag.similarity.base import is_kernel
from patchbag.similarity.graph.image_graph import LANDMARKS, ImageGraph
from patchbag.similarity.inner_product import InnerProductKernel


def pool_kernel(pipeline: Any, X: Any, labels: Any = None) -> np.ndarray:
    """(N, N) kernel between all images under a recipe, or any pipeline that ends in a classifier.

    Parameters
    ----------
    X : what the pipeline takes
    labels : (N,) with None where there is none; only to weigh several kernels
    """
    data = _transformed(pipeline, X)
    if data.ndim == 3:
        return _weighted_sum(np.moveaxis(data, 2, 0), labels)
    return _unit(data if is_kernel(pipeline[:-1]) else InnerProductKernel().fit_transform(data))


def pool_graph(pipeline: Any, X: Any, labels: Any = None) -> ImageGraph:
    """The neighbour graph of all images under a recipe; parameters as of :func:`pool_kernel`.

    It stands on the recipe's vectors, or where they are long or there is a kernel, on vectors with its inner products.
    """
    data = _transformed(pipeline, X)
    if data.ndim == 3:
        return ImageGraph.from_kernel(_weighted_sum(np.moveaxis(data, 2, 0), labels))
    if is_kernel(pipeline[:-1]):
        return ImageGraph.from_kernel(_unit(data))
    if data.shape[1] > LANDMARKS:
        return ImageGraph.from_kernel(InnerProductKernel().fit_transform(data))
    return ImageGraph.from_vectors(data, power=1.0)


def _transformed(pipeline: Any, X: Any) -> np.ndarray:
    steps = pipeline[:-1]
    data = steps.fit_transform(X) if len(steps) else X
    if not isinstance(data, np.ndarray) or data.ndim not in (2, 3) or len(data) != len(X):
        raise ValueError("active learning needs a recipe whose steps before the classifier give vectors or kernels")
    return data


def _unit(kernel: np.ndarray) -> np.ndarray:
    """Semidefinite, with a mean diagonal of one, so that the same noise suits every recipe."""
    kernel, _ = check_kernel(np.asarray(kernel, dtype=float), repair=True)
    return kernel / max(float(np.trace(kernel)) / len(kernel), 1e-300)


def _weighted_sum(kernels: np.ndarray, labels: Any) -> np.ndarray:
    kernels = np.stack([_unit(kernel) for kernel in kernels])
    known = [i for i, label in enumerate([] if labels is None else labels) if label is not None]
    names = [labels[i] for i in known]
    weights = np.ones(len(kernels))
    if len(set(names)) > 1 and len(names) >= 3 * len(set(names)):
        taught = np.moveaxis(kernels[:, known][:, :, known], 0, 2)
        weights = GaussianProcessClassifier(repair=True, level=0.0, calibrate=False).fit(taught, names).weights_
    return _unit(np.tensordot(weights, kernels, axes=1))
