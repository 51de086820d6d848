# SPDX-License-Identifier: BSD-3-Clause
r"""Random Fourier features: explicit vectors of shift-invariant kernels, without learning (liu2010 §7.5).

A kernel of differences is the Fourier transform of a distribution p (Bochner), :math:`K(x - z) = E_\omega
\cos(\omega'(x - z))` (7.7), so that with E/2 draws from p (7.8)

.. math:: \varphi(x) = \sqrt{2/E}\, [\cos \omega_1'x, \dots, \cos \omega_{E/2}'x, \sin \omega_1'x, \dots].

===============  ======================================================  =============================================
kernel           of two histograms                                       ω
===============  ======================================================  =============================================
bhattacharyya    :math:`\exp(-\frac\gamma2 \|\sqrt x - \sqrt z\|^2)`     normal, variance γ; of :math:`\sqrt x`
intersection     :math:`\exp(-\frac\gamma2 |x - z|_1)`                   Cauchy, scale γ/2 (Laplacian)
===============  ======================================================  =============================================

These are K_bha^exp and K_int^exp of :class:`~patchbag.similarity.histograms.kernel.HistogramKernel` with its γ.

**Slip.**  The thesis prints the factor 1/√D; for E/2 pairs it must be √(2/E), which is what makes φ(x)'φ(x) = 1.

**Deviations.**  ``orthogonal=True`` draws the normal ω in orthogonal groups of D with lengths as before (Yu et al.
2016): the same expectation, less variance the closer E/2 is to D.  scikit-learn's ``RBFSampler`` has one cosine with a
random phase per number in place of the pair, whose error is larger for near samples (the diagonal is not 1), and no
Laplacian.

Cost: D · E/2 numbers to draw (O(D² E) more for orthogonal ones), D · E operations per sample; sparse rows save those of
their zeros.  The vectors are dense.
"""

from dataclasses import KW_ONLY
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from patchbag.embeddings.additive import HistogramMap
from patchbag.parameters import POSITIVE, TWO_OR_MORE, estimator, parameter
from patchbag.records import require_finite
from patchbag.runtime import check_random_state
from patchbag.similarity.histograms.kernel import HistogramKernel
from patchbag.storage.declared import Declared, floats, real

GAMMA_SAMPLES = 512


def draw_frequencies(kernel: str, shape: tuple[int, int], gamma: float, random: Any, orthogonal: bool) -> np.ndarray:
    """ω (D, E/2) float32, one frequency per column; infinite where gamma is too large for that."""
    size, n = shape
    if kernel == "intersection":
        with np.errstate(over="ignore"):
            return (gamma / 2 * random.standard_cauchy(shape)).astype(np.float32)
    normal = random.standard_normal(shape)
    if orthogonal:
        lengths = np.linalg.norm(random.standard_normal(shape), axis=0)
        for start in range(0, n, size):
            normal[:, start : start + size] = np.linalg.qr(normal[:, start : start + size])[0]
        normal *= lengths
    with np.errstate(over="ignore"):
        return (np.sqrt(gamma) * normal).astype(np.float32)


@estimator
class RandomFourierMap(HistogramMap):
    """Histograms → vectors whose inner products are an exponential kernel, nearly.

    Parameters
    ----------
    kernel : ``"bhattacharyya"`` or ``"intersection"``
    n_components : E, even; None for twice the dimensions
    gamma : by default 1 / mean distance between some training histograms
    orthogonal : frequencies of the Bhattacharyya kernel that are orthogonal in groups
    random_state : seed of the frequencies

    Attributes
    ----------
    frequencies_ : (D, E/2);  gamma_

    >>> RandomFourierMap(n_components=100).fit_transform(words).shape
    (120, 100)
    """

    kernel: str = parameter(StrOptions({"bhattacharyya", "intersection"}), default="bhattacharyya")
    _: KW_ONLY
    n_components: int | None = parameter(TWO_OR_MORE, None, default=None)
    gamma: float | None = parameter(POSITIVE, None, default=None)
    orthogonal: bool = parameter("boolean", default=False)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "gamma_": real(low=0),
        "frequencies_": floats("d", "pairs"),
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        X = self._check(X, reset=True)
        random = check_random_state(self.random_state)
        if self.gamma is not None:
            self.gamma_ = float(self.gamma)
        else:
            rows = X[np.sort(random.permutation(X.shape[0])[:GAMMA_SAMPLES])]
            rows = rows.toarray() if sparse.issparse(rows) else rows
            self.gamma_ = HistogramKernel(self.kernel, exponential=True).fit(rows).gamma_
        pairs = X.shape[1] if self.n_components is None else -(-self.n_components // 2)
        drawn = draw_frequencies(self.kernel, (X.shape[1], pairs), self.gamma_, random, self.orthogonal)
        self.frequencies_ = require_finite(drawn, "the frequencies", "scale the histograms to a sum of one")
        return self

    def transform(self, X: Any) -> np.ndarray:
        """(n, E) vectors of length one, dense."""
        check_is_fitted(self, "frequencies_")
        X = self._check(X, reset=False)
        if self.kernel == "bhattacharyya":
            X = X.sqrt() if sparse.issparse(X) else np.sqrt(X)
        angles = np.asarray(X @ self.frequencies_.astype(X.dtype, copy=False))
        out = np.empty((len(angles), 2 * angles.shape[1]), angles.dtype)
        np.cos(angles, out=out[:, : angles.shape[1]])
        np.sin(angles, out=out[:, angles.shape[1] :])
        out *= angles.shape[1] ** -0.5
        return require_finite(out, "the vectors")
