# SPDX-License-Identifier: BSD-3-Clause
"""Inner products of vectors (Fisher vectors, word counts) as a kernel, so that they can join others."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted


class InnerProductKernel(TransformerMixin, BaseEstimator):
    """Inner products of vectors with those of the reference images.

    Parameters
    ----------
    normalize : divide by the lengths, so that every image has kernel one with itself; a vector of zeros stays zero

    >>> InnerProductKernel().fit_transform(np.array([[3.0, 4.0], [4.0, 3.0]])).round(2).tolist()
    [[1.0, 0.96], [0.96, 1.0]]
    """

    def __init__(self, normalize: bool = True) -> None:
        self.normalize = normalize

    def fit(self, X: Any, y: Any = None) -> Self:
        """Keep the vectors of the reference images."""
        self.reference_ = self._vectors(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Gram matrix (n, n)."""
        gram = self.fit(X).transform(X)
        return (gram + gram.T) / 2

    def transform(self, X: Any) -> np.ndarray:
        """Kernel (m, n) between m vectors and the n reference vectors."""
        check_is_fitted(self, "reference_")
        vectors = self._vectors(X)
        if vectors.shape[1] != self.reference_.shape[1]:
            raise ValueError(f"fitted on vectors of {self.reference_.shape[1]} numbers, got {vectors.shape[1]}")
        return np.asarray(vectors @ self.reference_.T, dtype=np.float64)

    def _vectors(self, X: Any) -> np.ndarray:
        vectors = np.asarray(X)
        if vectors.ndim != 2 or vectors.dtype.kind not in "biuf":
            raise ValueError(f"expected one vector an image, (n, width), got shape {vectors.shape} of {vectors.dtype}")
        vectors = vectors if vectors.dtype.kind == "f" else vectors.astype(np.float64)
        if not np.isfinite(vectors).all():
            bad = int(np.argmin(np.isfinite(vectors).all(axis=1)))
            raise ValueError(f"the vector of image {bad} of {len(vectors)} has a value that is not finite")
        if not self.normalize:
            return vectors
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
        return vectors / np.where(lengths > 0, lengths, 1.0).astype(vectors.dtype)
