# SPDX-License-Identifier: BSD-3-Clause
"""Where EM starts: the Gaussian of all descriptors, its repeated splitting, or k-means.

``UniversalMixture`` runs EM between one splitting and the next; the directions of the splits are found in
``splitting``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from patchbag.mixture.em import maximization
from patchbag.mixture.parameters import GaussianParameters
from patchbag.mixture.splitting import draw, posteriors, principal_axes, split_along_axes
from patchbag.mixture.statistics import JOB_ROWS


def overall_gaussian(values: np.ndarray, weight: np.ndarray | None) -> GaussianParameters:
    """The single Gaussian of all data: the root of the splitting, and the scale of the variance floor."""
    n, mean, square = 0.0, np.zeros(values.shape[1]), np.zeros(values.shape[1])
    origin = np.asarray(values[:JOB_ROWS], np.float64).mean(axis=0)
    for start in range(0, len(values), JOB_ROWS):
        rows = np.asarray(values[start : start + JOB_ROWS], np.float64)
        if not np.isfinite(rows).all():
            row = start + int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
            raise ValueError(f"descriptor {row} of {len(values)} is NaN or infinite")
        rows = rows - origin
        w = np.ones(len(rows)) if weight is None else weight[start : start + JOB_ROWS]
        n, mean, square = n + w.sum(), mean + w @ rows, square + w @ rows**2
    mean, square = mean / n, square / n
    variance = np.maximum(square - mean**2, 0)
    # a constant dimension says nothing; give it the smallest scale that keeps the densities finite
    variance[variance <= 0] = max(variance.max() * 1e-6, 1e-12)
    return GaussianParameters(np.ones(1), (origin + mean)[None], variance[None])


def split_heaviest(
    parameters: GaussianParameters,
    values: np.ndarray,
    weight: np.ndarray | None,
    n_components: int,
    floor: np.ndarray,
    distance: float,
) -> GaussianParameters:
    """Split every component, or only the heaviest where twice as many would be more than ``n_components``."""
    room = n_components - parameters.n_components
    # a component at the floor in most dimensions is one repeated descriptor: its halves would stay equal
    point = np.mean(parameters.variances <= 1.01 * floor, axis=1) > 0.5
    order = np.argsort(np.where(point, 1.0, 0.0) - parameters.weights, kind="stable")
    heaviest = np.sort(order[: max(1, min(room, int((~point).sum())))])
    sample = draw(values, weight, parameters.n_components)
    labels = posteriors(sample, parameters).argmax(axis=1)
    return split_along_axes(parameters, heaviest, distance, principal_axes(sample, labels, parameters, heaviest))


def by_kmeans(
    values: np.ndarray,
    weight: np.ndarray | None,
    root: GaussianParameters,
    n_components: int,
    floor: np.ndarray,
    random_state: Any,
) -> GaussianParameters:
    """One Gaussian a cluster of the descriptors, standardised by ``root``."""
    from sklearn.cluster import MiniBatchKMeans

    z = (values - root.means[0]) / np.sqrt(root.variances[0])
    seed = check_random_state(random_state)
    kmeans = MiniBatchKMeans(n_components, n_init=1, batch_size=4096, random_state=seed)
    labels = kmeans.fit(z.astype(np.float32), sample_weight=weight).labels_
    w = np.ones(len(z)) if weight is None else weight
    s0 = np.bincount(labels, w, n_components)
    s12 = np.zeros((n_components, 2 * z.shape[1]))
    np.add.at(s12, labels, w[:, None] * np.concatenate([z, z * z], axis=1))
    template = GaussianParameters(
        np.full(n_components, 1 / n_components),
        np.repeat(root.means, n_components, axis=0),
        np.repeat(root.variances, n_components, axis=0),
    )
    return maximization(s0, s12, template, floor)
