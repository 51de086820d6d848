# SPDX-License-Identifier: BSD-3-Clause
r"""Condensed nearest neighbours (Hart 1968), a partner of the boosted ones: keep what 1-NN needs to be right.

Examples come one after the other, in random order, again and again; one whose nearest neighbour among those kept so far
is of another class is kept too, until a pass keeps none.  Then 1-NN among the examples kept is right on all training
examples.  Cost: one pass over the examples per example kept.

imbalanced-learn's class of this name is made for another purpose: it keeps the smallest class whole and condenses each
of the others against that one alone, so that with three classes or more its examples do not classify the rest.
"""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import KNeighborsClassifier

from patchbag.runtime import check_random_state


def condense(X: np.ndarray, codes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Numbers of the examples kept, ascending; ``order`` is that in which they come."""
    squares = np.einsum("ij,ij->i", X, X)
    closest, label = np.full(len(X), np.inf), np.full(len(X), -1)
    kept = np.zeros(len(X), bool)
    changed = True
    while changed:
        changed = False
        for i in order:
            if label[i] == codes[i] or kept[i]:
                continue
            kept[i] = changed = True
            distance = squares + squares[i] - 2 * (X @ X[i])
            nearer = distance < closest
            closest[nearer], label[nearer] = distance[nearer], codes[i]
    return np.flatnonzero(kept)


class CondensedNeighbors(ClassifierMixin, BaseEstimator):
    """1-NN among the examples that Hart's rule keeps.

    Attributes
    ----------
    prototypes_ : (P,) numbers of the examples kept
    """

    def __init__(self, *, random_state: Any = None) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_, codes = np.unique(y, return_inverse=True)
        X = np.asarray(X, np.float64)
        self.prototypes_ = condense(X, codes, check_random_state(self.random_state).permutation(len(X)))
        self.vote_ = KNeighborsClassifier(1).fit(X[self.prototypes_], np.asarray(y)[self.prototypes_])
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(self.vote_.predict(X))
