# SPDX-License-Identifier: BSD-3-Clause
r"""Where to split a Gaussian, and how to get EM out of a place where it should not have stopped.

**Direction.**  HTK (and liu2010 §4.3.1) moves the two halves of a component by :math:`\pm 0.2\sigma` in every dimension
at once.  Whether the halves then drift apart depends on that direction: with :math:`\delta` the shift and z the
component's descriptors, both in deviations, the next EM step moves a half to

.. math:: E[z z^T]\,\delta + O(\delta^3) ,

so a shift along an eigenvector of eigenvalue λ grows by λ an iteration.  Across the correlations of the data λ is below
one and the halves fall together again, at a saddle of the likelihood; along the main axis it is the largest possible.
:func:`principal_axes` finds that axis by a few power iterations on a sample, and decides which dimensions move up while
the others move down.  All of them move as far as HTK's, but one deviation in all at least: in one dimension λ = 1, and
a small shift would stay small.  (Moving along the axis itself finds as many clusters, but is less likely for SIFT.)

**Relocation.**  Splitting can still leave two Gaussians on one cluster and one Gaussian on two, from where no small
step helps.  :func:`relocate` joins the two components that share their descriptors most and uses the one that is free
to split the component that gains most (split and merge EM, Ueda et al. 2000).  ``UniversalMixture`` tries it when EM
has converged before ``max_iter``, and keeps the result if it is better.

Everything happens on at most ``SAMPLE_ROWS`` descriptors, evenly spaced, and without chance: the power iterations start
from fixed vectors.  Cost: one E-step of the sample each time.
"""

import numpy as np

from patchbag.mixture.accumulate import compute_dtype, log_densities
from patchbag.mixture.em import Sample, split
from patchbag.mixture.parameters import GaussianParameters

SAMPLE_ROWS = 16384
# descriptors of the sample for each component: enough for a direction, not for a covariance
ROWS_PER_COMPONENT = 128
POWER_ITERATIONS = 4


def draw(sample: Sample, n_components: int) -> Sample:
    """Evenly spaced descriptors, enough for ``n_components``."""
    size = min(SAMPLE_ROWS, max(2048, ROWS_PER_COMPONENT * n_components))
    values, weight = sample.thin(-(-len(sample.values) // size))
    return Sample(np.asarray(values).astype(compute_dtype(values.dtype), copy=False), weight)


def posteriors(sample: Sample, parameters: GaussianParameters) -> np.ndarray:
    """(R, K) posteriors of the components for each descriptor of the sample."""
    share = log_densities(sample.values, parameters)
    share -= share.max(axis=1, keepdims=True)
    np.exp(share, out=share)
    share /= share.sum(axis=1, keepdims=True)
    return share


def principal_axes(sample: Sample, labels: np.ndarray, parameters: GaussianParameters, which: np.ndarray) -> np.ndarray:
    """(m, D) unit vectors along which the descriptors of the components ``which`` vary most, in deviations."""
    axes = np.random.default_rng(0).normal(size=(len(which), parameters.dimension))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    for axis, k in zip(axes, which):
        z, weight = _standardized(sample, labels == k, parameters, int(k))
        for _ in range(POWER_ITERATIONS):
            moved = z.T @ (weight * (z @ axis))
            norm = np.linalg.norm(moved)
            if not norm > 0:
                break
            axis[:] = moved / norm
    return axes


def split_along_axes(
    parameters: GaussianParameters, which: np.ndarray, distance: float, axes: np.ndarray
) -> GaussianParameters:
    """Split the components ``which`` by ``distance`` deviations in every dimension, up or down as ``axes`` point.

    The distance is at least 1 / √D, which is one deviation in all.
    """
    return split(parameters, which, max(distance, parameters.dimension**-0.5), np.where(axes >= 0, 1.0, -1.0))


def relocate(
    parameters: GaussianParameters, sample: Sample, floor: np.ndarray, distance: float
) -> GaussianParameters | None:
    """Join the two components that are most alike and split the one that gains most; None if nothing can be split."""
    share = posteriors(sample, parameters)
    labels = share.argmax(axis=1)
    common = share.T @ (sample.weights[:, None] * share)
    norm = np.sqrt(np.maximum(np.diag(common), np.finfo(common.dtype).tiny))
    common = common / np.outer(norm, norm)
    np.fill_diagonal(common, -1)
    kept, freed = sorted(np.unravel_index(int(common.argmax()), common.shape))
    joined = _join(parameters, int(kept), int(freed))
    labels = np.where(labels == freed, kept, labels)
    labels = labels - (labels > freed)
    axes = principal_axes(sample, labels, joined, np.arange(joined.n_components))
    gains = np.empty(joined.n_components)
    for k in range(joined.n_components):
        gains[k] = split_gain(*_standardized(sample, labels == k, joined, k), axes[k], floor / joined.variances[k])
    best = int(gains.argmax())
    if not np.isfinite(gains[best]):
        return None
    return split_along_axes(joined, np.array([best]), distance, axes[best : best + 1])


def split_gain(z: np.ndarray, weight: np.ndarray, axis: np.ndarray, floor: np.ndarray) -> float:
    """How much likelier its own descriptors become when one Gaussian is cut in two across ``axis``.

    Parameters
    ----------
    z : (R, D) descriptors of the component, in its deviations; weight : (R,)
    axis : (D,) the cut goes through the mean, at right angles to it
    floor : (D,) smallest variance

    Returns
    -------
    Gain in log-likelihood with hard assignment; minus infinity if one side is empty
    """
    above = z @ axis > 0
    sides = [(z[side], weight[side]) for side in (above, ~above)]
    total = weight.sum()
    if any(w.sum() <= 0 for _, w in sides):
        return -np.inf

    def code_length(rows: np.ndarray, w: np.ndarray) -> float:
        mean = np.average(rows, axis=0, weights=w)
        variance = np.maximum(np.average((rows - mean) ** 2, axis=0, weights=w), floor)
        return float(w.sum() * (0.5 * np.log(variance).sum() - np.log(w.sum() / total)))

    return code_length(z, weight) - sum(code_length(*side) for side in sides)


def _standardized(
    sample: Sample, rows: np.ndarray, parameters: GaussianParameters, k: int
) -> tuple[np.ndarray, np.ndarray]:
    z = (sample.values[rows] - parameters.means[k]) / np.sqrt(parameters.variances[k])
    return z, sample.weights[rows]


def _join(parameters: GaussianParameters, kept: int, freed: int) -> GaussianParameters:
    """One Gaussian with the mass, mean and variance of two, in the place of the first; K is one less."""
    pair = [kept, freed]
    w, m, v = parameters.weights[pair], parameters.means[pair], parameters.variances[pair]
    share = w / w.sum() if w.sum() > 0 else np.array([0.5, 0.5])
    mean = share @ m
    weights, means, variances = (
        np.delete(a, freed, axis=0) for a in (parameters.weights, parameters.means, parameters.variances)
    )
    weights[kept], means[kept], variances[kept] = w.sum(), mean, share @ (v + (m - mean) ** 2)
    return GaussianParameters(weights, means, variances)
