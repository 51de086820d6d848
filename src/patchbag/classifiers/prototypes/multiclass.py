# SPDX-License-Identifier: BSD-3-Clause
r"""MLNN, multiclass leveraged neighbours: one coefficient per prototype for all classes (piro2010 ch. 5, app. B).

The edge of an example averages its edges for all classes (5.14), which makes one boosting problem of C
(algorithms 4 and 6).  With the k-NN kernel it counts agreement with :math:`1/(C-1)` and disagreement with
:math:`-1/(C-1)^2` (5.25); with the others, agreement times similarity.

**Smoothing** (B.10-B.11): ε = 1/m where an example weighs 1/m before the first round; here they weigh 1, and ε = 1.
**Cost.**  See :mod:`~patchbag.classifiers.prototypes.boosting`.  The vote is one search among the prototypes kept.
"""

import numpy as np
from scipy import sparse

from patchbag.classifiers.prototypes.boosting import Boosted, boost
from patchbag.classifiers.prototypes.edges import multiclass_edges
from patchbag.classifiers.prototypes.leveraged import LeveragedNeighbors
from patchbag.classifiers.prototypes.losses import make_loss


class MulticlassLeveragedNeighbors(LeveragedNeighbors):
    """Boosted nearest neighbours, all classes at once.

    Parameters
    ----------
    n_neighbors, metric, kernel, width, loss, rounds, least, chooser, drop_negative, search, folds, random_state : as
        those of :class:`~patchbag.classifiers.prototypes.universal.UniversalNearestNeighbors`
    smoothing : ε, what the pair that keeps coefficients finite counts, in examples; None for the thesis' 1

    Attributes
    ----------
    classes_ (C,)
    prototypes_ : (P,) numbers of the training images kept;  labels_ : (P,) numbers of their classes
    coefficients_ : (number of k, P, 1)
    share_ : T, as a number or as a share of the training images;  temperature_;  left_out_

    >>> X = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
    >>> MulticlassLeveragedNeighbors(1).fit(X, list("aaabbb")).predict([[0.3]])
    array(['a'], dtype='<U1')
    """

    def _leverage(
        self, votes: sparse.csc_array, codes: np.ndarray, n_classes: int, rounds: int, order: np.ndarray
    ) -> list[Boosted]:
        rest = n_classes - 1
        m = len(codes)
        epsilon = 1.0 if self.smoothing is None else float(self.smoothing)
        edges = multiclass_edges(votes, codes, n_classes)
        plus, minus = np.full(m, 1 / rest), np.full(m, 1 / rest**2)
        return [boost(edges, plus, minus, make_loss(self.loss), rounds, self._chooser, epsilon, order)]
