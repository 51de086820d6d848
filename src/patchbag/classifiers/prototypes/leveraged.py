# SPDX-License-Identifier: BSD-3-Clause
r"""Leveraged nearest neighbours: the k nearest prototypes vote, each with a coefficient that was learned.

The neighbours of a new image are looked for among the prototypes that were kept, so that fewer of them are also faster
(:mod:`~patchbag.classifiers.prototypes.panel`).  With equal coefficients and the k-NN kernel this is the plain k-NN
rule.  What both classifiers share is here: the number of rounds and calibration; how coefficients are learned is
:mod:`~patchbag.classifiers.prototypes.universal`'s and :mod:`~patchbag.classifiers.prototypes.multiclass`'s affair.

**Rounds.**  T bounds the number of prototypes.  ``"auto"`` takes the smallest of ``SHARES`` of the training images that
gives the highest accuracy on images that were left out (the thesis chooses θ by cross-validation, §4.3.2).  A share of
few images is too few to vote: ``least`` keeps so many per class at the least, all where there are fewer.  Then, where
the median class has ``SCARCE`` images or fewer, all vote alike: leverages learned from so few do harm.  Up to ``FEW``
they do on some images, such as Fisher vectors, and not on others: there left-out images choose that too.

**Probabilities.**  Scores have no unit of their own: where each class has one image, nothing can be leveraged and
every vote counts 1.  So scores are divided by the largest sum of votes (``Panel.mass``) and by half the mean difference
between own and other classes of left-out images, which makes them about ±1;
:mod:`~patchbag.classifiers.confidence.temperature` does the rest.  With two or three images per class, a model of all
images has up to twice as many votes for the right class as a model of half of them.  Where nothing is leveraged, the
scores of a training image for other classes are like those of a new one, so the unit is chosen such that they vary as
those of left-out images do.

**Images unlike all others.**  The nearest prototypes vote however far they are, and may agree.  So typicality does not
look at the votes, but at a linear discriminant of the prototypes (:mod:`~patchbag.classifiers.confidence.ties`) and the
distance to the nearest mean of their classes (:mod:`~patchbag.classifiers.confidence.class_means`).  Of similarities,
those of an image with itself are taken to be all equal.

Several ``n_neighbors`` give one classifier each, whose scores are added (figure 5.13).  Each leverages all images, and
the T images whose coefficients have the largest sum are kept for all of them: T rounds of each would keep more images,
or less good ones.  Where no prototype at all is worth a vote (two images of two classes), all of them vote alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from itertools import groupby
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from patchbag.classifiers.confidence.class_means import mean_norms
from patchbag.classifiers.confidence.left_out import LeftOut, SaysHowSure, energy
from patchbag.classifiers.confidence.temperature import FOLDS, fit_temperature, left_out_folds, undeserved
from patchbag.classifiers.confidence.ties import tie_weights
from patchbag.classifiers.prototypes.boosting import CHOOSERS, Boosted
from patchbag.classifiers.prototypes.edges import (
    KERNELS,
    REACHES,
    class_vectors,
    kernel_values,
    typical_width,
    vote_matrix,
)
from patchbag.classifiers.prototypes.losses import LOSSES
from patchbag.classifiers.prototypes.panel import Panel, Voter, voting
from patchbag.classifiers.prototypes.search import all_pairs, check_choice, check_rows, is_similarity, nearest_others
from patchbag.classifiers.prototypes.strangeness import class_scatter, gram_matrix, strangeness
from patchbag.classifiers.targets import as_labels, encode_labels
from patchbag.device import to_host
from patchbag.features.extraction import ALL_POSITIVE
from patchbag.parameters import ONE_OR_MORE, POSITIVE, ZERO_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state
from patchbag.storage.declared import NOT_ZERO, Declared, Many, floats, integer, integers, labels, real, size

SCARCE, FEW = 3, 10
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)


Candidates = Sequence[tuple[str, float]]  # how leverages are found, and rounds


class _Trained(NamedTuple):
    """What training images say for one number of neighbours: rounds per class, or of all classes, and σ if fixed."""

    n_neighbors: int
    boosted: list[Boosted]
    width: float | None


@estimator
class LeveragedNeighbors(SaysHowSure, ClassifierMixin, BaseEstimator):
    """Base of the boosted nearest neighbours; the parameters are explained in its subclasses."""

    _votes: Panel | None = None

    n_neighbors: int | Sequence[int] = parameter(ONE_OR_MORE, ALL_POSITIVE, default=11)
    _: KW_ONLY
    metric: Any = parameter(str, callable, default="euclidean")
    kernel: str = parameter(StrOptions(set(KERNELS)), default="knn")
    width: float | str = parameter(POSITIVE, StrOptions({*REACHES, "typical"}), default="adaptive")
    loss: str | Callable[[float], float] = parameter(StrOptions(set(LOSSES)), callable, default="exponential")
    rounds: int | float | str = parameter(
        ONE_OR_MORE, Interval(Real, 0, 1, closed="right"), StrOptions({"auto"}), default="auto"
    )
    least: int = parameter(ZERO_OR_MORE, default=0)
    chooser: str = parameter(StrOptions(set(CHOOSERS)), default="once")
    smoothing: float | None = parameter(POSITIVE, None, default=None)
    drop_negative: bool = parameter("boolean", default=True)
    search: Any = parameter(HasMethods(["fit", "kneighbors"]), None, default=None)
    folds: int | str | None = parameter(*FOLDS, None, default="auto")
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "classes_": labels(),
        "n_features_in_": size("d"),
        "prototypes_": integers("P", low=0),
        "vectors_": floats("P", "d", nullable=True),
        "labels_": integers("P", low=0, below="C"),
        "neighbors_": Many(integer(low=1), length="voters"),
        "coefficients_": floats("voters", "P", "columns"),
        "widths_": Many(real(low=0, optional=True), length="voters"),
        "share_": real(low=0),
        "unit_": real(low=NOT_ZERO),
        "temperature_": real(low=0),
        "norms_": floats("C", finite=False),
        "ties_": floats("P + 1", "C", optional=True),
    }

    def _leverage(
        self, votes: sparse.csc_array, codes: np.ndarray, n_classes: int, rounds: int, order: np.ndarray
    ) -> list[Boosted]:
        """Rounds of one classifier per class, or of a single one for all."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._on_similarities()
        return tags

    def _on_similarities(self) -> bool:
        return is_similarity(self.metric)

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, to_host(X), as_labels(y), dtype=(np.float64, np.float32), ensure_min_samples=2)
        self.classes_, codes = encode_labels(y)
        check_choice(self.kernel, self.metric, self.search)
        check_rows(X, self.kernel, self.metric)
        if self._on_similarities() and len(X) != X.shape[1]:
            raise ValueError(f"similarities to the training images make a square matrix, got {X.shape}")
        if self.folds is None and isinstance(self.rounds, str):
            raise ValueError('rounds="auto" are chosen on images that are left out: folds must be a number')
        n_classes = len(self.classes_)
        shares = SHARES if isinstance(self.rounds, str) else (self.rounds,)
        candidates = [(chooser, share) for chooser in self._choosers(codes) for share in shares]
        random = check_random_state(self.random_state)
        folds = [] if self.folds is None else left_out_folds(codes, self.folds, random)
        pairs, metric = all_pairs(X, self.metric, self.search) if folds else (X, self.metric)
        spread = class_scatter(X, codes, n_classes, self._on_similarities())
        shown, strange = self._leave_out(X, pairs, metric, codes, folds, candidates, random, spread)
        told = self._choose(shown, strange, codes, candidates)
        trained = self._train(pairs, codes, (self.share_,), random, metric)
        voters = self._voters(trained, codes, self.share_)
        self.prototypes_ = voting(voters)
        self.labels_ = codes[self.prototypes_]
        gram = gram_matrix(X, self.prototypes_, self._on_similarities())
        self.norms_ = mean_norms(gram, self.labels_, n_classes, spread)
        self.ties_: np.ndarray | None = None if told is None else tie_weights(gram, self.labels_, n_classes)
        self.vectors_ = None if self._on_similarities() else X[self.prototypes_]
        self.neighbors_ = [int(k) for k, _, _ in voters]
        self.coefficients_ = np.stack([coefficients[self.prototypes_] for _, coefficients, _ in voters])
        self.widths_ = [width for _, _, width in voters]
        self._votes = None
        panel = self._panel()
        if told is not None:
            self.unit_ *= panel.mass
            if self._chooser == "equal":
                self.unit_ *= undeserved(self._class_scores(X), codes) / undeserved(told, codes)
        return self

    def _choosers(self, codes: np.ndarray) -> list[str]:
        """How leverages may be found: boosting, or "equal" where few images per class vote alike."""
        typical = np.median(np.bincount(codes))
        if not self.least or typical > FEW or (typical > SCARCE and self.folds is None):
            return [self.chooser]
        return ["equal"] if typical <= SCARCE else [self.chooser, "equal"]

    def _leave_out(
        self, X: np.ndarray, pairs: np.ndarray, metric: Any, codes: np.ndarray, folds: Any, candidates: Candidates,
        random: Any, spread: float,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Scores (n, m, C), NaN for classes that were not known, and statistics (n, 2, m) of left-out images."""
        n_classes, m, similar = len(self.classes_), len(X), self._on_similarities()
        shown = np.full((len(candidates), m, n_classes), np.nan)
        strange = np.zeros((len(candidates), 2, m))
        for train, test in folds:
            known, part = np.unique(codes[train], return_inverse=True)
            if len(known) < 2:
                continue
            rows, queries = (pairs[np.ix_(a, train)] if is_similarity(metric) else X[a] for a in (train, test))
            references, y = np.arange(len(train)) if is_similarity(metric) else rows, class_vectors(part, len(known))
            for chooser, some in groupby(enumerate(candidates), lambda one: one[1][0]):
                self._chooser = chooser
                trained = self._train(rows, part, [share for _, share in candidates], random, metric)
                for number, (_, share) in some:
                    voters = self._voters(trained, part, share)
                    panel = Panel(references, y, voters, self._kernel, metric, self.search)
                    shown[number][np.ix_(test, known)] = panel.scores(queries) / panel.mass
                    kept = train[voting(voters)]
                    gram = gram_matrix(X, kept, similar)
                    norms = mean_norms(gram, codes[kept], n_classes, spread)
                    ties = tie_weights(gram, np.searchsorted(known, codes[kept]), len(known))
                    strange[number][:, test] = strangeness(X[test], X, kept, codes[kept], norms, ties, similar)
        return shown, strange

    def _rounds(self, share: float, codes: np.ndarray) -> int:
        if isinstance(share, Integral):
            return int(share)
        m, n_classes = len(codes), int(codes.max()) + 1
        return max(1, round(share * m), min(m, self.least * n_classes))

    def _train(
        self, X: np.ndarray, codes: np.ndarray, shares: Sequence[float], random: Any, metric: Any
    ) -> list[_Trained]:
        counts = [int(k) for k in np.atleast_1d(np.asarray(self.n_neighbors))]
        if self._chooser == "equal" and self.width != "typical":  # nothing is learned from neighbours
            distances, neighbors = np.empty((len(X), 0)), np.empty((len(X), 0), int)
        else:
            distances, neighbors = nearest_others(X, max(counts), metric, self.search)
        rounds = len(X) if len(counts) > 1 else max(self._rounds(share, codes) for share in shares)
        order = random.permutation(len(X))
        found = []
        for k in counts:
            near = distances[:, :k]
            if isinstance(self.width, str):
                width = typical_width(near) if self.width == "typical" else None
            else:
                width = float(self.width)
            votes = vote_matrix(neighbors[:, :k], self._kernel(near, width), len(X))
            found.append(_Trained(k, self._leverage(votes, codes, int(codes.max()) + 1, rounds, order), width))
        return found

    def _kernel(self, distances: np.ndarray, width: Any) -> np.ndarray:
        return kernel_values(distances, self.kernel, width, REACHES.get(str(self.width), 1.0))

    def _voters(self, trained: list[_Trained], codes: np.ndarray, share: float) -> list[Voter]:
        """What votes after the rounds of a share."""
        m, most = len(codes), self._rounds(share, codes)
        several, found, own = len(trained) > 1 and self._chooser != "equal", [], []
        for _, boosted, _ in trained:
            coefficients = np.stack([one.coefficients(m, None if several else most) for one in boosted], axis=1)
            mine = coefficients[np.arange(m), codes if coefficients.shape[1] > 1 else 0]
            found.append(np.where(mine[:, None] > 0, coefficients, 0.0) if self.drop_negative else coefficients)
            own.append(np.maximum(mine, 0))
        if several:
            kept = np.argsort(-np.sum(own, axis=0), kind="stable")[:most]
            left_out = ~np.isin(np.arange(m), kept)
            for coefficients in found:
                coefficients[left_out] = 0.0
        voters = [Voter(k, c, width) for (k, _, width), c in zip(trained, found, strict=True)]
        return [v for v in voters if v.coefficients.any()] or [
            v._replace(coefficients=np.ones_like(v.coefficients)) for v in voters
        ]

    def _choose(
        self, shown: np.ndarray, strange: np.ndarray, codes: np.ndarray, candidates: Candidates
    ) -> np.ndarray | None:
        """The first candidate with the highest accuracy on left-out images, and the temperature of its scores, which
        are returned.
        """
        rows = np.arange(len(codes))
        self._chooser, self.share_ = candidates[-1]
        self.unit_, self.temperature_, self.left_out_ = 1.0, 1.0, None
        told = np.isfinite(shown[0][rows, codes])
        if not told.any():
            return None
        own = shown[:, rows, codes]
        right = np.sum(own[:, told] >= np.fmax.reduce(shown[:, told], axis=2), axis=1)
        best = int(np.argmax(right))
        self._chooser, self.share_ = candidates[best]
        others = (np.nansum(shown[best], axis=1) - own[best]) / (np.isfinite(shown[best]).sum(axis=1) - 1)
        unit = float(np.mean((own[best] - others)[told])) / 2
        self.unit_ = unit if unit > 0 else float(np.nanstd(shown[best])) or 1.0
        scores = shown[best] / self.unit_
        self.temperature_ = fit_temperature(scores, codes)
        self.left_out_ = LeftOut.from_statistics(scores, codes, self.temperature_, strange[best])
        return scores

    def _panel(self) -> Panel:
        """What votes; models that were just loaded make it when they are first asked."""
        check_is_fitted(self, "prototypes_")
        if self._votes is None:
            voters = [Voter(*one) for one in zip(self.neighbors_, self.coefficients_, self.widths_, strict=True)]
            references = np.arange(len(self.prototypes_)) if self.vectors_ is None else self.vectors_
            y = class_vectors(self.labels_, len(self.classes_))
            self._votes = Panel(references, y, voters, self._kernel, self.metric, self.search)
        return self._votes

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_votes"}

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "prototypes_")
        X = validate_data(self, to_host(X), dtype=(np.float64, np.float32), reset=False)
        check_rows(X, self.kernel, self.metric)
        return X[:, self.prototypes_] if self.vectors_ is None else X

    def _class_scores(self, X: Any) -> np.ndarray:
        return self._panel().scores(self._rows(X)) / self.unit_

    def votes(self, X: Any) -> np.ndarray:
        """(n, P) the vote of every prototype for the class predicted; they add up to its score (figure 4.14)."""
        return self._panel().votes(self._rows(X)) / self.unit_

    def own_coefficients(self) -> np.ndarray:
        """(P,) what the votes of the prototypes for their own classes weigh, over all neighbourhoods."""
        summed = self.coefficients_.sum(axis=0)
        return summed[np.arange(len(summed)), self.labels_ if summed.shape[1] > 1 else 0]

    def decision_function(self, X: Any) -> np.ndarray:
        """(n, C) votes, in units in which left-out images have about ±1; (n,) for two classes."""
        scores = self._class_scores(X)
        return scores[:, 1] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        return self.rank(X, 1)[:, 0]

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, C) calibrated probabilities."""
        return softmax(self._class_scores(X) * self.temperature_, axis=1)

    def rank(self, X: Any, top: int = 2) -> np.ndarray:
        """(n, top) the classes with the largest scores, best first (table 5.2)."""
        if top < 1:
            raise ValueError(f"top must be at least 1, got {top}")
        best = np.argsort(-self._class_scores(X), axis=1, kind="stable")[:, :top]
        return self.classes_[best]

    def _strangeness(self, X: Any) -> np.ndarray:
        similar, everything = self._on_similarities(), slice(None)
        found = strangeness(self._rows(X), self.vectors_, everything, self.labels_, self.norms_, self.ties_, similar)
        return (
            found if self.ties_ is not None else np.vstack([energy(self.temperature_ * self._class_scores(X)), found])
        )

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        similar = is_similarity(values["metric"])
        if sizes["columns"] not in (1, sizes["C"]) or not sizes["P"] or sizes["C"] < 2:
            return f"it has {sizes['P']} prototypes that vote for {sizes['columns']} classes of {sizes['C']}"
        if similar is not (values.get("vectors_") is None) or (similar and values["prototypes_"].max() >= sizes["d"]):
            return "its prototypes are not among its images"
        return None
