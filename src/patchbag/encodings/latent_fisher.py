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
descriptors a component has, the less one more of them moves its posterior.

Layout: ``[alpha (K) | m (K·D) | beta (K·D) | a (K·D) | b (K·D)]``, component after component within a block, K(1 + 4D)
numbers with all blocks; ``blocks`` leaves some out.  ``m`` and ``b`` are the counterparts of the mean and variance
blocks of a plain Fisher vector.

``count_scale`` multiplies the statistics, see :mod:`patchbag.encodings.polya`.  A cell without descriptors has its
prior for posterior and encodes as zeros; an image without any is an error.  A component without training descriptors
keeps the prior it started from.  All is evaluated in float64 whatever the input, because differences such as (10) are
small for components with few descriptors; the result has the dtype of the statistics.

Cost: one logarithm and five divisions for each of the K·D statistics, in one SIMD pass; about the memory
traffic of writing 4·K·D numbers.  :class:`FullLatentFisherVector` runs the inference with updated responsibilities and
costs some ten passes over the descriptors.  Citation key: cinbis2012.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numba import njit, prange
from scipy.special import digamma as _digamma
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import as_bags
from patchbag.encodings.base import check_moments
from patchbag.encodings.conjugate import log_positive, reciprocal_sum
from patchbag.encodings.latent_mixture import LatentPrior, fit_prior, infer_bag
from patchbag.encodings.polya import as_counts, check_scale, polya_gradient
from patchbag.mixture.statistics import Statistics
from patchbag.runtime import parallel_njit

BLOCKS = ("alpha", "m", "beta", "a", "b")
_IMAGES = 8


@njit(cache=True, nogil=True, error_model="numpy")
def _component(count, s1, s2, scale, prior, out):
    """Equations 13, 12, 10, 11 for one component of one image into the rows of out (4, D).

    The rows of prior (7, D) are m, beta, a, b, 1/beta, a/b and psi(a) - ln b.
    """
    for d in range(prior.shape[1]):
        m, beta = prior[0, d], prior[1, d]
        first = scale * s1[d] - count * m
        second = scale * s2[d] - m * (scale * s1[d] + first)
        inverse = 1.0 / (beta + count)
        shift = first * inverse
        shape = prior[2, d] + 0.5 * count
        inverse_rate = 1.0 / (prior[3, d] + 0.5 * max(second - first * shift, 0.0))
        precision = shape * inverse_rate
        # psi(shape) - ln(rate) with one logarithm
        r = 1.0 / (shape + 6.0)
        s = r * r
        series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132)))))
        log_ratio = log_positive((shape + 6.0) * inverse_rate)
        out[0, d] = beta * precision * shift
        out[1, d] = 0.5 * (count * inverse * prior[4, d] - precision * shift * shift)
        out[2, d] = log_ratio - 0.5 * r - series - reciprocal_sum(shape) - prior[6, d]
        out[3, d] = prior[5, d] - precision


@njit(cache=True, nogil=True, error_model="numpy")
def _images(s0, s1, s2, scale, prior, starts, out):
    """Equations 10-13 into out (n, C, width), from column starts[j] on for m, beta, a, b; -1 leaves a block out."""
    n, C, K, D = s1.shape
    rows = np.empty((4, D))
    for c in range(C):
        p = c if prior.shape[0] > 1 else 0
        for k in range(K):
            for i in range(n):
                _component(scale * s0[i, c, k], s1[i, c, k], s2[i, c, k], scale, prior[p, k], rows)
                for j in range(4):
                    if starts[j] >= 0:
                        first = starts[j] + k * D
                        for d in range(D):
                            out[i, c, first + d] = rows[j, d]


@parallel_njit()
def _gradients(s0, s1, s2, scale, prior, starts, out):
    # a few images at a time, with one component's prior in the cache
    for block in prange((len(s0) + _IMAGES - 1) // _IMAGES):
        first, last = block * _IMAGES, min(len(s0), (block + 1) * _IMAGES)
        _images(s0[first:last], s1[first:last], s2[first:last], scale, prior, starts, out[first:last])


def latent_gradient(
    s0: Any, s1: Any, s2: Any, prior: LatentPrior, count_scale: float = 1.0, blocks: Sequence[str] = BLOCKS
) -> np.ndarray:
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
    K, D = prior.m.shape[1:]
    starts, width = np.full(4, -1), K if "alpha" in blocks else 0
    for j, name in enumerate(BLOCKS[1:]):
        if name in blocks:
            starts[j] = width
            width += K * D
    out = np.empty((*s0.shape[:2], width), np.asarray(s1).dtype)
    if "alpha" in blocks:
        out[..., :K] = polya_gradient(s0, prior.alpha, count_scale)
    if (starts >= 0).any():
        ready = 1 / prior.beta, prior.a / prior.b, _digamma(prior.a) - np.log(prior.b)
        table = np.stack([prior.m, prior.beta, prior.a, prior.b, *ready], axis=2)
        _gradients(s0, s1, s2, float(count_scale), table, starts, out)
    return out


def starting_prior(s0: np.ndarray, s1: np.ndarray, s2: np.ndarray, universal: Any, models: int) -> LatentPrior:
    """A weak prior around the universal mixture, or, without one, around the pooled statistics."""
    count, first, second = (s.sum(axis=(0, 1), dtype=np.float64) for s in (s0, s1, s2))
    if universal is not None:
        means, variances = universal.means, universal.variances
    else:
        overall = first.sum(axis=0) / count.sum()
        spread = second.sum(axis=0) / count.sum() - overall**2
        has_any = count[:, None] > 0
        divisor = np.where(has_any, count[:, None], 1.0)
        means = np.where(has_any, first / divisor, overall)
        variances = np.where(has_any, second / divisor - means**2, spread)
        variances = np.maximum(variances, np.maximum(1e-6 * spread, 1e-12))
    shape = (models, *means.shape)
    proportions = np.maximum(count / count.sum(), 1e-6)
    a = np.full(shape, 4.0)
    return LatentPrior(
        np.tile(proportions * len(proportions), (models, 1)),
        np.tile(means, (models, 1, 1)),
        np.ones(shape),
        a,
        a * variances,
    )


def moment_arrays(statistics: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Statistics as (n, C, K), (n, C, K, D), (n, C, K, D) contiguous arrays, and whether they have cells."""
    checked = check_moments(statistics)
    s0, has_cells = as_counts(checked)
    dtype = np.result_type(
        s0.dtype, np.asarray(checked.s1).dtype
    )  # moments far from the origin are in double precision
    s0 = s0.astype(dtype, copy=False)
    s1, s2 = (np.ascontiguousarray(np.asarray(s).reshape(*s0.shape, -1), dtype=dtype) for s in (checked.s1, checked.s2))
    for name, s in (("s1", s1), ("s2", s2)):
        # a sum can only be finite if its terms are: one product is faster than isfinite on every number
        with np.errstate(over="ignore", invalid="ignore"):
            suspects = ~np.isfinite(s.reshape(len(s), -1) @ np.ones(s[0].size, s.dtype))
        for i in np.flatnonzero(suspects):
            if not np.isfinite(s[i]).all():
                raise ValueError(f"image {i} of {len(s)} has NaN or infinite moments {name}; look at its descriptors")
    return s0, s1, s2, has_cells


class LatentFisherVector(TransformerMixin, BaseEstimator):
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

    def __init__(
        self,
        blocks: Sequence[str] = BLOCKS,
        count_scale: float = 1.0,
        per_cell: bool = True,
        max_iter: int = 100,
        tol: float = 1e-6,
    ):
        self.blocks = blocks
        self.count_scale = count_scale
        self.per_cell = per_cell
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X: Statistics, y: Any = None) -> Self:
        """Learn the prior from the statistics of training images."""
        s0, s1, s2, _ = moment_arrays(X)
        self._check_options()
        self._learn(s0, s1, s2, starting_prior(s0, s1, s2, X.universal, s0.shape[1] if self.per_cell else 1))
        return self

    def transform(self, X: Statistics) -> np.ndarray:
        """Encode statistics: (n, width), or (n, C, width) if there are cells."""
        check_is_fitted(self)
        s0, s1, s2, has_cells = moment_arrays(X)
        if s1.shape[1:] != self.layout_:
            raise ValueError(
                f"{type(self).__name__}: fitted on (cells, components, dimensions) {self.layout_}, got {s1.shape[1:]}"
            )
        codes = latent_gradient(s0, s1, s2, self.prior_, check_scale(self.count_scale), self.blocks)
        return codes if has_cells else codes[:, 0]

    def _check_options(self) -> None:
        unknown = [b for b in self.blocks if b not in BLOCKS]
        if unknown or not len(self.blocks) or isinstance(self.blocks, str):
            raise ValueError(f"blocks must be a list of some of {BLOCKS}, got {self.blocks!r}")
        check_scale(self.count_scale)

    def _learn(self, s0: np.ndarray, s1: np.ndarray, s2: np.ndarray, initial: LatentPrior) -> None:
        total = s0.sum(dtype=np.float64)
        first, second = (s.sum(axis=(0, 1, 2), dtype=np.float64) / total for s in (s1, s2))
        # as in the universal mixture: a component's variance cannot vanish beside the data's
        floor = np.maximum(1e-6 * (second - first**2), 1e-12)
        scale = check_scale(self.count_scale)
        self.prior_, history, converged = fit_prior(s0, s1, s2, initial, scale, self.max_iter, self.tol, floor)
        self.free_energy_, self.n_iter_, self.layout_ = history, len(history) - 1, s1.shape[1:]
        if not converged:
            warnings.warn(
                f"the latent mixture's prior did not converge in {self.max_iter} iterations; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )


class FullLatentFisherVector(LatentFisherVector):
    """Fisher vectors of a latent Gaussian mixture whose responsibilities are inferred too (eq. 26-28), from bags.

    Parameters
    ----------
    universal : mixture to start from, with arrays ``weights``, ``means`` and ``variances`` (GaussianParameters)
    n_rounds : how often inference over all training bags and learning of the prior alternate
    max_inference, tol_inference : iterations of the inference in one image, and the relative rise of F that ends it
    blocks, count_scale, max_iter, tol : as for LatentFisherVector
    """

    def __init__(
        self,
        universal: Any = None,
        n_rounds: int = 3,
        max_inference: int = 50,
        tol_inference: float = 1e-5,
        blocks: Sequence[str] = BLOCKS,
        count_scale: float = 1.0,
        max_iter: int = 100,
        tol: float = 1e-6,
    ):
        super().__init__(blocks=blocks, count_scale=count_scale, per_cell=False, max_iter=max_iter, tol=tol)
        self.universal = universal
        self.n_rounds = n_rounds
        self.max_inference = max_inference
        self.tol_inference = tol_inference

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the prior from training bags."""
        self._check_options()
        if self.universal is None:
            raise ValueError(
                "FullLatentFisherVector starts from a universal mixture: pass universal=mixture.parameters_"
            )
        weights, means, variances = (
            np.asarray(a, dtype=np.float64)
            for a in (self.universal.weights, self.universal.means, self.universal.variances)
        )
        # a concentrated prior, under which the first responsibilities are those of the universal mixture
        sure = np.full((1, *means.shape), 1e6)
        self.prior_ = LatentPrior(1e6 * weights[None] + 1e-6, means[None], sure, sure, sure * variances)
        statistics = self._infer(X, max_inference=0)
        start = starting_prior(*_batch(statistics), self.universal, 1)
        for _ in range(self.n_rounds + 1):
            self._learn(*_batch(statistics), start)
            start = self.prior_
            statistics = self._infer(X)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Encode bags: (n, width)."""
        check_is_fitted(self)
        return super().transform(self._infer(X))

    def _infer(self, X: Any, max_inference: int | None = None) -> Statistics:
        bags = as_bags(X).check_not_empty()
        if bags.dimension != self.prior_.m.shape[2]:
            raise ValueError(f"the mixture has {self.prior_.m.shape[2]} dimensions, these bags have {bags.dimension}")
        steps = self.max_inference if max_inference is None else max_inference
        parts = []
        for i, x in enumerate(bags):
            if not np.isfinite(x).all():
                raise ValueError(f"bag {i} of {len(bags)} has descriptors that are NaN or infinite")
            parts.append(infer_bag(x, self.prior_, check_scale(self.count_scale), steps, self.tol_inference)[:3])
        s0, s1, s2 = (np.stack(column) for column in zip(*parts))
        return Statistics(s0, s1, s2)


def _batch(statistics: Statistics) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return statistics.s0[:, None], statistics.s1[:, None], statistics.s2[:, None]
