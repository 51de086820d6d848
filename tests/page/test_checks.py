# SPDX-License-Identifier: BSD-3-Clause
"""Labels that look wrong."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np

from patchbag.active.pool_learner import PoolLearner
from patchbag.page.checks import Checks
from patchbag.similarity.graph.image_graph import ImageGraph


def test_nothing_looks_wrong_where_all_labels_but_one_were_taken_back():
    """The columns of the gallery, which do not wait for the answer, say so too."""
    rng, codes = np.random.default_rng(0), np.repeat([0, 1], 30)
    graph = ImageGraph.from_vectors(np.eye(8)[codes] + 0.05 * rng.random((60, 8)))

    def pool(labels):
        learner = PoolLearner(random_state=0).fit(graph).teach(list(labels), list(labels.values()))
        return SimpleNamespace(learner=learner, ids=np.arange(60))

    labels = {**dict.fromkeys(range(7), 0), 7: 1, 40: 1, 41: 1}  # 7 looks like the first class
    model = SimpleNamespace(lock=threading.Lock(), version=1, pool=pool(labels))
    checks = Checks(SimpleNamespace(kept={}), model)
    assert checks.wrong().tolist() == [7] == checks.wrong(wait=False).tolist()
    model.version, model.pool = 2, pool({0: 0})
    assert not len(checks.wrong()) and not len(checks.wrong(wait=False))
