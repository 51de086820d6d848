# SPDX-License-Identifier: BSD-3-Clause
"""The training images behind an answer: those that were kept, and those that decided (piro2010, figures 5.9, 4.14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from patchbag.classifiers.prototypes.leveraged import LeveragedNeighbors


def kept_images(classifier: LeveragedNeighbors, names: Sequence[str], per_class: int = 8) -> list[dict[str, Any]]:
    """The prototypes with the largest coefficients of each class: name, class, coefficient, and how many it has in all.

    ``names`` are those of the training images.
    """
    own = classifier.own_coefficients()
    found = []
    for code, label in enumerate(classifier.classes_):
        members = np.flatnonzero(classifier.labels_ == code)
        for p in members[np.argsort(-own[members], kind="stable")][:per_class]:
            image = str(names[classifier.prototypes_[p]])
            found.append({"image": image, "label": str(label), "weight": float(own[p]), "of": len(members)})
    return found


def deciding_images(
    classifier: LeveragedNeighbors, X: Any, names: Sequence[str], top: int = 6
) -> list[list[dict[str, Any]]]:
    """For each row of X the prototypes with the largest votes for or against the class predicted.

    A ``vote`` is its share of all votes on the image, for and against; it is negative for one against.
    """
    found = []
    for row in classifier.votes(X):
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
