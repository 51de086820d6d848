# SPDX-License-Identifier: BSD-3-Clause
"""Choosing which images to label next (kapoor2010, §7).

``ActiveLearner`` keeps a pool and answers ``query``, ``teach``, ``skip``; ``GaussianProcessQuery`` has
scikit-activeml's stateless ``query(X, y, ...)``; ``simulate`` replays a labelled pool and returns learning curves.
"""

from patchbag.active.criteria import CRITERIA
from patchbag.active.learner import ActiveLearner
from patchbag.active.query import GaussianProcessQuery
from patchbag.active.simulation import LearningCurves, simulate
from patchbag.active.stopping import StoppingHint

__all__ = ["CRITERIA", "ActiveLearner", "GaussianProcessQuery", "LearningCurves", "StoppingHint", "simulate"]
