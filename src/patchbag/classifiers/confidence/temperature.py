# SPDX-License-Identifier: BSD-3-Clause
r"""From scores to probabilities by one number, learned from images that were left out, from one label per class on.

Temperature scaling (Guo et al. 2017): the probabilities of the classes are softmax(a · scores).  One number cannot
change the order of the classes, so the most probable class is the predicted one.  The likelihood of left-out scores
alone is not enough: where they are separable it grows with a without limit, and a dozen images leave a factor of two
open.  Hence a prior.  Scores that were trained to be 1 for an image's class and -1 for the others have a unit, and
their noise is known: the standard deviation σ of the scores of classes that the images do not belong to.  So

.. math:: \ln a \sim N(\ln(1.75\, σ^{-2/3}),\, 0.5^2)

and m = 0.75 images more that would have been wrong, and as many right: the likelihood is that of targets
(n + m)/(n + 2m) (m = 1: Platt 1999; m = 1/2: Jeffreys).

The mean was fitted on Scene-15 and MedNIST with 1 to 10 labels per class, m on COREL-1000 and Caltech-101 (draws 100 to
103) with 2 to 30.  The best ln a deviates from the mean by 0.2 there; the prior is wider, for other images.

What is left out (:func:`left_out_folds`): the same share of every class at a time, for a class that has lost a larger
share than others looks worse than it is.  A third of the images in general; of few images a tenth, or one per class,
for there the models of the rest are much worse than that of all images.  A class with a single image stays in training,
the others' images speak for it.  Where all classes have a single image, whole classes are left out, which shows σ and
nothing else: a is then the prior's.
"""

from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_random_state

from patchbag.parameters import TWO_OR_MORE

TYPICAL = 1.75
EXPONENT = 2 / 3
DEVIATION = 0.5
MORE = 0.75  # images that would have been wrong
LEAST = 0.01  # scores that differ by less say nothing, above all not that they are sure
REACH = 4.0  # how far from the prior's mean to look
FOLDS: list[Any] = [TWO_OR_MORE, StrOptions({"auto"})]  # what ``folds`` may be
USUAL_FOLDS, MANY_FOLDS = 3, 10
FEW = 300  # images; of more, a model of two thirds is nearly as good, and many models would take long

Fold = tuple[np.ndarray, np.ndarray]


def left_out_folds(targets: np.ndarray, folds: int | str, random_state: Any) -> list[Fold]:
    """Indices (train, test) of at most ``folds`` parts of ``targets (n,)``; none for two classes of one image each.

    No more parts than half of the classes with several images have images; "auto" is ``MANY_FOLDS`` of ``FEW`` images
    at most, else ``USUAL_FOLDS``.
    """
    if isinstance(folds, str):
        folds = MANY_FOLDS if len(targets) <= FEW else USUAL_FOLDS
    sizes = np.bincount(targets)
    several = np.flatnonzero(sizes[targets] > 1)
    if len(several):
        folds = min(folds, max(2, int(np.median(sizes[sizes > 1]))))
    elif len(targets) > 2:
        several, folds = np.arange(len(targets)), min(folds, len(targets))
    else:
        return []
    order = check_random_state(random_state).permutation(several)
    order = order[np.argsort(targets[order], kind="stable")]
    parts = [np.sort(order[start::folds]) for start in range(folds)]
    return [(np.setdiff1d(np.arange(len(targets)), test), test) for test in parts]


def undeserved(scores: np.ndarray, targets: np.ndarray) -> float:
    """σ of scores (n, C) of classes that the images do not belong to; NaN where a class was not known."""
    others = scores.copy()
    others[np.arange(len(targets)), targets] = np.nan
    return max(float(np.nanstd(others)), LEAST)


def typical_temperature(scores: np.ndarray, targets: np.ndarray) -> float:
    """The mean of the prior, from scores of left-out images."""
    return TYPICAL * undeserved(scores, targets) ** -EXPONENT


def fit_temperature(scores: np.ndarray, targets: np.ndarray) -> float:
    """The most probable factor a of the scores of left-out images.

    Parameters
    ----------
    scores : (n, C) in units of the targets ±1; NaN where the model of an image did not know a class, or there is none
    targets : (n,) numbers of the classes
    """
    typical = typical_temperature(scores, targets)
    told = ~np.isnan(scores[np.arange(len(targets)), targets])
    scores, targets = scores[told], targets[told]
    known = ~np.isnan(scores)
    scores = np.where(known, scores, -np.inf)
    # of every image as much is wrong, as any of the other classes
    wrong = MORE / (len(targets) + 2 * MORE)
    smoothed = wrong * known / np.maximum(known.sum(axis=1, keepdims=True) - 1, 1)
    smoothed[np.arange(len(targets)), targets] = 1 - wrong

    def loss(step: float) -> float:
        logs = np.where(known, log_softmax(np.exp(step) * typical * scores, axis=1), 0.0)
        return float(0.5 * (step / DEVIATION) ** 2 - np.vdot(smoothed, logs))

    return typical * float(np.exp(minimize_scalar(loss, bounds=(-REACH, REACH), method="bounded").x))
