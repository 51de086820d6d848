# SPDX-License-Identifier: BSD-3-Clause
"""Inner products of vectors (Fisher vectors, word counts) as a kernel, so that they can join others.

The Gram matrix of fewer dimensions than images is singular.  Summed in single precision, some of the eigenvalues that
are zero come out negative, and the matrix is no kernel any more; so it is summed in double precision, by blocks of
columns.  Half of the symmetric matrix is computed: at most twice the time of single precision, and far less than the
eigenvalues that a repair takes.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from scipy.linalg.blas import dsyrk

from patchbag.device import lies_elsewhere, like, product
from patchbag.encodings.normalize import l2_normalize
from patchbag.parameters import estimator, parameter
from patchbag.similarity.base import Kernel
from patchbag.storage.declared import Declared, floats

BLOCK = 4096  # columns that are in double precision at a time


def gram_matrix(vectors: np.ndarray) -> np.ndarray:
    """(n, n) inner products of ``vectors (n, d)`` with each other, symmetric, in double precision."""
    lower = np.zeros((len(vectors), len(vectors)), order="F")
    for start in range(0, vectors.shape[1], BLOCK):
        columns = vectors[:, start : start + BLOCK].astype(np.float64, order="C")
        # the transpose of rows in a row is what BLAS takes without a copy
        lower = dsyrk(1.0, columns.T, beta=1.0, c=lower, trans=1, lower=1, overwrite_c=1)
    gram = lower.T  # the upper triangle, in the order of rows
    gram += np.triu(gram, 1).T
    return gram


@estimator
class InnerProductKernel(Kernel):
    """Inner products of vectors with those of the reference images.

    Parameters
    ----------
    normalize : divide by the lengths, so that every image has kernel one with itself; a vector of zeros stays zero

    Attributes
    ----------
    references_ : (n, width), of unit length if normalised

    >>> InnerProductKernel().fit_transform(np.array([[3.0, 4.0], [4.0, 3.0]])).round(2).tolist()
    [[1.0, 0.96], [0.96, 1.0]]
    """

    normalize: bool = parameter("boolean", default=True)

    _stored: ClassVar[dict[str, Declared]] = {
        "references_": floats("n", "d"),
    }

    def _check(self, X: Any, fitted: bool = False) -> Any:
        vectors = X if lies_elsewhere(X) else np.asarray(X)
        xp = array_namespace(vectors)
        if vectors.ndim != 2 or not xp.isdtype(vectors.dtype, ("bool", "real floating", "integral")):
            raise ValueError(f"expected one vector per image, (n, width), got shape {vectors.shape} of {vectors.dtype}")
        if fitted and vectors.shape[1] != self.references_.shape[1]:
            raise ValueError(f"fitted on vectors of {self.references_.shape[1]} numbers, got {vectors.shape[1]}")
        vectors = vectors if xp.isdtype(vectors.dtype, "real floating") else xp.astype(vectors, xp.float64)
        if not bool(xp.all(xp.isfinite(vectors))):
            bad = int(xp.argmin(xp.astype(xp.all(xp.isfinite(vectors), axis=1), xp.int8)))
            raise ValueError(f"the vector of image {bad} of {len(vectors)} has a value that is not finite")
        return self._unit(vectors) if self.normalize else vectors

    @staticmethod
    def _unit(vectors: Any) -> Any:
        if lies_elsewhere(vectors):
            return l2_normalize(vectors)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
        return vectors / np.where(lengths > 0, lengths, 1.0).astype(vectors.dtype)

    def _fit_gram(self, X: Any) -> Any:
        if lies_elsewhere(X):
            return super()._fit_gram(X)
        self._fit(X)
        return gram_matrix(X)

    def with_sums(self, weights: Sequence[np.ndarray]) -> Self:
        (own,) = weights
        made = copy(self)
        made.references_ = np.empty((own.shape[1], self.references_.shape[1]), self.references_.dtype)
        for start in range(0, self.references_.shape[1], BLOCK):
            columns = slice(start, start + BLOCK)
            made.references_[:, columns] = own.T @ self.references_[:, columns].astype(np.float64)
        return made

    def _compare(self, vectors: Any) -> Any:
        xp = array_namespace(vectors)
        return xp.astype(product(vectors, like(self.references_, vectors).T), xp.float64, copy=False)
