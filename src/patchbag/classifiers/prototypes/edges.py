# SPDX-License-Identifier: BSD-3-Clause
r"""Class vectors, kernels on neighbours and edge matrices.

An example of class c has the symmetric class vector :math:`y_c = 1`, :math:`y_{c'} = -1/(C-1)` (piro2010, 4.2, 5.7).
Prototype j votes for example i if it is among the k nearest neighbours of i, itself left out, with the strength
:math:`K_{ij}` of a kernel that is cut off there:

* ``"knn"``: 1 (5.10);
* ``"gaussian"``: :math:`e^{-d^2/2\sigma^2}` (5.30), with a fixed width σ, or one that follows the distance
  :math:`\rho_k(x_i)` of the k-th neighbour of the example that is voted for: ``"adaptive"``,
  :math:`\sigma = \sqrt2 \rho_k`, or ``"sharp"``, :math:`\sigma = \rho_k / \sqrt2`;
* ``"intersection"``: :math:`1 - d_1/2` of histograms that sum to one, their intersection (5.32-5.34);
* ``"similarity"``: the similarity that neighbours were found by.

Edges, the votes times what they should be:

.. math::

    r^{(c)}_{ij} &= K_{ij} \operatorname{sign}(y_{ic} y_{jc}) \quad (4.13) \\
    r_{ij} &= \frac{K_{ij}}{C} \sum_c y_{ic} y_{jc}
    = K_{ij} \begin{cases} 1/(C-1) & \text{same class} \\ -1/(C-1)^2 & \text{else} \end{cases} \quad (5.21)

**Slip.**  (4.13) has :math:`y_{ic} y_{jc}` itself, which is 1, -1/(C-1) or 1/(C-1)².  Then (4.18) is not the zero of
(A.2), the risk may rise, and theorem 2, whose proof has weak classifiers with values -1, 0 and 1, does not hold; the
exact zero, on the other hand, is (C-1)² times as large for prototypes outside of the class, which are then all that the
largest δ ever chooses.  So a class is learned against the others by signs, as two classes are, and the class vectors
weigh the votes (4.10).

A ``"typical"`` σ is the root of the mean squared distance to the k-th neighbour: 0.25 in the thesis, whose vectors
have a scale that it does not give.

The thesis' adaptive σ leaves the k-th neighbour 0.78 of the largest vote, hardly less than the k-NN kernel does;
``"sharp"`` leaves it 1/e, which tells where few prototypes are kept and the k-th of them is far.
"""

import numpy as np
from scipy import sparse

KERNELS = ("knn", "gaussian", "intersection", "similarity")
REACHES = {"adaptive": np.sqrt(2.0), "sharp": np.sqrt(0.5)}  # σ / ρ_k


def class_vectors(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """(n, C) symmetric class vectors (4.2)."""
    vectors = np.full((len(codes), n_classes), -1.0 / (n_classes - 1))
    vectors[np.arange(len(codes)), codes] = 1.0
    return vectors


def typical_width(distances: np.ndarray) -> float:
    """σ of a Gaussian of fixed width, from distances (n, k) in ascending order."""
    return float(np.sqrt(np.mean(distances[:, -1] ** 2))) or 1.0


def kernel_values(
    distances: np.ndarray, kernel: str, width: float | None = None, reach: float = REACHES["adaptive"]
) -> np.ndarray:
    """K (n, k) of neighbours at ``distances (n, k)`` in ascending order; for "similarity" these are -K.

    ``width`` is σ of a Gaussian; None for ``reach`` times the distance of the k-th neighbour.
    """
    if kernel == "knn":
        return np.ones(distances.shape)
    if kernel == "similarity":
        return -np.asarray(distances, np.float64)
    if kernel == "intersection":
        return 1.0 - distances / 2.0
    sigma = reach * distances[:, -1:] if width is None else np.full((1, 1), width)
    return np.exp(-(distances**2) / (2.0 * np.where(sigma > 0, sigma, 1.0) ** 2))


def vote_matrix(neighbors: np.ndarray, values: np.ndarray, m: int) -> sparse.csc_array:
    """K (n, m) of examples and prototypes, zero but for the neighbours (n, k) of each example."""
    n, k = neighbors.shape
    votes = sparse.csr_array((np.asarray(values, np.float64).ravel(), neighbors.ravel(), np.arange(n + 1) * k), (n, m))
    return votes.tocsc()


def binary_edges(votes: sparse.csc_array, signs: np.ndarray) -> sparse.csc_array:
    """Edges of one class against the others, from ``signs (n,)``, +1 for the class and -1 for the others."""
    columns = np.repeat(np.arange(votes.shape[1]), np.diff(votes.indptr))
    edges = votes.data * signs[votes.indices] * signs[columns]
    return sparse.csc_array((edges, votes.indices, votes.indptr), votes.shape)


def multiclass_edges(votes: sparse.csc_array, codes: np.ndarray, n_classes: int) -> sparse.csc_array:
    """Edges (5.21) of all classes together."""
    columns = np.repeat(np.arange(votes.shape[1]), np.diff(votes.indptr))
    rest = n_classes - 1
    agreement = np.where(codes[votes.indices] == codes[columns], 1 / rest, -1 / rest**2)
    return sparse.csc_array((votes.data * agreement, votes.indices, votes.indptr), votes.shape)
