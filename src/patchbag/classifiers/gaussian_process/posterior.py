# SPDX-License-Identifier: BSD-3-Clause
r"""Posterior of a Gaussian process with Gaussian noise: kapoor2010, eq. 5, 6 and 9.

With :math:`A = \sigma^2 I + K_{LL} = LL^\top` and one column of ±1 targets per one-versus-all problem::

    mean(x)     = k(x)' A^-1 T                (eq. 5, 9)
    variance(x) = k(x, x) - k(x)' A^-1 k(x)   (eq. 6)

L does not depend on the targets, so all classes share it and share the variance.  Fitting costs n³/3 once, prediction
n² + nC per image, one more label n² + nC (see cholesky_updates).  The text below eq. 6 takes the training covariance
over X_u; it should say X_L.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from patchbag.classifiers.gaussian_process.cholesky_updates import append_sample
from patchbag.registry import storable

# shares of the mean variance to add, in turn, when rounding leaves a nearly singular covariance indefinite
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)


@storable
@dataclass(frozen=True)
class GaussianPosterior:
    """Posterior given n labelled images.

    ``factor (n, n)``: lower Cholesky factor of A.  ``targets (n, C)``.  ``solution (n, C)`` = A⁻¹T.  ``noise`` = σ².
    """

    factor: np.ndarray
    targets: np.ndarray
    solution: np.ndarray
    noise: float

    @classmethod
    def from_kernel(cls, kernel: np.ndarray, targets: np.ndarray, noise: float) -> GaussianPosterior:
        """Condition on ``targets (n, C)`` of images with ``kernel (n, n)``."""
        targets = np.asarray(targets, dtype=float)
        mean = float(np.trace(kernel)) / max(len(kernel), 1)
        for jitter in JITTERS:
            covariance = np.array(kernel, dtype=float)
            covariance.flat[:: len(kernel) + 1] += noise + jitter * mean
            try:
                factor = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
            except np.linalg.LinAlgError:
                continue
            return cls(factor, targets, cho_solve((factor, True), targets, check_finite=False), noise)
        raise ValueError(f"the kernel is not positive definite with noise {noise:.3g}; raise the noise or repair it")

    @property
    def log_evidence(self) -> float:
        """Joint log evidence of all columns of targets."""
        n, n_classes = self.targets.shape
        log_det = 2.0 * np.log(np.diagonal(self.factor)).sum()
        return float(-0.5 * np.vdot(self.targets, self.solution) - 0.5 * n_classes * (log_det + n * np.log(2 * np.pi)))

    def predict(self, rows: np.ndarray, diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (m, C) and variance (m,) of the soft labels for kernel ``rows (m, n)`` and self-kernel ``diagonal
        (m,)``.
        """
        half = solve_triangular(self.factor, rows.T, lower=True, check_finite=False)
        return rows @ self.solution, diagonal - np.einsum("ij,ij->j", half, half)

    def append(self, row: np.ndarray, diagonal: float, targets: np.ndarray) -> GaussianPosterior:
        """The posterior with one more labelled image: kernel ``row (n,)``, self-kernel and ``targets (C,)``."""
        factor = append_sample(self.factor, row, diagonal + self.noise)
        n = len(row)
        # A^-1 of a bordered matrix differs from that of A by a matrix of rank one
        influence = solve_triangular(self.factor, factor[n, :n], lower=True, trans="T", check_finite=False)
        new = (targets - row @ self.solution) / factor[n, n] ** 2
        solution = np.vstack([self.solution - np.outer(influence, new), new])
        return GaussianPosterior(factor, np.vstack([self.targets, targets]), solution, self.noise)


def row_order(posterior: Any) -> Any:
    """The posterior with its arrays in row order, as a model file has them: a loaded model then gives the same bits."""
    if isinstance(posterior, list):
        return [row_order(p) for p in posterior]
    values = {f.name: getattr(posterior, f.name) for f in fields(posterior)}
    return replace(posterior, **{k: np.ascontiguousarray(v) for k, v in values.items() if isinstance(v, np.ndarray)})
