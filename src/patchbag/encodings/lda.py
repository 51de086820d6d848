# SPDX-License-Identifier: BSD-3-Clause
r"""Latent Dirichlet allocation with topics that vary from image to image, and its Fisher encoding.

As in PLSA (:mod:`patchbag.encodings.topics`) a word comes from one of T topics, but both the mixing of the topics and
the topics themselves are latent in every image (cinbis2012, eq. 15-16): :math:`\theta \sim \mathcal D(\alpha)`,
:math:`\pi_t \sim \mathcal D(\eta_t)`.  This is not the usual LDA, whose topics are common to all images;
scikit-learn's ``LatentDirichletAllocation`` computes another posterior and cannot serve here.

**Inference.** For one image with counts :math:`n_k` (patches with the same word share their q),

.. math::
   q_{tk} \propto \exp[\psi(\alpha^*_t) - \psi(\hat\alpha^*) + \psi(\eta^*_{tk}) - \psi(\hat\eta^*_t)], \quad
   \alpha^*_t = \alpha_t + \sum_k n_k q_{tk}, \quad
   \eta^*_{tk} = \eta_{tk} + n_k q_{tk} \tag{17}

is iterated from the q of the prior's means, until an update changes :math:`\alpha^*` by less than ``tol`` in the mean
(scikit-learn's rule and default).  It is :math:`\alpha^*` that is slow, so between two updates of :math:`\eta^*`, which
are dear, q and :math:`\alpha^*` are iterated several times, and every second time extrapolated (squared extrapolation);
the end is a fixed point of (17) all the same.  An update of all three raises a bound F on the log-likelihood.

**Encoding.** The gradient of F,

.. math::
   \partial F/\partial\alpha_t  &= \psi(\alpha^*_t) - \psi(\hat\alpha^*) - [\psi(\alpha_t) - \psi(\hat\alpha)] & (18) \\
   \partial F/\partial\eta_{tk} &= \psi(\eta^*_{tk}) - \psi(\hat\eta^*_t) - [\psi(\eta_{tk}) - \psi(\hat\eta_t)] & (19)

that is, a Pólya gradient of the topic counts and one of each topic's word counts.  T = 1 is the Pólya encoding.
Layout: ``[alpha (T) | eta (T·K), topic after topic]``.  A word that no training image has encodes as zeros (see
:mod:`patchbag.encodings.polya`, also for ``count_scale``).

**Learning.** As in the paper, PLSA is trained first and Dirichlet priors are fitted to what it infers.  PLSA has one
:math:`\pi_t` for all images, to which no Dirichlet can be fitted; what varies between images is the topic's share of
their words.  So :math:`\eta_t` is the Pólya fit to the counts :math:`n_{ik} q_{itk}` and :math:`\alpha` that to their
sums over k, both being the M-step of F at PLSA's q, and robust to zeros.  ``n_rounds`` > 0 goes on with variational EM.

Cost: an update is one exponential and two divisions for each topic and word with a count, in SIMD and float32, which
holds soft counts to about 1e-6 of their size (so does not reach a ``tol`` much below 1e-6 N); the gradient adds one
digamma for each.  Citation keys: cinbis2012; Blei, Ng & Jordan, *Latent Dirichlet allocation*, 2003.
"""

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numba import njit, prange
from scipy.special import digamma as _digamma
from sklearn.utils._param_validation import Interval

from patchbag.encodings.base import StatisticsTransformer, pool_cells, unpool_cells
from patchbag.encodings.conjugate import fit_polya
from patchbag.encodings.polya import polya_shift
from patchbag.encodings.topics import dot, fit_plsa, topic_counts
from patchbag.mixture.statistics import Statistics
from patchbag.parameters import NOT_NEGATIVE, ONE_OR_MORE, POSITIVE, ZERO_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state, parallel_njit
from patchbag.special import digamma, exp_nonpositive, exp_single, split_exp_digamma
from patchbag.storage.declared import NOT_ZERO, Declared, booleans, floats

real = np.float32


@njit(cache=True, nogil=True, error_model="numpy")
def _topic_weights(eta, gain, ratio, weights, exponent, lowest):
    """Replace weights (T, J) by exp(psi(eta + soft counts)), each word's column up to a common factor.

    The soft counts are ``gain_t weights_tj ratio_j`` of the weights that come in.
    """
    T, J = eta.shape
    lowest[:] = np.inf
    for t in range(T):
        for j in range(J):
            factor, power = split_exp_digamma(eta[t, j] + gain[t] * weights[t, j] * ratio[j])
            weights[t, j] = factor
            exponent[t, j] = power
        for j in range(J):
            # not min(), whose rule for NaN keeps LLVM from vectorising
            lowest[j] = exponent[t, j] if exponent[t, j] < lowest[j] else lowest[j]
    for t in range(T):
        for j in range(J):
            weights[t, j] *= exp_single(lowest[j] - exponent[t, j])


@njit(cache=True, nogil=True, error_model="numpy")
def _topic_gains(alpha, eta_totals, topic, gain):
    """gain (T,) becomes exp(psi(alpha*) - psi(eta-hat*)), up to a common factor."""
    logs = np.empty(len(alpha))
    for t in range(len(alpha)):
        logs[t] = digamma(alpha[t] + topic[t]) - digamma(eta_totals[t] + topic[t])
    largest = logs.max()
    for t in range(len(alpha)):
        # held above 1e-30: a topic may be the only one with a word
        gain[t] = exp_nonpositive(max(logs[t] - largest, -69.0))


@njit(cache=True, nogil=True, error_model="numpy")
def _extrapolate(before, between, topic, total):
    """Lengthen the last two steps of the soft topic counts (squared extrapolation), keeping them positive."""
    steps, turns = 0.0, 0.0
    for t in range(len(topic)):
        step = between[t] - before[t]
        turn = topic[t] - between[t] - step
        steps += step * step
        turns += turn * turn
    length = min(max(np.sqrt(steps / max(turns, 1e-300)), 1.0), 20.0)
    for t in range(len(topic)):
        step = between[t] - before[t]
        turn = topic[t] - between[t] - step
        topic[t] = max(before[t] + 2.0 * length * step + length * length * turn, 0.1 * topic[t])
    topic *= total / topic.sum()


@njit(cache=True, nogil=True, error_model="numpy")
def _divide(n, gain, weights, ratio, topic):
    """Assign words to topics: ratio (J,) becomes n_j / sum_t gain_t weights_tj, topic (T,) the topics' soft counts."""
    T, J = weights.shape
    ratio[:] = 0.0
    for t in range(T):
        for j in range(J):
            ratio[j] += gain[t] * weights[t, j]
    for j in range(J):
        ratio[j] = n[j] / ratio[j]
    change = 0.0
    for t in range(T):
        share = np.float64(gain[t] * dot(weights[t], ratio))
        change += abs(share - topic[t])
        topic[t] = share
    return change / T


@njit(cache=True, nogil=True, error_model="numpy")
def infer_image(counts, words, alpha, eta, eta_totals, max_iter, tol):
    """Equation 17 for one image: soft counts n_k q_tk of its words (T, J), and the number of updates of eta*."""
    T, J = len(alpha), len(words)
    n, near, gain = counts[words], eta[:, words].astype(real), (alpha / eta_totals).astype(real)
    ratio, lowest, weights, exponent = np.empty(J, real), np.empty(J, real), near.copy(), np.empty((T, J), real)
    topic, before, between = np.zeros(T), np.empty(T), np.empty(T)
    total = n.astype(np.float64).sum()
    _divide(n, gain, weights, ratio, topic)
    iterations, first_change = 0, np.inf
    while iterations < max_iter and first_change >= tol:
        iterations += 1
        _topic_weights(near, gain, ratio, weights, exponent, lowest)
        # while eta* stands, q(z) and alpha* are cheap to iterate, and it is alpha* that is slow
        for inner in range(max_iter):
            before[:], between[:] = between, topic
            _topic_gains(alpha, eta_totals, topic, gain)
            change = _divide(n, gain, weights, ratio, topic)
            if inner == 0:
                first_change = change
            if change < max(tol, 0.1 * first_change):
                break
            if inner % 2 == 1:
                _extrapolate(before, between, topic, total)
    for t in range(T):
        weights[t] *= gain[t] * ratio
    return weights, iterations


@parallel_njit()
def _infer(counts, alpha, eta, eta_totals, max_iter, tol, out, iterations):
    for i in prange(len(counts)):
        words = np.flatnonzero(counts[i])
        soft, iterations[i] = infer_image(counts[i], words, alpha, eta, eta_totals, max_iter, tol)
        for t in range(len(alpha)):
            for j in range(len(words)):
                out[i, t, words[j]] = soft[t, j]


def lda_counts(
    counts: np.ndarray, alpha: np.ndarray, eta: np.ndarray, max_iter: int = 100, tol: float = 1e-3
) -> tuple[np.ndarray, np.ndarray]:
    """Word counts divided among the topics by variational inference (eq. 17).

    Parameters
    ----------
    counts : (n, K)
    alpha : (T,)
    eta : (T, K)
    max_iter, tol : at most so many iterations, until the mean change of alpha* is below tol

    Returns
    -------
    soft_counts : (n, T, K), n_k q_tk, float32
    iterations : (n,)
    """
    # one compiled version, whatever the counts are
    counts = np.ascontiguousarray(counts, dtype=real)
    out = np.zeros((len(counts), *eta.shape), real)
    iterations = np.zeros(len(counts), np.int64)
    _infer(counts, alpha, eta, eta.sum(axis=1), max_iter, float(tol), out, iterations)
    return out, iterations


@njit(cache=True, nogil=True, error_model="numpy")
def _encode_image(counts, alpha, eta, eta_totals, base, max_iter, tol, out):
    """Equations 18-19 into out (T + T·K,); base (T, K) is psi(eta)."""
    T, K = eta.shape
    words = np.flatnonzero(counts)
    soft, _ = infer_image(counts, words, alpha, eta, eta_totals, max_iter, tol)
    row = np.empty(len(words))
    total = 0.0
    for t in range(T):
        share = 0.0
        for j in range(len(words)):
            share += soft[t, j]
            row[j] = eta[t, words[j]] + soft[t, j]
        for j in range(len(words)):
            row[j] = digamma(row[j])
        shift = polya_shift(eta_totals[t], share)
        first = T + t * K
        out[first : first + K] = shift
        for j in range(len(words)):
            out[first + words[j]] = row[j] - base[t, words[j]] + shift
        out[t] = -polya_shift(alpha[t], share)
        total += share
    out[:T] += polya_shift(alpha.sum(), total)


@parallel_njit()
def _encode(counts, alpha, eta, eta_totals, base, max_iter, tol, out):
    for i in prange(len(counts)):
        _encode_image(counts[i], alpha, eta, eta_totals, base, max_iter, tol, out[i])


@estimator
class LDAFisherVector(StatisticsTransformer):
    """Fisher encoding of word counts under latent Dirichlet allocation.

    Parameters
    ----------
    n_topics : T, no more than there are training images
    count_scale : multiplies the counts; below 1 for patches that overlap
    per_cell : a model for each spatial cell (True) or a common one, each cell being a document (False)
    n_rounds : rounds of variational EM after the start from PLSA; 0 is the paper's way
    max_inference, inference_tol : iterations in one image, and the mean change of alpha* that ends them
    max_iter, tol : of PLSA's EM, tol being relative to the log-likelihood
    random_state : of PLSA's start

    Attributes
    ----------
    alpha_ : (P, T), P = C if ``per_cell``, else 1
    eta_ : (P, T, K)
    seen_ : (P, K), False for a word that no training image has; its entries of the encoding are zero
    """

    learns = True
    n_topics: int = parameter(ONE_OR_MORE, default=2)
    count_scale: float = parameter(POSITIVE, default=1.0)
    per_cell: bool = parameter("boolean", default=True)
    n_rounds: int = parameter(ZERO_OR_MORE, default=0)
    max_inference: int = parameter(Interval(Integral, 1, 10_000, closed="both"), default=100)
    inference_tol: float = parameter(NOT_NEGATIVE, default=1e-3)
    max_iter: int = parameter(ONE_OR_MORE, default=500)
    tol: float = parameter(NOT_NEGATIVE, default=1e-6)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "alpha_": floats("P", "T", low=NOT_ZERO),
        "eta_": floats("P", "T", "K", low=NOT_ZERO),
        "seen_": booleans("P", "K", optional=True),
    }
    seen_: np.ndarray | None = None  # models of earlier versions do not have it

    def _fit(self, statistics: Statistics) -> None:
        rng, scale = check_random_state(self.random_state), float(self.count_scale)
        pooled = pool_cells(statistics.s0, self.per_cell)
        models = []
        for part in pooled:
            filled = part[part.sum(axis=1) > 0]
            theta, pi, _ = fit_plsa(filled, self.n_topics, self.max_iter, self.tol, rng)
            models.append(_fit_dirichlets(scale * topic_counts(filled, theta, pi)))
            for _ in range(self.n_rounds):
                soft, _ = lda_counts(scale * filled, *models[-1], self.max_inference, self.inference_tol)
                models[-1] = _fit_dirichlets(soft, *models[-1])
        self.alpha_, self.eta_ = (np.stack(column) for column in zip(*models))
        self.seen_ = pooled.sum(axis=1) > 0

    def _encode(self, statistics: Statistics) -> np.ndarray:
        scaled = statistics.s0.astype(real) * np.float64(self.count_scale)
        pooled = pool_cells(scaled.astype(real), self.per_cell)
        T, K = self.eta_.shape[1:]
        codes = np.empty((*pooled.shape[:2], T + T * K), real)
        limits = self.max_inference, float(self.inference_tol)
        for part, alpha, eta, into in zip(pooled, self.alpha_, self.eta_, codes, strict=True):
            _encode(part, alpha, eta, eta.sum(axis=1), _digamma(eta), *limits, into)
        for into, seen in zip(codes, () if self.seen_ is None else self.seen_):
            into[:, T:].reshape(len(into), T, K)[:, :, ~seen] = 0
        return unpool_cells(codes, len(statistics))


def _fit_dirichlets(soft: np.ndarray, alpha: Any = None, eta: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """The alpha and eta that maximise F at soft counts (n, T, K)."""
    starts = [None] * soft.shape[1] if eta is None else eta
    topics = [fit_polya(soft[:, t], start) for t, start in enumerate(starts)]
    return fit_polya(soft.sum(axis=2), alpha), np.stack(topics)
