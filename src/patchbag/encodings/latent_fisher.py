# SPDX-License-Identifier: BSD-3-Clause
r"""Fisher vector of the latent mixture: how an image's own Gaussian mixture departs from the learned prior.

The model, its bound F and the learning of the prior are in :mod:`patchbag.encodings.latent_mixture`.  An image is
encoded by the gradient of F with respect to the hyper-parameters (cinbis2012, eq. 10-14); starred quantities belong to
the posterior (21-25):

.. math::
   \partial F/\partial a_{kd}     &= [\psi(a^*) - \ln b^*] - [\psi(a) - \ln b] & (10) \\
   \partial F/\partial b_{kd}     &= a/b - a^*/b^* & (11) \\
   \partial F/\partial \beta_{kd} &= \tfrac12 (1/\beta - (a^*/b^*) (m - m^*)^2 - 1/\beta^*) & (12) \\
   \partial F/\partial m_{kd}     &= \beta (a^*/b^*) (m^* - m) & (13) \\
   \partial F/\partial \alpha_k   &= \psi(\alpha^*_k) - \psi(\hat\alpha^*) - [\psi(\alpha_k) - \psi(\hat\alpha)] & (14)

With (21), (14) is the Pólya gradient (3) on soft counts.  Means and precisions are discounted in the same way: the more
descriptors a component has, the less one more of them moves its posterior; a cell without any has its prior for
posterior and encodes as zeros.

Layout: ``[alpha (K) | m (K·D) | beta (K·D) | a (K·D) | b (K·D)]``, component after component within a block, K(1 + 4D)
numbers with all blocks; ``blocks`` leaves some out.  ``m`` and ``b`` are the counterparts of the mean and variance
blocks of a plain Fisher vector.

``count_scale`` multiplies the statistics, see :mod:`patchbag.encodings.polya`.  A component without training
descriptors keeps the prior it started from.  All is evaluated in float64 whatever the input, because differences such
as (10) are small for components with few descriptors; the result has the dtype of the statistics.

Cost: one logarithm and five divisions for each of the K·D statistics, in one SIMD pass; about the memory
traffic of writing 4·K·D numbers.  Responsibilities stay those of the universal mixture; updating them too
(:func:`~patchbag.encodings.latent_mixture.infer_bag`) costs some ten passes over the descriptors.  Citation key:
cinbis2012.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from numba import njit, prange
from scipy.special import digamma as _digamma

from patchbag.device import lies_elsewhere, to_host
from patchbag.encodings import latent_dense
from patchbag.encodings.base import SomeOf, StatisticsTransformer
from patchbag.encodings.latent_mixture import LatentPrior, fit_prior, posterior_entry
from patchbag.encodings.polya import polya_gradient
from patchbag.mixture.statistics import Statistics
from patchbag.parameters import NOT_NEGATIVE, ONE_OR_MORE, POSITIVE, estimator, parameter
from patchbag.runtime import parallel_njit
from patchbag.special import digamma_from_log, log_positive
from patchbag.storage.declared import Declared, Many, Part, integer, real

BLOCKS = ("alpha", "m", "beta", "a", "b")
_IMAGES = 8


@njit(cache=True, nogil=True, error_model="numpy")
def _component(count, s1, s2, scale, prior, out):
    """Equations 13, 12, 10, 11 for one component of one image into the rows of out (4, D).

    The rows of prior (7, D) are m, beta, a, b, 1/beta, a/b and psi(a) - ln b.
    """
    for d in range(prior.shape[1]):
        beta = prior[1, d]
        inverse, shift, shape, rate = posterior_entry(
            count, scale * s1[d], scale * s2[d], prior[0, d], beta, prior[2, d], prior[3, d]
        )
        inverse_rate = 1.0 / rate
        precision = shape * inverse_rate
        out[0, d] = beta * precision * shift
        out[1, d] = 0.5 * (count * inverse * prior[4, d] - precision * shift * shift)
        # psi(shape) - ln(rate) with one logarithm
        out[2, d] = digamma_from_log(shape, log_positive((shape + 6.0) * inverse_rate)) - prior[6, d]
        out[3, d] = prior[5, d] - precision


@parallel_njit(error_model="numpy")
def _gradients(s0, s1, s2, scale, prior, kept, start, out):
    """Equations 10-13 into out (n, C, width) from column ``start`` on; ``kept`` are rows of :func:`_component`."""
    n, C, K, D = s1.shape
    # a few images at a time, with one component's prior in the cache
    for block in prange((n + _IMAGES - 1) // _IMAGES):
        rows = np.empty((4, D))
        for c in range(C):
            p = c if prior.shape[0] > 1 else 0
            for k in range(K):
                for i in range(block * _IMAGES, min(n, (block + 1) * _IMAGES)):
                    _component(scale * s0[i, c, k], s1[i, c, k], s2[i, c, k], scale, prior[p, k], rows)
                    for j in range(len(kept)):
                        first = start + (j * K + k) * D
                        out[i, c, first : first + D] = rows[kept[j]]


def latent_gradient(
    s0: Any, s1: Any, s2: Any, prior: LatentPrior, count_scale: float = 1.0, blocks: Sequence[str] = BLOCKS
) -> Any:
    """Gradient of F with respect to the hyper-parameters (eq. 10-14).

    Parameters
    ----------
    s0 : (n, C, K)
    s1, s2 : (n, C, K, D)
    prior : LatentPrior with P = C or 1
    blocks : some of ``"alpha"``, ``"m"``, ``"beta"``, ``"a"``, ``"b"``; the order is always this one

    Returns
    -------
    (n, C, width), width K(1 + 4D) with all blocks; the dtype of ``s1``
    """
    if lies_elsewhere(s1):
        parts = prior.m, prior.beta, prior.a, prior.b
        return latent_dense.gradients(s0, s1, s2, float(count_scale), prior.alpha, parts, blocks)
    K, D = prior.m.shape[1:]
    start = K if "alpha" in blocks else 0
    kept = np.array([j for j, name in enumerate(BLOCKS[1:]) if name in blocks], dtype=np.int64)
    out = np.empty((*s0.shape[:2], start + len(kept) * K * D), np.asarray(s1).dtype)
    if start:
        out[..., :K] = polya_gradient(s0, prior.alpha, count_scale)
    if len(kept):
        ready = 1 / prior.beta, prior.a / prior.b, _digamma(prior.a) - np.log(prior.b)
        table = np.stack([prior.m, prior.beta, prior.a, prior.b, *ready], axis=2)
        _gradients(s0, s1, s2, float(count_scale), table, kept, start, out)
    return out


def starting_prior(s0: np.ndarray, universal: Any, models: int) -> LatentPrior:
    """A weak prior around the universal mixture, with the shares of the counts (n, C, K)."""
    count = s0.sum(axis=(0, 1), dtype=np.float64)
    shares = np.maximum(count / count.sum(), 1e-6)
    means, variances = (np.tile(a, (models, 1, 1)) for a in (universal.means, universal.variances))
    ones = np.ones(means.shape)
    return LatentPrior(np.tile(shares * len(shares), (models, 1)), means, ones, 4.0 * ones, 4.0 * variances)


@estimator
class LatentFisherVector(StatisticsTransformer):
    """Fisher vectors of a latent Gaussian mixture, from statistics alone.

    Parameters
    ----------
    blocks : gradients to keep, all by default
    count_scale : multiplies the statistics; below 1 for patches that overlap
    per_cell : learn one prior for each spatial cell (True) or one for all (False)
    max_iter, tol : of the variational EM

    Attributes
    ----------
    prior_ : LatentPrior, with P = C models if ``per_cell``, else 1
    free_energy_ : F after each EM iteration, without constants
    n_iter_ : int
    """

    uses_moments = True
    learns = True
    stays = True
    blocks: Sequence[str] = parameter(SomeOf(set(BLOCKS)), default=BLOCKS)
    count_scale: float = parameter(POSITIVE, default=1.0)
    per_cell: bool = parameter("boolean", default=True)
    max_iter: int = parameter(ONE_OR_MORE, default=100)
    tol: float = parameter(NOT_NEGATIVE, default=1e-6)

    _stored: ClassVar[dict[str, Declared]] = {
        "prior_": Part("LatentPrior", P="P", K="K", D="D"),
        "free_energy_": Many(real(finite=False), optional=True),
        "n_iter_": integer(optional=True),
    }

    def _fit(self, statistics: Statistics) -> None:
        s1, s2 = statistics.s1, statistics.s2
        xp = array_namespace(s1)
        s0 = xp.astype(statistics.s0, s1.dtype, copy=False)  # moments far from the origin are in double precision
        total = float(xp.sum(s0, dtype=xp.float64))
        first, second = (to_host(xp.sum(s, axis=(0, 1, 2), dtype=xp.float64)) / total for s in (s1, s2))
        # as in the universal mixture: a component's variance cannot vanish beside the data's
        floor = np.maximum(1e-6 * (second - first**2), 1e-12)
        start = starting_prior(to_host(s0), statistics.universal, s0.shape[1] if self.per_cell else 1)
        options = float(self.count_scale), self.max_iter, self.tol, floor
        self.prior_, self.free_energy_ = fit_prior(s0, s1, s2, start, *options)
        self.n_iter_ = len(self.free_energy_) - 1

    def _encode(self, statistics: Statistics) -> Any:
        s0 = array_namespace(statistics.s0).astype(statistics.s0, statistics.s1.dtype, copy=False)
        return latent_gradient(s0, statistics.s1, statistics.s2, self.prior_, self.count_scale, self.blocks)
