# SPDX-License-Identifier: BSD-3-Clause
r"""The steps of EM for a diagonal Gaussian mixture, as functions of sums.

E-step: ``accumulate`` gives the sums S0, S1, S2 of the descriptors, job by job, so the data may be larger than memory.
M-step (liu2010, eq. 4.3-4.5):

.. math:: w_k = S^0_k / N, \qquad \mu_k = S^1_k / S^0_k, \qquad \sigma^2_k = S^2_k / S^0_k - \mu_k^2 .

(The poster liu2008 prints the variance without the division by :math:`S^0_k`; the thesis has it right.)

Sums are float32 within a job of 16,384 descriptors and float64 across jobs, in the mixture's standardised coordinates:
float32 descriptors keep their full accuracy, and the result does not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from patchbag.mixture.accumulate import accumulate, raw_moments
from patchbag.mixture.parameters import GaussianParameters, check_parameters
from patchbag.mixture.statistics import JOB_ROWS
from patchbag.runtime import parallel_map


def expectation(
    values: np.ndarray,
    parameters: GaussianParameters,
    sample_weight: np.ndarray | None = None,
    n_threads: int | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Sums over all rows, in the mixture's standardised coordinates and in float64.

    Returns
    -------
    s0 (K,), s12 (K, 2D), total log-likelihood
    """

    def job(start: int) -> tuple[np.ndarray, np.ndarray, float]:
        part = slice(start, start + JOB_ROWS)
        rows = np.asarray(values[part])
        weight = None if sample_weight is None else sample_weight[part]
        return accumulate(rows, np.zeros(len(rows), np.int64), 1, parameters, weight)

    s0 = np.zeros(parameters.n_components)
    s12 = np.zeros((parameters.n_components, 2 * parameters.dimension))
    total = 0.0
    for part0, part12, log_likelihood in parallel_map(job, range(0, len(values), JOB_ROWS), n_threads):
        s0 += part0[0]
        s12 += part12[0]
        total += log_likelihood
    if not np.isfinite(total):
        raise ValueError("descriptors are NaN or infinite, or lie too far from the mixture for their precision")
    return s0, s12, total


def mass_of(values: np.ndarray, weight: np.ndarray | None) -> float:
    """The number of descriptors, or the sum of their weights."""
    return float(len(values)) if weight is None else float(weight.sum())


def maximization(s0: np.ndarray, s12: np.ndarray, current: GaussianParameters, floor: np.ndarray) -> GaussianParameters:
    """New parameters from standardised sums (liu2010, eq. 4.3-4.5); an empty component keeps its mean and variance."""
    d = current.dimension
    count = np.maximum(s0, np.finfo(np.float64).tiny)[:, None]
    z_mean = s12[:, :d] / count
    z_variance = s12[:, d:] / count - z_mean**2
    empty = s0 <= 0
    means = np.where(empty[:, None], current.means, current.center + current.scale * z_mean)
    variances = np.where(empty[:, None], current.variances, current.scale**2 * z_variance)
    return check_parameters(s0 / s0.sum(), means, np.maximum(variances, floor))


def split(
    parameters: GaussianParameters, which: np.ndarray, distance: float, directions: np.ndarray | float = 1.0
) -> GaussianParameters:
    """Split the components ``which``: both halves keep the variance, their means move by ± ``distance`` deviations.

    Every dimension moves as far, or by as much more or less as ``directions (m, D)`` says.
    """
    shift = distance * np.sqrt(parameters.variances[which]) * directions
    weights, means = parameters.weights.copy(), parameters.means.copy()
    weights[which] /= 2
    means[which] -= shift
    return GaussianParameters(
        np.concatenate([weights, weights[which]]),
        np.concatenate([means, parameters.means[which] + shift]),
        np.concatenate([parameters.variances, parameters.variances[which]]),
    )


def sums_of(parameters: GaussianParameters, mass: float) -> tuple[np.ndarray, np.ndarray]:
    """Counts (K,) and raw sums (K, 2D) of ``mass`` descriptors whose M-step gives these parameters."""
    s0 = mass * parameters.weights
    second = parameters.variances + parameters.means**2
    return s0, s0[:, None] * np.concatenate([parameters.means, second], axis=1)


def to_raw(s0: np.ndarray, s12: np.ndarray, parameters: GaussianParameters) -> np.ndarray:
    """Sums (K, 2D) of [x, x²] from those of the standardised [z, z²]."""
    return np.concatenate(raw_moments(s0, s12, parameters), axis=-1)


def from_raw(s0: np.ndarray, raw: np.ndarray, parameters: GaussianParameters) -> np.ndarray:
    """Sums (K, 2D) of [z, z²] in the coordinates of ``parameters`` from those of [x, x²]."""
    d, c, s = parameters.dimension, parameters.center, parameters.scale
    s1, s2 = raw[:, :d], raw[:, d:]
    count = s0[:, None]
    return np.concatenate([(s1 - c * count) / s, (s2 - 2 * c * s1 + c * c * count) / (s * s)], axis=1)
