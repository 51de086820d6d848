# SPDX-License-Identifier: BSD-3-Clause
r"""Linear classifiers of long vectors or of rows of similarities, with calibrated probabilities.

An encoding has far more dimensions than there are training images (131,072 for a Fisher vector with a spatial pyramid,
1,500 images).  The weights of an L2-regularised linear model lie in the span of the training rows (representer
theorem), :math:`w = X^T a`, so everything happens on the n × n Gram matrix :math:`G = XX^T`, one matrix product:

* ``model="svm"``: hinge loss, one scikit-learn ``SVC(kernel="precomputed")`` per class (``LinearSVC`` on X itself when
  there are more images than ``GRAM_LIMIT`` and dimensions; on a GPU, for more than ``GRAM_LIMIT`` images, all classes
  at once, ``hinge``);
* ``model="least-squares"``: squared loss to targets ±1, :math:`a = (G + I/C)^{-1} (y - \bar y)`.

Probabilities: see :mod:`~patchbag.classifiers.confidence.temperature`.  Regularisation shrinks the scores of squared
loss, more so the fewer images there are; before a temperature goes from the folds to the model of all images, scores
are divided by the mean response of a training image's score to its own target, :math:`1 - \mathrm{tr}(G +
I/C)^{-1}/(nC)`.  C = ``"auto"`` picks the most accurate of ``C_GRID`` on the images left out.

Rows of similarities to the training images (``rows="similarities"``) have columns of unequal scale, which are
standardised, and contain every training image's similarity to itself, which no other image has and which the weights
rely on.  Scores of an image that is left out as a row but not as a column are therefore far too good: the folds leave
images out of both, and standardise anew.  Where references compete for an image (``rows="shares"``: the length of a row
is fixed), what the left-out columns had falls to the others.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.svm import SVC, LinearSVC
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from patchbag.classifiers.confidence.class_means import class_shares, mean_norms, nearest_mean, scatter
from patchbag.classifiers.confidence.left_out import LeftOut, SaysHowSure, energy
from patchbag.classifiers.confidence.temperature import FOLDS, Fold, fit_temperature, left_out_folds
from patchbag.classifiers.hinge import hinge_machines
from patchbag.classifiers.targets import (
    as_labels,
    encode_labels,
    one_column_a_class,
    one_machine_a_class,
    one_versus_rest,
)
from patchbag.device import lies_elsewhere, like, product, to_host
from patchbag.parameters import ONE_OR_MORE, POSITIVE, estimator, parameter
from patchbag.records import require_finite
from patchbag.runtime import check_random_state, parallel_map
from patchbag.storage.declared import NOT_ZERO, Declared, floats, labels, real, size

C_GRID = (10.0, 1.0, 100.0)  # the first of the most accurate: at 1, scores of few images change with their number
GRAM_LIMIT = 6000
MAX_ITER = 100_000  # of a hinge-loss machine; thousands suffice unless one row is far larger than all others
TINY = 1e-300

Dual = tuple[Any, np.ndarray, float]
Scorer = Callable[[np.ndarray, float], np.ndarray]  # scores of left-out images for some classes, given C


def _train_svm(gram: np.ndarray, C: float, max_iter: int, signs: np.ndarray) -> tuple[np.ndarray, float]:
    machine = SVC(kernel="precomputed", C=C, max_iter=max_iter).fit(gram, signs)
    dual = np.zeros(len(gram))
    dual[machine.support_] = machine.dual_coef_[0]
    return dual, float(machine.intercept_[0])


def svm_dual(gram: Any, signs: np.ndarray, C: float, max_iter: int = MAX_ITER) -> Dual:
    """Dual coefficients (n, M) and intercepts (M,) of one hinge-loss machine per column of ``signs (n, M)``, and 1."""
    if not is_numpy_array(gram):
        return *hinge_machines(gram, signs, C), 1.0
    duals, intercepts = zip(*parallel_map(partial(_train_svm, gram, C, max_iter), signs.T, near=True))
    return np.stack(duals, axis=1), np.array(intercepts), 1.0


def least_squares_dual(gram: Any, signs: np.ndarray, C: float, max_iter: int = 0) -> Dual:
    """The same for squared loss, and the mean response of the training images' scores to their own targets."""
    xp, n = array_namespace(gram), len(signs)
    inverse = xp.linalg.inv(gram + like(np.eye(n), gram) / C)
    mean = signs.mean(axis=0)
    return inverse @ like(signs - mean, gram), mean, float(1 - xp.linalg.trace(inverse) / (n * C))


DUAL: dict[str, Callable[..., Dual]] = {"svm": svm_dual, "least-squares": least_squares_dual}


def _block(gram: Any, rows: np.ndarray, columns: np.ndarray) -> Any:
    if is_numpy_array(gram):
        return gram[np.ix_(rows, columns)]
    xp = array_namespace(gram)
    for axis, index in enumerate((rows, columns)):
        gram = xp.take(gram, xp.asarray(index, device=device(gram)), axis=axis)
    return gram


def column_moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the columns, 1 for constant ones."""
    deviation = rows.std(axis=0)
    return rows.mean(axis=0), np.where(deviation > 0, deviation, 1.0)


def leave_out_columns(X: np.ndarray, train: np.ndarray, test: np.ndarray, shares: bool) -> list[np.ndarray]:
    """Standardised similarities of the training images (n', n') and of those left out (m, n') to the former.

    With ``shares`` every row keeps its length.
    """
    parts = [X[np.ix_(train, train)], X[np.ix_(test, train)]]
    if shares:
        for part, rows in zip(parts, (train, test)):
            part *= (np.linalg.norm(X[rows], axis=1) / np.maximum(np.linalg.norm(part, axis=1), TINY))[:, None]
    mean, deviation = column_moments(parts[0])
    return [(part - mean) / deviation for part in parts]


@estimator
class LinearClassifier(SaysHowSure, ClassifierMixin, BaseEstimator):
    """Linear classifier with calibrated probabilities.

    Parameters
    ----------
    model : ``"svm"`` or ``"least-squares"``
    C : inverse regularisation, or ``"auto"``
    rows : ``"vectors"``; ``"similarities"`` to the training images, in ``fit`` a square matrix; or ``"shares"``,
        similarities that compete, so that the length of a row is fixed
    folds : parts in which images are left out for calibration and C, at most; "auto" is more of them for few images
    max_iter : iterations of a machine of the SVM, which warns where it runs out of them
    random_state : seed of the folds

    Attributes
    ----------
    classes_ (C,), coef_ (C, d), intercept_ (C,) (one row for two classes), temperature_, C_
    means_ (C, d), less_ (C,), deviation_ (d,) : for typicality, means of the classes, how much less far they are than
        they look, and of the columns of similarities (else None)
    left_out_ : what left-out images say of new ones, or None

    >>> X = np.array([[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.9, 0.2]])
    >>> LinearClassifier(C=10.0).fit(X, ["a", "a", "b", "b"]).predict([[0.0, 0.7]])
    array(['a'], dtype='<U1')
    """

    model: str = parameter(StrOptions(set(DUAL)), default="svm")
    _: KW_ONLY
    C: float | str = parameter(POSITIVE, StrOptions({"auto"}), default="auto")
    rows: str = parameter(StrOptions({"vectors", "similarities", "shares"}), default="vectors")
    folds: int | str = parameter(*FOLDS, default="auto")
    max_iter: int = parameter(ONE_OR_MORE, default=MAX_ITER)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "classes_": labels(),
        "coef_": floats("machines", "d"),
        "intercept_": floats("machines"),
        "n_features_in_": size("d"),
        "temperature_": real(low=0),
        "C_": real(low=0),
        "means_": floats("C", "d", optional=True),
        "less_": floats("C", low=0, optional=True),
        "deviation_": floats("d", low=NOT_ZERO, optional=True),
    }
    _check_stored = staticmethod(one_machine_a_class)
    means_: np.ndarray | None = None  # models of version 0.1 have none
    less_: np.ndarray | None = None
    deviation_: np.ndarray | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.rows != "vectors"
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        # similarities are few numbers with a common part that cancels
        dtype = (np.float64, np.float32) if self.rows == "vectors" else np.float64
        if lies_elsewhere(X):
            X = self._check_tensor(X, reset=True)
            check_consistent_length(X, y)
        else:
            X, y = validate_data(self, X, as_labels(y), dtype=dtype)
        self.classes_, targets = encode_labels(y)
        if self.rows != "vectors" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"similarities to the training images make a square matrix, got {X.shape}; those to other references "
                'are rows="vectors"'
            )
        random = check_random_state(self.random_state)
        primal = self.model == "svm" and self.rows == "vectors" and X.shape[0] > max(GRAM_LIMIT, X.shape[1])
        fit = self._fit_primal if primal else self._fit_dual
        fit(to_host(X) if primal else X, targets, left_out_folds(targets, self.folds, random), random)
        return self

    def _check_tensor(self, X: Any, reset: bool) -> Any:
        """Finite rows that stay where they are; scikit-learn would bring them to the host."""
        xp = array_namespace(X)
        if X.ndim != 2 or not bool(xp.all(xp.isfinite(X))):
            raise ValueError(f"expected rows (n, width), got shape {tuple(X.shape)}, or numbers that are not finite")
        if reset:
            self.n_features_in_ = int(X.shape[1])
        elif X.shape[1] != self.n_features_in_:
            raise ValueError(f"fitted on rows of {self.n_features_in_} numbers, got {X.shape[1]}")
        return X

    def _fit_dual(self, X: np.ndarray, targets: np.ndarray, folds: list[Fold], random: Any) -> None:
        solve = DUAL[self.model]
        signs = one_versus_rest(targets, len(self.classes_))
        vectors = self.rows == "vectors"
        mean, deviation = (np.zeros(1), np.ones(1)) if vectors else column_moments(X)
        known = X if vectors else (X - mean) / deviation
        gram = product(known, known.T)
        if X.shape[0] <= GRAM_LIMIT:  # where libsvm takes seconds, the answer is the same on every device
            gram = to_host(gram)
        if is_numpy_array(gram):
            gram = gram.astype(np.float64)

        def leave_out(train: np.ndarray, test: np.ndarray) -> tuple[Scorer, np.ndarray]:
            if vectors:
                part, rows, diagonal = _block(gram, train, train), _block(gram, test, train), own[test]
            else:
                a, b = leave_out_columns(X, train, test, self.rows == "shares")
                part, rows, diagonal = a @ a.T, b @ a.T, np.sum(b**2, axis=1)

            def scores(columns: np.ndarray, C: float) -> np.ndarray:
                dual, intercept, response = solve(part, signs[train][:, columns], C, self.max_iter)
                return np.asarray((to_host(rows @ dual) + intercept) / response)

            classes, codes = np.unique(targets[train], return_inverse=True)
            width = X.shape[1] if vectors else len(train)
            norms = mean_norms(part, codes, len(classes), width * spread)
            return scores, nearest_mean(rows, diagonal, norms, codes) / width

        own = to_host(array_namespace(gram).linalg.diagonal(gram))
        spread = scatter(own, mean_norms(gram, targets, len(self.classes_)), targets) / X.shape[1]
        self._calibrate(leave_out, targets, folds)
        dual, intercept, response = solve(gram, signs, self.C_, self.max_iter)
        self.temperature_ /= response
        self.coef_ = to_host(like(dual, known).T @ known)
        self.coef_ = self.coef_ / deviation.astype(self.coef_.dtype)
        self.intercept_ = intercept - (0.0 if vectors else self.coef_ @ mean)
        self._keep_means(X, targets, spread, None if vectors else deviation)

    def _fit_primal(self, X: np.ndarray, targets: np.ndarray, folds: list[Fold], random: Any) -> None:
        def machine(rows: Any, C: float) -> LinearSVC:
            return LinearSVC(C=C, loss="hinge", random_state=random, max_iter=10_000).fit(X[rows], targets[rows])

        def leave_out(train: np.ndarray, test: np.ndarray) -> tuple[Scorer, np.ndarray]:
            self._keep_means(X[train], np.unique(targets[train], return_inverse=True)[1], spread)
            return lambda columns, C: machine(train, C).decision_function(X[test]), self._distances(X[test])

        norms = np.sum((class_shares(targets, len(self.classes_)).T @ X) ** 2, axis=1)
        spread = scatter(np.einsum("ij,ij->i", X, X), norms, targets) / X.shape[1]
        self._calibrate(leave_out, targets, folds)
        found = machine(slice(None), self.C_)
        self.coef_, self.intercept_ = found.coef_.astype(X.dtype), found.intercept_
        self._keep_means(X, targets, spread)

    def _keep_means(self, X: Any, codes: np.ndarray, spread: float = 0.0, deviation: np.ndarray | None = None) -> None:
        shares = like(class_shares(codes, int(codes.max()) + 1), X)
        self.means_, self.deviation_ = to_host(shares.T @ X), deviation
        self.less_ = spread / np.bincount(codes)

    def _calibrate(
        self,
        leave_out: Callable[[np.ndarray, np.ndarray], tuple[Scorer, np.ndarray]],
        targets: np.ndarray,
        folds: list[Fold],
    ) -> None:
        """Pick C by accuracy on left-out images, the first among equals, and the temperature by its scores."""
        candidates = C_GRID if self.C == "auto" else (float(self.C),)
        self.C_, self.temperature_, self.left_out_ = candidates[0], 1.0, None
        if not folds:
            return
        rows, two = np.arange(len(targets)), len(self.classes_) == 2
        shown, far = np.full((len(candidates), len(targets), len(self.classes_)), np.nan), np.zeros(len(targets))
        for train, test in folds:
            known = np.unique(targets[train])
            scores, far[test] = leave_out(train, test)
            for each, C in zip(shown, candidates):
                each[np.ix_(test, known)] = one_column_a_class(scores(np.array([0]) if two else known, C))
        own = shown[:, rows, targets]
        told = np.isfinite(own[0])
        best = int(np.argmax(np.sum(own[:, told] == np.fmax.reduce(shown[:, told], axis=2), axis=1)))
        self.C_ = candidates[best]
        self.temperature_ = fit_temperature(shown[best], targets)
        if told.any():
            self.left_out_ = LeftOut.from_scores(shown[best], targets, self.temperature_, far)

    def decision_function(self, X: Any) -> np.ndarray:
        """(n, C) scores, larger is surer; (n,) for two classes."""
        check_is_fitted(self, "coef_")
        if lies_elsewhere(X):
            X = self._check_tensor(X, reset=False)
        else:
            X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = require_finite(to_host(X @ like(self.coef_, X).T) + self.intercept_, "the scores")
        return scores if scores.shape[1] > 1 else scores[:, 0]

    def predict(self, X: Any) -> np.ndarray:
        best = one_column_a_class(self.decision_function(X)).argmax(axis=1)  # before anything that fitting sets
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, C) calibrated probabilities."""
        return softmax(one_column_a_class(self.decision_function(X)) * self.temperature_, axis=1)

    def _strangeness(self, X: Any) -> np.ndarray:
        surprise = energy(one_column_a_class(self.decision_function(X)) * self.temperature_)
        return surprise[None] if self.means_ is None else np.stack([surprise, self._distances(X)])

    def _distances(self, X: Any) -> np.ndarray:
        """(m,) least distance to the mean of a class, per column."""
        means = self.means_
        if self.deviation_ is not None:
            X, means = X / self.deviation_, means / self.deviation_
        means = like(means, X)
        squared = [to_host(array_namespace(X).sum(a * a, axis=1)) for a in (X, means)]
        found = (squared[0][:, None] - 2.0 * to_host(X @ means.T) + squared[1]) / X.shape[1] - self.less_
        return np.asarray(found.min(axis=1), dtype=float)
