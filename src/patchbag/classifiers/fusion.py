# SPDX-License-Identifier: BSD-3-Clause
"""Late fusion: one classifier per kind of feature, and the average of their scores.

The papers describe an image by orientation (ORH) and by colour (COL), train a system on each and average the two scores
(liu2010, §4.3.1, "ORH+COL"; the VOC 2007 results of chapters 4 to 6 are of this kind).  ``LateFusionClassifier`` does
so with any number of branches, weighted if asked.

Input.  ``Channels`` holds several datasets of the same images by name and is cut like one dataset, so that
``GridSearchCV`` and ``train_test_split`` keep the channels together; a branch gets the channel of its name.  Any other
dataset is given to every branch as it is.

Scores are class probabilities where every branch has them, else decision values; these live on scales of their own, so
averaging them supposes branches of one kind (as the papers' are).  Cost: that of the branches.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin, _fit_context, clone
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from patchbag.channels import Channels
from patchbag.classifiers.targets import encode_labels
from patchbag.parameters import Composition, estimator, parameter
from patchbag.records import require_finite
from patchbag.storage.declared import Declared, labels, steps


@estimator
class LateFusionClassifier(ClassifierMixin, Composition):
    """Average of the scores of several classifiers.

    Parameters
    ----------
    branches : list of (name, classifier)
    weights : one per branch, equal by default
    scores : ``"predict_proba"``, ``"decision_function"``, or ``"auto"``: probabilities where all branches have them

    Attributes
    ----------
    branches_ : list of (name, fitted classifier);  classes_

    >>> fusion = LateFusionClassifier([("orh", make_pipeline(...)), ("col", make_pipeline(...))])   # doctest: +SKIP
    >>> fusion.fit(Channels(orh=bags, col=colour_bags), y).predict_proba(test)                      # doctest: +SKIP
    """

    _parts = "branches"
    branches: list[tuple[str, Any]] = parameter(list)
    _: KW_ONLY
    weights: Sequence[float] | None = parameter("array-like", None, default=None)
    scores: str = parameter(StrOptions({"auto", "predict_proba", "decision_function"}), default="auto")

    _stored: ClassVar[dict[str, Declared]] = {
        "classes_": labels(),
        "branches_": steps("predict"),
    }

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        return _fault(values["weights"], len(values["branches_"]))

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any) -> Self:
        names = [name for name, _ in self.branches]
        if fault := _fault(self.weights, len(names)):
            raise ValueError(f"LateFusionClassifier: {fault}")
        self._validate_names(names)
        # branches may be of several labels per image
        self.classes_ = np.arange(np.shape(y)[1]) if np.ndim(y) == 2 else encode_labels(y)[0]
        self.branches_ = [(name, clone(branch).fit(_channel(X, name), y)) for name, branch in self.branches]
        return self

    def _method(self) -> str:
        if self.scores != "auto":
            return self.scores
        branches = getattr(self, "branches_", self.branches)
        return "predict_proba" if all(hasattr(b, "predict_proba") for _, b in branches) else "decision_function"

    def _fuse(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "branches_")
        scores = [getattr(branch, self._method())(_channel(X, name)) for name, branch in self.branches_]
        found = require_finite(np.average(scores, axis=0, weights=self.weights), "the scores")
        if found.ndim == 2 and found.shape[1] != len(self.classes_):
            raise ValueError(f"the branches know {found.shape[1]} classes, the classifier {len(self.classes_)}")
        return found

    @available_if(lambda self: self._method() == "predict_proba")
    def predict_proba(self, X: Any) -> np.ndarray:
        """Mean class probabilities ``(n, number of classes)``."""
        return self._fuse(X)

    def decision_function(self, X: Any) -> np.ndarray:
        """Mean scores: ``(n, number of classes)``, or ``(n,)`` for decision values of two classes."""
        scores = self._fuse(X)
        if self._method() == "predict_proba" and len(self.classes_) == 2:
            return scores[:, 1] - 0.5
        return scores

    def predict(self, X: Any) -> np.ndarray:
        scores = self._fuse(X)
        best = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
        return self.classes_[best]


def _fault(given: Sequence[float] | None, n: int) -> str | None:
    """What is wrong with the weights of n branches."""
    if not n:
        return "there must be at least one branch"
    weights = np.asarray([1.0] * n if given is None else given, dtype=float)
    if weights.shape != (n,) or not np.all((weights >= 0) & (weights < np.inf)) or not weights.any():
        return f"weights must be {n} numbers >= 0, not all zero; got {given!r}"
    return None


def _channel(X: Any, name: str) -> Any:
    return X[name] if isinstance(X, Channels) else X
