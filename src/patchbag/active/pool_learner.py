# SPDX-License-Identifier: BSD-3-Clause
r"""A pool of images, labelled or not, that learns from a few labels and says which image to label next.

The images without a label teach as well (see beliefs), and the question is the one that stands for the most doubt (see
representatives), or the one most unlike all with a label (see rare).  Nothing needs to be known of the classes: they
open as their names come in.

**Doubt** of an image is the probability that its class is not the leading one.  A part of it is that its class has not
been seen.  With Good and Turing's share u of the pool in such classes (see unseen) and the share v of the variance
under the diffusion kernel that the labels leave,

.. math:: \mathrm{doubt} = u v + (1 - u v)\,(1 - \max_c p_c).

**Error.**  ``error()`` is the share of the images without a label that the pool gets wrong, with an interval that holds
it with a probability of 90 %.  Three things are uncertain: the sharpness of the probabilities, how many images are of
classes that nobody has named (see unseen), and which ones fall on the wrong side of their probability: of 200 images
that are each wrong with 0.1 %, none is, one or two.  The sharpness was fitted to few left-out labels, and its standard
deviation is known; but labels that were asked for are not like the rest of the pool.  The sharpness that is right for
the rest differs by ``MISMATCH`` more (standard deviation of its logarithm, from 10 to 300 labels of digits, letters,
typefaces, tiles, spectrograms, COREL-1000 and Caltech-101).  Upwards, what the three may add is put together as
variances are.  Errors are skewed: downwards, where little is left, sharpness and classes go together.
"""

from copy import copy
from dataclasses import KW_ONLY
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from patchbag.active.labels import LabelledPool
from patchbag.active.rare import LabelDistances, Turns
from patchbag.active.representatives import GrowingClusters, representative_utilities
from patchbag.active.stopping import ErrorEstimate
from patchbag.active.unseen import SIDE, UnseenShare, good_turing, novelty, unseen_share
from patchbag.classifiers.beliefs import PoolBeliefs
from patchbag.parameters import ONE_OR_MORE, POSITIVE, estimator, parameter
from patchbag.runtime import check_random_state
from patchbag.similarity.graph.choice import soften
from patchbag.similarity.graph.image_graph import ImageGraph

RULES = ("representative", "random", "margin")
MISMATCH = 0.3


@estimator
class PoolLearner(LabelledPool):
    """Labels of few images become labels of all images of a pool, and of new ones, with probabilities.

    Parameters
    ----------
    rule : which image next: "representative", "margin" (the two leading classes are closest) or "random"
    power : of the entries of the vectors, signed, before anything else: 1/2 for activations of a network
    n_neighbors : neighbours of an image in the graph of the pool
    classes : labels known beforehand, or None to learn them from the labels
    missing_label : what stands for "no label" in ``fit``
    window, agreement : number of latest labels that the stopping hint looks at, and the mean kappa from which it stops

    Attributes
    ----------
    graph_ : the neighbour graph of the pool ; classes_ : in the order of their first label ; labels_ : dict

    >>> X = np.vstack([np.eye(3)[[i % 3]] + 0.1 for i in range(30)])
    >>> learner = PoolLearner(random_state=0).fit(X)
    >>> for _ in range(3):
    ...     image = learner.query()[0]
    ...     _ = learner.teach([image], ["abc"[image % 3]])
    >>> print(*learner.predict()[:6])
    a b c a b c
    """

    rule: str = parameter(StrOptions(set(RULES)), default="representative")
    _: KW_ONLY
    power: float = parameter(POSITIVE, default=0.5)
    n_neighbors: int = parameter(ONE_OR_MORE, default=20)
    n_jobs: int | None = parameter(Integral, None, default=None)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Start with a pool: vectors ``X (N, d)`` of its images, or their ImageGraph, and labels ``y (N,)``, some or
        all of them missing.
        """
        self._validate_params()
        if not isinstance(X, ImageGraph):
            X = ImageGraph.from_vectors(X, n_neighbors=self.n_neighbors, power=self.power, n_jobs=self.n_jobs)
        self.graph_ = X
        self.random_ = check_random_state(self.random_state)
        self.beliefs_ = PoolBeliefs(self.graph_, self.random_)
        self._clusters = GrowingClusters(self.graph_.eigenvectors, self.random_)
        self._distances = LabelDistances(self.graph_.vectors)
        self._turns = Turns()
        self._columns: list[int] = []
        self._start(len(self.graph_), y)
        return self

    # --- labels in -----------------------------------------------------------------------------------------------

    def _open_class(self) -> None:
        pass

    def _learn(self, image: int, column: int) -> None:
        self._turns.answer(image, column not in self._columns)
        if column not in self._columns:  # the beliefs number classes by their first label
            self._columns.append(column)
        self.beliefs_.learn(image, self._columns.index(column))

    def _leading(self) -> np.ndarray:
        return np.asarray(self._columns)[self.beliefs_.scores().argmax(axis=1)]

    # --- what is believed ----------------------------------------------------------------------------------------

    def predict(self, X: Any = None) -> np.ndarray:
        """Class of every image of the pool, or of new images with vectors ``X (M, d)``."""
        p = self.predict_proba(X)
        if not len(self._columns):
            raise ValueError("no image has a label yet; call teach first")
        return np.array(self.classes_)[p.argmax(axis=1)]

    def predict_proba(self, X: Any = None) -> np.ndarray:
        """(N, C) probabilities of the classes, in the order of ``classes_``, for the pool or for new images; 0 for a
        class without a label.  Images with a label are known.
        """
        check_is_fitted(self, "graph_")
        n = len(self.graph_) if X is None else len(X)
        p = np.zeros((n, max(len(self.classes_), 1)))
        if not self._columns:
            p[:] = 1.0 / p.shape[1]
        elif X is None:
            p[:, self._columns] = self.beliefs_.probabilities()
            images = list(self.labels_)
            p[images] = np.eye(p.shape[1])[[self.classes_.index(self.labels_[i]) for i in images]]
        else:
            scores = (self.graph_.prepare(X) @ self.beliefs_.classifier()).astype(float)
            p[:, self._columns] = soften(scores, np.exp(self.beliefs_.sharpness.log))
        return p

    def unseen_share(self) -> UnseenShare:
        """Share of the pool in classes without a label."""
        if self._all_classes_seen():
            return UnseenShare(0.0, 0.0, 0.0)
        return unseen_share(list(self.labels_.values()), self.rule == "random")

    def novelty(self) -> np.ndarray:
        """(N,) probability that an image is of a class without a label; 0 for those with one."""
        check_is_fitted(self, "graph_")
        return self._novelty(self.unseen_share().expected)

    def _novelty(self, share: float) -> np.ndarray:
        left = self._unlabelled()
        new = np.zeros(len(left))
        new[left] = novelty(share, self.beliefs_.remaining_variance()[left]) if self.labels_ else 1.0
        return new

    def _unlabelled(self) -> np.ndarray:
        left = np.ones(len(self.graph_), bool)
        left[list(self.labels_)] = False
        return left

    def _all_classes_seen(self) -> bool:
        return self.classes is not None and len(self._columns) == len(self.classes_)

    def error(self) -> ErrorEstimate:
        """Share of the images without a label that the pool gets wrong; NaN while there are no two classes."""
        check_is_fitted(self, "graph_")
        left = self._unlabelled()
        if len(self._columns) < 2 or not left.any():
            return ErrorEstimate()
        scores, sharpness = self.beliefs_.scores()[left], self.beliefs_.sharpness

        def wrong(share: float, deviations: float) -> np.ndarray:
            log = sharpness.log + deviations * np.hypot(sharpness.deviation, MISMATCH)
            known = soften(scores.copy(), np.exp(log)).max(axis=1)
            return np.asarray(1.0 - (1.0 - self._novelty(share)[left]) * known)

        unseen = self.unseen_share()
        each = wrong(unseen.expected, 0.0)
        expected = float(each.mean())
        chance = SIDE * np.sqrt(np.sum(each * (1.0 - each))) / len(each)
        less = expected - wrong(unseen.low, SIDE).mean()
        doubtful, new = wrong(unseen.expected, -SIDE).mean() - expected, wrong(unseen.high, 0.0).mean() - expected
        low = expected - float(np.hypot(less, chance))
        high = expected + float(np.linalg.norm([doubtful, new, chance]))
        return ErrorEstimate(expected, max(low, 0.0), min(high, 1.0), bool(new > np.hypot(doubtful, chance)))

    @property
    def clusters_(self) -> np.ndarray:
        """(N,) cluster of every image, as of the latest question."""
        return self._clusters.of

    def _error(self) -> ErrorEstimate:
        return self.error() if self.available_.any() else ErrorEstimate()

    # --- questions out -------------------------------------------------------------------------------------------

    def query(self, batch_size: int = 1, *, candidates: Any = None, return_utilities: bool = False) -> Any:
        """Images to label next.

        Parameters
        ----------
        batch_size : how many; those after the first are chosen as if the others had a label
        candidates : indices to choose among (default: all without a label and not skipped)
        return_utilities : also return utilities (batch_size, N), NaN where an image could not be chosen

        Returns
        -------
        indices (batch_size,), best first
        """
        check_is_fitted(self, "graph_")
        free = self._free(candidates, batch_size)
        doubt = self._doubt() if self.rule == "representative" else None
        clusters, distances = self._clusters, self._distances
        if batch_size > 1:  # what was only asked for is no label
            clusters, distances = copy(clusters), copy(distances)
        indices: list[int] = []
        history = []
        unlike: list[bool] = []
        for _ in range(batch_size):
            labelled = np.array([*self.labels_, *indices], dtype=int)
            unlike.append(self._looks_for_classes(unlike))
            if doubt is None:
                value = self._other_utilities()
            else:
                clusters.grow(len(labelled) + 1)  # at every question, whoever else looks at the clusters
                if unlike[-1]:
                    value = self.beliefs_.variance() + distances.to(labelled)
                else:
                    value = representative_utilities(self.beliefs_.features, clusters.of, doubt, labelled, free)
            value = np.where(free, value, np.nan)
            indices.append(self._argmax(value))
            history.append(value)
            free[indices[-1]] = False
        for image, kind in zip(indices, unlike):
            self._turns.ask(image, kind)
        return (np.array(indices), np.array(history)) if return_utilities else np.array(indices)

    def _looks_for_classes(self, asked: list[bool]) -> bool:
        if self.rule != "representative" or self._all_classes_seen():
            return False
        return self._turns.expecting(asked).unlike

    def seeks_class(self, image: int) -> bool:
        """Whether an image was asked for because it is unlike all with a label."""
        return self._turns.asked_as_unlike(image)

    def _other_utilities(self) -> np.ndarray:
        if self.rule == "random" or len(self._columns) < 2:
            return self.random_.uniform(size=len(self.graph_))
        top = np.partition(self.beliefs_.probabilities(), -2, axis=1)[:, -2:]
        return np.asarray(top[:, 0] - top[:, 1])

    def _doubt(self) -> np.ndarray:
        n = len(self.graph_)
        if not self.labels_:
            return np.ones(n)
        wrong = 1.0 - self.beliefs_.probabilities().max(axis=1) if len(self._columns) > 1 else np.zeros(n)
        unreached = good_turing(list(self.labels_.values())) * self.beliefs_.remaining_variance()
        return unreached + (1.0 - unreached) * wrong
