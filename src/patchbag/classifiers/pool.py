# SPDX-License-Identifier: BSD-3-Clause
"""A classifier that learns from images with and without labels, for images to come.

``fit`` takes both; images without a label have None or NaN (not -1, which would be a class).  What they teach is in
:mod:`~patchbag.classifiers.beliefs`; what is left of it is a linear classifier.

**Images unlike all others.**  Images of a class without labels teach as well, each for the class that it resembles
most, so that scores do not show that it belongs to none.  Typicality is therefore the distance to the nearest mean of
the labelled images of a class alone (:mod:`~patchbag.classifiers.confidence.class_means`).
"""

from dataclasses import KW_ONLY
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils.validation import check_is_fitted

from patchbag.classifiers.beliefs import PoolBeliefs
from patchbag.classifiers.confidence.class_means import class_shares, mean_norms, nearest_mean, scatter
from patchbag.classifiers.confidence.left_out import LeftOut, SaysHowSure
from patchbag.classifiers.confidence.temperature import Fold
from patchbag.parameters import ONE_OR_MORE, POSITIVE, estimator, parameter
from patchbag.runtime import check_random_state, one_blas_thread
from patchbag.similarity.graph.choice import known_labels, soften
from patchbag.similarity.graph.image_graph import ImageGraph, check_vectors, prepare_vectors
from patchbag.storage.declared import Declared, floats, labels, real, size


@estimator
class PoolClassifier(SaysHowSure, ClassifierMixin, BaseEstimator):
    """Linear classifier of vectors, taught by few labels and by all images.

    Parameters
    ----------
    power : of the entries of the vectors, signed, before anything else: 1/2 for activations of a network
    n_neighbors : neighbours of an image in the graph of the images
    random_state : seed of the draw of images that teach where they are too many

    Attributes
    ----------
    classes_ (C,), coef_ (C, d), mean_ (d,), temperature_
    means_ (C, d), less_ (C,) : of the labelled images of each class, and by how much few of them put it too far away
    left_out_ : what left-out labels say of new images, or None

    >>> X = np.vstack([np.eye(3)[[i % 3]] + 0.1 for i in range(30)])
    >>> labels = ["a", "b", "c"] + [None] * 27
    >>> print(*PoolClassifier(random_state=0).fit(X, labels).predict(X[3:6]))
    a b c
    """

    takes_unlabelled = True
    _: KW_ONLY
    power: float = parameter(POSITIVE, default=1.0)
    n_neighbors: int = parameter(ONE_OR_MORE, default=20)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "classes_": labels(),
        "mean_": floats("d"),
        "coef_": floats("C", "d"),
        "temperature_": real(low=0),
        "means_": floats("C", "d"),
        "less_": floats("C", low=0),
        "n_features_in_": size("d"),
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        X = check_vectors(X)
        images, codes = known_labels(y, len(X))
        self.classes_ = np.unique([list(y)[i] for i in images])
        if len(self.classes_) < 2:
            raise ValueError(f"the labels are of {len(self.classes_)} class; a classifier needs at least two classes")
        with one_blas_thread():
            graph = ImageGraph.from_vectors(X, n_neighbors=self.n_neighbors, power=self.power)
            beliefs = PoolBeliefs(graph, check_random_state(self.random_state))
            for image, code in zip(images, codes):
                beliefs.learn(int(image), int(code))
            beliefs.choose()
            self.mean_, self.coef_ = graph.mean, np.ascontiguousarray(beliefs.classifier().T)
            self.temperature_ = float(np.exp(beliefs.sharpness.log))
            held, scores = beliefs.left_out_scores()
            far = self._keep_means(graph.vectors[images], codes, beliefs.left_out_parts())
        own = np.where(np.isneginf(scores[beliefs.trust]), np.nan, scores[beliefs.trust])
        self.left_out_ = LeftOut.from_statistics(own, held, self.temperature_, far[None]) if len(held) else None
        self.n_features_in_ = X.shape[1]
        return self

    def _keep_means(self, rows: np.ndarray, codes: np.ndarray, parts: list[Fold]) -> np.ndarray:
        """Distances of labelled images with these ``rows`` to the nearest mean of a class, left out part by part."""
        gram, diagonal, n_classes = (rows @ rows.T).astype(float), np.ones(len(rows)), len(self.classes_)
        spread = scatter(diagonal, mean_norms(gram, codes, n_classes), codes)
        self.means_ = class_shares(codes, n_classes).T.astype(np.float32) @ rows
        self.less_ = spread / np.bincount(codes)
        far = [np.empty(0)]
        for inside, outside in parts:
            norms = mean_norms(gram[np.ix_(inside, inside)], codes[inside], n_classes, spread)
            far.append(nearest_mean(gram[np.ix_(outside, inside)], diagonal[outside], norms, codes[inside]))
        return np.concatenate(far)

    def decision_function(self, X: Any) -> np.ndarray:
        """(n, C) scores, larger is surer; (n,) for two classes."""
        scores = self._scores(self._prepare(X))
        return scores if scores.shape[1] > 2 else scores[:, 1] - scores[:, 0]

    def _prepare(self, X: Any) -> np.ndarray:
        """Rows of X as the pool has them."""
        check_is_fitted(self, "coef_")
        return prepare_vectors(X, self.mean_, self.power)

    def _scores(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows @ self.coef_.T, dtype=float)

    def predict(self, X: Any) -> np.ndarray:
        best = self._scores(self._prepare(X)).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, C) calibrated probabilities."""
        return soften(self._scores(self._prepare(X)), self.temperature_)

    def _strangeness(self, X: Any) -> np.ndarray:
        rows = self._prepare(X)
        distances = 1.0 - 2.0 * (rows @ self.means_.T) + np.sum(self.means_**2, axis=1) - self.less_
        return distances.min(axis=1)[None]
