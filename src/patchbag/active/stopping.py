# SPDX-License-Identifier: BSD-3-Clause
"""When to stop asking: labels that change no prediction are not worth it (Bloodgood & Vijay-Shanker 2009)."""

from dataclasses import dataclass

import numpy as np

UNSEEN = "there may be classes that no answer has named"


def kappa(first: np.ndarray, second: np.ndarray, n_classes: int) -> float:
    """Cohen's kappa, the agreement of two labellings beyond chance; 1 if both are constant and equal."""
    agreement = float(np.mean(first == second))
    shares = [np.bincount(labels, minlength=n_classes) / len(labels) for labels in (first, second)]
    chance = float(shares[0] @ shares[1])
    return 1.0 if agreement == 1.0 else (agreement - chance) / (1.0 - chance)


@dataclass(frozen=True)
class ErrorEstimate:
    """Share of wrong answers: what is expected, and an interval that holds it with a probability of 90 %; NaN where
    there is nothing to say.  ``unseen``: classes that may be there without a label are most of its upper part.
    """

    expected: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    unseen: bool = False

    def __str__(self) -> str:
        if not self.expected >= 0:
            return "nothing known of errors"
        interval = f", between {100 * self.low:.0f} and {100 * self.high:.0f} %" if self.high >= 0 else ""
        why = f": {UNSEEN}" if self.unseen else ""
        return f"about {100 * self.expected:.0f} % wrong{interval}{why}"


@dataclass(frozen=True)
class StoppingHint:
    """Whether to stop, and why.

    Attributes
    ----------
    stop : whether the predictions have settled, or no image is left
    agreement : mean kappa of the latest rounds; NaN before the second
    error : share of wrong answers among the images left in the pool; NaN where there is nothing to judge: fewer than
        two classes have labels, or no image is left
    reason : what the two say
    """

    stop: bool
    agreement: float
    error: ErrorEstimate
    reason: str


def judge(
    kappas: list[float], window: int, settled: float, n_seen: int, n_left: int, error: ErrorEstimate
) -> StoppingHint:
    """The hint after rounds with these ``kappas``.

    Parameters
    ----------
    window : number of latest rounds that count
    settled : mean kappa from which on the predictions have settled
    n_seen : number of classes with labels
    n_left : number of images that could still be asked for
    error : that of these
    """
    recent = kappas[-window:]
    agreement = float(np.mean(recent)) if recent else float("nan")
    if not n_left:
        return StoppingHint(True, agreement, error, "every image is labelled or skipped")
    if n_seen < 2:
        return StoppingHint(False, agreement, error, "nothing to judge yet: fewer than two classes have labels")
    if len(recent) < window:
        return StoppingHint(False, agreement, error, f"fewer than {window + 1} rounds so far")
    if agreement >= settled:
        reason = f"the last {window} rounds changed almost no prediction (agreement {agreement:.3f})"
        return StoppingHint(True, agreement, error, reason)
    unseen = f", and {UNSEEN}" if error.unseen else ""
    return StoppingHint(False, agreement, error, f"predictions still change (agreement {agreement:.3f}){unseen}")
