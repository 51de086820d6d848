# SPDX-License-Identifier: BSD-3-Clause
r"""UNN, universal nearest neighbours: boosting of the k-NN rule, one class against the others (piro2010 ch. 4, app. A).

For each class c the edges (4.13) are boosted on their own (algorithms 3 and 5): a prototype has C coefficients.  Those
are kept whose coefficient for their own class is positive (§4.3.3), and all classes look for neighbours among them.
Theorem 2: if every round has
:math:`|w_j^+/(w_j^+ + w_j^-) - 1/2| \ge \gamma` and :math:`(w_j^+ + w_j^-)/\|w\|_1 \ge \eta`, the share of edges below
zero after τ rounds is at most :math:`e^{-2\eta\gamma^2\tau}`.

**Smoothing** adds 1/m to w⁺ and w⁻ (4.15-4.16), where an example weighs 1 before the first round.
**Cost.**  C times that of :mod:`~patchbag.classifiers.prototypes.multiclass`, in training and in the vote.
"""

import numpy as np
from scipy import sparse

from patchbag.classifiers.prototypes.boosting import Boosted, boost
from patchbag.classifiers.prototypes.edges import binary_edges
from patchbag.classifiers.prototypes.leveraged import LeveragedNeighbors
from patchbag.classifiers.prototypes.losses import make_loss
from patchbag.runtime import parallel_map


class UniversalNearestNeighbors(LeveragedNeighbors):
    """Boosted nearest neighbours, one class against the others.

    Parameters
    ----------
    n_neighbors : k, or several, whose scores are added
    metric : of the distances: scikit-learn's or :mod:`~patchbag.similarity.histograms.distances`' name, a function, or
        ``"similarity"`` where X are rows of similarities to the training images
    kernel : ``"knn"``, ``"gaussian"``, ``"intersection"`` (ℓ1-normalised histograms, ``metric="manhattan"``) or
        ``"similarity"``
    width : σ of the Gaussian; ``"adaptive"`` or ``"sharp"``, by the distance of the k-th neighbour; or ``"typical"``,
        the same for all that suits the training images
    loss : ``"exponential"``, ``"squared"``, ``"logistic"``, or the derivative of a loss, a function of one number
    rounds : T, the most prototypes: a number, a share of the training images, or ``"auto"``
    least : prototypes per class that a share is never below; where it is not 0, few images per class vote alike
    chooser : ``"once"``, ``"boosting"`` or ``"lazy"``; ``"equal"`` is the plain k-NN rule
    smoothing : ε, weight of the pair that keeps coefficients finite; None for the thesis' 1/m
    drop_negative : drop prototypes whose coefficient for their own class is not positive
    search : an estimator with ``fit`` and ``kneighbors``; its distances take the place of ``metric``'s
    folds : parts in which images are left out, for calibration and the number of rounds; None where only the class
        is asked for, which trains several times as fast
    random_state : seed of the folds

    Attributes
    ----------
    classes_ (C,)
    prototypes_ : (P,) numbers of the training images kept;  labels_ : (P,) numbers of their classes
    coefficients_ : (number of k, P, C)
    share_ : T, as a number or as a share of the training images;  temperature_;  left_out_

    >>> X = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
    >>> UniversalNearestNeighbors(1).fit(X, list("aaabbb")).predict([[0.3]])
    array(['a'], dtype='<U1')
    """

    def _leverage(
        self, votes: sparse.csc_array, codes: np.ndarray, n_classes: int, rounds: int, order: np.ndarray
    ) -> list[Boosted]:
        loss, ones = make_loss(self.loss), np.ones(len(codes))
        epsilon = 1.0 / len(codes) if self.smoothing is None else float(self.smoothing)

        def boost_class(c: int) -> Boosted:
            edges = binary_edges(votes, np.where(codes == c, 1.0, -1.0))
            return boost(edges, ones, ones, loss, rounds, self._chooser, epsilon, order)

        if n_classes == 2:  # the second class is the first one turned round, and has the same edges
            return [boost_class(0)] * 2
        return list(parallel_map(boost_class, range(n_classes)))
