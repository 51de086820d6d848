# SPDX-License-Identifier: BSD-3-Clause
r"""Latent Dirichlet allocation with topics that vary from image to image, and its Fisher encoding.

As in PLSA (:mod:`patchbag.encodings.topics`) a word comes from one of T topics, but both the mixing of the topics and
the topics themselves are latent in every image (cinbis2012, eq. 15-16): :math:`\theta \sim \mathcal D(\alpha)`,
:math:`\pi_t \sim \mathcal D(\eta_t)`.  This is not the usual LDA, whose topics are common to all images;
scikit-learn's ``LatentDirichletAllocation`` computes another posterior and cannot serve here.

Variational inference iterates, for one image with counts :math:`n_k` (patches with the same word share their q),

.. math::
   q_{tk} \propto \exp[\psi(\alpha^*_t) - \psi(\hat\alpha^*) + \psi(\eta^*_{tk}) - \psi(\hat\eta^*_t)], \quad
   \alpha^*_t = \alpha_t + \sum_k n_k q_{tk}, \quad
   \eta^*_{tk} = \eta_{tk} + n_k q_{tk} \tag{17}

(:mod:`patchbag.encodings.lda_inference`).  An update of all three raises the bound F (:func:`lda_free_energy`).  The
encoding is its gradient,

.. math::
   \partial F/\partial\alpha_t  &= \psi(\alpha^*_t) - \psi(\hat\alpha^*) - [\psi(\alpha_t) - \psi(\hat\alpha)] & (18) \\
   \partial F/\partial\eta_{tk} &= \psi(\eta^*_{tk}) - \psi(\hat\eta^*_t) - [\psi(\eta_{tk}) - \psi(\hat\eta_t)] & (19)

that is, a Pólya gradient of the topic counts and one of each topic's word counts.  T = 1 is the Pólya encoding.

**Learning.** As in the paper, PLSA is trained first and Dirichlet priors are fitted to what it infers.  PLSA has one
:math:`\pi_t` for all images, to which no Dirichlet can be fitted; what varies between images is the topic's share of
their words.  So :math:`\eta_t` is the Pólya fit to the counts :math:`n_{ik} q_{itk}` and :math:`\alpha` that to their
sums over k, both being the M-step of F at PLSA's q, and robust to zeros.  ``n_rounds`` > 0 goes on with variational EM.

Layout: ``[alpha (T) | eta (T·K), topic after topic]``.  A word that no training image has encodes as zeros (see
:mod:`patchbag.encodings.polya`, also for ``count_scale``); so does an empty cell.

Cost: see the inference; the gradient adds one digamma for each topic and word with a count.  Codes are float32, as the
inference is.

Citation keys: cinbis2012; Blei, Ng & Jordan, *Latent Dirichlet allocation*, 2003.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numba import njit, prange
from scipy.special import digamma as _digamma
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from patchbag.encodings.conjugate import digamma, fit_polya
from patchbag.encodings.lda_inference import infer_image, lda_counts
from patchbag.encodings.polya import (
    as_counts,
    check_same_layout,
    check_scale,
    polya_gradient,
    polya_log_likelihood,
    polya_shift,
    pool_cells,
)
from patchbag.encodings.topics import check_topics, fit_plsa, topic_counts
from patchbag.runtime import parallel_njit


@njit(cache=True, nogil=True, error_model="numpy")
def _encode_image(counts, alpha, eta, eta_totals, base, max_iter, tol, scale, out):
    """Equations 18-19 into out (T + T·K,); base (T, K) is psi(eta)."""
    T, K = eta.shape
    words = np.flatnonzero(counts)
    soft, _ = infer_image(counts, words, alpha, eta, eta_totals, max_iter, tol, scale)
    row = np.empty(len(words))
    total, total_alpha = 0.0, 0.0
    for t in range(T):
        share = 0.0
        for j in range(len(words)):
            share += soft[t, j]
            row[j] = eta[t, words[j]] + soft[t, j]
        for j in range(len(words)):
            row[j] = digamma(row[j])
        shift = polya_shift(eta_totals[t], share)
        first = T + t * K
        for k in range(K):
            out[first + k] = shift
        for j in range(len(words)):
            out[first + words[j]] = row[j] - base[t, words[j]] + shift
        out[t] = -polya_shift(alpha[t], share)
        total += share
        total_alpha += alpha[t]
    shift = polya_shift(total_alpha, total)
    for t in range(T):
        out[t] += shift


@parallel_njit()
def _encode(counts, alpha, eta, eta_totals, base, max_iter, tol, scale, out):
    for i in prange(len(counts)):
        _encode_image(counts[i], alpha, eta, eta_totals, base, max_iter, tol, scale, out[i])


def lda_gradient(soft_counts: np.ndarray, alpha: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """Gradient of F (eq. 18-19): (n, T, K) soft counts to (n, T + T·K)."""
    n = len(soft_counts)
    words = polya_gradient(soft_counts, eta)
    return np.concatenate([polya_gradient(soft_counts.sum(axis=2), alpha), words.reshape(n, -1)], axis=1)


def lda_free_energy(soft_counts: np.ndarray, alpha: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """The bound F on ln p(w) of each image, at soft counts (n, T, K) and the q(theta), q(pi) that are best for them."""
    soft = np.asarray(soft_counts, dtype=np.float64)
    n = soft.sum(axis=1, keepdims=True)
    q = soft / np.where(n > 0, n, 1)
    entropy = -np.sum(soft * np.log(np.where(q > 0, q, 1)), axis=(1, 2))
    return polya_log_likelihood(soft.sum(axis=2), alpha) + polya_log_likelihood(soft, eta).sum(axis=1) + entropy


class LDAFisher(TransformerMixin, BaseEstimator):
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

    def __init__(
        self,
        n_topics: int = 2,
        count_scale: float = 1.0,
        per_cell: bool = True,
        n_rounds: int = 0,
        max_inference: int = 100,
        inference_tol: float = 1e-3,
        max_iter: int = 500,
        tol: float = 1e-6,
        random_state: Any = None,
    ):
        self.n_topics = n_topics
        self.count_scale = count_scale
        self.per_cell = per_cell
        self.n_rounds = n_rounds
        self.max_inference = max_inference
        self.inference_tol = inference_tol
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the priors from ``Statistics`` or counts (n, K) or (n, C, K)."""
        counts, _ = as_counts(X)
        n_topics, scale = check_topics(self.n_topics, counts), check_scale(self.count_scale)
        rng = check_random_state(self.random_state)
        pooled = pool_cells(counts, self.per_cell)
        models = []
        for part in pooled:
            filled = np.ascontiguousarray(part[part.sum(axis=1) > 0])
            theta, pi, _ = fit_plsa(filled, n_topics, self.max_iter, self.tol, rng)
            models.append(_fit_dirichlets(scale * topic_counts(filled, theta, pi)))
            for _ in range(self.n_rounds):
                soft, _ = lda_counts(filled, *models[-1], self.max_inference, self.inference_tol, scale)
                models[-1] = _fit_dirichlets(soft, *models[-1])
        self.alpha_, self.eta_ = (np.stack(column) for column in zip(*models))
        self.seen_ = pooled.sum(axis=1) > 0
        self.n_cells_in_, self.n_words_in_ = counts.shape[1:]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Encode ``Statistics`` or counts: (n, T(1 + K)), or (n, C, T(1 + K)) if there are cells."""
        check_is_fitted(self)
        counts, has_cells = as_counts(X)
        check_same_layout(self, counts)
        pooled = pool_cells(counts, self.per_cell)
        width = self.alpha_.shape[1] * (1 + counts.shape[2])
        codes = np.empty((*pooled.shape[:2], width), np.float32)
        limits = self.max_inference, float(self.inference_tol), check_scale(self.count_scale)
        for part, alpha, eta, seen, into in zip(pooled, self.alpha_, self.eta_, self.seen_, codes):
            _encode(part.astype(np.float32, copy=False), alpha, eta, eta.sum(axis=1), _digamma(eta), *limits, into)
            if not seen.all():
                into[:, len(alpha) :].reshape(len(into), len(alpha), -1)[:, :, ~seen] = 0
        codes = codes.transpose(1, 0, 2) if self.per_cell else codes.reshape(*counts.shape[:2], -1)
        return codes if has_cells else codes[:, 0]


def _fit_dirichlets(soft: np.ndarray, alpha: Any = None, eta: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """The alpha and eta that maximise F at soft counts (n, T, K)."""
    starts = [None] * soft.shape[1] if eta is None else eta
    topics = [fit_polya(soft[:, t], start) for t, start in enumerate(starts)]
    return fit_polya(soft.sum(axis=2), alpha), np.stack(topics)
