# SPDX-License-Identifier: BSD-3-Clause
r"""Neighbours among a random sample: what every approximate search has to beat (piro2010 §3.2.1).

Each point is kept with probability α, and the sample is searched exactly: 1/α times fewer divergences.  The nearest of
the sample has rank r among all n points with probability :math:`\alpha (1-\alpha)^{r-1}`, and there is no sample at all
with probability :math:`(1-\alpha)^n`, which counts as rank n + 1.  Then

.. math:: E[R] = \sum_{r=1}^n r \alpha (1-\alpha)^{r-1} + (n+1)(1-\alpha)^n = \frac{1 - (1-\alpha)^{n+1}}{\alpha} .

Slip of the paper: eq. 3.5 has :math:`\frac1\alpha - \frac{(1-\alpha)^n [1 - \alpha (n+2)]}{\alpha}`, which is the same
sum with rank 2n + 2 for an empty sample, more than any rank; both tend to 1/α.
"""

import numpy as np


def expected_rank(alpha: float, n: int) -> float:
    """Expected rank of the nearest point of a sample, eq. 3.5 corrected.

    >>> round(expected_rank(0.01, 10**6), 6)
    100.0
    """
    return (1 - (1 - alpha) ** (n + 1)) / alpha


def draw_sample(n: int, alpha: float, least: int, random_state: np.random.RandomState) -> np.ndarray:
    """Points that are kept, ascending; ``least`` of them where the draw gives fewer."""
    chosen = np.flatnonzero(random_state.random_sample(n) < alpha)
    if len(chosen) < least:
        chosen = np.sort(random_state.permutation(n)[:least])
    return chosen
