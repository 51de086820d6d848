# SPDX-License-Identifier: BSD-3-Clause
r"""Sparse logistic regression (SLR) on rows of similarities: a classifier that keeps only the images it needs.

An image x is described by its similarities :math:`K(x, x_i)` to the training images, whatever the similarity (it need
not be a kernel), and a linear function of them is trained per class against the rest (liu2010, eq. 2.22 and 2.24)

.. math:: \min_{\alpha, \beta} \frac1N \sum_n \ln\left(1 + e^{-y_n f(x_n)}\right) + \lambda \|\alpha\|_1, \qquad
    f(x) = \sum_i \alpha_i K(x, x_i) + \beta .

The L1 norm leaves most :math:`\alpha_i` at zero: only the images kept have to be compared with at prediction
(``kept_``).

What is computed.  scikit-learn's liblinear solves the one-versus-rest problems, in processes; ``saga`` the multinomial
one.  Rows are first centred and divided, by each column's deviation (``scale="columns"``) or by one number
(``"global"``, which keeps the columns' own importance): similarities of unequal scale would be penalised unequally, and
uncentred ones are ill conditioned.  β is free: liblinear penalises it, so its column is made long enough for this to
move the mean sigmoid by less than 1e-4, and β is then fitted again alone, which makes the mean sigmoid of a class its
share of the training images.  From the λ on that leaves nothing, the solution is known: β is the log-odds of this
share.

An image's similarity to itself says nothing about other images, yet alone can separate the training set.  With
``ignore_self``, the diagonal of a square training matrix is replaced by the mean of the rest of its column.

λ.  When not given, it is the strongest of six values, half decades apart from just below the smallest λ for which all
α are zero, whose cross-validated mean accuracy of the classes is within 0.3 % of the best.  It is not the share of
images right: with 10 positives among 200 the strongest λ calls everything negative and is 95 % right.  Nor is it the
log-loss, which rewards cautious probabilities.  The whole path is looked at, for accuracies along it can have more than
one peak.

Cost: 2.5 s of processor time for 1,500 × 1,500 similarities, 15 classes and one λ, about 50 s with the choice of λ,
shared by the cores; starting the processes adds some seconds once.
"""

import inspect
import warnings
from dataclasses import KW_ONLY
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.model_selection import StratifiedKFold
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from patchbag.classifiers.targets import as_labels, encode_labels, one_machine_a_class, one_versus_rest
from patchbag.device import to_host
from patchbag.parameters import ONE_OR_MORE, POSITIVE, TWO_OR_MORE, estimator, parameter
from patchbag.records import require_finite
from patchbag.runtime import check_random_state, parallel_map, quiet
from patchbag.storage.declared import NOT_ZERO, Declared, booleans, floats, integer, labels, real, size

# λ on the path, as fractions of the smallest λ that leaves nothing
PATH = np.logspace(-0.5, -3.0, 6)
# a weaker penalty that gains less accuracy than this is not worth its images
GAIN = 0.003
# accuracies are compared with looser fits than the last one
PATH_TOL = 10.0
# liblinear penalises λ|β| / scaling, which shifts the mean sigmoid by λ / scaling: this is the most it may shift it
INTERCEPT_PENALTY = 1e-4
INTERCEPT_SCALING = 10.0
# a pass of saga is a cheap step, one of liblinear's Newton steps is many
SAGA_PASSES = 10
# numbers in all problems together, up to which they are not worth other processes
SERIAL = 3_000_000
# scikit-learn 1.8 replaced penalty="l1" by l1_ratio=1
_OLD = inspect.signature(LogisticRegression).parameters["penalty"].default != "deprecated"
L1: dict[str, Any] = {"penalty": "l1"} if _OLD else {"l1_ratio": 1.0}


def largest_penalty(X: np.ndarray, targets: np.ndarray) -> float:
    """Smallest λ at which all α of all problems are zero: X (n, p) centred, targets (n, problems) in {0, 1}."""
    return float(np.abs(X.T @ (targets - targets.mean(axis=0))).max()) / len(X)


def replace_diagonal(X: np.ndarray) -> np.ndarray:
    """A copy of a square matrix with each diagonal entry replaced by the mean of the rest of its column."""
    if X.shape[0] != X.shape[1]:
        raise ValueError(
            f"ignore_self needs the similarities of the training images to themselves, a square matrix; got {X.shape}"
        )
    X = X.copy()
    np.fill_diagonal(X, (X.sum(axis=0) - X.diagonal()) / max(1, len(X) - 1))
    return X


@estimator
class SparseLogisticClassifier(ClassifierMixin, BaseEstimator):
    """L1-regularised logistic regression on rows of similarities, with λ chosen by cross-validation.

    Parameters
    ----------
    penalty : λ of (2.24); None chooses it by cross-validation
    multinomial : one softmax over all classes instead of one-versus-rest
    scale : ``"columns"``, ``"global"`` or None, how the centred similarities are divided
    ignore_self : X in ``fit`` is square, similarities of the training images to themselves; its diagonal is left out
    cv : folds of the choice of λ
    tol, max_iter : of the solver (multinomial: ten times as many passes); a last fit that runs out of them warns.
        A loose tol keeps more images than the optimum does, above all with multinomial
    n_jobs : workers; the result does not depend on it
    random_state : seed of the folds and of the solver

    Attributes
    ----------
    classes_, coef_ (classes or 1, p), intercept_ (classes or 1,) : of the centred and scaled similarities
    penalty_ : λ used;  penalties_, scores_ : the path and its cross-validated mean class accuracies, where λ was chosen
    kept_ : (p,) bool, the training images that any class needs;  n_kept_ : their number
    """

    penalty: float | None = parameter(POSITIVE, None, default=None)
    _: KW_ONLY
    multinomial: bool = parameter("boolean", default=False)
    scale: str | None = parameter(StrOptions({"columns", "global"}), None, default="columns")
    ignore_self: bool = parameter("boolean", default=False)
    cv: int = parameter(TWO_OR_MORE, default=3)
    tol: float = parameter(POSITIVE, default=1e-3)
    max_iter: int = parameter(ONE_OR_MORE, default=200)
    n_jobs: int | None = parameter(Integral, None, default=None)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "classes_": labels(),
        "coef_": floats("machines", "d"),
        "intercept_": floats("machines"),
        "mean_": floats("d"),
        "scale_": floats("d", low=NOT_ZERO, finite=False),
        "n_features_in_": size("d"),
        "seed_": integer(low=0, optional=True),
        "penalty_": real(low=0),
        "penalties_": floats("path", optional=True),
        "scores_": floats("path", optional=True),
        "kept_": booleans("d", optional=True),
        "n_kept_": integer(low=0, optional=True),
    }
    _check_stored = staticmethod(one_machine_a_class)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, to_host(X), as_labels(y), dtype=np.float64)
        self.classes_, labels = encode_labels(y)
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        X = replace_diagonal(X) if self.ignore_self else X
        self.mean_ = X.mean(axis=0)
        deviation = X.std(axis=0)
        # a constant column has nothing to say: dividing by infinity keeps it at zero
        self.scale_ = {
            "columns": np.where(deviation > 1e-12 * np.abs(X).max(), deviation, np.inf),
            "global": np.full(X.shape[1], max(float(np.sqrt(np.mean(deviation**2))), np.finfo(np.float64).tiny)),
            None: np.ones(X.shape[1]),
        }[self.scale]
        X = (X - self.mean_) / self.scale_
        self.penalty_ = self._choose(X, labels) if self.penalty is None else float(self.penalty)
        coef, self.intercept_, finished = self._solve(X, labels, self.penalty_, self.tol)
        if not finished.all():
            what = f"{np.sum(~finished)} of {len(finished)} problems" if len(finished) > 1 else "the solver"
            warnings.warn(
                f"{what} did not converge in max_iter={self.max_iter} iterations at penalty={self.penalty_:.3g}: which "
                "images are kept is not final; raise max_iter, tol or penalty",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.coef_ = coef
        self.kept_ = (coef != 0).any(axis=0)
        self.n_kept_ = int(self.kept_.sum())
        return self

    def _solve(
        self, X: np.ndarray, labels: np.ndarray, penalty: float, tol: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """α (problems, p), β (problems,) and which problems the solver finished."""
        # the solvers' intercepts and stopping rules suit columns of about unit size: λ and α change with the unit
        unit = float(np.sqrt(np.mean(X**2))) or 1.0
        X, penalty = X / unit, penalty / unit
        targets = one_versus_rest(labels, len(self.classes_)) / 2 + 0.5  # zeros and ones
        options: dict[str, Any] = {
            **L1,
            "C": 1 / (penalty * len(X)),
            "tol": tol,
            "max_iter": self.max_iter,
            "random_state": self.seed_,
        }
        if self.multinomial and targets.shape[1] > 1:
            options["max_iter"] *= SAGA_PASSES
            coef, intercept, finished = _fit_multinomial(options, X, labels, targets, penalty)
            return coef / unit, intercept, finished
        options |= {"solver": "liblinear", "intercept_scaling": max(INTERCEPT_SCALING, penalty / INTERCEPT_PENALTY)}
        # processes: liblinear draws from one generator per process, so that threads would disturb each other's draws
        workers = self.n_jobs if X.size * targets.shape[1] > SERIAL else 1
        found = parallel_map(partial(_fit_binary, options, X, penalty), targets.T, workers, prefer="processes")
        coef, intercept, finished = (np.array(part) for part in zip(*found, strict=True))
        return coef / unit, intercept, finished

    def _choose(self, X: np.ndarray, labels: np.ndarray) -> float:
        smallest = int(np.bincount(labels).min())
        if smallest < 2:
            rare = self.classes_[int(np.argmin(np.bincount(labels)))]
            raise ValueError(
                f"class '{rare}' has one image: the penalty cannot be chosen by cross-validation; give penalty"
            )
        folds = StratifiedKFold(min(self.cv, smallest), shuffle=True, random_state=self.seed_)
        parts = list(folds.split(X, labels))
        # X is not centred within a fold exactly; the intercept takes what is left
        largest = largest_penalty(X, one_versus_rest(labels, len(self.classes_)) / 2)
        if largest == 0:  # the similarities are the same for all images: nothing to choose, nothing will be kept
            self.penalties_, self.scores_ = np.ones(1), np.full(1, 1 / len(self.classes_))
            return 1.0
        path = largest * PATH
        scores = []
        for penalty in path:
            predicted = np.empty_like(labels)
            for train, test in parts:
                coef, intercept, _ = self._solve(X[train], labels[train], penalty, PATH_TOL * self.tol)
                predicted[test] = _decide(X[test] @ coef.T + intercept)
            scores.append(recall_score(labels, predicted, average="macro"))
        self.penalties_, self.scores_ = path, np.array(scores)
        return float(path[np.flatnonzero(self.scores_ >= self.scores_.max() - GAIN)[0]])

    def decision_function(self, X: Any) -> np.ndarray:
        """Linear scores: ``(n, classes)``, or ``(n,)`` for two classes."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, to_host(X), dtype=np.float64, reset=False)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = require_finite(((X - self.mean_) / self.scale_) @ self.coef_.T + self.intercept_, "the scores")
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        scores = self.decision_function(X)
        return self.classes_[_decide(scores.reshape(len(scores), -1))]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities ``(n, classes)``: softmax, or the sigmoids of one-versus-rest divided by their sum."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.stack([expit(-scores), expit(scores)], axis=1)
        if self.multinomial:
            return softmax(scores, axis=1)
        p = np.maximum(expit(scores), np.finfo(np.float64).tiny)
        return p / p.sum(axis=1, keepdims=True)


def fit_intercept(scores: np.ndarray, target: np.ndarray) -> float:
    """The β that minimises the logistic loss of ``scores + β``: there the mean sigmoid is the share of positives."""
    share = float(target.mean())
    # where all scores are the largest (smallest) one, β is known: it lies between the two
    low, high = logit(share) - scores.max(), logit(share) - scores.min()
    return float(
        low if low == high else brentq(lambda beta: expit(scores + beta).mean() - share, low, high, xtol=1e-13)
    )


def _fit_binary(
    options: dict[str, Any], X: np.ndarray, penalty: float, target: np.ndarray
) -> tuple[np.ndarray, float, bool]:
    if penalty >= largest_penalty(X, target[:, None]):
        return np.zeros(X.shape[1]), float(logit(target.mean())), True
    # liblinear stops at a fraction of the gradient's norm at zero, most of which would be the long intercept column's
    scaling, residual = options["intercept_scaling"], target - 0.5
    columns = np.maximum(np.abs(residual @ X) / len(X) - penalty, 0).sum()
    short, long = (max(s * abs(residual.mean()) - penalty, 0) for s in (INTERCEPT_SCALING, scaling))
    tol = options["tol"] * (columns + short) / (columns + long) if columns > 0 else options["tol"]
    with quiet:  # that it has not converged ``fit`` says once, for the last fit
        model = LogisticRegression(**{**options, "tol": tol}).fit(X, target)
    coef = model.coef_[0]
    # what is left of the penalty on the intercept, and of an early stop, is taken off exactly
    return coef, fit_intercept(X @ coef, target), bool(model.n_iter_.max() < options["max_iter"])


def _fit_multinomial(
    options: dict[str, Any], X: np.ndarray, labels: np.ndarray, targets: np.ndarray, penalty: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if penalty >= largest_penalty(X, targets):
        return np.zeros((targets.shape[1], X.shape[1])), np.log(targets.mean(axis=0)), np.array([True])
    with quiet:
        model = LogisticRegression(solver="saga", **options).fit(X, labels)
    return model.coef_, model.intercept_, np.array([model.n_iter_.max() < options["max_iter"]])


def _decide(scores: np.ndarray) -> np.ndarray:
    return scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(np.int64)
