# SPDX-License-Identifier: BSD-3-Clause
"""How two mixtures answer each other: ``matching.log_affinities`` in both directions at once.

One-to-one, both directions use the same functions of means and variances, which are made once.  Memory: 4·K·(D + 1)
numbers a reference, and two blocks of ``BLOCK_NUMBERS``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from patchbag.mixture.adaptation import Mixtures
from patchbag.runtime import parallel_map
from patchbag.similarity.mixtures.components import by_component, component_frame
from patchbag.similarity.mixtures.gaussians import left_features, right_features
from patchbag.similarity.mixtures.matching import log_affinities, log_weights

BLOCK_NUMBERS = 1 << 23


def mutual_log_affinities(
    P: Mixtures, Q: Mixtures, matching: str, dtype: np.dtype
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Blocks of rows of P with ln a_i(p, q) and ln a_i(q, p), each ``(K, rows, m)``."""
    k, m, d = Q.n_components, len(Q), Q.dimension
    step = max(1, BLOCK_NUMBERS // (k * m))
    parts = [slice(start, min(start + step, len(P))) for start in range(0, len(P), step)]
    if matching != "one-to-one":
        for part in parts:
            ((_, forward),) = log_affinities(P[part], Q, matching=matching, dtype=dtype)
            blocks = [logs for _, logs in log_affinities(Q, P[part], matching=matching, dtype=dtype)]
            yield part, forward, np.ascontiguousarray(np.concatenate(blocks, axis=1).swapaxes(1, 2))
        return
    centre, scale = component_frame(Q)
    q_means, q_variances = by_component(Q)
    q_logs = log_weights(Q.weights)
    left, right = np.empty((2, k, 2 * d + 2, m), dtype)

    def sides(i: int, means: np.ndarray, variances: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r = right_features(means[i], variances[i], (centre[i], scale[i]))
        r[:, -1] -= logs[:, i]
        return left_features(means[i], variances[i], (centre[i], scale[i])), r

    def prepare(i: int) -> None:
        l, r = sides(i, q_means, q_variances, q_logs)
        left[i], right[i] = l.T, r.T

    list(parallel_map(prepare, range(k), shared=True))
    for part in parts:
        rows = P[part]
        means, variances = by_component(rows)
        logs = log_weights(rows.weights)
        forward, backward = np.empty((2, k, len(rows), m), dtype)

        def job(
            i: int,
            means: np.ndarray = means,
            variances: np.ndarray = variances,
            logs: np.ndarray = logs,
            forward: np.ndarray = forward,
            backward: np.ndarray = backward,
        ) -> None:
            l, r = sides(i, means, variances, logs)
            np.matmul((-l).astype(dtype), right[i], out=forward[i])
            np.matmul((-r).astype(dtype), left[i], out=backward[i])

        list(parallel_map(job, range(k), shared=True))
        yield part, forward, backward
