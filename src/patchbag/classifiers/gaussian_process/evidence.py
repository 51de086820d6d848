# SPDX-License-Identifier: BSD-3-Clause
r"""The evidence of a Gaussian process and its slope, by LAPACK or, for thousands of images, on a GPU.

With :math:`A` the covariance of n noisy targets, T (n, C) and :math:`W = A^{-1} T`::

    log p(T) = -1/2 tr(T' W) - C/2 log|A| - nC/2 log(2 pi),    S = d log p / dA = (W W' - C A^-1) / 2

LAPACK works on half of the matrix; the GPU on all of it, in float64 (an H200 has 60 teraflops of it, and the evidence
of nearly singular kernels needs its digits).  Matrices below ``DEVICE_SIZE`` stay on the host, where they are as fast.
"""

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array
from scipy.linalg import lapack
from scipy.linalg.blas import dsyrk

from patchbag.device import like, to_device, to_host
from patchbag.runtime import current_runtime

DEVICE_SIZE = 1500


def log_evidence(covariance: Any, targets: np.ndarray) -> tuple[float, Any]:
    """Joint log evidence of C sets of targets under N(0, covariance), and its sensitivity to the covariance.

    Parameters
    ----------
    covariance : (n, n) positive definite, noise included; overwritten
    targets : (n, C)

    Returns
    -------
    value : float
    sensitivity : (n, n), such that d value = sum(sensitivity * d covariance) for every symmetric change
    """
    n, n_classes = targets.shape
    if not is_numpy_array(covariance):
        return _dense_log_evidence(covariance, targets)
    factor = _host_cholesky(covariance)
    solved, _ = lapack.dpotrs(factor, targets, lower=1)
    value = -0.5 * np.vdot(targets, solved) - n_classes * (
        np.log(np.diagonal(factor)).sum() + 0.5 * n * np.log(2 * np.pi)
    )
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    # only the lower triangle is filled: off the diagonal it stands for both halves, which cancels the factor 1/2
    lower = dsyrk(1.0, solved, beta=-float(n_classes), c=inverse, lower=1, overwrite_c=1)
    lower.flat[:: n + 1] *= 0.5
    return float(value), lower.T


def _dense_log_evidence(covariance: Any, targets: np.ndarray) -> tuple[float, Any]:
    xp, (n, n_classes) = array_namespace(covariance), targets.shape
    half = _inverse_factor(dense_cholesky(covariance))
    log_root = -float(xp.sum(xp.log(xp.linalg.diagonal(half))))
    inverse = xp.matrix_transpose(half) @ half
    t = like(targets, covariance)
    solved = inverse @ t
    value = -0.5 * float(xp.sum(t * solved)) - n_classes * (log_root + 0.5 * n * np.log(2 * np.pi))
    return value, 0.5 * (solved @ xp.matrix_transpose(solved) - n_classes * inverse)


def dense_cholesky(matrix: Any) -> Any:
    """The lower factor where the matrix lies; NumPy's error where there is none."""
    try:
        return array_namespace(matrix).linalg.cholesky(matrix)
    except Exception as error:  # every library has an error of its own
        if not type(error).__name__.endswith("LinAlgError"):
            raise
        raise np.linalg.LinAlgError(f"the matrix is not positive definite ({error})") from error


def _identity(matrix: Any) -> Any:
    return array_namespace(matrix).eye(matrix.shape[0], dtype=matrix.dtype, device=device(matrix))


def _inverse_factor(lower: Any) -> Any:
    xp = array_namespace(lower)
    if hasattr(xp.linalg, "solve_triangular"):  # PyTorch; a sixth of the operations
        return xp.linalg.solve_triangular(lower, _identity(lower), upper=False)
    return xp.linalg.inv(lower)


def combine(kernels: Any, weights: np.ndarray) -> Any:
    """Σ weights_i kernels_i for ``kernels (k, ...)`` and ``weights (k,)``."""
    xp = array_namespace(kernels)
    return xp.reshape(like(weights, kernels) @ xp.reshape(kernels, (kernels.shape[0], -1)), kernels.shape[1:])


def add_to_diagonal(matrix: Any, value: float) -> Any:
    """``matrix (n, n)`` plus value · I; NumPy's is changed in place."""
    n = matrix.shape[0]
    if is_numpy_array(matrix):
        matrix.flat[:: n + 1] += value
        return matrix
    return matrix + value * _identity(matrix)


def large(matrix: np.ndarray) -> bool:
    """Whether a matrix is worth the way to the context's device."""
    return current_runtime().device != "cpu" and matrix.shape[-1] >= DEVICE_SIZE


def cholesky_factor(matrix: np.ndarray, shift: float = 0.0) -> Any:
    """Lower Cholesky factor of a symmetric matrix plus shift · I; LinAlgError where there is none.

    That of a large matrix is on the device of the context.
    """
    if large(matrix):
        return dense_cholesky(add_to_diagonal(to_device(matrix), shift))
    return _host_cholesky(add_to_diagonal(np.array(matrix, dtype=float), shift))


def _host_cholesky(matrix: np.ndarray) -> np.ndarray:
    """The lower factor, in place of the matrix."""
    # LAPACK wants column order, which for a symmetric C array is its transpose: no copy is made
    lower, info = lapack.dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError(f"the matrix is not positive definite (pivot {info} of {len(matrix)})")
    return lower


def inverse_of(lower: np.ndarray) -> np.ndarray:
    """A⁻¹ from the lower factor of A."""
    if large(lower):
        half = _inverse_factor(to_device(lower))
        return np.asarray(to_host(half.T @ half))
    inverse, _ = lapack.dpotri(lower, lower=1)
    # one triangle is filled
    inverse = np.tril(inverse)
    inverse += np.tril(inverse, -1).T
    return inverse
