# SPDX-License-Identifier: BSD-3-Clause
"""Search by sparse multiscale patches: sets are compared, not vectors, in two steps (piro2010 §2.4.4.2).

All images are ranked by a sample of the query's patches; the first ``PRESELECTED`` (or twice as many as are asked for)
again by all of them.  There is nothing to learn, and the index holds no vectors: patches come from the store.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from patchbag.similarity.smp import divergences_to, sampled_divergences

PRESELECTED = 50


def patch_distances(query: np.ndarray, references: Sequence[np.ndarray], top: int) -> np.ndarray:
    """Divergences of the preselected references from the query, infinite for the others."""
    distances = np.full(len(references), np.inf)
    near = np.argsort(sampled_divergences(query, references), kind="stable")[: max(PRESELECTED, 2 * top)]
    distances[near] = divergences_to(query, [references[i] for i in near])
    return distances
