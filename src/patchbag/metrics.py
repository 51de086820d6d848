# SPDX-License-Identifier: BSD-3-Clause
"""How good the answers are: mean per-class accuracy and PASCAL VOC average precision.

**Mean per-class accuracy** (Scene-15, Caltech): the share of right answers in each class, averaged over the classes, so
that a class with many test images weighs no more than a rare one.

**Average precision** (VOC): images are ranked by falling score.  After the first k of them, with t_k positives among
them and P positives in all, precision is t_k / k and recall t_k / P.

* ``rule="11-point"`` (VOC2007, liu2010 §4.3.2): the mean over r = 0, 0.1, .., 1 of the best precision at recall >= r;
* ``rule="all-point"`` (VOC2010 on): the area under the precision made non-increasing in recall.

As in the VOC devkit:

* *difficult* images count neither as positive nor as negative: they are taken out of the ranking and out of P;
* equal scores keep the order in which they are given (a stable sort of -score), so that a constant classifier's figure
  depends on the order of the images.  Shuffle them if scores tie; scikit-learn's ``average_precision_score``
  treats ties as one step, and does not make precision non-increasing.

Deviation: recall >= r is decided in whole numbers, 10 t_k >= i P.  The devkit compares floating-point numbers, in which
3 * 0.1 > 3 / 10, and so can miss a recall that is exactly 0.3, 0.6 or 0.7.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.metrics import recall_score


def mean_class_accuracy(y_true: Any, y_pred: Any) -> float:
    """Share of right answers per class, averaged over the classes that occur in ``y_true``.

    This is scikit-learn's balanced accuracy, without a warning where a class is only predicted.

    >>> mean_class_accuracy(["sea", "sea", "sea", "city"], ["sea", "sea", "sea", "sea"])
    0.5
    """
    return float(recall_score(y_true, y_pred, labels=np.unique(y_true), average="macro"))


def average_precision(
    y_true: Any, scores: Any, difficult: Any = None, rule: Literal["11-point", "all-point"] = "11-point"
) -> float:
    """Average precision of one class by the rules of the PASCAL VOC devkit.

    Parameters
    ----------
    y_true : (n,) bool, 0 / 1 or -1 / +1
    scores : (n,) higher is surer; -inf for images that were not scored
    difficult : (n,) bool, images to leave out
    rule : "11-point" (VOC2007) or "all-point" (VOC2010 on)

    >>> average_precision([1, 0, 1], [0.9, 0.8, 0.7], rule="all-point")
    0.8333333333333333
    """
    if rule not in ("11-point", "all-point"):
        raise ValueError(f'rule must be "11-point" or "all-point", got {rule!r}')
    truth, values = np.asarray(y_true), np.asarray(scores, dtype=np.float64)
    ignored = np.zeros(truth.shape, bool) if difficult is None else np.asarray(difficult)
    if truth.ndim != 1 or truth.shape != values.shape or truth.shape != ignored.shape:
        raise ValueError(
            f"y_true, scores and difficult must be equally long lists, got shapes {truth.shape}, {values.shape} and "
            f"{ignored.shape}"
        )
    kinds = set(np.unique(truth).tolist())
    if not (kinds <= {0, 1} or kinds <= {-1, 1}):
        raise ValueError(
            f"y_true must be 0 and 1 or -1 and +1, got {sorted(kinds)[:5]}; name difficult images by difficult="
        )
    if np.isnan(values).any():
        raise ValueError(f"score {int(np.flatnonzero(np.isnan(values))[0])} is NaN; use -inf for what was not scored")
    keep = ~ignored.astype(bool)
    positive = truth[keep] > 0
    if not positive.any():
        raise ValueError("average precision is undefined without a positive image that is not difficult")
    ranked = positive[np.argsort(-values[keep], kind="stable")]
    found = np.cumsum(ranked)
    precision = found / np.arange(1, len(ranked) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    total = found[-1]
    if rule == "all-point":
        return float(best[ranked].sum() / total)
    # found rises, so the first rank with 10 t >= i P is where recall >= i / 10 begins
    begins = np.searchsorted(10 * found, np.arange(11) * total, side="left")
    return float(best[begins].mean())
