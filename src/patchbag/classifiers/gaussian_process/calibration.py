# SPDX-License-Identifier: BSD-3-Clause
"""Probabilities of a Gaussian process from its training images, left out in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np

from patchbag.classifiers.confidence.left_out import LeftOut
from patchbag.classifiers.confidence.temperature import fit_temperature, left_out_folds
from patchbag.classifiers.gaussian_process.posterior import GaussianPosterior
from patchbag.classifiers.targets import one_column_a_class

FOLDS = 3


def calibrate(
    posterior: GaussianPosterior, labels: np.ndarray, prior: np.ndarray, random: Any
) -> tuple[float | None, LeftOut | None]:
    """Factor of the soft labels, and what left-out images say; None where no image can be left out.

    Parameters
    ----------
    labels : (n,) numbers of the classes
    prior : (n,) variance of the soft labels before any label
    random : draws the folds
    """
    folds = left_out_folds(labels, FOLDS, random)
    if not folds:
        return None, None
    # noise shrinks the soft labels; the temperature's prior is in units of the targets
    response = max(posterior.response, 1e-12)
    mean, variance = posterior.left_out(folds)
    scores = one_column_a_class(mean / response)
    for train, test in folds:
        scores[np.ix_(test, np.setdiff1d(labels, labels[train]))] = np.nan
    temperature = fit_temperature(scores, labels)
    known = np.isfinite(scores[np.arange(len(labels)), labels]).any()
    left_out = LeftOut.from_scores(scores, labels, temperature, variance / prior) if known else None
    return temperature / response, left_out
