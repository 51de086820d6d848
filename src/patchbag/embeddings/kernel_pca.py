# SPDX-License-Identifier: BSD-3-Clause
r"""kPCA: explicit vectors of any kernel, from its values on M samples (liu2010 §7.3).

Vectors :math:`\varphi(x)` of E numbers, uncorrelated (7.3), whose inner products are nearest to the kernel matrix of M
samples (7.2) are its leading eigenvectors, and Nyström's formula (7.5) takes them to new samples:

.. math:: K \psi_e = \sigma_e^2 \psi_e \quad (7.4), \qquad \varphi_e(z) = K(z, \cdot)' \psi_e / \sigma_e \quad (7.5).

The kernel is any of ours that is symmetric: exponential kernels of histograms, probability products and divergences of
adapted mixtures (which the thesis leaves to future work), pyramid matches, unions.  Samples are rows, bags or mixtures:
whatever the kernel compares.

**Deviations.**  scikit-learn's ``Nystroem`` is the same for kernels of table rows; it needs a function of two vectors
and keeps all M directions, here the kernel is an estimator (γ is learned with it) and E may be less than M.
``KernelPCA`` of scikit-learn centres, which changes inner products.  Directions without energy, and those of negative
eigenvalues where a similarity is not definite, are left out: no linear classifier could use them.

Cost: M² kernel values and O(M³) to learn (the thesis sets M = E, "several thousands"), M kernel values and M · E
operations per new sample.
"""

from dataclasses import KW_ONLY
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import eigh
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context, clone
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.validation import check_is_fitted

from patchbag.parameters import ONE_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state
from patchbag.similarity.base import is_kernel
from patchbag.storage.declared import Declared, Part, floats, real


def kernel_directions(gram: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues σ² (E,), falling, and ψ/σ (M, E) of the at most n leading directions of a kernel matrix (M, M)."""
    size = len(gram)
    rounding = size * np.finfo(gram.dtype).eps
    values, vectors = eigh(gram.astype(np.float64, copy=False), subset_by_index=(max(size - n, 0), size - 1))
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > rounding * max(values[0], 0.0)
    return values[kept], vectors[:, kept] / np.sqrt(values[kept])


@estimator
class KernelPCAMap(TransformerMixin, BaseEstimator):
    """Samples → vectors whose inner products are a kernel, nearly.

    Parameters
    ----------
    kernel : a symmetric kernel of ours, or a pipeline that ends in one
    n_components : E, at most; None for all directions of the M samples
    n_samples : M, drawn from the training samples; None for all
    random_state : seed of the draw

    Attributes
    ----------
    kernel_ : fitted on the M samples;  eigenvalues_ (E,);  coefficients_ (M, E) = ψ/σ
    energy_ : share of the kernel matrix's trace that the E directions have

    >>> from patchbag import HistogramKernel
    >>> KernelPCAMap(HistogramKernel("chi2", exponential=True), n_components=10).fit_transform(words).shape
    (120, 10)
    """

    kernel: Any = parameter(HasMethods(["fit_transform", "transform"]))
    _: KW_ONLY
    n_components: int | None = parameter(ONE_OR_MORE, None, default=None)
    n_samples: int | None = parameter(ONE_OR_MORE, None, default=1024)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "kernel_": Part(methods=("transform",)),
        "eigenvalues_": floats("k", low=0),
        "coefficients_": floats("n", "k"),
        "energy_": real(),
    }

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None) -> Self:
        self._fit(X)
        return self

    def _fit(self, X: Any) -> np.ndarray | None:
        """The kernel matrix, where all samples teach."""
        if not is_kernel(self.kernel):
            raise ValueError(f"{type(self.kernel).__name__} is not a symmetric kernel, which has no explicit vectors")
        n = len(X)
        chosen = None
        if self.n_samples is not None and self.n_samples < n:
            chosen = np.sort(check_random_state(self.random_state).choice(n, self.n_samples, replace=False))
        self.kernel_ = clone(self.kernel)
        gram = np.asarray(self.kernel_.fit_transform(X if chosen is None else _safe_indexing(X, chosen)))
        self.eigenvalues_, self.coefficients_ = kernel_directions(gram, self.n_components or len(gram))
        if not len(self.eigenvalues_):
            raise ValueError("the kernel of the training samples has no positive eigenvalue: nothing to embed")
        self.energy_ = float(self.eigenvalues_.sum() / max(np.trace(gram), np.finfo(float).tiny))
        return gram if chosen is None else None

    @_fit_context(prefer_skip_nested_validation=False)
    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        gram = self._fit(X)
        return self.transform(X) if gram is None else gram @ self.coefficients_

    def transform(self, X: Any) -> np.ndarray:
        """(n, E) vectors."""
        check_is_fitted(self, "coefficients_")
        rows = np.asarray(self.kernel_.transform(X))
        return np.asarray(rows @ self.coefficients_.astype(rows.dtype, copy=False))
