# SPDX-License-Identifier: BSD-3-Clause
"""Few labels, many images: which to label next, and what the labels say of the rest.

``PoolLearner`` keeps a pool of vectors, learns from images with and without labels, and answers ``query``, ``teach``,
``skip``, ``predict``; ``ActiveLearner`` does so for any kernel with the criteria of kapoor2010, §7;
``GaussianProcessQuery`` has scikit-activeml's stateless ``query(X, y, ...)``; ``simulate`` replays a labelled pool and
returns learning curves.
"""

from patchbag.active.criteria import CRITERIA
from patchbag.active.learner import ActiveLearner
from patchbag.active.pool_learner import RULES, PoolLearner
from patchbag.active.query import GaussianProcessQuery
from patchbag.active.simulation import LearningCurves, simulate
from patchbag.active.stopping import ErrorEstimate, StoppingHint

__all__ = [
    "CRITERIA",
    "RULES",
    "ActiveLearner",
    "ErrorEstimate",
    "GaussianProcessQuery",
    "LearningCurves",
    "PoolLearner",
    "StoppingHint",
    "simulate",
]
