# SPDX-License-Identifier: BSD-3-Clause
"""Images whose descriptors are unlike those of any training image, whatever their classes: blank ones, noise.

A classifier sees an image through what tells its classes apart; a white page has all of the background of a dinosaur on
white and nothing else, and is taken for one.  So the bags themselves are looked at: the means and standard deviations
of an image's descriptors, number by number, as deviations z from what is usual, in units of how much they vary between
the training images.  The mean of the absolute z is large for an image whose patches all look the same, or like no patch
of a photograph; its p-value is the share of the training images for which it is as large, and beyond the largest of
them that of a tail that falls with its fourth power.  A training image is compared with the mean and deviation of the
n - 1 others, for its own would make it look closer than a new image can be; of its z² with all n they are
:math:`z^2 n / (n - 1 - z^2)`.

The mean of z² would be decided by very few numbers.  Among images that are much alike, such as letters, charts or
spectrograms, some outputs of a network are 0 for all but one or two, which are then 50 deviations away, further than
any blank page is in its mean.

Together with a classifier's p-value (:func:`either`), this one weighs less and counts only where it is small: it says
much about blank images and nothing about ordinary ones.  ``SHARE`` and ``RARE`` were chosen on COREL-1000 and
Caltech-101, draws from 100 on: at equal weights, images of unseen classes would be recognised less well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from patchbag.bags import Bags
from patchbag.channels import Channels
from patchbag.storage.declared import floats, stored
from patchbag.storage.registry import storable

SHARE = 0.2  # of false alarms that may come from the bags
RARE = 0.02  # larger p-values of bags do not count
FEWEST = 10  # images; how much fewer vary says nothing of how others do


@storable
@dataclass(frozen=True)
class UsualBags:
    """``mean (p,)`` and ``deviation (p,)`` of the numbers, and the statistic of the n training images, ascending."""

    mean: np.ndarray = stored(floats("p"))
    deviation: np.ndarray = stored(floats("p", low=0))
    distances: np.ndarray = stored(floats("n", low=0, ascending=True))

    @classmethod
    def from_bags(cls, bags: Any) -> UsualBags | None:
        """From described images; None for fewer than ``FEWEST``, or anything else."""
        rows = summaries(bags)
        if rows is None or len(rows) < FEWEST:
            return None
        mean, deviation, n = rows.mean(axis=0), rows.std(axis=0), len(rows)
        squared = cls(mean, deviation, np.empty(0))._deviations(rows) ** 2
        # by the mean and deviation of the others, as a new image is seen; a number of one image alone says nothing
        rest = n - 1 - squared
        left_out = np.where(rest > 1e-6 * n, squared * n / np.maximum(rest, 1e-6 * n), 0.0)
        return cls(mean, deviation, np.sort(_mean(np.sqrt(left_out))))

    def _deviations(self, rows: np.ndarray) -> np.ndarray:
        """Absolute z of the numbers that vary."""
        varying = self.deviation > 1e-9 * np.abs(self.mean).max()
        return np.asarray(np.abs(rows[:, varying] - self.mean[varying]) / self.deviation[varying])

    def typicality(self, bags: Any) -> np.ndarray:
        """(n,) p-values of described images."""
        rows = summaries(bags)
        if rows is None or rows.shape[1] != len(self.mean):
            return np.ones(len(bags))
        distances = _mean(self._deviations(rows))
        # farther than all: few training images cannot say how rare that is, but the distance can
        beyond = np.minimum(self.distances[-1] / np.maximum(distances, 1e-300), 1.0) ** 4
        n = len(self.distances)
        return (1.0 + n - np.searchsorted(self.distances, distances, side="left")) / (n + 1.0) * beyond

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        return None if sizes["n"] and sizes["p"] else "it is empty"


def either(by_class: np.ndarray, by_bag: np.ndarray) -> np.ndarray:
    """One p-value of two: small where one of them is.

    The least of both, each divided by its share of the false alarms, is m; what is given is the probability that it is
    at most m, were the two independent (Šidák 1967).  Where they rise and fall together it is smaller.
    """
    least = np.minimum(by_class / (1.0 - SHARE), np.where(by_bag <= RARE, by_bag / SHARE, np.inf))
    no_alarm = (1.0 - np.minimum((1.0 - SHARE) * least, 1.0)) * (1.0 - np.minimum(SHARE * least, RARE))
    return np.asarray(1.0 - no_alarm)


def _mean(deviations: np.ndarray) -> np.ndarray:
    return np.asarray(deviations.mean(axis=1)) if deviations.shape[1] else np.zeros(len(deviations))


def summaries(bags: Any) -> np.ndarray | None:
    """(n, p) means and standard deviations of the descriptors of every image, of all channels, if there are any."""
    if isinstance(bags, Channels):
        parts = [summaries(bags[name]) for name in bags.names]
        found = [part for part in parts if part is not None]
        return np.hstack(found) if found else None
    if not isinstance(bags, Bags):
        return None
    rows = [np.asarray(bag, dtype=np.float32) for bag in bags]
    return np.array([np.concatenate([bag.mean(axis=0), bag.std(axis=0)]) for bag in rows], dtype=np.float64)
