# SPDX-License-Identifier: BSD-3-Clause
r"""What training images that were left out say of new ones: sets of classes, and images unlike anything seen.

**Prediction sets** (split conformal prediction, Vovk et al. 2005; the rule of Sadinle et al. 2019).  The set of an
image holds the classes with a probability of at least t, and always the most probable one.  If t is the
:math:`\lfloor (n + 1)(1 - c) \rfloor`-th smallest of the probabilities that n left-out images were given for their own
class, and the new image is drawn as they were, the set holds its class with a probability of at least c.  Nothing is
assumed of the probabilities; better ones make smaller sets.  The images were left out of models of two thirds of the
labels, so that with few of them sets are a little too large rather than too small.

**Typicality** is a p-value of the hypothesis that an image is of the classes seen: the share of left-out training
images that are as strange as it.  Strangeness is measured by numbers that are larger for stranger images: the energy
:math:`-\ln \sum_c \exp(a\,s_c)` of the calibrated scores, which says how much they look like those of a known class
(for classifiers that vote, the scores of a linear discriminant: :mod:`~patchbag.classifiers.confidence.ties`), and the
distance to the nearest mean of a class (:mod:`~patchbag.classifiers.confidence.class_means`), which also sees what the
scores do not depend on.  They are put together by Fisher's method, :math:`T = -\sum_j \ln p_j`, each p_j that
of a normal distribution with the mean and deviation of the left-out images (for these, of the n - 1 others).  Neither
that nor independence has to hold, for T is compared with those of the left-out images: typicality is the share of them,
and the new one, for which T is larger, linear in T from one of them to the next, so that images between the same two
differ; and for an image stranger than all, :math:`e^{T_{\max} - T} / (n + 1)`.  Of typical images a share of α, or up
to 1 / (n + 1) more, has a typicality of at most α; in truth it is less, for the models that left images out had fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_ndtr, logsumexp, softmax

from patchbag.storage.declared import Declared, Part, floats, stored
from patchbag.storage.registry import storable


@storable
@dataclass(frozen=True)
class LeftOut:
    """Of n left-out images.

    ``own (n,)``: probabilities of their own classes, ascending.  ``strange (s, n)``: each statistic, ascending.
    ``together (n,)``: the joint statistic, ascending.
    """

    own: np.ndarray = stored(floats("n", low=0, high=1, ascending=True))
    strange: np.ndarray = stored(floats("s", "n", finite=False))
    together: np.ndarray = stored(floats("n", ascending=True))

    @classmethod
    def from_scores(cls, scores: np.ndarray, targets: np.ndarray, temperature: float, *others: np.ndarray) -> LeftOut:
        """From ``scores (n, C)``, NaN for a class that the model of an image did not know, numbers of the classes
        ``targets (n,)``, the factor of the scores, and statistics (n,) besides the energy of the scores.  Images whose
        class was not known do not count.
        """
        told = ~np.isnan(scores).all(axis=1)
        surprise = np.zeros(len(scores))
        surprise[told] = energy(np.where(np.isnan(scores), -np.inf, temperature * scores)[told])
        return cls.from_statistics(scores, targets, temperature, np.stack([surprise, *others]))

    @classmethod
    def from_statistics(
        cls, scores: np.ndarray, targets: np.ndarray, temperature: float, statistics: np.ndarray
    ) -> LeftOut:
        """The same with all ``statistics (s, n)``."""
        told = ~np.isnan(scores[np.arange(len(targets)), targets])
        known = np.where(np.isnan(scores), -np.inf, temperature * scores)[told]
        own = softmax(known, axis=1)[np.arange(len(known)), targets[told]]
        columns = statistics[:, told]
        strange, n = np.ascontiguousarray(np.sort(columns, axis=1)), columns.shape[1]  # as a file has them
        z = _deviations(strange, columns)
        z *= np.sqrt(n / np.maximum(n - 1 - z**2, 1e-9))  # by the mean and deviation of the others, as a new image
        return cls(np.sort(own), strange, np.sort(_together(z)))

    def threshold(self, coverage: float) -> float:
        """The least probability of a class in a set that holds the true one with probability ``coverage``."""
        rank = int(np.floor((len(self.own) + 1) * (1.0 - coverage) + 1e-9))
        return float(self.own[rank - 1]) if rank else 0.0

    def typicality(self, columns: np.ndarray) -> np.ndarray:
        """(m,) p-values of images with statistics ``columns (s, m)``."""
        found = _together(_deviations(self.strange, columns))
        n = len(self.together)
        share = np.interp(found, np.append(0.0, self.together), np.arange(n + 1, 0, -1) / (n + 1.0))
        # stranger than all: few labels cannot say how rare that is, but the statistic can
        return np.asarray(share * np.exp(np.minimum(self.together[-1] - found, 0.0)))


def energy(scores: np.ndarray) -> np.ndarray:
    """(n,) larger where no class has a large score."""
    return -np.asarray(logsumexp(scores, axis=1))


def _deviations(strange: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Statistics (s, m) in units of their deviation between left-out images, from their mean."""
    deviation = np.maximum(strange.std(axis=1, keepdims=True), 1e-12)
    return np.asarray((columns - strange.mean(axis=1, keepdims=True)) / deviation)


def _together(z: np.ndarray) -> np.ndarray:
    return -np.sum(log_ndtr(-z), axis=0)


class SaysHowSure:
    """Methods of a classifier with ``left_out_`` (None where nothing could be left out) and ``_strangeness``."""

    left_out_: LeftOut | None = None  # models of version 0.1 have none
    classes_: np.ndarray

    _stored: ClassVar[dict[str, Declared]] = {
        "left_out_": Part("LeftOut", optional=True, s="statistics"),
    }

    def predict_proba(self, X: Any) -> np.ndarray:
        raise NotImplementedError

    def _strangeness(self, X: Any) -> np.ndarray:
        """(s, m) statistics of images, larger for stranger ones."""
        raise NotImplementedError

    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """(n, C) which classes are in the set of each image, which holds its class with probability ``coverage``."""
        if not isinstance(coverage, Real) or not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1, such as 0.9, and neither of them; got {coverage}")
        p = self.predict_proba(X)
        least = 0.0 if self.left_out_ is None else self.left_out_.threshold(coverage)
        return np.asarray((p >= least) | (p == p.max(axis=1, keepdims=True)))

    def typicality(self, X: Any) -> np.ndarray:
        """(n,) p-value of being of the classes seen: small for an image unlike anything seen; 1 where the labels do not
        suffice to say.
        """
        columns = self._strangeness(X)
        return np.ones(columns.shape[1]) if self.left_out_ is None else self.left_out_.typicality(columns)
