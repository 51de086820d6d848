# SPDX-License-Identifier: BSD-3-Clause
"""Inner products of vectors (Fisher vectors, word counts) as a kernel, so that they can join others."""

from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from patchbag.device import lies_elsewhere, like, product
from patchbag.encodings.normalize import l2_normalize
from patchbag.parameters import estimator, parameter
from patchbag.similarity.base import Kernel
from patchbag.storage.declared import Declared, floats


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

    def _compare(self, vectors: Any) -> Any:
        xp = array_namespace(vectors)
        return xp.astype(product(vectors, like(self.references_, vectors).T), xp.float64, copy=False)
