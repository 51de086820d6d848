# SPDX-License-Identifier: BSD-3-Clause
r"""Changing a Cholesky factor when one sample arrives, leaves or changes its weight.

With :math:`A = LL^\top` of size n:

* **append** a sample with covariances k and variance κ to the others: the factor gains one row
  :math:`(\ell^\top, \sqrt{\kappa - \ell^\top\ell})` with :math:`L\ell = k`: one triangular solve, n² flops;
* **rank-one** update or downdate :math:`A \pm vv^\top`: n Givens (hyperbolic) rotations, 2n² flops;
* **remove** sample i: the rows above i stay, the block below i is a rank-one update with the column that
  disappears, at most 2n² flops.

All three replace an O(n³) factorisation; this is what makes learning from one more label cheap (kapoor2010, §7
retrains from scratch).  A downdate or an append that would leave the matrix indefinite raises ``LinAlgError``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg import solve_triangular


def append_sample(factor: np.ndarray, covariances: np.ndarray, variance: float) -> np.ndarray:
    """The factor of A bordered by one more sample.

    Parameters
    ----------
    factor : (n, n) lower Cholesky factor of A
    covariances : (n,) covariances of the new sample with the others
    variance : variance of the new sample, noise included

    Returns
    -------
    (n + 1, n + 1) lower
    """
    n = len(factor)
    covariances = np.asarray(covariances, dtype=float)
    if covariances.shape != (n,):
        raise ValueError(f"the factor has {n} samples but the new sample has covariances of shape {covariances.shape}")
    row = solve_triangular(factor, covariances, lower=True, check_finite=False) if n else covariances
    pivot = float(variance) - float(row @ row)
    if not pivot > 0:
        raise np.linalg.LinAlgError(
            f"the new sample has no variance of its own (pivot {pivot:.3g}): it repeats samples already "
            "there, or the kernel is not positive definite; raise the noise"
        )
    result = np.zeros((n + 1, n + 1))
    result[:n, :n] = factor
    result[n, :n] = row
    result[n, n] = np.sqrt(pivot)
    return result


@njit(cache=True, nogil=True)
def _rotate(factor: np.ndarray, vector: np.ndarray, sign: float) -> int:
    n = factor.shape[0]
    for j in range(n):
        square = factor[j, j] ** 2 + sign * vector[j] ** 2
        if not square > 0.0:
            return j
        pivot = np.sqrt(square)
        c = pivot / factor[j, j]
        s = vector[j] / factor[j, j]
        factor[j, j] = pivot
        for i in range(j + 1, n):
            factor[i, j] = (factor[i, j] + sign * s * vector[i]) / c
            vector[i] = c * vector[i] - s * factor[i, j]
    return -1


def rank_one(factor: np.ndarray, vector: np.ndarray, sign: float = 1.0) -> np.ndarray:
    """The lower Cholesky factor of ``A + sign * v v'`` (``sign`` is 1 or -1) from that of A, as a new array."""
    vector = np.array(vector, dtype=float)
    if vector.shape != (len(factor),):
        raise ValueError(f"the factor has {len(factor)} samples but the vector has shape {vector.shape}")
    # the rotations walk down columns
    result = np.array(factor, dtype=float, order="F")
    failed = _rotate(result, vector, float(sign))
    if failed >= 0:
        raise np.linalg.LinAlgError(f"the downdated matrix is not positive definite (pivot {failed})")
    return result


def remove_sample(factor: np.ndarray, index: int) -> np.ndarray:
    """The lower Cholesky factor of A without row and column ``index``."""
    n = len(factor)
    if not 0 <= index < n:
        raise IndexError(f"sample {index} of {n} does not exist")
    result = np.zeros((n - 1, n - 1))
    result[:index, :index] = factor[:index, :index]
    result[index:, :index] = factor[index + 1 :, :index]
    if index < n - 1:
        result[index:, index:] = rank_one(factor[index + 1 :, index + 1 :], factor[index + 1 :, index])
    return result
