# SPDX-License-Identifier: BSD-3-Clause
"""When to stop asking: labels that change no prediction are not worth it (Bloodgood & Vijay-Shanker 2009)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def kappa(first: np.ndarray, second: np.ndarray, n_classes: int) -> float:
    """Cohen's kappa, the agreement of two labellings beyond chance; 1 if both are constant and equal."""
    agreement = float(np.mean(first == second))
    shares = [np.bincount(labels, minlength=n_classes) / len(labels) for labels in (first, second)]
    chance = float(shares[0] @ shares[1])
    return 1.0 if agreement == 1.0 else (agreement - chance) / (1.0 - chance)


@dataclass(frozen=True)
class StoppingHint:
    """``stop`` when predictions have settled; ``agreement`` is the mean kappa of the latest labels, with what it
    says.
    """

    stop: bool
    agreement: float
    expected_error: float
    reason: str
