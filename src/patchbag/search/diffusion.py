# SPDX-License-Identifier: BSD-3-Clause
r"""Ranking by diffusion: like the query is what many images like it are like (Zhou et al. 2004; Iscen et al. 2017).

Of the query and its nearest ``CANDIDATES`` images a graph is made, in which each is joined to its ``NEIGHBOURS``
nearest, with the cosine as weight; S is the matrix of weights, divided by the roots of both sums.  The query's weight
spreads over the graph, a share α in every step, and images are ranked by what reaches them:

.. math:: f = (I - \alpha S)^{-1} e_q

An image far from the query that lies among many which are near comes forward, one that is near by chance goes back.
Hubs, which are near to everything, are held off as in :mod:`patchbag.similarity.graph.neighbors`.  Only the candidates
are looked at: one product and one system of equations of their number, 20 ms, whatever the size of the collection.
"""

import numpy as np

CANDIDATES = 500
NEIGHBOURS = 20
ALPHA = 0.95  # with the others chosen on Caltech-101 and Scene-15
HUB = 10


def diffuse(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """How much of the query's weight reaches each candidate: (n,), at most 1, for ``vectors (n, d)`` of unit length."""
    everything = np.vstack([query[None], vectors]).astype(np.float64)
    cosines = np.maximum(everything @ everything.T, 0.0)
    np.fill_diagonal(cosines, 0.0)
    n = len(everything)
    if n < 3:
        return np.asarray(cosines[0, 1:])
    hub = -np.sort(-cosines, axis=1)[:, :HUB].mean(axis=1)
    k = min(NEIGHBOURS, n - 1)
    rows, columns = np.arange(n)[:, None], np.argpartition(hub / 2 - cosines, k - 1, axis=1)[:, :k]
    weights = np.zeros_like(cosines)
    weights[rows, columns] = cosines[rows, columns]
    weights = (weights + weights.T) / 2
    scale = 1 / np.sqrt(np.maximum(weights.sum(axis=1), 1e-9))
    start = np.zeros(n)
    start[0] = 1.0
    reached = np.linalg.solve(np.eye(n) - ALPHA * weights * scale[:, None] * scale, start)[1:]
    return np.asarray(reached / max(reached.max(), 1e-12))
