# SPDX-License-Identifier: BSD-3-Clause
r"""EM for a diagonal Gaussian mixture: its steps as functions of sums, and the loop around them.

E-step: ``accumulate`` gives the sums S0, S1, S2 of the descriptors, job by job, so the data may be larger than memory.
M-step (liu2010, eq. 4.3-4.5):

.. math:: w_k = S^0_k / N, \qquad \mu_k = S^1_k / S^0_k, \qquad \sigma^2_k = S^2_k / S^0_k - \mu_k^2 .

(The poster liu2008 prints the variance without the division by :math:`S^0_k`; the thesis has it right.)

Sums are float32 within a job of 16,384 descriptors and float64 across jobs, in the mixture's standardised coordinates:
float32 descriptors keep their full accuracy, and the result does not depend on the number or the kind of workers.  On a
GPU the same sums are matrix products of larger chunks (``dense``); everything else happens on the host.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_numpy_array

from patchbag.device import to_device
from patchbag.mixture.accumulate import accumulate, raw_moments
from patchbag.mixture.dense import dense_expectation
from patchbag.mixture.parameters import GaussianParameters, check_parameters
from patchbag.mixture.statistics import JOB_ROWS
from patchbag.runtime import parallel_map

# small rises of the log-likelihood in a row that end EM
PATIENCE = 2


class Sample(NamedTuple):
    """Descriptors ``(N, D)`` and their weights ``(N,)``, or None where all weigh the same."""

    values: np.ndarray
    weight: np.ndarray | None = None

    @property
    def weights(self) -> np.ndarray:
        """(N,) the weights, ones where all weigh the same."""
        return np.ones(len(self.values)) if self.weight is None else self.weight

    @property
    def mass(self) -> float:
        """The number of descriptors, or the sum of their weights."""
        return float(len(self.values)) if self.weight is None else float(self.weight.sum())

    def thin(self, step: int) -> Sample:
        """Every ``step``-th descriptor; all of them for a step below two."""
        if step < 2:
            return self
        weight = None if self.weight is None else self.weight[::step]
        return Sample(np.ascontiguousarray(self.values[::step]), weight)


class Climb(NamedTuple):
    """Where EM came to: the mixture, the mean log-likelihood before every iteration, whether it came to rest there."""

    parameters: GaussianParameters
    log_likelihoods: list[float]
    converged: bool
    reseeded: int


def _sums(job: Sample, parameters: GaussianParameters) -> tuple[np.ndarray, np.ndarray, float]:
    rows = np.asarray(job.values)
    return accumulate(rows, np.zeros(len(rows), np.int64), 1, parameters, job.weight)


def expectation(
    values: Any,
    parameters: GaussianParameters,
    sample_weight: Any = None,
    n_jobs: int | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Sums over all rows, in the mixture's standardised coordinates and in float64.

    Returns
    -------
    s0 (K,), s12 (K, 2D), total log-likelihood
    """
    by = _by_jobs if is_numpy_array(values) else dense_expectation
    s0, s12, total = by(values, parameters, sample_weight, n_jobs)
    if not np.isfinite(total):
        raise ValueError("descriptors are NaN or infinite, or lie too far from the mixture for their precision")
    return s0, s12, total


def _by_jobs(
    values: np.ndarray, parameters: GaussianParameters, sample_weight: np.ndarray | None, n_jobs: int | None
) -> tuple[np.ndarray, np.ndarray, float]:
    parts = (slice(start, start + JOB_ROWS) for start in range(0, len(values), JOB_ROWS))
    jobs = (Sample(values[part], None if sample_weight is None else sample_weight[part]) for part in parts)
    s0 = np.zeros(parameters.n_components)
    s12 = np.zeros((parameters.n_components, 2 * parameters.dimension))
    total = 0.0
    # threads even where the context has a cluster: to send the rows, iteration after iteration, takes longer
    for part0, part12, log_likelihood in parallel_map(partial(_sums, parameters=parameters), jobs, n_jobs, near=True):
        s0 += part0[0]
        s12 += part12[0]
        total += log_likelihood
    return s0, s12, total


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


def climb(
    sample: Sample,
    parameters: GaussianParameters,
    iterations: int,
    floor: np.ndarray,
    *,
    tol: float = 0.0,
    min_count: float = 0.0,
    distance: float = 0.2,
    n_jobs: int | None = None,
) -> Climb:
    """EM for at most ``iterations``, ending on an M-step.

    Parameters
    ----------
    floor : (D,) smallest variance
    tol : EM rests when the mean log-likelihood rises by less, ``PATIENCE`` times in a row
    min_count : a component with fewer descriptors is given half of a heavy one, moved by ``distance`` deviations; with
        sample weights, as if their mean were one: their unit is the caller's own affair
    """
    values, weight = to_device(sample.values), to_device(sample.weight)
    mass = sample.mass
    unit = 1.0 if sample.weight is None else np.count_nonzero(sample.weight) / mass
    history: list[float] = []
    small = reseeded = 0
    for _ in range(iterations):
        s0, s12, log_likelihood = expectation(values, parameters, weight, n_jobs)
        history.append(log_likelihood / mass)
        parameters = maximization(s0, s12, parameters, floor)
        empty = np.flatnonzero(unit * s0 < min_count)
        if 0 < len(empty) < len(s0):
            parameters = reseed(parameters, empty, np.argsort(-s0, kind="stable")[: len(empty)], distance)
            reseeded += len(empty)
        small = small + 1 if len(history) > 1 and abs(history[-1] - history[-2]) < tol else 0
        if small == PATIENCE:
            return Climb(parameters, history, True, reseeded)
    return Climb(parameters, history, False, reseeded)


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


def reseed(parameters: GaussianParameters, empty: np.ndarray, heavy: np.ndarray, distance: float) -> GaussianParameters:
    """Put half of each of the components ``heavy`` in the place of as many ``empty`` ones."""
    halves = split(parameters, heavy, distance)
    source = np.arange(parameters.n_components)
    source[empty] = parameters.n_components + np.arange(len(empty))
    return check_parameters(halves.weights[source], halves.means[source], halves.variances[source])


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
