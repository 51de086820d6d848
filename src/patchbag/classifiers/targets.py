# SPDX-License-Identifier: BSD-3-Clause
"""Labels and one-versus-rest targets: a column of ±1 per class, or a single one where there are two classes."""

from typing import Any

import numpy as np

from patchbag.records import is_label


def as_labels(y: Any) -> np.ndarray:
    """Labels as an array; ValueError where one is missing, or where they are of two kinds: in an array a text and a
    number would both be texts, and 1 and "1" one class.
    """
    sure = getattr(getattr(y, "dtype", None), "kind", "O") not in "Of"  # such an array holds nothing but labels
    each = [] if sure or np.ndim(y) == 0 else np.asarray(y, dtype=object).ravel().tolist()
    for i, label in enumerate(each):
        if not is_label(label):
            raise ValueError(f"image {i} of {len(each)} has no label; train on those that have one")
    if len({isinstance(label, str) for label in each}) > 1:
        raise ValueError("some labels are texts and others are not; make all of them texts")
    return np.asarray(y)


def encode_labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes (C,) of labels ``y (n,)``, and their numbers (n,)."""
    y = as_labels(y)
    if y.ndim != 1:
        raise ValueError(f"y must hold one label for each image, a sequence; got an array of shape {y.shape}")
    if y.dtype.kind == "c" or (y.dtype.kind == "f" and np.any(y != np.floor(y))):
        raise ValueError(f"labels name classes, got continuous numbers such as {y[y != np.floor(y)][0]}")
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"all {len(y)} labels are {classes.tolist()}; a classifier needs at least two classes")
    return classes, codes


def one_versus_rest(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """(n, C) of ±1, or (n, 1), which is +1 for the second of two classes."""
    return np.where(codes[:, None] == (np.arange(n_classes) if n_classes > 2 else [1]), 1.0, -1.0)


def in_proportion(codes: np.ndarray, size: int, random: np.random.RandomState) -> np.ndarray:
    """(size,) sorted indices of random images, of each class ``codes (n,)`` its share, and one where there is room.

    >>> in_proportion(np.array([0] * 6 + [1] * 3), 3, np.random.RandomState(0)) // 6
    array([0, 0, 1])
    """
    order = random.permutation(len(codes))
    share = np.empty(len(codes))  # of the class that comes before an image
    for code in np.unique(codes):
        members = np.flatnonzero(codes[order] == code)
        share[members] = np.arange(len(members)) / len(members)
    return np.sort(order[np.argsort(share, kind="stable")[:size]])


def one_column_a_class(scores: np.ndarray) -> np.ndarray:
    """(n, C) scores, also where two classes share one column (n,) or (n, 1)."""
    if scores.ndim == 2 and scores.shape[1] > 1:
        return scores
    column = scores.reshape(-1)
    return np.stack([-column, column], axis=1) / 2


def one_machine_a_class(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
    """What is wrong with a saved classifier of so many ``machines`` for C classes, if anything."""
    machines, classes = sizes["machines"], sizes["C"]
    if classes >= 2 and machines == (classes if classes > 2 else 1):
        return None
    return f"it has {machines} machines for {classes} classes"
