# SPDX-License-Identifier: BSD-3-Clause
r"""PLSA: visual words from a mixture of topics, and its Fisher encoding.

Every image i mixes T topics in its own proportions :math:`\theta_i`; a topic is a multinomial :math:`\pi_t` over words:

.. math:: p(w = k \mid i) = \sum_t \theta_{it} \pi_{tk}

(cinbis2012, eq. 16, where both are parameters, not latent).  EM maximises :math:`L = \sum_{ik} n_{ik} \ln p(k \mid i)`:

.. math::
   q_{itk} = \frac{\theta_{it} \pi_{tk}}{\sum_s \theta_{is} \pi_{sk}}, \quad
   \theta_{it} \propto \sum_k n_{ik} q_{itk}, \quad
   \pi_{tk} \propto \sum_i n_{ik} q_{itk}.

A new image is *folded in*: EM on its :math:`\theta` with the topics fixed.

**Fisher encoding.** Gradients are taken with respect to logits, as for the multinomial of section 3.1, so that
:math:`\theta` and :math:`\pi_t` stay on the simplex.  With :math:`c_{tk} = n_k q_{tk}` and :math:`c_t = \sum_k c_{tk}`,

.. math::
   \partial/\partial \pi_{tk}:\; c_{tk} - c_t \pi_{tk}, \qquad
   \partial/\partial \theta_t:\; c_t - N \bar\theta_t.

The paper does not say at which :math:`\theta` its gradient is taken.  At the image's own maximum-likelihood
:math:`\theta` it is zero, for that is what maximum likelihood means; so it is taken of the expected complete
log-likelihood at the mean mixing :math:`\bar\theta` of the training images, which gives the centred topic counts, the
counterpart of LDA's gradient in :math:`\alpha` (eq. 18).  With T = 1 the encoding is the centred bag of words.

Layout: ``[theta (T) | pi (T·K), topic after topic]``.  A word that no training image has gets probability zero in every
topic; it is left out of the inference and its entries are zero.

Cost: n·K·T multiplications per iteration, in one SIMD pass.  Citation keys: cinbis2012; Hofmann, *Unsupervised learning
by probabilistic latent semantic analysis*, 2001.
"""

import warnings
from typing import Any, ClassVar

import numpy as np
from numba import njit, prange
from sklearn.exceptions import ConvergenceWarning

from patchbag.encodings.base import StatisticsTransformer, pool_cells, unpool_cells
from patchbag.mixture.statistics import Statistics
from patchbag.parameters import NOT_NEGATIVE, ONE_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state, parallel_njit
from patchbag.special import log_positive
from patchbag.storage.declared import Declared, floats

_BLOCKS = 16
_TINY = 1e-300


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
def dot(x, y):
    """Inner product; fastmath only lets the additions be reordered, which makes them SIMD."""
    total = x.dtype.type(0)
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _image_step(counts, theta, pi, density, totals):
    """E-step of one image: density (K,) becomes n_k / p_k, totals (T,) sum_k n_k q_tk."""
    T, K = pi.shape
    density[:] = 0.0
    for t in range(T):
        weight = theta[t]
        for k in range(K):
            density[k] += weight * pi[t, k]
    for k in range(K):
        density[k] = counts[k] / max(density[k], _TINY) if density[k] > 0.0 else 0.0
    for t in range(T):
        totals[t] = theta[t] * dot(density, pi[t])


@njit(cache=True, nogil=True, error_model="numpy")
def _block_step(counts, theta, pi, sums):
    """EM of a block of images: theta (n, T) is replaced, sums (T, K) gathers the topics; the log-likelihood before."""
    T, K = pi.shape
    density, totals, logs = np.empty(K), np.empty(T), np.empty(K)
    value = 0.0
    for i in range(len(counts)):
        _image_step(counts[i], theta[i], pi, density, totals)
        for k in range(K):
            logs[k] = log_positive(counts[i, k] / density[k]) if density[k] > 0.0 else 0.0
        value += dot(counts[i], logs)
        for t in range(T):
            weight = theta[i, t]
            for k in range(K):
                sums[t, k] += density[k] * weight * pi[t, k]
        mass = totals.sum()
        if mass > 0.0:
            theta[i] = totals / mass
    return value


@parallel_njit()
def _step(counts, theta, pi, sums, values):
    # the number of blocks is fixed so that sums do not depend on the number of threads
    n = len(counts)
    for block in prange(_BLOCKS):
        first, last = block * n // _BLOCKS, (block + 1) * n // _BLOCKS
        values[block] = _block_step(counts[first:last], theta[first:last], pi, sums[block])


@parallel_njit(error_model="numpy")
def _fold(counts, theta, pi, max_iter, tol):
    for i in prange(len(counts)):
        density, totals = np.empty(pi.shape[1]), np.empty(len(pi))
        for _ in range(max_iter):
            _image_step(counts[i], theta[i], pi, density, totals)
            mass = totals.sum()
            if mass <= 0.0:
                break
            totals /= mass
            change = np.abs(totals - theta[i]).max()
            theta[i] = totals
            if change < tol:
                break


def fit_plsa(
    counts: np.ndarray, n_topics: int, max_iter: int = 200, tol: float = 1e-6, random_state: Any = None
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Topics of word counts by EM.

    Parameters
    ----------
    counts : (n, K) non-negative, n >= n_topics
    tol : stop when the log-likelihood rises by less than this times its size

    Returns
    -------
    theta : (n, T) mixing of each image
    pi : (T, K) topics
    history : log-likelihood before each iteration
    """
    rng = check_random_state(random_state)
    counts = np.ascontiguousarray(counts, dtype=np.float64)
    n, K = counts.shape
    if n_topics > n:
        raise ValueError(f"{n_topics} topics cannot be learned from {n} images; lower n_topics")
    # topics start near the mean histogram: a start far from it loses words to one topic for good
    pi = counts.sum(axis=0, dtype=np.float64) * rng.uniform(0.5, 1.5, (n_topics, K))
    pi /= pi.sum(axis=1, keepdims=True)
    theta = rng.dirichlet(np.full(n_topics, 5.0), n)
    history: list[float] = []
    for _ in range(max_iter):
        sums, values = np.zeros((_BLOCKS, n_topics, K)), np.zeros(_BLOCKS)
        _step(counts, theta, pi, sums, values)
        history.append(float(values.sum()))
        pi = sums.sum(axis=0)
        pi /= np.maximum(pi.sum(axis=1, keepdims=True), _TINY)
        if len(history) > 1 and history[-1] - history[-2] <= tol * abs(history[-1]):
            return theta, pi, history
    warnings.warn(
        f"PLSA with {n_topics} topics did not converge in {max_iter} iterations; raise max_iter or tol",
        ConvergenceWarning,
        stacklevel=2,
    )
    return theta, pi, history


def fold_in(
    counts: np.ndarray, pi: np.ndarray, start: np.ndarray, max_iter: int = 200, tol: float = 1e-5
) -> np.ndarray:
    """Mixing (n, T) of new images under fixed topics ``pi (T, K)``, from the common ``start (T,)``.

    An image without any word that a topic has keeps ``start``.
    """
    theta = np.tile(start, (len(counts), 1))
    _fold(np.ascontiguousarray(counts, dtype=np.float64), theta, pi, max_iter, tol)
    return theta


def topic_counts(counts: np.ndarray, theta: np.ndarray, pi: np.ndarray) -> np.ndarray:
    """Counts divided among the topics, n_ik q_itk: (n, T, K) of the dtype of ``counts``."""
    dtype = counts.dtype
    joint = theta.astype(dtype)[:, :, None] * pi.astype(dtype)[None]
    density = joint.sum(axis=1)
    joint *= (counts / np.where(density > 0, density, 1))[:, None, :]
    return joint


def plsa_gradient(soft_counts: np.ndarray, mixing: np.ndarray, pi: np.ndarray) -> np.ndarray:
    """Gradients in the logits of theta and pi.

    Parameters
    ----------
    soft_counts : (n, T, K) from :func:`topic_counts`
    mixing : (T,) where the gradient in theta is taken
    pi : (T, K)

    Returns
    -------
    (n, T + T·K)
    """
    totals = soft_counts.sum(axis=2)
    words = soft_counts - totals[:, :, None] * pi.astype(soft_counts.dtype)
    shares = totals - totals.sum(axis=1, keepdims=True) * mixing.astype(soft_counts.dtype)
    return np.concatenate([shares, words.reshape(len(words), -1)], axis=1)


@estimator
class PLSAFisherVector(StatisticsTransformer):
    """Fisher encoding of word counts under PLSA topics.

    Parameters
    ----------
    n_topics : T, no more than there are training images
    per_cell : topics for each spatial cell (True) or common ones, each cell being a document (False)
    max_iter, tol : of the EM, tol being relative to the log-likelihood
    random_state : of the start

    Attributes
    ----------
    topics_ : (P, T, K), P = C if ``per_cell``, else 1
    mixing_ : (P, T) mean mixing of the training images
    """

    learns = True
    n_topics: int = parameter(ONE_OR_MORE, default=2)
    per_cell: bool = parameter("boolean", default=True)
    max_iter: int = parameter(ONE_OR_MORE, default=500)
    tol: float = parameter(NOT_NEGATIVE, default=1e-6)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "topics_": floats("P", "T", "K", low=0),
        "mixing_": floats("P", "T", low=0),
    }

    def _fit(self, statistics: Statistics) -> None:
        rng = check_random_state(self.random_state)
        parts = (part[part.sum(axis=1) > 0] for part in pool_cells(statistics.s0, self.per_cell))
        fits = [fit_plsa(filled, self.n_topics, self.max_iter, self.tol, rng) for filled in parts]
        self.topics_ = np.stack([pi for _, pi, _ in fits])
        self.mixing_ = np.stack([theta.mean(axis=0) for theta, _, _ in fits])

    def _encode(self, statistics: Statistics) -> np.ndarray:
        codes = []
        for counts, pi, mixing in zip(
            pool_cells(statistics.s0, self.per_cell), self.topics_, self.mixing_, strict=True
        ):
            theta = fold_in(counts, pi, mixing)
            codes.append(plsa_gradient(topic_counts(counts, theta, pi), mixing, pi))
        return unpool_cells(np.stack(codes), len(statistics))
