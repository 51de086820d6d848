# SPDX-License-Identifier: BSD-3-Clause
r"""Images compared by their adapted Gaussian mixtures (liu2010 ch. 4): rows of numbers in an index, and distances.

A row holds the K weights, K × D means and K × D variances of one image.  Components correspond, since all mixtures are
adapted from the universal one of the index; distances are

* ``"klk"``: KL(p‖q) + KL(q‖p), one to one (4.24), which the KL kernel is the exponential of;
* ``"ppk"``: :math:`1 - K(p, q) / \sqrt{K(p, p) K(q, q)}` of the probability product kernel, one to one, ρ = ½ (4.13).

**Cost.**  4 K (2 D + 1) bytes per image, 26 kB with K = 64 and D = 50: ten times a Fisher vector's on its axes.
"""

from typing import Any

import numpy as np

DIMENSION = 50  # of ``stages.adapted_mixtures``
ROWS = 1024


def flatten(mixtures: Any) -> np.ndarray:
    """Mixtures to rows (n, K (2 D + 1)), float32."""
    n = len(mixtures)
    parts = [mixtures.weights, mixtures.means.reshape(n, -1), mixtures.variances.reshape(n, -1)]
    return np.hstack(parts).astype(np.float32)


def unflatten(rows: np.ndarray) -> Any:
    """The mixtures that rows hold."""
    from patchbag.mixture.adaptation import Mixtures

    n, k = len(rows), rows.shape[1] // (2 * DIMENSION + 1)
    means, variances = np.split(np.asarray(rows)[:, k:], 2, axis=1)
    shape = n, k, DIMENSION
    return Mixtures(np.asarray(rows)[:, :k], means.reshape(shape), variances.reshape(shape))


def mixture_distances(rows: np.ndarray, query: np.ndarray, metric: str) -> np.ndarray:
    """Distances (n,) of the mixtures of ``rows (n, width)`` to that of ``query (width,)``."""
    from patchbag.similarity.mixtures.kernel import log_product_norms, product_kernel, symmetric_kl

    one, found = unflatten(query[None]), np.empty(len(rows))
    for start in range(0, len(rows), ROWS):
        some = unflatten(rows[start : start + ROWS])
        if metric == "klk":
            found[start : start + ROWS] = symmetric_kl(some, one)[:, 0]
        else:
            norms = log_product_norms(some), log_product_norms(one)
            found[start : start + ROWS] = 1.0 - product_kernel(some, one, log_norms=norms)[:, 0]
    return found
