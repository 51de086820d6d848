# SPDX-License-Identifier: BSD-3-Clause
r"""How many images are of classes that nobody has named yet, and which.

**Labels drawn at random.**  Of n labels, n₁ are the only ones of their class and n₂ classes have two.  The share of the
images in classes without a label is about n₁ / (n + 1) (Good 1953, after Turing), with the standard error

.. math:: \sqrt{n_1 (1 - n_1 / n) + 2 n_2} \,/\, n

(Esty 1983), and one label more that opens a class would add 1 / (n + 1).

**Labels that were asked for** find classes sooner than that, so that Good and Turing's share is a bound.  Another one
is how often a question still finds a class, ρ, for questions go where a class without a label is most likely.  By the
latest m = max(``LATEST``, n / 4) labels, k of which opened a class, ρ is distributed as Beta(k + ½, m - k + ½).  The
share is between 0 and the smaller of the two, each with its room for chance; half of the smaller one is expected.  As
long as every label opens a class that is anything from none to all, and nothing else can be said: there may be as many
classes as labels, or as images.

**Which.**  Images of a class without a label are those whose variance under the diffusion kernel no label has reduced.
With the share v of it that the labels leave, the odds that an image is of such a class are taken to be proportional to
v / (1 - v); the factor is the one with which the probabilities have the share as their mean.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, expit, logit

LATEST = 5
SIDE = 1.645  # standard deviations on each side of an interval of 90 %
TINY = 1e-6


@dataclass(frozen=True)
class UnseenShare:
    """Share of the images in classes without a label: what is expected, and an interval of 90 %."""

    expected: float
    low: float
    high: float


def good_turing(labels: Sequence[Hashable]) -> float:
    """Share of the images in classes without a label, by the labels that are the only ones of their class."""
    return float(np.sum(_counts(labels) == 1) / (len(labels) + 1)) if len(labels) else 1.0


def unseen_share(labels: Sequence[Hashable], random: bool) -> UnseenShare:
    """What ``labels``, in the order in which they came in, say; ``random`` if they are a random sample."""
    n = len(labels)
    if not n:
        return UnseenShare(1.0, 0.0, 1.0)
    share, more, counts = good_turing(labels), 1.0 / (n + 1), _counts(labels)
    if random:
        once, twice = np.sum(counts == 1), np.sum(counts == 2)
        error = SIDE * float(np.sqrt(once * (1.0 - once / n) + 2.0 * twice)) / n
        return UnseenShare(share, max(share - error, 0.0), min(share + error + more, 1.0))
    first: dict[Hashable, int] = {}
    opened = [first.setdefault(label, i) == i for i, label in enumerate(labels)]
    latest = opened[-max(LATEST, n // 4) :]
    found, rest = sum(latest) + 0.5, len(latest) - sum(latest) + 0.5
    rate, most = found / (found + rest), float(betaincinv(found, rest, 0.95))
    return UnseenShare(0.5 * min(share, rate), 0.0, min(share + more, most))


def novelty(share: float, variance: np.ndarray) -> np.ndarray:
    """Probabilities (n,) that images are of a class without a label, with the mean ``share``.

    Parameters
    ----------
    variance : (n,) share of the variance of each that the labels leave
    """
    if not len(variance) or not TINY < share < 1.0 - TINY:
        return np.full(len(variance), round(share))
    odds = logit(np.clip(variance, TINY, 1.0 - TINY))
    reach = float(np.abs(odds).max()) + abs(float(logit(share)))
    step = brentq(lambda s: float(expit(odds + s).mean()) - share, -reach, reach)
    return np.asarray(expit(odds + step))


def _counts(labels: Sequence[Hashable]) -> np.ndarray:
    """(C,) labels of each class."""
    return np.unique(np.unique(list(labels), return_inverse=True)[1], return_counts=True)[1]
