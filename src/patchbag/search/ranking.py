# SPDX-License-Identifier: BSD-3-Clause
r"""Distances of a query to all images of an index, and the nearest of them.

* ``"cosine"``: :math:`1 - q \cdot v` of vectors of unit length, between 0 (the same direction) and 2;
* ``"kl"``: :math:`\sum_w q_w \log q_w - \sum_w q_w \log p_w` of histograms; a product with the logarithms;
* ``"klk"``, ``"ppk"``: of Gaussian mixtures, see :mod:`patchbag.search.mixtures`.
"""

import numpy as np

from patchbag.search.axes import unit

ROWS = 65_536
NEARNESS = 3.0  # power of the cosine that weighs a result in an expanded query


def compare(vectors: np.ndarray, query: np.ndarray, metric: str = "cosine") -> np.ndarray:
    """Distances (n,) float64 of ``query (d,)`` to ``vectors (n, d)``, which may be mapped from a file."""
    if metric in ("klk", "ppk"):
        from patchbag.search.mixtures import mixture_distances

        return np.maximum(mixture_distances(vectors, query, metric), 0.0)
    distances = np.empty(len(vectors))
    for start in range(0, len(vectors), ROWS):
        rows = np.asarray(vectors[start : start + ROWS])
        if metric == "kl":
            distances[start : start + ROWS] = query @ np.log(query) - np.log(rows) @ query
        else:
            distances[start : start + ROWS] = 1.0 - rows @ query
    return np.maximum(distances, 0.0)  # rounding can take the image itself below


def nearest(distances: np.ndarray, n: int) -> np.ndarray:
    """Rows of the n smallest finite distances, smallest first; of equal ones the row that comes first."""
    n = min(n, int(np.isfinite(distances).sum()))
    if n == 0:
        return np.empty(0, np.int64)
    limit = np.partition(distances, n - 1)[n - 1]
    rows = np.flatnonzero(distances <= limit)
    return rows[np.argsort(distances[rows], kind="stable")][:n]


def expand(query: np.ndarray, vectors: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """The query and what was found for it as one vector: the nearer, the more it weighs (Radenović et al. 2019).

    >>> expand(np.array([1.0, 0.0]), np.array([[0.0, 1.0]]), np.array([0.0]))
    array([0.70710677, 0.70710677], dtype=float32)
    """
    weights = np.maximum(1.0 - distances, 0.0) ** NEARNESS
    return unit((query + weights.astype(np.float32) @ np.asarray(vectors))[None])[0]
