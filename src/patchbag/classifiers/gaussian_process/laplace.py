# SPDX-License-Identifier: BSD-3-Clause
r"""Gaussian process classification with a probit likelihood, by Laplace's method.

kapoor2010 (§4.2) regresses on ±1 labels and leaves "squashing" likelihoods to future work; this is that alternative.
The label is :math:`p(t|y) = \Phi(t y)`, the posterior of the soft labels is not Gaussian, and is approximated by the
Gaussian at its mode, found by Newton's method (Rasmussen & Williams 2006, algorithms 3.1, 3.2 and 5.1)::

    y = K a,  a = grad log p(t | y),  W = -Hess log p(t | y) (diagonal),  B = I + W^1/2 K W^1/2
    log q(t) = -1/2 a' y + sum log Phi(t y) - 1/2 log |B|

Prediction: the mean is k(x)' a and the variance k(x, x) - k(x)' W^1/2 B^-1 W^1/2 k(x); the probability of the label,
:math:`\Phi(\bar y/\sqrt{1 + \Sigma})`, is exact for the probit.

Unlike the Gaussian noise model, every class has its own W and so its own factorisation in every Newton step: about 8
n³/3 flops per class.  The evidence gradient has the same form as in ``combination`` (a sensitivity matrix),
including the movement of the mode.  The noise of the label is part of the likelihood; a small ``noise`` on the diagonal
is only jitter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import log_ndtr

from patchbag.storage.declared import floats, real, stored
from patchbag.storage.registry import storable

MAX_NEWTON = 60
TOLERANCE = 1e-10


class Mode(NamedTuple):
    """Of one binary problem: ``labels`` y, ``gradient`` a, ``root`` W^½, each (n,), and the Cholesky factor of B."""

    labels: np.ndarray
    gradient: np.ndarray
    root: np.ndarray
    factor: np.ndarray
    log_evidence: float


@storable
@dataclass(frozen=True)
class LaplacePosterior:
    """Modes of C binary problems: ``gradient (C, n)``, ``root (C, n)``, ``factor (C, n, n)``."""

    gradient: np.ndarray = stored(floats("C", "n"))
    root: np.ndarray = stored(floats("C", "n", low=0))
    factor: np.ndarray = stored(floats("C", "n", "n"))
    log_evidence: float = stored(real(finite=False))

    @classmethod
    def from_kernel(cls, kernel: np.ndarray, targets: np.ndarray, jitter: float) -> LaplacePosterior:
        """Condition on ``targets (n, C)`` of images with ``kernel (n, n)``."""
        modes = [find_mode(kernel + jitter * np.eye(len(kernel)), column) for column in targets.T]
        _, gradient, root, factor, evidence = (np.array(part) for part in zip(*modes))
        return cls(gradient, root, factor, float(evidence.sum()))

    def mean(self, rows: np.ndarray) -> np.ndarray:
        """(m, C) mean of the soft labels of images with kernel ``rows (m, n)``."""
        return rows @ self.gradient.T

    def variance(self, rows: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
        """(m, C) their variance, with the self-kernel ``diagonal (m,)``."""
        variances = []
        for root, factor in zip(self.root, self.factor):
            half = solve_triangular(factor, root[:, None] * rows.T, lower=True, check_finite=False)
            variances.append(diagonal - np.einsum("ij,ij->j", half, half))
        return np.stack(variances, axis=1)


def probit_derivatives(targets: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """log Φ(t y) and its first three derivatives with respect to y, elementwise."""
    z = targets * y
    logs = log_ndtr(z)
    ratio = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - logs)
    first = targets * ratio
    second = -ratio * (z + ratio)
    third = targets * ratio * ((z + ratio) * (z + 2 * ratio) - 1)
    return logs, first, second, third


def find_mode(covariance: np.ndarray, targets: np.ndarray) -> Mode:
    """Laplace approximation of one binary problem: ``covariance (n, n)`` semidefinite, ``targets (n,)`` of ±1."""
    n = len(targets)
    a = np.zeros(n)
    y = np.zeros(n)
    best = -np.inf
    for _ in range(MAX_NEWTON):
        logs, first, second, _ = probit_derivatives(targets, y)
        root = np.sqrt(np.maximum(-second, 0.0))
        factor = _factor(covariance, root)
        b = root**2 * y + first
        full = b - root * cho_solve((factor, True), root * (covariance @ b), check_finite=False)
        step = full - a
        # Newton's step can overshoot far from the mode; halve it until the log posterior rises
        for halving in range(30):
            trial = a + step / 2**halving
            y_trial = covariance @ trial
            value = float(-0.5 * trial @ y_trial + log_ndtr(targets * y_trial).sum())
            if value >= best - 1e-12 * abs(best):
                break
        change = value - best
        a, y, best = trial, y_trial, value
        if abs(change) < TOLERANCE * max(1.0, abs(best)):
            break
    logs, first, second, _ = probit_derivatives(targets, y)
    root = np.sqrt(np.maximum(-second, 0.0))
    factor = _factor(covariance, root)
    evidence = float(-0.5 * a @ y + logs.sum() - np.log(np.diagonal(factor)).sum())
    return Mode(y, first, root, factor, evidence)


def laplace_evidence(covariance: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
    """Sum over classes of the approximate log evidence, and its sensitivity to the covariance.

    Parameters
    ----------
    covariance : (n, n)
    targets : (n, C) of ±1

    Returns
    -------
    value : float
    sensitivity : (n, n), such that d value = sum(sensitivity * d covariance) for every symmetric change
    """
    n = len(covariance)
    total = 0.0
    sensitivity = np.zeros((n, n))
    for column in targets.T:
        y, first, root, factor, evidence = find_mode(covariance, column)
        total += evidence
        third = probit_derivatives(column, y)[3]
        half = solve_triangular(factor, np.diag(root), lower=True, check_finite=False)
        r = half.T @ half
        c = half @ covariance
        variances = np.diagonal(covariance) - np.einsum("ij,ij->j", c, c)
        # the mode moves with the covariance: dy = (I + K W)^-1 dK a, and log|B| follows W(y)
        s2 = 0.5 * variances * third
        moved = s2 - r @ (covariance @ s2)
        sensitivity += 0.5 * np.outer(first, first) - 0.5 * r
        sensitivity += 0.5 * (np.outer(moved, first) + np.outer(first, moved))
    return total, sensitivity


def _factor(covariance: np.ndarray, root: np.ndarray) -> np.ndarray:
    b = root[:, None] * covariance * root
    b.flat[:: len(b) + 1] += 1.0
    return cholesky(b, lower=True, overwrite_a=True, check_finite=False)
