# SPDX-License-Identifier: BSD-3-Clause
"""Active learning without state, as scikit-activeml's query strategies have it.

Every call checks the kernel, O(N³) for a pool of N, and conditions on all labels anew, O(n² N) for n of them; an
:class:`ActiveLearner` that is kept between rounds needs O(nN).
"""

from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from patchbag.active.learner import ActiveLearner
from patchbag.parameters import estimator, parameter


@estimator
class GaussianProcessQuery(BaseEstimator):
    """The same choice without state, with the signature of scikit-activeml's query strategies.

    Parameters are those of :class:`ActiveLearner`.

    >>> y = np.array([0.0, np.nan, 1.0, np.nan])
    >>> GaussianProcessQuery(random_state=0).query(np.eye(4), y).shape
    (1,)
    """

    criterion: str = parameter(default="uncertainty")
    _: KW_ONLY
    noise: float = parameter(default=1e-2)
    batch: str = parameter(default="diverse")
    cold_start: str = parameter(default="typical")
    shortlist: int | str | None = parameter(default="auto")
    classes: Any = parameter(default=None)
    missing_label: Any = parameter(default=np.nan)
    repair: bool = parameter(default=False)
    random_state: Any = parameter(default=None)

    def query(
        self, X: Any, y: Any, *, candidates: Any = None, batch_size: int = 1, return_utilities: bool = False
    ) -> Any:
        """Indices of the images of the pool to label next: ``X (N, N)`` is its kernel, ``y (N,)`` its labels so far."""
        learner = ActiveLearner(**self.get_params()).fit(X, y)
        return learner.query(batch_size, candidates=candidates, return_utilities=return_utilities)
