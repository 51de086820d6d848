# SPDX-License-Identifier: BSD-3-Clause
r"""Which training images decided: the score of a kernel machine as a sum over them.

A Gaussian process says :math:`f_c(x) = \sum_i \alpha_{ic} \big(\ell + \sum_b \omega_b k_b(x, x_i)\big)`
(kapoor2010, eq. 5): each summand is what training image i says of class c.  The level ℓ, the same for every image, is
left apart.  The weights of a linear classifier lie in the span of its training vectors, :math:`w_c = \sum_i a_{ic} x_i`
(representer theorem); a is found from w, and image i says :math:`a_{ic} x_i^\top x`.

What the images of a pool say of each other is :meth:`patchbag.classifiers.beliefs.PoolBeliefs.shares`.

All sums are exact.  Cost: products of n × d; the representer's solution n³.
"""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.gaussian_process.condensed import CondensedPosterior
from patchbag.classifiers.gaussian_process.kernel_stack import stack_kernels


class ImageShares(NamedTuple):
    """What training images say: ``images (m,)`` their numbers, ``values (m, C)``, ``rest (C,)``; scores are the sum.

    Two classes that share one score have a single column, which speaks for the second.
    """

    images: np.ndarray
    values: np.ndarray
    rest: np.ndarray

    @property
    def scores(self) -> np.ndarray:
        return np.asarray(self.values.sum(axis=0) + self.rest)

    def deciding(self, column: int, top: int = 8) -> np.ndarray:
        """Places in ``images`` of those that say most of a class, for or against it."""
        return np.argsort(-np.abs(self.values[:, column]), kind="stable")[:top]


def dual_weights(process: GaussianProcessClassifier) -> tuple[np.ndarray, np.ndarray]:
    """(k, n, C) weights of the training images' kernels in the soft labels, and what the level adds to these (C,)."""
    check_is_fitted(process, "posterior_")
    posterior = process.posterior_
    if isinstance(posterior, CondensedPosterior):  # its references are sums already
        chosen = np.eye(process.input_.n_images_, process.input_.n_images_ - len(posterior.norms))
        level = process.level + posterior.shift[: chosen.shape[1]]
        return process.weights_[:, None, None] * chosen, level
    if hasattr(posterior, "solution"):
        alpha = posterior.solution
    else:
        alpha = posterior.weights if process.inducing_ is not None else posterior.gradient.T
    whole = alpha
    if process.inducing_ is not None:
        whole = np.zeros((process.input_.n_images_, alpha.shape[1]))
        whole[process.inducing_] = alpha
    projections = process.input_.projections_
    dual = [
        weight * (whole if projection is None else projection @ whole)
        for weight, projection in zip(process.weights_, projections)
    ]
    return np.stack(dual), process.level * alpha.sum(axis=0)


def process_shares(process: GaussianProcessClassifier, X: Any) -> ImageShares:
    """What the training images say of one image, whatever the kernels are.

    Parameters
    ----------
    X : kernel row of the image, or what the process' transformers take
    """
    if isinstance(process.posterior_, CondensedPosterior):
        raise ValueError(
            "the training images were condensed to sums, which say nothing of single images; "
            "train with Categorizer(condense=False)"
        )
    if process.scales_ is not None:
        raise ValueError("kernels of distances are not a weighted sum of the rows; explain by the kernels themselves")
    dual, level = dual_weights(process)
    if process.input_.transformers_ is None:
        rows = stack_kernels(X, process.input_.n_images_)
    else:
        rows = np.stack([np.asarray(kernel.transform(X)) for kernel in process.input_.transformers_])
    if rows.shape[1] != 1:
        raise ValueError(f"an explanation is of one image, got {rows.shape[1]}")
    return ImageShares(np.arange(dual.shape[1]), np.einsum("kn,knc->nc", rows[:, 0], dual), level)


def linear_shares(coef: np.ndarray, intercept: np.ndarray, vectors: np.ndarray, x: np.ndarray) -> ImageShares:
    """What the training images with ``vectors (n, d)`` say of an image ``x (d,)`` through weights ``coef (C, d)``."""
    vectors, coef, x = (np.asarray(a, np.float64) for a in (vectors, coef, x))
    # of all solutions the shortest: images that repeat each other share what they say
    dual = np.linalg.lstsq(vectors @ vectors.T, vectors @ coef.T, rcond=1e-10)[0]
    left = x @ (coef.T - vectors.T @ dual)
    return ImageShares(np.arange(len(vectors)), (vectors @ x)[:, None] * dual, left + intercept)
