# SPDX-License-Identifier: BSD-3-Clause
r"""Linear classifiers of more vectors than fit into memory: averaged stochastic gradient descent (liu2010, A.1).

One machine per class against the others minimises :math:`\frac\lambda2 \|w\|^2 + \frac1N \sum_i \max(0, 1 - y_i w'x_i)`
(A.1) by looking at one sample after the other (A.3, A.4):

.. math:: w_{t+1} = (1 - \lambda\eta_t) w_t + \eta_t y_i x_i \delta_i, \qquad \eta_t = \frac1{\lambda (t + t_0)},

δ = 1 where the loss is positive.  t₀ is Bottou's (and scikit-learn's ``"optimal"``): the first step is as long as a
typical w.  The intercept is the weight of a further entry of 1.

**What is computed.**  The same numbers, but as matrix products.  Within a block of b samples, w is a multiple of what
it was before plus a combination of the block's rows, so that all scores follow from X W' (b · D · C), the inner
products of the rows with each other (b² · D), and a small loop over b × C numbers; at its end w is updated by one more
product.  The **average** of the weights, later ones counting more (:math:`\rho_t = 2/(t+3)`, Lacoste-Julien et al.
2012), is such a combination too.  Both are kept as multiples of two arrays, so that nothing of size D · C is scaled.

Rows may be a memory-mapped array, of float16 too, or sparse: each is read once per epoch, in chunks of stripes of
neighbouring rows from all over the data, and never all of them are in memory.  ``partial_fit`` takes what comes.

**On several machines**: vectors in a Zarr array (:class:`~patchbag.encodings.stored.StoredVectors`) are read by the
workers.  Each epoch deals the stripes out anew into parts of about ``PART`` rows; an epoch over each part begins with
the present weights, and the weights and averages of all parts are averaged (iterative parameter mixing: Zinkevich et
al. 2010, McDonald et al. 2010).  D · C numbers per part are sent, twice.  t counts the samples of one part: steps are
longer than those of one process by the number of parts, whose mean takes the noise away again.  Parts are cut by the
data alone, so that the weights are the same bits with any workers.

**λ** = ``"auto"`` is chosen on a sample of ``TUNING`` rows: from the largest of ``LAMBDAS`` on while left-out accuracy
rises.  Each begins **warm**, at the average and the step that the one before came to (t₀ such that λ(t + t₀) goes on
where it was), and takes one epoch.  There the descent over all rows begins, too: with steps of the length of w at first
a few epochs come to no rest for a small λ.

**Probabilities** (``probability=True``): up to ``LEFT_OUT`` rows, a fifth at most, are left out of all epochs.  Their
scores give the temperature, the sets and the typicality (:mod:`.confidence`); then they are learned from as well.

Cost: 3 · N · D · C multiplications per epoch for dense rows; sparse rows save those of their zeros, and updates
those of classes without a loss.
"""

from copy import copy
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d

from patchbag.classifiers.confidence.left_out import LeftOut, SaysHowSure, energy
from patchbag.classifiers.confidence.temperature import fit_temperature
from patchbag.classifiers.stochastic_steps import descend, first_t0, multiples, sparse_scores, sparse_update
from patchbag.classifiers.stripes import CHUNK, STRIPE, bounds_of, rows_of, sample_rows, stripes
from patchbag.classifiers.targets import as_labels, one_column_a_class, one_machine_a_class
from patchbag.encodings.stored import StoredVectors
from patchbag.parameters import ONE_OR_MORE, POSITIVE, estimator, parameter
from patchbag.records import require_finite
from patchbag.runtime import check_random_state, one_worker, parallel_map, runtime_context
from patchbag.storage.declared import Declared, floats, integer, labels, real, size

LAMBDAS = (1e-3, 1e-4, 1e-5, 1e-6)
TUNING = 5000
BLOCK = (32, 64)  # samples, as many as classes within these limits
PART = 16_384  # rows of stored vectors that a worker learns from by itself
THREADED = 1 << 23  # multiplications of a block from which on threads gain more than their meetings cost
SMALLEST = 1e-9
LEFT_OUT = 5000  # rows that tell how sure to be
DENSE = 0.05  # share of entries from which on a dense product is the faster one


@estimator
class StochasticLinearClassifier(SaysHowSure, ClassifierMixin, BaseEstimator):
    """Linear support vector machines by averaged stochastic gradient descent.

    Parameters
    ----------
    alpha : λ, weight of the squared weights; "auto" chooses it on a sample
    epochs : times that ``fit`` looks at every sample
    probability : whether ``fit`` learns to say how sure it is: ``predict_proba``, ``predict_set``, ``typicality``
    random_state : seed of the order of the samples

    Attributes
    ----------
    classes_ (C,), coef_ (C, D) averaged, intercept_ (C,); one row for two classes
    alpha_ : λ;  t_ : samples looked at so far;  t0_ : of the steps
    temperature_, left_out_ : what left-out rows say of new ones, with ``probability``

    >>> X = np.random.default_rng(0).normal(size=(300, 4)).astype("float16")
    >>> StochasticLinearClassifier(1e-3, random_state=0).fit(X, X[:, 0] > 0).score(X, X[:, 0] > 0) > 0.95
    True
    """

    alpha: float | str = parameter(POSITIVE, StrOptions({"auto"}), default="auto")
    _: KW_ONLY
    epochs: int = parameter(ONE_OR_MORE, default=5)
    probability: bool = parameter("boolean", default=False)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "classes_": labels(),
        "n_features_in_": size("d"),
        "alpha_": real(low=0),
        "t_": integer(low=0),
        "t0_": real(low=0, optional=True),
        "temperature_": real(low=0, optional=True),
        "weights_": floats("d + 1", "machines"),
        "averages_": floats("d + 1", "machines"),
        "factors_": floats(3),
        "coef_": floats("machines", "d"),
        "intercept_": floats("machines"),
    }
    _check_stored = staticmethod(one_machine_a_class)
    t0_: float = 0.0  # in earlier files there is none: first_t0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        X, y = _check(X), column_or_1d(as_labels(y))
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y {len(y)} labels")
        random = check_random_state(self.random_state)
        n = len(y)
        aside = np.zeros(n, bool)
        self.temperature_: float | None = None
        self.left_out_ = None
        if self.probability:
            aside[sample_rows(X, min(LEFT_OUT, n // 5), random)] = True
        self._begin(np.unique(y), X.shape[1])
        codes = self._codes(y)
        if self.alpha == "auto":
            rows = sample_rows(X, TUNING, random)
            self._choose(X, codes, rows[~aside[rows]], random)
        bounds = bounds_of(X)
        for _ in range(self.epochs):
            if isinstance(X, StoredVectors):
                self._learn_apart(X, codes, aside, random)
                continue
            for rows in stripes(bounds, random):
                rows = rows[~aside[rows]]
                self._learn(X[rows], codes[rows], random)
        if isinstance(X, StoredVectors):
            self.t_ = self.epochs * int((~aside).sum())
        self._end()
        return self._learn_how_sure(X, codes, np.flatnonzero(aside), random) if aside.any() else self

    def _learn_how_sure(self, X: Any, codes: np.ndarray, aside: np.ndarray, random: Any) -> Self:
        scores = one_column_a_class(self.decision_function(X[aside])).astype(np.float64)
        self.temperature_ = temperature = fit_temperature(scores, codes[aside])
        self.left_out_ = LeftOut.from_scores(scores, codes[aside], temperature)
        self._learn(X[aside], codes[aside], random)
        return self._end()

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Go on with more samples, which are mixed among themselves; the first call names all ``classes``."""
        X, y = _check(X), column_or_1d(as_labels(y))
        random = check_random_state(self.random_state)
        if not hasattr(self, "classes_"):
            if classes is None:
                raise ValueError("the first call of partial_fit must name all classes")
            self._begin(np.unique(classes), X.shape[1])
            if self.alpha == "auto":
                self._choose(X, self._codes(y), sample_rows(X, TUNING, random), random)
        codes = self._codes(y)
        for rows in stripes(bounds_of(X), random):
            self._learn(X[rows], codes[rows], random)
        return self._end()

    def _codes(self, y: np.ndarray) -> np.ndarray:
        codes = np.searchsorted(self.classes_, y)
        if (codes >= len(self.classes_)).any() or (self.classes_[codes] != y).any():
            raise ValueError("y has a label that is not among the classes of the first call")
        return codes

    def _begin(self, classes: np.ndarray, width: int) -> None:
        if len(classes) < 2:
            raise ValueError(f"a classifier needs two classes, got {len(classes)} class: {classes}")
        self.classes_, self.n_features_in_ = classes, width
        lam = LAMBDAS[0] if self.alpha == "auto" else float(self.alpha)
        weights = np.zeros((width + 1, len(classes) if len(classes) > 2 else 1), np.float32)
        self._go_on(lam, weights, lam * first_t0(lam))

    def _go_on(self, lam: float, weights: np.ndarray, pace: float) -> None:
        """Begin at these weights with a step of the length 1 / pace."""
        self.alpha_, self.t_, self.t0_ = lam, 0, pace / lam
        # w = factors[0] V, its average = factors[1] V + factors[2] U; the last row is the intercept
        self.weights_, self.averages_ = weights.copy(), np.zeros_like(weights)
        self.factors_ = np.array([1.0, 0.0, 1.0])

    def _choose(self, X: Any, codes: np.ndarray, rows: np.ndarray, random: Any) -> None:
        """λ by the accuracy on a third of some rows, from strong to weak while it rises; what was learned stays."""
        X, codes = X[rows], codes[rows]
        left_out = np.arange(len(codes)) % 3 == random.randint(3)
        if len(np.unique(codes[~left_out])) < 2:
            return
        best, found = -1.0, (self.alpha_, self.weights_, self.alpha_ * self.t0_)
        for lam in LAMBDAS:
            self._go_on(lam, *found[1:])
            for _ in range(self.epochs if lam == LAMBDAS[0] else 1):
                self._learn(X[~left_out], codes[~left_out], random)
            accuracy = np.mean(self._end().predict(X[left_out]) == self.classes_[codes[left_out]])
            if accuracy <= best:
                break
            best, found = accuracy, (lam, self._average(), lam * (self.t_ + self.t0_))
        self._go_on(*found)

    def _learn_apart(self, X: StoredVectors, codes: np.ndarray, aside: np.ndarray, random: Any) -> None:
        """An epoch on all workers, from the present weights to their mean."""
        bounds, parts = bounds_of(X), []
        order = random.permutation(len(bounds) - 1)
        for chosen in np.array_split(order, max(1, round(len(codes) / PART))):
            chunks = [rows_of(bounds, np.sort(chosen[i : i + CHUNK])) for i in range(0, len(chosen), CHUNK)]
            chunks = [kept for rows in chunks if len(kept := rows[~aside[rows]])]
            parts.append((chunks, [codes[rows] for rows in chunks], random.randint(2**31 - 1)))
        shares = np.array([sum(map(len, chunks)) for chunks, _, _ in parts], float)
        weights, averages = np.zeros(self.weights_.shape), np.zeros(self.weights_.shape)
        for share, (w, average) in zip(shares / shares.sum(), parallel_map(partial(self._learn_part, X), parts)):
            weights += share * w
            averages += share * average
        self.weights_, self.averages_ = weights.astype(np.float32), averages.astype(np.float32)
        self.factors_ = np.array([1.0, 0.0, 1.0])
        self.t_ += round(shares.mean())

    def _learn_part(self, X: StoredVectors, part: tuple[list, list, int]) -> tuple[np.ndarray, np.ndarray]:
        """Weights and their average after the rows of one part, which are read a chunk at a time."""
        model, random = copy(self), np.random.RandomState(part[2])
        model.weights_, model.averages_ = self.weights_.copy(), self.averages_.copy()
        with one_worker():
            for rows, codes in zip(*part[:2]):
                model._learn(X[rows], codes, random)
        w, v, u = model.factors_
        return np.float32(w) * model.weights_, np.float32(v) * model.weights_ + np.float32(u) * model.averages_

    def _learn(self, X: Any, codes: np.ndarray, random: Any) -> None:
        """The samples in random order, a block after the other."""
        order = random.permutation(len(codes))
        if len(self.classes_) == 2:
            codes = 1 - codes  # the one machine is that of the second class: its targets are 0
        # inner products within a block cost as many operations as the scores of so many classes
        block = int(np.clip(self.weights_.shape[1], *BLOCK))
        with runtime_context(n_jobs=1 if block * self.weights_.size < THREADED else None):
            for start in range(0, len(order), block):
                rows = order[start : start + block]
                self._step(X[rows].astype(np.float32), codes[rows])

    def _step(self, X: Any, codes: np.ndarray) -> None:
        t0 = self.t0_ or first_t0(self.alpha_)
        b, n = len(codes), self.weights_.shape[1]
        w, v, u = self.factors_
        V, U = self.weights_[:-1], self.averages_[:-1]
        if sparse.issparse(X) and X.nnz < DENSE * b * X.shape[1]:
            scores = np.zeros((b, n), np.float32)
            sparse_scores(scores, X.data, X.indices, X.indptr, V)
            gram = (X @ X.T).toarray()
        else:
            full = X.toarray() if sparse.issparse(X) else X
            scores, gram = full @ V, full @ full.T
        scores = (scores + self.weights_[-1]) * w
        both = np.empty((b, 2 * n), np.float32)
        A, B = both[:, :n], both[:, n:]
        descend(scores, gram + 1, codes, self.alpha_, self.t_, t0, A, B)
        s, p, q = multiples(self.t_, t0, b)
        after, v, u = w * s, p * v + q * w, p * u
        # V gets X'A / after; the average, a multiple v of the V that was, must not get it a second time
        A /= after
        B -= v * A
        B /= u
        if sparse.issparse(X):
            sparse_update(A, V, B, U, X.data, X.indices, X.indptr)
        else:
            more = X.T @ both
            V += more[:, :n]
            U += more[:, n:]
        self.weights_[-1] += A.sum(axis=0)
        self.averages_[-1] += B.sum(axis=0)
        if after < SMALLEST:
            self.weights_ *= after
            v, after = v / after, 1.0
        if u < SMALLEST:
            self.averages_ *= u
            u = 1.0
        self.factors_ = np.array([after, v, u])
        self.t_ += b

    def _average(self) -> np.ndarray:
        """(D + 1, C) the average of the weights so far."""
        return np.asarray(self.factors_[1] * self.weights_ + self.factors_[2] * self.averages_, np.float32)

    def _end(self) -> Self:
        average = self._average().T
        if not np.isfinite(average).all():
            raise ValueError("weights are not finite: the vectors hold NaN, infinite or very large numbers")
        self.coef_, self.intercept_ = np.ascontiguousarray(average[:, :-1]), average[:, -1].copy()
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """(n, C) scores, larger is surer; (n,) for two classes; rows are read in chunks."""
        check_is_fitted(self, "coef_")
        X = _check(X)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {X.shape[1]} features, but the model was fitted on {self.n_features_in_}")
        scores = np.empty((X.shape[0], len(self.coef_)), np.float32)
        for start in range(0, X.shape[0], STRIPE * CHUNK):
            part = X[start : start + STRIPE * CHUNK].astype(np.float32)
            scores[start : start + part.shape[0]] = part @ self.coef_.T + self.intercept_
        require_finite(scores, "the scores")
        return scores if scores.shape[1] > 1 else scores[:, 0]

    def _calibrated(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "coef_")
        if (temperature := getattr(self, "temperature_", None)) is None:
            raise ValueError("how sure to be was not learned: fit with probability=True")
        return temperature * one_column_a_class(self.decision_function(X)).astype(np.float64)

    @available_if(lambda self: self.probability)
    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, C) calibrated probability of each class, in the order of ``classes_``."""
        return np.asarray(softmax(self._calibrated(X), axis=1))

    @available_if(lambda self: self.probability)
    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        return super().predict_set(X, coverage)

    def _strangeness(self, X: Any) -> np.ndarray:
        return energy(self._calibrated(X))[None]

    def predict(self, X: Any) -> np.ndarray:
        best = one_column_a_class(self.decision_function(X)).argmax(axis=1)
        return self.classes_[best]


def _check(X: Any) -> Any:
    """X as it is, if it is a table of floats: a memory-mapped one must not be read here."""
    if isinstance(X, StoredVectors):
        return X
    if sparse.issparse(X):
        return sparse.csr_array(X)
    X = X if isinstance(X, np.ndarray) else np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "fiub" or 0 in X.shape:
        raise ValueError(f"expected vectors (n, d), got shape {X.shape} of {X.dtype}")
    return X
