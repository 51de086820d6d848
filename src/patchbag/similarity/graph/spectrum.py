# SPDX-License-Identifier: BSD-3-Clause
r"""Leading eigenvectors of a neighbour graph.

W (n, n) holds symmetric affinities, D its row sums.  The eigenvalues of S = D^-1/2 W D^-1/2 lie in [-1, 1].  Each
connected component has the eigenvalue 1 once, with the eigenvector √D on the component and 0 elsewhere; these are
written down.  The others come from a Lanczos iteration on S with the former taken out, for which repeated eigenvalues
of 1, one per component, would be the worst case.  An image without neighbours is a row of zeros in S.

Cost: about 2 m products of W with a vector and n m² operations for m eigenvectors.
"""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh

DENSE = 3  # all eigenvectors are computed where n is at most so many times the number wanted
ISOLATED = 1e-12


def normalized(affinity: sparse.csr_matrix) -> tuple[sparse.csr_matrix, np.ndarray]:
    """S = D^-1/2 W D^-1/2 and the degrees (n,); rows without neighbours stay zero."""
    degrees = np.asarray(affinity.sum(axis=1), dtype=float).ravel()
    scale = sparse.diags(1.0 / np.sqrt(np.maximum(degrees, ISOLATED)))
    return (scale @ affinity @ scale).tocsr(), degrees


def leading_eigenvectors(affinity: sparse.csr_matrix, m: int) -> tuple[np.ndarray, np.ndarray]:
    """The m largest eigenvalues (m,) of S, descending, and their eigenvectors (n, m); m is at most n."""
    similarity, degrees = normalized(affinity)
    n = len(degrees)
    known = _component_vectors(affinity, degrees, m)
    rest = m - known.shape[1]
    if not rest:
        return np.ones(m), known
    # S minus twice the known part has the same other eigenvectors, and -1 in place of the known eigenvalues
    if n <= DENSE * m:
        found, basis = np.linalg.eigh(similarity.toarray() - 2 * known @ known.T)
    else:
        operator = LinearOperator(
            (n, n), matvec=lambda x: similarity @ x - 2 * (known @ (known.T @ x)), dtype=np.float64
        )
        start = np.random.RandomState(0).standard_normal(n)
        # a third more vectors than are wanted, not twice as many: keeping them orthogonal is most of the work
        found, basis = eigsh(operator, rest, which="LA", v0=start, ncv=min(n, rest + rest // 3 + 20), tol=1e-4)
    order = np.argsort(-found, kind="stable")[:rest]
    return np.append(np.ones(known.shape[1]), found[order]), np.hstack([known, basis[:, order]])


def _component_vectors(affinity: sparse.csr_matrix, degrees: np.ndarray, m: int) -> np.ndarray:
    """(n, c) the eigenvectors of eigenvalue 1 of the c ≤ m largest components of more than one image."""
    n_components, component = connected_components(affinity, directed=False)
    sizes = np.bincount(component, minlength=n_components)
    kept = [c for c in np.argsort(-sizes, kind="stable")[:m] if sizes[c] > 1]
    vectors = np.zeros((len(degrees), len(kept)))
    for column, c in enumerate(kept):
        members = np.flatnonzero(component == c)
        vectors[members, column] = np.sqrt(degrees[members] / degrees[members].sum())
    return vectors
