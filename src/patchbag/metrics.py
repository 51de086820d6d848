# SPDX-License-Identifier: BSD-3-Clause
"""How good the answers are: mean per-class accuracy, PASCAL VOC average precision, and figures of searches.

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

**Searches** are judged by ranked lists of what is relevant, one row per query, the query itself left out:

* precision at n: the share of relevant images among the first n (piro2010 §2.4.3.4: n = 100);
* mean average precision: precision at the rank of every relevant image, averaged over these, then over queries;
* Holidays (Jégou et al. 2008): the same, but with the area below the precision-recall curve by the trapezoidal rule;
* UKBench (Nistér & Stewénius 2006): how many of the first four are of the query's group of four, itself included.

Deviation: recall >= r is decided in whole numbers, 10 t_k >= i P.  The devkit compares floating-point numbers, in which
3 * 0.1 > 3 / 10, and so can miss a recall that is exactly 0.3, 0.6 or 0.7.
"""

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


def reliability_table(
    confidence: np.ndarray, right: np.ndarray, image: np.ndarray | None = None, *, least: int = 1
) -> list[dict[str, float]]:
    """Images grouped by stated probability: the share that was right in each group, with its confidence interval.

    Groups are as wide as a tenth, and are joined from the surest downwards until each has ``least`` different images.
    ``low`` and ``high`` are the 95 % interval of Wilson; an image of several splits counts once in its width.
    """
    image = np.arange(len(confidence)) if image is None else image
    tenth = np.minimum((confidence * 10).astype(int), 9)
    groups, open_one = [], np.zeros(len(confidence), dtype=bool)
    for b in reversed(range(10)):
        open_one = open_one | (tenth == b)
        if len(np.unique(image[open_one])) >= least:
            groups.append(open_one)
            open_one = np.zeros(len(confidence), dtype=bool)
    if open_one.any():
        groups[-1:] = [groups[-1] | open_one] if groups else [open_one]
    return [
        {
            "confidence": float(confidence[group].mean()),
            "accuracy": float(right[group].mean()),
            "share": float(group.mean()),
            **_wilson(float(right[group].mean()), len(np.unique(image[group]))),
        }
        for group in reversed(groups)
    ]


def _wilson(share: float, n: int) -> dict[str, float]:
    z = 1.96
    middle, width = share + z**2 / (2 * n), z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    scale = 1 + z**2 / n
    return {"low": float((middle - width) / scale), "high": float((middle + width) / scale)}


def calibration_error(table: list[dict[str, float]]) -> float:
    """How far stated probabilities are from the shares that were right, mean over the images of a reliability table."""
    return sum(row["share"] * abs(row["confidence"] - row["accuracy"]) for row in table)


def precision_at(relevant: Any, n: int) -> float:
    """Share of relevant images among the first n, averaged over queries.

    Parameters
    ----------
    relevant : (queries, ranks) bool, best rank first

    >>> precision_at([[True, False, True], [False, False, True]], 2)
    0.25
    """
    ranked = _ranked(relevant)
    if not 1 <= n <= ranked.shape[1]:
        raise ValueError(f"n must be between 1 and the {ranked.shape[1]} ranks there are, got {n}")
    return float(ranked[:, :n].mean())


def mean_average_precision(relevant: Any, rule: Literal["ranks", "holidays"] = "ranks") -> float:
    """Average precision of ranked lists, averaged over queries; queries without a relevant image do not count.

    Parameters
    ----------
    relevant : (queries, ranks) bool, best rank first, of the whole collection without the query
    rule : "ranks" for the mean of the precisions at relevant ranks, "holidays" for trapezoids

    >>> mean_average_precision([[True, False, True]])
    0.8333333333333333
    """
    ranked = _ranked(relevant)
    if rule not in ("ranks", "holidays"):
        raise ValueError(f'rule must be "ranks" or "holidays", got {rule!r}')
    total = ranked.sum(axis=1)
    if not total.any():
        raise ValueError("mean average precision is undefined: no query has a relevant image")
    found, rank = np.cumsum(ranked, axis=1), np.arange(1, ranked.shape[1] + 1)
    precision = found / rank
    if rule == "holidays":  # the precision just before a relevant image is 1 at the first rank
        before = np.where(rank == 1, 1.0, (found - ranked) / np.maximum(rank - 1, 1))
        precision = (precision + before) / 2
    sums = (precision * ranked).sum(axis=1)
    return float((sums[total > 0] / total[total > 0]).mean())


def top_four_score(relevant: Any) -> float:
    """UKBench's score between 0 and 4: relevant images among the first four, the query counted as found.

    ``relevant (queries, ranks)`` leaves the query out; its three companions are relevant.

    >>> top_four_score([[True, True, False, True]])
    3.0
    """
    return 1.0 + float(_ranked(relevant)[:, :3].sum(axis=1).mean())


def _ranked(relevant: Any) -> np.ndarray:
    ranked = np.asarray(relevant)
    if ranked.ndim != 2 or ranked.dtype != bool or not ranked.size:
        raise ValueError(f"expected ranked lists (queries, ranks) of True and False, got {ranked.dtype} {ranked.shape}")
    return ranked
