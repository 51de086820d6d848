# SPDX-License-Identifier: BSD-3-Clause
"""Active learning without state, as scikit-activeml's query strategies have it.

Every call checks the kernel, O(N³) for a pool of N, and conditions on all labels anew, O(n² N) for n of them; an
:class:`ActiveLearner` that is kept between rounds needs O(nN).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from patchbag.active.learner import ActiveLearner


class GaussianProcessQuery(BaseEstimator):
    """The same choice without state, with the signature of scikit-activeml's query strategies.

    Parameters are those of :class:`ActiveLearner`.

    >>> y = np.array([0.0, np.nan, 1.0, np.nan])
    >>> GaussianProcessQuery(random_state=0).query(np.eye(4), y).shape
    (1,)
    """

    def __init__(
        self,
        criterion: str = "uncertainty",
        *,
        noise: float = 1e-2,
        batch: str = "diverse",
        cold_start: str = "typical",
        shortlist: int | str | None = "auto",
        classes: Any = None,
        missing_label: Any = np.nan,
        repair: bool = False,
        random_state: Any = None,
    ) -> None:
        self.criterion = criterion
        self.noise = noise
        self.batch = batch
        self.cold_start = cold_start
        self.shortlist = shortlist
        self.classes = classes
        self.missing_label = missing_label
        self.repair = repair
        self.random_state = random_state

    def query(
        self, X: Any, y: Any, *, candidates: Any = None, batch_size: int = 1, return_utilities: bool = False
    ) -> Any:
        """Indices of the images of the pool to label next: ``X (N, N)`` is its kernel, ``y (N,)`` its labels so far."""
        learner = ActiveLearner(**self.get_params()).fit(X, y)
        return learner.query(batch_size, candidates=candidates, return_utilities=return_utilities)
