# SPDX-License-Identifier: BSD-3-Clause
r"""Linear classifiers of long vectors, with calibrated probabilities.

An encoding has far more dimensions than there are training images (131,072 for a Fisher vector with a spatial pyramid,
1,500 images).  The weights of an L2-regularised linear model lie in the span of the training rows (representer
theorem), :math:`w = X^T a`, so everything happens on the n × n Gram matrix :math:`G = XX^T`, one matrix product:

* ``model="svm"``: hinge loss, one scikit-learn ``SVC(kernel="precomputed")`` a class (``LinearSVC`` on X itself when
  there are more images than ``GRAM_LIMIT`` and dimensions);
* ``model="least-squares"``: squared loss to targets ±1, :math:`a = (G + I/C)^{-1} (y - \bar y)`, one
  eigendecomposition for all classes and all C.  Its scores for left-out images are in closed form: the residual of
  image i without i is :math:`a_i / [(G + I/C)^{-1}]_{ii}`.

Probabilities: a softmax of the one-versus-rest scores times one number (temperature scaling, Guo et al. 2017), fitted
on scores of images that were left out.  One number cannot change the order of the classes, so the most probable class
is the predicted one.  C = ``"auto"`` picks the best of ``C_GRID`` by the same left-out scores.
"""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC, LinearSVC
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from patchbag.runtime import check_random_state, parallel_map

C_GRID = (1.0, 10.0, 100.0)
GRAM_LIMIT = 6000


def fit_temperature(scores: np.ndarray, targets: np.ndarray) -> float:
    """The factor a that makes softmax(a · scores) (n, C) most likely for the targets (n,)."""

    def loss(log_a: float) -> float:
        return float(-log_softmax(np.exp(log_a) * scores, axis=1)[np.arange(len(targets)), targets].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-3.0, 6.0), method="bounded").x))


def one_versus_rest(targets: np.ndarray, n_classes: int) -> np.ndarray:
    """(n, M) of ±1: a column a class, or a single one (for the second class) where there are two."""
    columns = range(n_classes) if n_classes > 2 else (1,)
    return np.stack([np.where(targets == k, 1.0, -1.0) for k in columns], axis=1)


def one_column_a_class(scores: np.ndarray) -> np.ndarray:
    """(n, C) scores, also where two classes share one column (n,) or (n, 1)."""
    if scores.ndim == 2 and scores.shape[1] > 1:
        return scores
    column = scores.reshape(-1)
    return np.stack([-column, column], axis=1) / 2


def svm_dual(gram: np.ndarray, signs: np.ndarray, C: float) -> tuple[np.ndarray, np.ndarray]:
    """Dual coefficients (n, M) and intercepts (M,) of one hinge-loss machine a column of ``signs`` (n, M)."""

    def train(column: int) -> tuple[np.ndarray, float]:
        machine = SVC(kernel="precomputed", C=C).fit(gram, signs[:, column])
        dual = np.zeros(len(gram))
        dual[machine.support_] = machine.dual_coef_[0]
        return dual, float(machine.intercept_[0])

    duals, intercepts = zip(*parallel_map(train, range(signs.shape[1])))
    return np.stack(duals, axis=1), np.array(intercepts)


def least_squares_dual(
    values: np.ndarray, vectors: np.ndarray, signs: np.ndarray, C: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dual coefficients, intercepts and leave-one-out scores (n, M) from the eigendecomposition of the Gram matrix."""
    mean = signs.mean(axis=0)
    inverse = 1 / (np.maximum(values, 0) + 1 / C)
    dual = vectors @ (inverse[:, None] * (vectors.T @ (signs - mean)))
    left_out = signs - dual / ((vectors**2) @ inverse)[:, None]
    return dual, mean, left_out


class LinearClassifier(ClassifierMixin, BaseEstimator):
    """Linear classifier with calibrated probabilities.

    Parameters
    ----------
    model : ``"svm"`` or ``"least-squares"``
    C : inverse regularisation, or ``"auto"``
    folds : of the cross-validation of the SVM (calibration and C), at least 2; fewer where a class has fewer images
    random_state : seed of the folds

    Attributes
    ----------
    classes_ (C,), coef_ (C, d), intercept_ (C,) (one row for two classes), temperature_, C_

    >>> X = np.array([[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.9, 0.2]])
    >>> LinearClassifier(C=10.0).fit(X, ["a", "a", "b", "b"]).predict([[0.0, 0.7]])
    array(['a'], dtype='<U1')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "model": [StrOptions({"svm", "least-squares"})],
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "folds": [Interval(Integral, 2, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self, model: str = "svm", *, C: float | str = "auto", folds: int = 3, random_state: Any = None
    ) -> None:
        self.model = model
        self.C = C
        self.folds = folds
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        X = self._check(X)
        check_classification_targets(y)
        self.classes_, targets = np.unique(np.asarray(y), return_inverse=True)
        if len(targets) != len(X):
            raise ValueError(f"{len(X)} rows but {len(targets)} labels")
        if len(self.classes_) < 2:
            raise ValueError(f"need at least two classes to tell apart, got only {self.classes_.tolist()}")
        self.n_features_in_ = X.shape[1]
        candidates = C_GRID if self.C == "auto" else (float(self.C),)
        if self.model == "least-squares":
            self._fit_least_squares(X, targets, candidates)
        elif len(X) > max(GRAM_LIMIT, X.shape[1]):
            self._fit_primal(X, targets, candidates)
        else:
            self._fit_dual(X, targets, candidates)
        return self

    def _fit_least_squares(self, X: np.ndarray, targets: np.ndarray, candidates: tuple[float, ...]) -> None:
        signs = one_versus_rest(targets, len(self.classes_))
        values, vectors = np.linalg.eigh((X @ X.T).astype(np.float64))
        trials = {}
        for c in candidates:
            dual, intercept, left_out = least_squares_dual(values, vectors, signs, c)
            trials[c] = (dual, intercept, one_column_a_class(left_out))
        self._choose({c: trial[2] for c, trial in trials.items()}, targets)
        self._store(dual=trials[self.C_][0], intercept=trials[self.C_][1], X=X)

    def _fit_dual(self, X: np.ndarray, targets: np.ndarray, candidates: tuple[float, ...]) -> None:
        gram = (X @ X.T).astype(np.float64)
        signs = one_versus_rest(targets, len(self.classes_))

        def held_out(train: np.ndarray, test: np.ndarray, c: float) -> np.ndarray:
            dual, intercept = svm_dual(gram[np.ix_(train, train)], signs[train], c)
            return gram[np.ix_(test, train)] @ dual + intercept

        self._cross_validate(held_out, X, targets, candidates)
        dual, intercept = svm_dual(gram, signs, self.C_)
        self._store(dual=dual, intercept=intercept, X=X)

    def _fit_primal(self, X: np.ndarray, targets: np.ndarray, candidates: tuple[float, ...]) -> None:
        seed = check_random_state(self.random_state).randint(2**31 - 1)

        def train_on(rows: Any, c: float) -> LinearSVC:
            return LinearSVC(C=c, loss="hinge", random_state=seed, max_iter=10_000).fit(X[rows], targets[rows])

        def held_out(train: np.ndarray, test: np.ndarray, c: float) -> np.ndarray:
            return train_on(train, c).decision_function(X[test])

        self._cross_validate(held_out, X, targets, candidates)
        machine = train_on(slice(None), self.C_)
        self.coef_, self.intercept_ = machine.coef_.astype(X.dtype), machine.intercept_

    def _cross_validate(self, held_out: Any, X: np.ndarray, targets: np.ndarray, candidates: tuple[float, ...]) -> None:
        smallest = int(np.bincount(targets).min())
        if smallest < 2:
            self._choose(dict.fromkeys(candidates), targets)
            return
        folds = min(self.folds, smallest)
        splitter = StratifiedKFold(folds, shuffle=True, random_state=check_random_state(self.random_state))
        cut = list(splitter.split(X, targets))
        scores = {}
        for c in candidates:
            scores[c] = np.empty((len(X), len(self.classes_)))
            for train, test in cut:
                scores[c][test] = one_column_a_class(held_out(train, test, c))
        self._choose(scores, targets)

    def _choose(self, scores: dict[float, Any], targets: np.ndarray) -> None:
        """Pick C by accuracy on left-out images (the smallest among equals) and calibrate on its scores."""
        accuracy = {c: -1.0 if s is None else float((s.argmax(axis=1) == targets).mean()) for c, s in scores.items()}
        self.C_ = max(accuracy, key=lambda c: accuracy[c])
        if scores[self.C_] is None:
            warnings.warn(
                "a class has a single training image: nothing can be left out, so probabilities are not calibrated",
                stacklevel=5,
            )
            self.temperature_ = 1.0
        else:
            self.temperature_ = fit_temperature(scores[self.C_], targets)

    def _store(self, dual: np.ndarray, intercept: np.ndarray, X: np.ndarray) -> None:
        self.coef_ = dual.T.astype(X.dtype) @ X
        self.intercept_ = intercept

    def decision_function(self, X: Any) -> np.ndarray:
        """(n, C) scores, larger is surer; (n,) for two classes."""
        check_is_fitted(self, "coef_")
        X = self._check(X)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(f"trained on {self.n_features_in_} dimensions, got {X.shape[1]}")
        scores = X @ self.coef_.T + self.intercept_
        return scores if scores.shape[1] > 1 else scores[:, 0]

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[one_column_a_class(self.decision_function(X)).argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, C) calibrated probabilities."""
        return softmax(self.temperature_ * one_column_a_class(self.decision_function(X)), axis=1)

    @staticmethod
    def _check(X: Any) -> np.ndarray:
        X = np.asarray(X)
        if X.ndim != 2:
            raise ValueError(f"expected a matrix with one row an image, got shape {X.shape}")
        if X.dtype not in (np.float32, np.float64):
            X = X.astype(np.float64)
        if not np.isfinite(X).all():
            raise ValueError(f"row {int(np.argwhere(~np.isfinite(X))[0][0])} has NaN or infinite entries")
        return X
