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
enters N.

Cost: two digammas for each non-zero count and two for each image.  Citation key: cinbis2012.
"""

import warnings
from typing import Any, ClassVar

import numpy as np
from numba import njit, prange
from scipy.special import digamma as _digamma

from patchbag.encodings.base import StatisticsTransformer, pool_cells
from patchbag.encodings.conjugate import LARGEST, fit_polya
from patchbag.mixture.statistics import Statistics
from patchbag.parameters import NOT_NEGATIVE, ONE_OR_MORE, POSITIVE, estimator, parameter
from patchbag.runtime import parallel_njit
from patchbag.special import digamma
from patchbag.storage.declared import NOT_ZERO, Declared, Either, booleans, floats


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
    alpha : (K,), or (C, K) for one model per cell; positive
    count_scale : multiplies the counts

    Returns
    -------
    Of the shape of ``counts``, float32 if they are, else float64
    """
    counts = np.asarray(counts)
    cells = counts if counts.ndim == 3 else counts[:, None, :]
    out = np.empty(cells.shape, np.float32 if counts.dtype == np.float32 else np.float64)
    models = np.atleast_2d(np.asarray(alpha, dtype=np.float64))
    _gradient(np.ascontiguousarray(cells), models, _digamma(models), float(count_scale), out)
    return out.reshape(counts.shape)


def discount_curve(alpha: float, counts: Any) -> np.ndarray:
    """The discount psi(alpha + n), rescaled so that it is 0 at the smallest and 1 at the largest count (figure 5)."""
    counts = np.asarray(counts, dtype=np.float64)
    increments = _digamma(alpha + counts) - _digamma(alpha + counts.min())
    return increments / increments.max()


@estimator
class PolyaVector(StatisticsTransformer):
    """Bag of words with burstiness discounted by a Pólya model.

    Parameters
    ----------
    count_scale : multiplies the counts; below 1 for patches that overlap (see the module's text)
    per_cell : fit one alpha for each spatial cell (True) or one for all (False)
    max_iter, tol : of the maximum-likelihood fit

    Attributes
    ----------
    alpha_ : (K,), or (C, K) with one model per cell
    seen_ : of the same shape, False for a word that no training image has; such entries of the encoding are zero

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.random.default_rng(0).negative_binomial(0.5, 0.1, size=(120, 256))
    >>> PolyaVector().fit_transform(counts).shape
    (120, 256)
    """

    learns = True
    count_scale: float = parameter(POSITIVE, default=1.0)
    per_cell: bool = parameter("boolean", default=True)
    max_iter: int = parameter(ONE_OR_MORE, default=200)
    tol: float = parameter(NOT_NEGATIVE, default=1e-6)

    _stored: ClassVar[dict[str, Declared]] = {
        "alpha_": Either((floats("K", low=NOT_ZERO), floats("C", "K", low=NOT_ZERO))),
        "seen_": Either((booleans("K"), booleans("C", "K")), optional=True),
    }
    seen_: np.ndarray | None = None  # models of earlier versions do not have it

    def _fit(self, statistics: Statistics) -> None:
        pooled = pool_cells(statistics.s0, self.per_cell)
        models = [fit_polya(part * float(self.count_scale), max_iter=self.max_iter, tol=self.tol) for part in pooled]
        alpha, seen = np.stack(models), pooled.sum(axis=1) > 0
        if (alpha.sum(axis=1) >= 0.99 * LARGEST).any():
            warnings.warn(
                "the counts vary no more than independent draws would, so alpha is at its bound and the encoding is "
                f"linear in the counts; with count_scale={self.count_scale:g} raise it, or use the plain bag of words",
                UserWarning,
                stacklevel=4,
            )
        self.alpha_, self.seen_ = (a if len(a) > 1 else a[0] for a in (alpha, seen))

    def _encode(self, statistics: Statistics) -> np.ndarray:
        codes = polya_gradient(statistics.s0, self.alpha_, self.count_scale)
        if self.seen_ is not None:
            codes[:, ~np.broadcast_to(self.seen_, codes.shape[1:])] = 0
        return codes
