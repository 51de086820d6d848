# SPDX-License-Identifier: BSD-3-Clause
"""How a mixture is trained: where EM starts, and when it ends.

Start: by **iterative splitting** (liu2010 §4.3.1, after HTK): one Gaussian; every component is split in two by moving
its mean forth and back; a few EM iterations; again, until K.  When K is no power of two the heaviest components are
split in the last round.  Or by k-means.  Which dimensions move up while others move down follows the component's main
axis, because a split across the data is a saddle that EM is slow to leave (``splitting``).

End: when the log-likelihood has risen by less than ``tol`` twice in a row, one component is moved to where it seems to
be missed, and EM goes on from there.  If that is better it is kept and the same is tried again, else EM has converged.
All this happens within ``max_iter`` iterations.

How many descriptors EM looks at: splitting and most iterations happen on a **draft**, a part of the sample that grows
with the number of components, and only the last ``FINAL_ITER`` iterations on all of it.  Where components go is decided
by few descriptors; how wide they are needs more, but hardly more than one look at them.  A long climb on a draft of few
descriptors per component fits the draft and not the data, so its length is bounded too (``DRAFT_VISITS``).  The
constants were chosen by the log-likelihood of images that took no part (``benchmarks/bench_em.py`` shows it).
"""

from typing import Any

import numpy as np

from patchbag.mixture.em import Climb, Sample, climb, maximization
from patchbag.mixture.parameters import GaussianParameters
from patchbag.mixture.splitting import draw, posteriors, principal_axes, relocate, split_along_axes
from patchbag.mixture.statistics import JOB_ROWS
from patchbag.runtime import check_random_state

# descriptors of the draft: so many per component, within these limits, up to twice as many
DRAFT_PER_COMPONENT = 256
DRAFT_ROWS = 1 << 16, 1 << 17
# descriptors seen in all iterations on the draft with all components
DRAFT_VISITS = 1 << 20
FINAL_ITER = 2


def train(
    sample: Sample,
    *,
    n_components: int,
    init: str,
    max_iter: int,
    tol: float,
    split_iter: int,
    split_distance: float,
    variance_floor: float,
    min_count: float,
    random_state: Any,
    n_jobs: int | None,
) -> tuple[Climb, np.ndarray]:
    """The trained mixture, and the smallest variances ``(D,)`` that were allowed; options are UniversalMixture's."""
    root = overall_gaussian(sample)
    floor = variance_floor * root.variances[0]
    options: dict[str, Any] = {"floor": floor, "min_count": min_count, "distance": split_distance, "n_jobs": n_jobs}
    if init == "kmeans":
        parameters = by_kmeans(sample, root, n_components, floor, random_state)
    else:
        parameters = root
        while parameters.n_components < n_components:
            parameters = split_heaviest(parameters, sample, n_components, floor, split_distance)
            if parameters.n_components < n_components:
                # all iterations: a rise is small at first, where the halves are still close to each other
                part = draft(sample, parameters.n_components)
                parameters = climb(part, parameters, split_iter, **options).parameters
    part = draft(sample, n_components)
    if part is sample:
        return finish(sample, parameters, max_iter, tol, options), floor
    first = finish(part, parameters, min(max_iter, DRAFT_VISITS // len(part.values)), tol, options)
    last = climb(sample, first.parameters, min(max_iter, FINAL_ITER), **options)
    return last._replace(converged=first.converged, reseeded=first.reseeded + last.reseeded), floor


def draft(sample: Sample, n_components: int) -> Sample:
    """As much of the sample as EM needs to place so many components."""
    return sample.thin(len(sample.values) // int(np.clip(DRAFT_PER_COMPONENT * n_components, *DRAFT_ROWS)))


def finish(sample: Sample, parameters: GaussianParameters, max_iter: int, tol: float, options: dict[str, Any]) -> Climb:
    """EM until nothing helps any more, also not moving a component."""
    found = climb(sample, parameters, max_iter, tol=tol, **options)
    left = max_iter - len(found.log_likelihoods)
    while found.converged and parameters.n_components > 1:
        moved = relocate(found.parameters, draw(sample, parameters.n_components), options["floor"], options["distance"])
        if moved is None:
            break
        again = climb(sample, moved, left, tol=tol, **options)
        left -= len(again.log_likelihoods)
        if not again.log_likelihoods or again.log_likelihoods[-1] <= found.log_likelihoods[-1] + tol:
            return found._replace(converged=again.converged)
        found = again._replace(
            log_likelihoods=found.log_likelihoods + again.log_likelihoods, reseeded=found.reseeded + again.reseeded
        )
    return found


def overall_gaussian(sample: Sample) -> GaussianParameters:
    """The single Gaussian of all data: the root of the splitting, and the scale of the variance floor."""
    values, weight = sample
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
    parameters: GaussianParameters, sample: Sample, n_components: int, floor: np.ndarray, distance: float
) -> GaussianParameters:
    """Split every component, or only the heaviest where twice as many would be more than ``n_components``."""
    room = n_components - parameters.n_components
    # a component at the floor in most dimensions is one repeated descriptor: its halves would stay equal
    point = np.mean(parameters.variances <= 1.01 * floor, axis=1) > 0.5
    order = np.argsort(np.where(point, 1.0, 0.0) - parameters.weights, kind="stable")
    heaviest = np.sort(order[: max(1, min(room, int((~point).sum())))])
    part = draw(sample, parameters.n_components)
    labels = posteriors(part, parameters).argmax(axis=1)
    return split_along_axes(parameters, heaviest, distance, principal_axes(part, labels, parameters, heaviest))


def by_kmeans(
    sample: Sample, root: GaussianParameters, n_components: int, floor: np.ndarray, random_state: Any
) -> GaussianParameters:
    """One Gaussian per cluster of the descriptors, standardised by ``root``."""
    from sklearn.cluster import MiniBatchKMeans

    z = (sample.values - root.means[0]) / np.sqrt(root.variances[0])
    seed = check_random_state(random_state)
    kmeans = MiniBatchKMeans(n_components, n_init=1, batch_size=4096, random_state=seed)
    labels = kmeans.fit(z.astype(np.float32), sample_weight=sample.weight).labels_
    w = sample.weights
    s0 = np.bincount(labels, w, n_components)
    s12 = np.zeros((n_components, 2 * z.shape[1]))
    np.add.at(s12, labels, w[:, None] * np.concatenate([z, z * z], axis=1))
    template = GaussianParameters(
        np.full(n_components, 1 / n_components),
        np.repeat(root.means, n_components, axis=0),
        np.repeat(root.variances, n_components, axis=0),
    )
    return maximization(s0, s12, template, floor)
