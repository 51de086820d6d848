# SPDX-License-Identifier: BSD-3-Clause
"""One linear SVM per class for images that show any number of classes, as PASCAL VOC has them.

A machine is trained without the images that are difficult for its class.  C is the one of ``C_GRID`` whose machines,
trained on the rest, rank the validation images best by mean average precision.
"""

from dataclasses import KW_ONLY
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils.validation import check_is_fitted

from patchbag.classifiers.linear import C_GRID, svm_dual
from patchbag.metrics import average_precision
from patchbag.parameters import POSITIVE, estimator, parameter
from patchbag.storage.declared import Declared, floats, real


def train_machines(gram: np.ndarray, truth: np.ndarray, C: float) -> tuple[np.ndarray, np.ndarray]:
    """Dual coefficients (n, classes) and intercepts of a linear SVM per class, difficult images left out."""
    dual, intercept = np.zeros(truth.shape), np.zeros(truth.shape[1])
    for k, column in enumerate(truth.T):
        rows = np.flatnonzero(column)
        if len(np.unique(column[rows])) < 2:
            raise ValueError(f"class {k} has no positive or no negative training image")
        coefficients, shift, _ = svm_dual(gram[np.ix_(rows, rows)], column[rows, None].astype(float), C)
        dual[rows, k], intercept[k] = coefficients[:, 0], shift[0]
    return dual, intercept


def choose_C(gram: np.ndarray, truth: np.ndarray, validation: np.ndarray) -> float:
    """Of ``C_GRID`` the one whose machines, trained on the rest, rank the ``validation`` images (a mask) best."""
    train, test = np.flatnonzero(~validation), np.flatnonzero(validation)

    def quality(C: float) -> float:
        dual, intercept = train_machines(gram[np.ix_(train, train)], truth[train], C)
        scores = gram[np.ix_(test, train)] @ dual + intercept
        return float(np.mean([average_precision(t == 1, s, t == 0) for t, s in zip(truth[test].T, scores.T)]))

    return max(C_GRID, key=quality)


@estimator
class MultilabelSVM(BaseEstimator):
    """A linear SVM per class.

    Parameters
    ----------
    C : inverse regularisation; None chooses it on the validation images
    validation : (n,) mask of the training images that C is chosen on

    Attributes
    ----------
    coef_ (C, d), intercept_ (C,), C_
    """

    C: float | None = parameter(POSITIVE, None, default=None)
    _: KW_ONLY
    validation: Any = parameter("array-like", None, default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "coef_": floats("C", "d"),
        "intercept_": floats("C"),
        "C_": real(low=0),
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        """Train on vectors ``X (n, d)`` and labels ``y (n, C)``: 1 shows the class, -1 does not, 0 is difficult."""
        X, truth = np.asarray(X), np.asarray(y)
        gram = (X @ X.T).astype(np.float64)
        if self.C is None and self.validation is None:
            raise ValueError("C is chosen on validation images: name them, or give C")
        self.C_ = choose_C(gram, truth, np.asarray(self.validation, bool)) if self.C is None else self.C
        dual, self.intercept_ = train_machines(gram, truth, self.C_)
        self.coef_ = dual.T.astype(X.dtype) @ X
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """(n, C) scores."""
        check_is_fitted(self, "coef_")
        return np.asarray(X) @ self.coef_.T + self.intercept_
