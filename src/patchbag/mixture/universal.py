# SPDX-License-Identifier: BSD-3-Clause
"""The universal model as a step of a pipeline: projection, mixture and spatial cells, learned from training bags."""

from numbers import Integral
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator, TransformerMixin, _fit_context, clone
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags
from patchbag.features.projection import project
from patchbag.mixture.gaussian import UniversalMixture
from patchbag.mixture.spatial import SpatialPyramid
from patchbag.mixture.statistics import Statistics, collect
from patchbag.parameters import estimator, parameter
from patchbag.records import require_finite
from patchbag.runtime import check_random_state, one_blas_thread
from patchbag.storage.declared import Declared, Part


@estimator
class UniversalStatistics(TransformerMixin, BaseEstimator):
    """Bags → Statistics: projection, universal mixture and spatial cells, fitted on the training bags.

    Parameters
    ----------
    mixture : UniversalMixture, fitted or not (it is cloned and fitted); 64 components by default
    projection : a transformer of bags (``BagPCA``), applied in chunks; optional
    pyramid : list of grids such as ``["1x1", "2x2", "3x1"]``, or None for whole images without a cell axis
    assignment : ``"soft"``, ``"hard"`` or ``"nearest"``, see ``collect``
    n_jobs : workers, None for those of the context; the result does not depend on it
    moments : False for encodings of word counts, which need no more than the counts

    Attributes
    ----------
    mixture_ : the fitted universal mixture
    projection_ : the fitted projection
    """

    mixture: Any = parameter(HasMethods(["fit", "resolve_components"]), None, default=None)
    projection: Any = parameter(HasMethods(["fit", "transform"]), None, default=None)
    pyramid: list[str] | None = parameter(list, tuple, None, default=None)
    assignment: str = parameter(StrOptions({"soft", "hard", "nearest"}), default="soft")
    n_jobs: int | None = parameter(Integral, None, default=None)
    moments: bool = parameter("boolean", default=True)

    _stored: ClassVar[dict[str, Declared]] = {
        "mixture_": Part("UniversalMixture"),
        "projection_": Part(methods=("transform",), nullable=True),
        "pyramid_": Part("SpatialPyramid", nullable=True),
    }

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None) -> Self:
        bags = as_bags(X).check_not_empty()
        self.pyramid_ = SpatialPyramid(self.pyramid) if self.pyramid is not None else None
        self.projection_ = None if self.projection is None else clone(self.projection).fit(bags)
        mixture = UniversalMixture() if self.mixture is None else clone(self.mixture)
        # the sample below no longer knows how many images there were
        mixture.set_params(n_components=mixture.resolve_components(bags))
        rows = bags.sample(mixture.max_samples or int(bags.offsets[-1]), check_random_state(mixture.random_state))
        sample = Bags(rows, [0, len(rows)])
        with one_blas_thread():
            sample = project(sample, self.projection_)
        self.mixture_ = mixture.fit(sample)
        return self

    def transform(self, X: Any) -> Statistics:
        check_is_fitted(self, "mixture_")
        found = collect(
            as_bags(X), self.mixture_.parameters_, self.pyramid_, self.assignment, self.n_jobs, self.moments,
            self.projection_,
        )  # fmt: skip
        require_finite(found.s2, "the moments of the descriptors", "rescale them, or give them as float64")
        return found
