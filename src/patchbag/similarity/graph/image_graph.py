# SPDX-License-Identifier: BSD-3-Clause
r"""The neighbour graph of all images of a pool.

Vectors are made comparable first: each entry to a signed power (1/2 for activations of a network, counts and the like,
whose large entries say the same thing again), the mean taken off, and unit length.  Each image is joined to its k
nearest by cosine, hubs discounted (see neighbors); an edge weighs max(0, cos)³, and W is the mean of both directions,
so that an edge on which both images agree weighs twice as much.  A graph keeps the m leading eigenvectors of
S = D^-1/2 W D^-1/2 (see spectrum), on which everything else stands: diffusion, clusters, and what a label says about
images that have none.

**A new image** is placed in the graph by its own k nearest among the images of the pool.  With their affinities w and
its degree d = Σ w, its row of S is w_j / √(d D_j), and its coordinates in the eigenvectors are those that make the
eigenvector equation hold for it too, as in Nyström's method: (row U) / λ.  The pool does not change.

Cost: the neighbour search, 2 n² d, and the eigenvectors, n m²; nothing of size n × n is ever held.  A pool that is
given by a kernel is turned into vectors whose inner products are the kernel's, by its eigenvectors or, beyond
``LANDMARKS`` images, by those of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from patchbag.similarity.graph.neighbors import WIDER, hubness, nearest, without_hubs
from patchbag.similarity.graph.spectrum import ISOLATED, leading_eigenvectors
from patchbag.storage.declared import floats, integer, real, stored
from patchbag.storage.registry import storable

LANDMARKS = 1500
NEIGHBORS = 20
EIGENVECTORS = 300
SHARPNESS = 3  # power of the cosine in an affinity


@storable
@dataclass(frozen=True)
class ImageGraph:
    """A pool of n images: vectors, neighbours, spectrum.

    Attributes
    ----------
    vectors : (n, d) float32, of unit length
    mean, power : what was done to the vectors before
    hub : (n,) mean cosine to the nearest neighbours
    degrees : (n,) sums of affinities
    n_neighbors : neighbours of each image, at most
    eigenvalues, eigenvectors : (m,) and (n, m), the leading ones of the normalised affinities, descending

    >>> graph = ImageGraph.from_vectors(np.random.default_rng(0).random((50, 8)))
    >>> len(graph), graph.eigenvectors.shape
    (50, (50, 50))
    """

    vectors: np.ndarray = stored(floats("n", "d"))
    mean: np.ndarray = stored(floats("d"))
    power: float = stored(real(low=0))
    hub: np.ndarray = stored(floats("n"))
    degrees: np.ndarray = stored(floats("n", low=0))
    n_neighbors: int = stored(integer(low=1))
    eigenvalues: np.ndarray = stored(floats("m"))
    eigenvectors: np.ndarray = stored(floats("n", "m"))

    @classmethod
    def from_vectors(
        cls,
        X: Any,
        *,
        n_neighbors: int = NEIGHBORS,
        n_eigenvectors: int = EIGENVECTORS,
        power: float = 0.5,
        n_jobs: int | None = None,
    ) -> ImageGraph:
        """The graph of at least two images with vectors ``X (n, d)``.

        Parameters
        ----------
        n_neighbors : k; all others where there are fewer
        n_eigenvectors : m; all where there are fewer images
        power : of the absolute values of the entries, 1 to leave them as they are
        """
        X = check_vectors(X)
        n = len(X)
        if n < 2:
            raise ValueError("a graph needs at least two images, got one")
        powered = signed_power(X, power)
        mean = powered.mean(axis=0, dtype=np.float64).astype(np.float32)
        vectors = unit_rows(powered - mean)
        k = min(n_neighbors, n - 1)
        indices, cosines = nearest(vectors, min(WIDER * n_neighbors, n - 1), n_jobs=n_jobs)
        hub = hubness(cosines)
        indices, cosines = without_hubs(indices, cosines, hub, k)
        weights = _affinities(cosines)
        one_way = sparse.csr_matrix((weights.ravel(), indices.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
        affinity = ((one_way + one_way.T) / 2).tocsr()
        affinity.eliminate_zeros()
        eigenvalues, eigenvectors = leading_eigenvectors(affinity, min(n_eigenvectors, n))
        degrees = np.asarray(affinity.sum(axis=1), dtype=float).ravel()
        return cls(vectors, mean, power, hub, degrees, n_neighbors, eigenvalues, eigenvectors)

    @classmethod
    def from_kernel(cls, kernel: np.ndarray, **settings: Any) -> ImageGraph:
        """The graph of images with a positive semidefinite ``kernel (n, n)``; settings as of ``from_vectors``."""
        return cls.from_vectors(kernel_vectors(kernel), power=1.0, **settings)

    def __len__(self) -> int:
        return len(self.vectors)

    def prepare(self, X: Any) -> np.ndarray:
        """Vectors (M, d) of new images as the graph has them."""
        return prepare_vectors(X, self.mean, self.power)

    def place(self, vectors: np.ndarray, n_jobs: int | None = None) -> np.ndarray:
        """Coordinates (M, m) in the eigenvectors of new images with prepared ``vectors (M, d)``."""
        n = len(self)
        indices, cosines = nearest(self.vectors, min(WIDER * self.n_neighbors, n), vectors, n_jobs)
        indices, cosines = without_hubs(indices, cosines, self.hub, min(self.n_neighbors, n))
        weights = _affinities(cosines)
        scale = np.sqrt(np.maximum(weights.sum(axis=1), ISOLATED))[:, None]
        rows = weights / (scale * np.sqrt(np.maximum(self.degrees, ISOLATED))[indices])
        coordinates = np.einsum("ij,ijm->im", rows, self.eigenvectors[indices])
        return coordinates / np.where(np.abs(self.eigenvalues) > 1e-6, self.eigenvalues, np.inf)


def unit_rows(X: np.ndarray) -> np.ndarray:
    """Rows divided by their lengths, float32; rows of zeros stay zero."""
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))[:, None]
    return np.asarray(X / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def kernel_vectors(kernel: np.ndarray, n_landmarks: int = LANDMARKS, most: int | None = None) -> np.ndarray:
    """(n, r) vectors whose inner products are those of ``kernel (n, n)``, nearly so with fewer landmarks than images;
    the largest directions first, at most so many of them.
    """
    landmarks = np.sort(np.random.RandomState(0).permutation(len(kernel))[:n_landmarks])
    values, vectors = np.linalg.eigh(kernel[np.ix_(landmarks, landmarks)])
    keep = np.flatnonzero(values > 1e-8 * max(values[-1], 1e-300))[::-1][:most]
    return np.asarray(kernel[:, landmarks] @ (vectors[:, keep] / np.sqrt(values[keep])))


def check_vectors(X: Any) -> np.ndarray:
    """X as float32 (n, d), n ≥ 1, finite."""
    X = np.asarray(X)
    if X.ndim != 2 or not X.size or X.dtype.kind not in "biuf":
        raise ValueError(f"expected one vector per image, (n, d), got shape {X.shape} of {X.dtype}")
    X = X.astype(np.float32, copy=False)
    if not np.isfinite(X).all():
        bad = int(np.argmin(np.isfinite(X).all(axis=1)))
        raise ValueError(f"the vector of image {bad} of {len(X)} has a value that is not finite")
    return X


def prepare_vectors(X: Any, mean: np.ndarray, power: float) -> np.ndarray:
    """Vectors (M, d) of new images as those of a pool are: entries to a power, its mean taken off, of unit length."""
    X = check_vectors(X)
    if X.shape[1] != len(mean):
        raise ValueError(f"the pool has vectors of {len(mean)} numbers, got {X.shape[1]}")
    return unit_rows(signed_power(X, power) - mean)


def signed_power(X: np.ndarray, power: float) -> np.ndarray:
    """Entries of X with their absolute values to a power."""
    return X if power == 1.0 else np.sign(X) * np.abs(X) ** np.float32(power)


def _affinities(cosines: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(cosines, 0.0).astype(float) ** SHARPNESS)
