# SPDX-License-Identifier: BSD-3-Clause
r"""VLAD: the sum of the residuals of the descriptors to the component they belong to.

.. math:: v_k = \sum_t \gamma_{tk} (x_t - \mu_k) = S^1_k - S^0_k \mu_k

Jégou et al. 2010 assign every descriptor to its nearest centre: collect the statistics with ``assignment="nearest"``.
With posteriors it is the soft version.  It is the means block of the Fisher vector without its scaling by weights and
deviations. Intra-normalisation (``Normalizer(["intra", "l2"], n_blocks=K)``) and the square root are the usual
companions.
"""

from typing import Any

from array_api_compat import array_namespace, device

from patchbag.encodings.base import StatisticsTransformer
from patchbag.mixture.statistics import Statistics
from patchbag.parameters import estimator, parameter


def residual_sums(s0: Any, s1: Any, means: Any, mass: bool = False) -> Any:
    """(..., K·D) residual sums in the dtype of s0; with ``mass`` each component's sum is divided by its count."""
    xp = array_namespace(s0)
    mu = xp.asarray(means, dtype=s1.dtype, device=device(s1))
    # s1 may be the wider of the two: it and μ · s0 are large numbers with a small difference
    residuals = xp.astype(s1 - mu * s0[..., None], s0.dtype, copy=False)
    if mass:
        residuals = residuals / xp.where(s0 > 0, s0, xp.ones_like(s0))[..., None]
    return xp.reshape(residuals, (*residuals.shape[:-2], residuals.shape[-2] * residuals.shape[-1]))


@estimator
class VLAD(StatisticsTransformer):
    """Vector of locally aggregated descriptors.

    Parameters
    ----------
    mass : divide each component's residuals by its number of descriptors
    """

    uses_moments = True
    mass: bool = parameter("boolean", default=False)

    def _encode(self, statistics: Statistics) -> Any:
        return residual_sums(statistics.s0, statistics.s1, self.universal_.means, self.mass)
