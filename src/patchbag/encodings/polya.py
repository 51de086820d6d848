# SPDX-License-Identifier: BSD-3-Clause
r"""Pólya (Dirichlet compound multinomial) encoding of visual-word counts.

An image's words are drawn from its own multinomial, itself drawn from Dirichlet(:math:`\alpha`).  Integrating the
multinomial out (cinbis2012, eq. 1) makes the words dependent, a word seen once is likely to be seen again:

.. math::
   p(w_{1:N}) = \frac{\Gamma(\hat\alpha)}{\Gamma(\hat\alpha + N)}
   \prod_k \frac{\Gamma(\alpha_k + n_k)}{\Gamma(\alpha_k)}, \qquad \hat\alpha = \sum_k \alpha_k \tag{2}

and the encoding is the gradient of its logarithm,

.. math::
   \frac{\partial \ln p}{\partial \alpha_k}
   = \psi(\alpha_k + n_k) - \psi(\hat\alpha + N) - \psi(\alpha_k) + \psi(\hat\alpha). \tag{3}

For fixed N this is a concave, monotone discount of :math:`n_k`, close to a square root (:func:`discount_curve`, figure
5).  It becomes linear as :math:`\alpha \to \infty`, where the model is the plain multinomial, and a step as
:math:`\alpha \to 0`, where only the presence of a word counts.

:math:`\alpha` is fitted by maximum likelihood (:func:`patchbag.encodings.conjugate.fit_polya`).  Soft counts
:math:`s^0_k` take the place of :math:`n_k` as they do in the latent mixture (eq. 14 with 21), of which this is the
``alpha`` block.

``count_scale`` multiplies the counts before everything else.  The model takes the N patches for independent draws from
the image's multinomial, but patches on a dense grid overlap, and 1,000 of them say as much as perhaps 100 independent
ones; ``count_scale=0.1`` hands the model that effective number.  It weakens the discount.  Too small a scale leaves
counts that vary less than a multinomial's: then :math:`\alpha` runs to its bound, the encoding is linear, and ``fit``
warns.

Where it deviates from the paper: a word that no training image has would get :math:`\alpha_k = 0` and an infinite
gradient.  Its entry of the encoding is set to zero, for training gives it nothing to be compared with; its count still
enters N.  A cell without descriptors encodes as zeros, which is what eq. 3 gives; an image without any is an error.

Cost: two digammas for each non-zero count and two for each image.  Citation key: cinbis2012.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numba import njit, prange
from scipy import sparse
from scipy.special import digamma as _digamma
from scipy.special import gammaln
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from patchbag.encodings.conjugate import LARGEST, digamma, fit_polya
from patchbag.mixture.statistics import Statistics
from patchbag.runtime import parallel_njit


@njit(cache=True, nogil=True, error_model="numpy")
def polya_shift(total_alpha, total):
    """psi(A) - psi(A + N), what all words of an image share."""
    return digamma(total_alpha) - digamma(total_alpha + total)


@njit(cache=True, nogil=True, error_model="numpy")
def _gradient_row(counts, alpha, base, scale, out):
    N, A = 0.0, 0.0
    for k in range(len(counts)):
        N += scale * counts[k]
        A += alpha[k]
    shift = polya_shift(A, N)
    for k in range(len(counts)):
        out[k] = digamma(alpha[k] + scale * counts[k]) - base[k] + shift


@parallel_njit()
def _gradient(counts, alpha, base, scale, out):
    for i in prange(len(counts)):
        for c in range(counts.shape[1]):
            p = c if len(alpha) > 1 else 0
            _gradient_row(counts[i, c], alpha[p], base[p], scale, out[i, c])


def polya_gradient(counts: Any, alpha: Any, count_scale: float = 1.0) -> np.ndarray:
    """Gradient of the Pólya log-likelihood with respect to ``alpha`` (eq. 3).

    Parameters
    ----------
    counts : (n, K) or (n, C, K) soft or hard word counts
    alpha : (K,), or (C, K) for one model a cell; positive
    count_scale : multiplies the counts

    Returns
    -------
    Of the shape of ``counts``, float32 if they are, else float64
    """
    counts = np.asarray(counts)
    cells = counts if counts.ndim == 3 else counts[:, None, :]
    out = np.empty(cells.shape, np.float32 if counts.dtype == np.float32 else np.float64)
    models = np.atleast_2d(np.asarray(alpha, dtype=np.float64))
    if models.shape[-1] != cells.shape[2] or models.shape[0] not in (1, cells.shape[1]):
        raise ValueError(f"alpha has shape {models.shape}, the counts have {cells.shape[1:]} cells and words")
    _gradient(np.ascontiguousarray(cells), models, _digamma(models), float(count_scale), out)
    return out.reshape(counts.shape)


def polya_log_likelihood(counts: Any, alpha: Any) -> np.ndarray:
    """Logarithm of eq. 2 for each image: (..., K) counts and (K,) alpha to (...)."""
    counts, alpha = np.asarray(counts, dtype=np.float64), np.asarray(alpha, dtype=np.float64)
    total, N = alpha.sum(axis=-1), counts.sum(axis=-1)
    return gammaln(total) - gammaln(total + N) + np.sum(gammaln(alpha + counts) - gammaln(alpha), axis=-1)


def discount_curve(alpha: float, counts: Any) -> np.ndarray:
    """The discount psi(alpha + n), rescaled so that it is 0 at the smallest and 1 at the largest count (figure 5)."""
    counts = np.asarray(counts, dtype=np.float64)
    increments = _digamma(alpha + counts) - _digamma(alpha + counts.min())
    return increments / increments.max()


def as_counts(X: Any) -> tuple[np.ndarray, bool]:
    """Check word counts and bring them to the shape (n, C, K).

    Parameters
    ----------
    X : ``Statistics`` (their ``s0``), array or scipy sparse matrix of shape (n, K), or array of shape (n, C, K)

    Returns
    -------
    counts : (n, C, K) float32 or float64, C-contiguous, with C = 1 where X has no cells
    has_cells : whether X has an axis of cells
    """
    if isinstance(X, Statistics):
        X = X.s0
    if sparse.issparse(X):
        X = X.toarray()  # the encoding of a sparse row is dense, so this is never the largest array
    counts = np.asarray(X)
    if counts.dtype not in (np.float32, np.float64):
        if counts.dtype.kind not in "biuf":
            raise ValueError(f"expected numbers (counts), got an array of {counts.dtype}")
        counts = counts.astype(np.float64)
    if counts.ndim not in (2, 3) or 0 in counts.shape:
        raise ValueError(
            f"expected counts of shape (images, words) or (images, cells, words), all at least 1, got {counts.shape}"
        )
    has_cells = counts.ndim == 3
    counts = np.ascontiguousarray(counts if has_cells else counts[:, None, :])
    wrong = ~np.isfinite(counts).all(axis=(1, 2)) | (counts < 0).any(axis=(1, 2))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"image {i} of {len(counts)} has negative or non-finite counts (smallest {counts[i].min()}); "
            "pass counts of words, not a centred or whitened histogram"
        )
    empty = counts.sum(axis=(1, 2)) == 0
    if empty.any():
        raise ValueError(
            f"image {int(np.argmax(empty))} of {len(counts)} is empty: all its counts are 0; drop it, "
            "or extract descriptors with a smaller patch or step"
        )
    return counts, has_cells


def check_scale(count_scale: Any) -> float:
    """``count_scale`` as a float, or an error that says what it must be."""
    if not np.isfinite(count_scale) or count_scale <= 0:
        raise ValueError(f"count_scale must be a positive number (1.0 leaves the counts alone), got {count_scale!r}")
    return float(count_scale)


def pool_cells(counts: np.ndarray, per_cell: bool) -> np.ndarray:
    """Counts (n, C, K) as (models, samples, K): one model a cell, or one for the cells of all images together."""
    if per_cell:
        return np.ascontiguousarray(counts.transpose(1, 0, 2))
    return counts.reshape(1, -1, counts.shape[2])


def check_same_layout(estimator: Any, counts: np.ndarray) -> None:
    """Raise unless the cells and words are those that ``estimator`` was fitted on."""
    fitted = (estimator.n_cells_in_, estimator.n_words_in_)
    if counts.shape[1:] != fitted:
        raise ValueError(
            f"{type(estimator).__name__} was fitted on {fitted[0]} cells × {fitted[1]} words, "
            f"got {counts.shape[1]} cells × {counts.shape[2]} words"
        )


class PolyaEncoding(TransformerMixin, BaseEstimator):
    """Bag of words with burstiness discounted by a Pólya model.

    Parameters
    ----------
    count_scale : multiplies the counts; below 1 for patches that overlap (see the module's text)
    per_cell : fit one alpha for each spatial cell (True) or one for all (False)
    max_iter, tol : of the maximum-likelihood fit

    Attributes
    ----------
    alpha_ : (K,), or (C, K) if ``per_cell`` and the counts have cells
    seen_ : of the same shape, False for a word that no training image has; such entries of the encoding are zero
    n_words_in_, n_cells_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.random.default_rng(0).negative_binomial(0.5, 0.1, size=(120, 256))
    >>> PolyaEncoding().fit_transform(counts).shape
    (120, 256)
    """

    def __init__(self, count_scale: float = 1.0, per_cell: bool = True, max_iter: int = 200, tol: float = 1e-6):
        self.count_scale = count_scale
        self.per_cell = per_cell
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X: Any, y: Any = None) -> PolyaEncoding:
        """Fit alpha to ``Statistics`` or counts (n, K) or (n, C, K)."""
        counts, has_cells = as_counts(X)
        scale = check_scale(self.count_scale)
        pooled = pool_cells(counts, self.per_cell)
        alpha = np.stack([fit_polya(part * scale, max_iter=self.max_iter, tol=self.tol) for part in pooled])
        seen = pooled.sum(axis=1) > 0
        if (alpha.sum(axis=1) >= 0.99 * LARGEST).any():
            warnings.warn(
                "the counts vary no more than independent draws would, so alpha is at its bound and the encoding is "
                f"linear in the counts; with count_scale={scale:g} raise it, or use the plain bag of words",
                UserWarning,
                stacklevel=2,
            )
        one = not (has_cells and self.per_cell)
        self.alpha_ = alpha[0] if one else alpha
        self.seen_ = seen[0] if one else seen
        self.n_cells_in_, self.n_words_in_ = counts.shape[1:]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Encode ``Statistics`` or counts: (n, K), or (n, C, K) if there are cells."""
        check_is_fitted(self)
        counts, has_cells = as_counts(X)
        check_same_layout(self, counts)
        codes = polya_gradient(counts, self.alpha_, check_scale(self.count_scale))
        codes[:, ~np.atleast_2d(np.broadcast_to(self.seen_, codes.shape[1:]))] = 0
        return codes if has_cells else codes[:, 0]
