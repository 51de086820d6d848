# SPDX-License-Identifier: BSD-3-Clause
"""The training images behind an answer: those that were kept, and those that decided (piro2010, figures 5.9, 4.14).

Both functions take a classifier on its rows, or a whole pipeline or ``Categorizer`` on images.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from patchbag.classifiers.prototypes.leveraged import LeveragedNeighbors


def voting_step(model: Any) -> tuple[LeveragedNeighbors, Any]:
    """The classifier of a model, and the steps before it, None where there are none."""
    model = getattr(model, "recipe_", model)
    steps, classifier = (model[:-1], model[-1]) if isinstance(model, Pipeline) else (None, model)
    if not isinstance(classifier, LeveragedNeighbors):
        raise TypeError(f"training images vote in boosted prototypes (mlnn-..., unn-...), not in {classifier!r}")
    return classifier, steps if steps is not None and len(steps) else None


def kept_images(model: Any, names: Sequence[Any], per_class: int = 8) -> list[dict[str, Any]]:
    """The prototypes with the largest coefficients of each class: name, class, coefficient, and how many it has in all.

    ``names`` are those of the training images, in the order in which they were given.
    """
    classifier, _ = voting_step(model)
    own = classifier.own_coefficients()
    found = []
    for code, label in enumerate(classifier.classes_):
        members = np.flatnonzero(classifier.labels_ == code)
        for p in members[np.argsort(-own[members], kind="stable")][:per_class]:
            image = str(names[classifier.prototypes_[p]])
            found.append({"image": image, "label": str(label), "weight": float(own[p]), "of": len(members)})
    return found


def deciding_images(model: Any, X: Any, names: Sequence[Any], top: int = 6) -> list[list[dict[str, Any]]]:
    """For each image the prototypes with the largest votes for or against the class predicted.

    A ``vote`` is its share of all votes on the image, for and against; it is negative for one against.
    """
    classifier, steps = voting_step(model)
    found = []
    for row in classifier.votes(X if steps is None else steps.transform(X)):
        row = row / (np.abs(row).sum() or 1.0)
        order = np.argsort(-np.abs(row), kind="stable")[:top]
        found.append(
            [
                {
                    "image": str(names[classifier.prototypes_[p]]),
                    "label": str(classifier.classes_[classifier.labels_[p]]),
                    "vote": float(row[p]),
                }
                for p in order
                if row[p] != 0
            ]
        )
    return found
