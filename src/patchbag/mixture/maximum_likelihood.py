# SPDX-License-Identifier: BSD-3-Clause
"""Image mixtures by maximum likelihood: every image trained from scratch, the baseline of adaptation (liu2010 §4.3.2).

The components of two such mixtures have nothing to do with each other, so only kernels that match components
(``matching="one-to-many"``, ``"matched"``) can compare them, at K² Gaussians a pair instead of K.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.gaussian import UniversalMixture
from patchbag.runtime import parallel_map


def maximum_likelihood(bags: Bags, mixture: UniversalMixture, n_threads: int | None = None) -> Mixtures:
    """Every image's mixture trained from its own descriptors alone, by the schedule of ``mixture`` (unfitted).

    A component keeps at least the schedule's ``variance_floor``; an image needs at least K descriptors.
    """
    _check_sizes(bags, mixture)
    weights, means, variances = _train(bags, mixture, n_threads, 0, len(bags))
    return Mixtures(weights, means, variances, corresponding=False).check(what="image mixtures")


def _check_sizes(bags: Bags, mixture: UniversalMixture) -> None:
    n_components = int(mixture.n_components)
    small = np.flatnonzero(bags.sizes < n_components)
    if len(small):
        raise ValueError(
            f"bag {small[0]} of {len(bags)} has {bags.sizes[small[0]]} descriptors, too few to train {n_components} "
            "Gaussians by maximum likelihood; use MAP adaptation or fewer components"
        )


def _train(
    bags: Bags, mixture: UniversalMixture, n_threads: int | None, first: int, total: int
) -> tuple[np.ndarray, ...]:
    """Weights, means and variances of bags that are number ``first`` and following of ``total``."""
    options = {**mixture.get_params(), "n_threads": 1}

    def job(i: int) -> tuple[Any, ...]:
        with warnings.catch_warnings():
            # starved components are the expected weakness of this baseline, not news about each image
            warnings.filterwarnings("ignore", message=".*were re-seeded")
            try:
                fitted = UniversalMixture(**options).fit(bags[i])
            except ValueError as error:
                raise ValueError(f"bag {first + i} of {total}: {error}") from error
        return fitted.weights_, fitted.means_, fitted.variances_

    return tuple(np.stack(c) for c in zip(*parallel_map(job, range(len(bags)), n_threads)))


class MaximumLikelihoodMixtures(TransformerMixin, BaseEstimator):
    """Bags → Mixtures, each trained on its own descriptors.

    Parameters
    ----------
    mixture : UniversalMixture that says how an image is trained; 16 components by default
    projection : a transformer of bags (``BagPCA``), fitted on the training bags; optional
    n_threads : images trained at a time, all cores by default

    Attributes
    ----------
    projection_ : the fitted projection, or None
    """

    def __init__(self, mixture: Any = None, projection: Any = None, n_threads: int | None = None) -> None:
        self.mixture = mixture
        self.projection = projection
        self.n_threads = n_threads

    def fit(self, X: Any, y: Any = None) -> Self:
        bags = as_bags(X).check_not_empty()
        self.projection_ = None if self.projection is None else clone(self.projection).fit(bags)
        return self

    def transform(self, X: Any) -> Mixtures:
        check_is_fitted(self, "projection_")
        bags = as_bags(X).check_not_empty()
        schedule = UniversalMixture(16) if self.mixture is None else self.mixture
        if not isinstance(schedule.n_components, int | np.integer):
            raise ValueError(f"an image's mixture needs a number of components, not {schedule.n_components!r}")
        _check_sizes(bags, schedule)
        parts: list[tuple[np.ndarray, ...]] = []
        done = 0
        for chunk in bags.chunks(1 << 18):
            if self.projection_ is not None:
                chunk = self.projection_.transform(chunk)
            parts.append(_train(chunk, schedule, self.n_threads, done, len(bags)))
            done += len(chunk)
        weights, means, variances = (np.concatenate(c) for c in zip(*parts))
        return Mixtures(weights, means, variances, corresponding=False).check(what="image mixtures")
