# SPDX-License-Identifier: BSD-3-Clause
"""Which images of a large folder the model learns from: its pool.

Up to ``POOL`` images are all in it.  Of more, those with a label are (up to half of the places), then the images whose
prediction is most in doubt (``DOUBTFUL`` of the places that are left), and others by chance.  The rest is predicted by
the classifier that the pool has taught.  Who is in by chance is drawn anew whenever there are twice as many labels,
from ``FEWEST`` on, or none of the pool is left to ask for: every image may be asked for, and what the model is unsure
of is, wherever it lies.  A larger share of doubtful ones would say less of the whole: the error is estimated on them.
Labels of images beyond the pool teach when they are a tenth more than those in it (``GROWTH``): a pool takes a while.
"""

import numpy as np

POOL = 10_000
DOUBTFUL = 0.1
FEWEST = 100
GROWTH = 1.1


def choose_pool(
    ids: np.ndarray, labelled: np.ndarray, doubt: np.ndarray, turn: int, seed: int, most: int
) -> np.ndarray:
    """Numbers of the images of a pool, ascending.

    Parameters
    ----------
    ids : (n,) described images ; labelled (n,) : which have a label ; doubt (n,) : -1 where nothing is known yet
    turn : which draw this is; with the same one the same images are in by chance, as far as they still can be
    """
    if len(ids) <= most:
        return ids
    chance = np.random.RandomState((seed + turn) % 2**32).random_sample(int(ids.max()) + 1)[ids]
    teaching = np.flatnonzero(labelled)
    teaching = teaching[np.argsort(chance[teaching], kind="stable")][: most // 2]
    others = np.flatnonzero(~labelled)
    left = most - len(teaching)
    unsure = others[np.argsort(-doubt[others], kind="stable")][: int(DOUBTFUL * left)]
    unsure = unsure[doubt[unsure] >= 0]
    others = np.setdiff1d(others, unsure)
    others = others[np.argsort(chance[others], kind="stable")][: left - len(unsure)]
    return np.sort(ids[np.concatenate([teaching, unsure, others])])


def is_due(labels: int, before: int) -> bool:
    """Whether a large folder wants another draw, having had ``before`` labels at the last one."""
    return labels >= max(FEWEST, 2 * before)


def lags(labels: int, inside: int, most: int) -> bool:
    """Whether a pool of ``most`` images should have more of the ``labels`` than the number ``inside`` of it.

    >>> lags(1, 0, 10_000), lags(610, 600, 10_000), lags(700, 600, 10_000), lags(90_000, 5_000, 10_000)
    (True, False, True, False)
    """
    return min(labels, most // 2) > GROWTH * inside
