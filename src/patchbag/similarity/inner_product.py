# SPDX-License-Identifier: BSD-3-Clause
"""Inner products of vectors (Fisher vectors, word counts) as a kernel, so that they can join others."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from patchbag.declared import Declared, floats
from patchbag.similarity.base import Kernel


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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"normalize": ["boolean"]}

    _stored: ClassVar[dict[str, Declared]] = {
        "references_": floats("n", "d"),
    }

    def __init__(self, normalize: bool = True) -> None:
        self.normalize = normalize

    def _check(self, X: Any, fitted: bool = False) -> np.ndarray:
        vectors = np.asarray(X)
        if vectors.ndim != 2 or vectors.dtype.kind not in "biuf":
            raise ValueError(f"expected one vector an image, (n, width), got shape {vectors.shape} of {vectors.dtype}")
        if fitted and vectors.shape[1] != self.references_.shape[1]:
            raise ValueError(f"fitted on vectors of {self.references_.shape[1]} numbers, got {vectors.shape[1]}")
        vectors = vectors if vectors.dtype.kind == "f" else vectors.astype(np.float64)
        if not np.isfinite(vectors).all():
            bad = int(np.argmin(np.isfinite(vectors).all(axis=1)))
            raise ValueError(f"the vector of image {bad} of {len(vectors)} has a value that is not finite")
        if not self.normalize:
            return vectors
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
        return vectors / np.where(lengths > 0, lengths, 1.0).astype(vectors.dtype)

    def _compare(self, vectors: np.ndarray) -> np.ndarray:
        return np.asarray(vectors @ self.references_.T, dtype=np.float64)
