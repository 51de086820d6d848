# SPDX-License-Identifier: BSD-3-Clause
r"""Posterior of a Gaussian process with Gaussian noise: kapoor2010, eq. 5, 6 and 9.

With :math:`A = \sigma^2 I + K_{LL} = LL^\top` and one column of ±1 targets per one-versus-all problem::

    mean(x)     = k(x)' A^-1 T                (eq. 5, 9)
    variance(x) = k(x, x) - k(x)' A^-1 k(x)   (eq. 6)

L does not depend on the targets, so all classes share it and share the variance.  Fitting costs n³/3 once, prediction
n² + nC per image, one more label n² + nC (kapoor2010, §7 retrains from scratch): with covariances k and variance κ, the
factor gains the row :math:`(\ell^\top, \sqrt{\kappa - \ell^\top\ell})`, :math:`L\ell = k`.  The text below eq. 6 takes
the training covariance over X_u; it should say X_L.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from patchbag.classifiers.confidence.class_means import class_shares, nearest_mean, scatter
from patchbag.classifiers.confidence.temperature import Fold
from patchbag.classifiers.gaussian_process.evidence import cholesky_factor, inverse_of
from patchbag.classifiers.targets import one_column_a_class
from patchbag.device import to_host
from patchbag.storage.declared import floats, real, stored
from patchbag.storage.registry import storable

# shares of the mean variance to add, in turn, when rounding leaves a nearly singular covariance indefinite
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)


def jittered_cholesky(kernel: np.ndarray, noise: float, jitters: Sequence[float] = JITTERS) -> np.ndarray:
    """Lower Cholesky factor of ``kernel (n, n)`` plus noise, and as little more on the diagonal as it takes."""
    mean = max(float(np.trace(kernel)) / max(len(kernel), 1), 1e-300)
    for jitter in jitters:
        try:
            return to_host(cholesky_factor(kernel, noise + jitter * mean))
        except np.linalg.LinAlgError:
            continue
    raise ValueError(f"the kernel is not positive definite with noise {noise:.3g}; raise the noise or repair it")


@storable
@dataclass(frozen=True)
class GaussianPosterior:
    """Posterior given n labelled images.

    ``factor (n, n)``: lower Cholesky factor of A.  ``targets (n, C)``.  ``solution (n, C)`` = A⁻¹T.  ``noise`` = σ².
    """

    factor: np.ndarray = stored(floats("n", "n"))
    targets: np.ndarray = stored(floats("n", "C"))
    solution: np.ndarray = stored(floats("n", "C"))
    noise: float = stored(real(low=0))

    @classmethod
    def from_kernel(cls, kernel: np.ndarray, targets: np.ndarray, noise: float) -> GaussianPosterior:
        """Condition on ``targets (n, C)`` of images with ``kernel (n, n)``."""
        targets = np.asarray(targets, dtype=float)
        factor = jittered_cholesky(kernel, noise)
        return cls(factor, targets, cho_solve((factor, True), targets, check_finite=False), noise)

    @property
    def log_evidence(self) -> float:
        """Joint log evidence of all columns of targets."""
        n, n_classes = self.targets.shape
        log_det = 2.0 * np.log(np.diagonal(self.factor)).sum()
        return float(-0.5 * np.vdot(self.targets, self.solution) - 0.5 * n_classes * (log_det + n * np.log(2 * np.pi)))

    def mean(self, rows: np.ndarray) -> np.ndarray:
        """(m, C) mean of the soft labels for kernel ``rows (m, n)``."""
        return rows @ self.solution

    def variance(self, rows: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
        """(m,) their variance, with the self-kernel ``diagonal (m,)``."""
        half = solve_triangular(self.factor, rows.T, lower=True, check_finite=False)
        return diagonal - np.einsum("ij,ij->j", half, half)

    def nearest(self, rows: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
        """(m,) distance to the nearest mean of the training images of a class."""
        return nearest_mean(rows, diagonal, self.class_norms(), self.codes)

    @property
    def codes(self) -> np.ndarray:
        """(n,) number of the class of each image."""
        return np.asarray(one_column_a_class(self.targets).argmax(axis=1))

    @property
    def shares(self) -> np.ndarray:
        """(n, classes) weights of the images in the means of their classes."""
        return class_shares(self.codes, max(self.targets.shape[1], 2))

    def class_norms(self) -> np.ndarray:
        """(classes,) squared lengths of the class means, less what they are too long for the number of images."""
        codes, shares = self.codes, self.shares
        # of K = LL' - σ²I, which need not be made
        norms = np.sum((shares.T @ self.factor) ** 2, axis=1) - self.noise * np.sum(shares**2, axis=0)
        own = np.einsum("ij,ij->i", self.factor, self.factor) - self.noise
        return np.asarray(norms - scatter(own, norms, codes) / np.bincount(codes))

    def inverse(self) -> np.ndarray:
        """(n, n) A⁻¹, which costs as much as twice the factor."""
        return inverse_of(self.factor)

    def left_out(self, folds: Sequence[Fold], inverse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, C) and variance (n,) of the soft labels of training images given those outside their fold; NaN for
        images of no fold.  ``inverse`` is that of A.

        Without images F they are T_F - ([A^-1]_FF)^-1 [A^-1 T]_F and the diagonal of ([A^-1]_FF)^-1 less the noise,
        after Rasmussen & Williams 2006, eq. 5.12.
        """
        mean, variance = np.full(self.targets.shape, np.nan), np.full(len(self.targets), np.nan)
        for _, test in folds:
            covariance = np.linalg.inv(inverse[np.ix_(test, test)])
            mean[test] = self.targets[test] - covariance @ self.solution[test]
            variance[test] = np.diagonal(covariance) - self.noise
        return mean, np.maximum(variance, 0.0)

    def response(self, inverse: np.ndarray) -> float:
        """The mean share of a change of a training image's target that its mean soft label follows."""
        return float(1 - self.noise * np.trace(inverse) / len(inverse))

    def append(self, row: np.ndarray, diagonal: float, targets: np.ndarray) -> GaussianPosterior:
        """The posterior with one more labelled image: kernel ``row (n,)``, self-kernel and ``targets (C,)``."""
        n = len(row)
        new_row = solve_triangular(self.factor, row, lower=True, check_finite=False)
        pivot = float(diagonal + self.noise - new_row @ new_row)
        if not pivot > 0:
            raise np.linalg.LinAlgError(
                f"the new image repeats others, or the kernel is not definite: pivot {pivot:.3g}"
            )
        factor = np.zeros((n + 1, n + 1))
        factor[:n, :n], factor[n, :n], factor[n, n] = self.factor, new_row, np.sqrt(pivot)
        # A^-1 of a bordered matrix differs from that of A by a matrix of rank one
        influence = solve_triangular(self.factor, new_row, lower=True, trans="T", check_finite=False)
        new = (targets - row @ self.solution) / pivot
        solution = np.vstack([self.solution - np.outer(influence, new), new])
        return GaussianPosterior(factor, np.vstack([self.targets, targets]), solution, self.noise)


def row_order(posterior: Any) -> Any:
    """The posterior with its arrays in row order, as a model file has them: a loaded model then gives the same bits."""
    values = {f.name: getattr(posterior, f.name) for f in fields(posterior)}
    return replace(posterior, **{k: np.ascontiguousarray(v) for k, v in values.items() if isinstance(v, np.ndarray)})
