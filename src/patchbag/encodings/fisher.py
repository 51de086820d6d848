# SPDX-License-Identifier: BSD-3-Clause
r"""Fisher vector: the gradient of a bag's log-likelihood with respect to the universal mixture's parameters.

For a bag :math:`X = \{x_1 … x_N\}` and a diagonal mixture :math:`(w_k, \mu_k, \sigma_k^2)`, the gradient of
:math:`\frac1N \ln p(X)`, scaled by the inverse square root of the (closed-form, diagonal) Fisher information, is

.. math::
    G_{w_k}      &= \frac{1}{N \sqrt{w_k}} \sum_t (\gamma_{tk} - w_k) \\
    G_{\mu_k}    &= \frac{1}{N \sqrt{w_k}} \sum_t \gamma_{tk} \frac{x_t - \mu_k}{\sigma_k} \\
    G_{\sigma_k} &= \frac{1}{N \sqrt{2 w_k}} \sum_t \gamma_{tk} \left[ \frac{(x_t - \mu_k)^2}{\sigma_k^2} - 1 \right]

where weights are parametrised by a softmax, so that they stay on the simplex (Perronnin & Dance 2007; Sánchez et al.
2013; cinbis2012 §2).  All three are functions of the statistics S0, S1, S2.

Layout: ``[K weights | K·D means | K·D variances]``, component after component within a block; blocks can be left out.
The means and variances blocks are those of VLFeat.  scikit-image's ``fisher_vector`` has the opposite sign in its
variance block.

The differences are taken in the precision of S1 and S2, which ``collect`` makes float64 where the mixture lies far from
the origin; the vector has the precision of S0.

Cost: a few operations for each of the K·D statistics; on a CUDA GPU in one kernel (``fisher_triton``).
"""

from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace

from patchbag.device import like
from patchbag.encodings import fisher_triton
from patchbag.encodings.base import SomeOf, StatisticsTransformer
from patchbag.mixture.parameters import GaussianParameters
from patchbag.mixture.statistics import Statistics
from patchbag.parameters import estimator, parameter


def fisher_vector(
    s0: Any, s1: Any, s2: Any, parameters: GaussianParameters, blocks: Sequence[str] = ("means", "variances")
) -> Any:
    """Normalised gradients from statistics.

    Parameters
    ----------
    s0 (..., K), s1 (..., K, D), s2 (..., K, D)
    parameters : the universal mixture
    blocks : any of ``"weights"``, ``"means"``, ``"variances"``

    Returns
    -------
    (..., K·(1 + 2D)) with all blocks, in the dtype of s0
    """
    if tuple(blocks) == ("means", "variances") and fisher_triton.usable(s0, s1, s2):
        return fisher_triton.gradients(s0, s1, s2, parameters)
    xp = array_namespace(s0)
    narrow = s0.dtype
    s0 = xp.astype(s0, s1.dtype, copy=False)
    w, mu, sigma = (like(a, s1) for a in (parameters.weights, parameters.means, parameters.variances**0.5))
    # a component of weight zero has no descriptors either: its block is zero, not 0/0
    inverse_root = xp.where(w > 0, 1 / xp.sqrt(xp.where(w > 0, w, xp.ones_like(w))), xp.zeros_like(w))
    total = xp.sum(s0, axis=-1, keepdims=True)
    per_patch = xp.where(total > 0, 1 / xp.where(total > 0, total, xp.ones_like(total)), xp.zeros_like(total))
    gain = per_patch * inverse_root
    parts = []
    if "weights" in blocks:
        parts.append((s0 - w * total) * gain)
    linear = s1 - mu * s0[..., None]
    if "means" in blocks:
        parts.append(_flat(xp, linear * (gain[..., None] / sigma)))
    if "variances" in blocks:
        centered = s2 - mu * (s1 + linear)
        parts.append(_flat(xp, (centered / (sigma * sigma) - s0[..., None]) * (gain[..., None] * 0.5**0.5)))
    return xp.astype(xp.concat(parts, axis=-1), narrow, copy=False)


def _flat(xp: Any, a: Any) -> Any:
    return xp.reshape(a, (*a.shape[:-2], a.shape[-2] * a.shape[-1]))


@estimator
class FisherVector(StatisticsTransformer):
    """Fisher vectors of bags under the universal mixture.

    Parameters
    ----------
    blocks : the gradients to keep, ``("means", "variances")`` by default

    >>> import numpy as np
    >>> from patchbag import Bags, UniversalStatistics, UniversalMixture
    >>> bags = Bags.from_list(np.random.default_rng(0).normal(size=(5, 40, 3)))
    >>> statistics = UniversalStatistics(UniversalMixture(4)).fit_transform(bags)
    >>> FisherVector().fit_transform(statistics).shape
    (5, 24)
    """

    uses_moments = True
    blocks: Sequence[str] = parameter(SomeOf({"weights", "means", "variances"}), default=("means", "variances"))

    def _encode(self, statistics: Statistics) -> Any:
        return fisher_vector(statistics.s0, statistics.s1, statistics.s2, self.universal_, self.blocks)
