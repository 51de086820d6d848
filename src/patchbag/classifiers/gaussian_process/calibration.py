# SPDX-License-Identifier: BSD-3-Clause
"""Probabilities of a Gaussian process from its training images, left out in closed form."""

from typing import Any

import numpy as np

from patchbag.classifiers.confidence.class_means import mean_norms, nearest_mean, scatter
from patchbag.classifiers.confidence.left_out import LeftOut
from patchbag.classifiers.confidence.temperature import fit_temperature, left_out_folds
from patchbag.classifiers.gaussian_process.posterior import GaussianPosterior
from patchbag.classifiers.targets import one_column_a_class

FOLDS = 10  # closed forms cost the same for any number


def calibrate(posterior: GaussianPosterior, labels: np.ndarray, random: Any) -> tuple[float | None, LeftOut | None]:
    """Factor of the soft labels, and what left-out images say; None where no image can be left out.

    Parameters
    ----------
    labels : (n,) numbers of the classes
    random : draws the folds
    """
    folds = left_out_folds(labels, FOLDS, random)
    if not folds:
        return None, None
    # noise shrinks the soft labels; the temperature's prior is in units of the targets
    inverse = posterior.inverse()
    response = max(posterior.response(inverse), 1e-12)
    mean, _ = posterior.left_out(folds, inverse)
    del inverse  # as large as the kernel, which comes next
    scores = one_column_a_class(mean / response)
    n_classes, far = scores.shape[1], np.zeros(len(labels))
    kernel = posterior.factor @ posterior.factor.T
    kernel[np.diag_indices_from(kernel)] -= posterior.noise
    own = np.diagonal(kernel)
    spread = scatter(own, mean_norms(kernel, labels, n_classes), labels)
    for train, test in folds:
        scores[np.ix_(test, np.setdiff1d(labels, labels[train]))] = np.nan
        norms = mean_norms(kernel[np.ix_(train, train)], labels[train], n_classes, spread)
        far[test] = nearest_mean(kernel[np.ix_(test, train)], own[test], norms, labels[train])
    temperature = fit_temperature(scores, labels)
    known = np.isfinite(scores[np.arange(len(labels)), labels]).any()
    left_out = LeftOut.from_scores(scores, labels, temperature, far) if known else None
    return temperature / response, left_out
