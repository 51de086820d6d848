# SPDX-License-Identifier: BSD-3-Clause
"""The papers' protocol as a scikit-learn splitter: N random images per class train, the rest (or M per class) test."""

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np

from patchbag.runtime import check_random_state

MOST_IMAGES = 6000  # in all: what every recipe can learn from in memory


def half_of_smallest(labels: Any) -> int:
    """Default number of training images per class: half of the smallest class, from 1 to 100, and 6,000 in all."""
    sizes = np.unique(labels, return_counts=True)[1]
    return int(np.clip(sizes.min() // 2, 1, min(100, max(MOST_IMAGES // len(sizes), 1))))


class PerClassSplit:
    """Random splits with so many training images per class; for ``cv=`` wherever scikit-learn takes one.

    Parameters
    ----------
    train_per_class : training images per class
    test_per_class : test images per class; None for all that do not train
    n_splits : number of splits
    random_state : seed of the first split; split i has the seed ``random_state + i``

    >>> labels = ["cat"] * 4 + ["dog"] * 3
    >>> [(len(train), len(test)) for train, test in PerClassSplit(2, n_splits=2).split(labels, labels)]
    [(4, 3), (4, 3)]
    """

    def __init__(
        self, train_per_class: int, test_per_class: int | None = None, n_splits: int = 10, random_state: int = 0
    ) -> None:
        for name, value, least in (
            ("train_per_class", train_per_class, 0),
            ("test_per_class", 1 if test_per_class is None else test_per_class, 1),
            ("n_splits", n_splits, 1),
        ):
            if not isinstance(value, Integral) or value < least:
                raise ValueError(f"{name} must be a whole number, {least} or more; got {value!r}")
        self.train_per_class = train_per_class
        self.test_per_class = test_per_class
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return self.n_splits

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Sorted indices of the training and of the test images of every split."""
        labels = np.asarray(y)
        for i in range(self.n_splits):
            generator = check_random_state(self.random_state + i)
            train, test = zip(*(self._cut(labels, name, generator) for name in np.unique(labels)))
            yield np.sort(np.concatenate(train)), np.sort(np.concatenate(test))

    def _cut(self, labels: np.ndarray, name: Any, generator: Any) -> tuple[np.ndarray, np.ndarray]:
        members = generator.permutation(np.flatnonzero(labels == name))
        if len(members) <= self.train_per_class:
            number = "1 image" if len(members) == 1 else f"{len(members)} images"
            advice = "train with fewer" if len(members) > 1 else "add images to it, or leave it out"
            raise ValueError(
                f"class {str(name)!r} has {number}: {self.train_per_class} for training leave none for testing; "
                f"{advice}"
            )
        stop = None if self.test_per_class is None else self.train_per_class + self.test_per_class
        return members[: self.train_per_class], members[self.train_per_class : stop]

    def __str__(self) -> str:
        many = f"{self.n_splits} random splits" if self.n_splits > 1 else "one random split"
        return f"{many}, {self.train_per_class} training image{'s' if self.train_per_class > 1 else ''} per class"
