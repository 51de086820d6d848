# SPDX-License-Identifier: BSD-3-Clause
"""Image mixtures by maximum likelihood: every image trained from scratch, the baseline of adaptation (liu2010 §4.3.2).

The components of two such mixtures have nothing to do with each other, so only kernels that match components
(``matching="one-to-many"``, ``"matched"``) can compare them, at K² Gaussians per pair instead of K.
"""

from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context, clone
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags
from patchbag.features.projection import project
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.em import Sample
from patchbag.mixture.gaussian import UniversalMixture
from patchbag.mixture.statistics import CHUNK_ROWS
from patchbag.mixture.training import train
from patchbag.parameters import estimator, parameter
from patchbag.runtime import check_random_state, parallel_map
from patchbag.storage.declared import Declared, Part


def maximum_likelihood(
    bags: Bags, mixture: UniversalMixture, n_jobs: int | None = None, projection: Any = None
) -> Mixtures:
    """Every image's mixture trained from its own descriptors alone, by the schedule of ``mixture`` (unfitted).

    A component keeps at least the schedule's ``variance_floor``; an image needs at least K descriptors.  That some
    components are starved and re-seeded is the expected weakness of this baseline, and no news about an image.
    """
    if not isinstance(mixture.n_components, Integral):
        raise ValueError(f"an image's mixture needs a number of components, not {mixture.n_components!r}")
    small = np.flatnonzero(bags.sizes < mixture.n_components)
    if len(small):
        raise ValueError(
            f"bag {small[0]} of {len(bags)} has {bags.sizes[small[0]]} descriptors, too few to train "
            f"{mixture.n_components} Gaussians by maximum likelihood; use MAP adaptation or fewer components"
        )
    seed = check_random_state(mixture.random_state).randint(np.iinfo(np.int32).max)
    schedule = {**mixture.schedule(), "n_jobs": 1, "random_state": seed}
    work = partial(_train, schedule=schedule, projection=projection, total=len(bags))
    found: list[tuple[np.ndarray, ...]] = []
    for chunk in bags.chunks(CHUNK_ROWS):
        jobs = [(len(found) + i, values) for i, values in enumerate(chunk)]
        found.extend(parallel_map(work, jobs, n_jobs))
    weights, means, variances = (np.stack(column) for column in zip(*found))
    return Mixtures(weights, means, variances, corresponding=False).check(what="image mixtures")


def _train(job: tuple[int, np.ndarray], schedule: dict[str, Any], projection: Any, total: int) -> tuple[Any, ...]:
    number, values = job
    if projection is not None:
        values = project(Bags.from_list([values]), projection).values
    try:
        found = train(Sample(values), **schedule)[0].parameters
    except ValueError as error:
        raise ValueError(f"bag {number} of {total}: {error}") from error
    return found.weights, found.means, found.variances


@estimator
class MaximumLikelihoodMixtures(TransformerMixin, BaseEstimator):
    """Bags → Mixtures, each trained on its own descriptors.

    Parameters
    ----------
    mixture : UniversalMixture that says how an image is trained; 16 components by default
    projection : a transformer of bags (``BagPCA``), fitted on the training bags; optional
    n_jobs : workers, None for those of the context; each trains one image at a time

    Attributes
    ----------
    projection_ : the fitted projection, or None
    """

    mixture: Any = parameter(HasMethods(["schedule"]), None, default=None)
    projection: Any = parameter(HasMethods(["fit", "transform"]), None, default=None)
    n_jobs: int | None = parameter(Integral, None, default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "projection_": Part(methods=("transform",), nullable=True),
    }

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None) -> Self:
        bags = as_bags(X).check_not_empty()
        self.projection_ = None if self.projection is None else clone(self.projection).fit(bags)
        return self

    def transform(self, X: Any) -> Mixtures:
        check_is_fitted(self, "projection_")
        mixture = UniversalMixture(16) if self.mixture is None else self.mixture
        return maximum_likelihood(as_bags(X).check_not_empty(), mixture, self.n_jobs, self.projection_)
