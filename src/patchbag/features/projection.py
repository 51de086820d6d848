# SPDX-License-Identifier: BSD-3-Clause
"""Per-descriptor transforms: PCA of descriptors, and any scikit-learn transformer lifted to bags.

Both learn from a random sample of the training descriptors and transform the rest in chunks of rows: bags that are
memory-mapped or stored as bytes never stand in memory as a whole in floating point.
"""

from dataclasses import KW_ONLY
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import is_numpy_array
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context, clone
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags, map_values
from patchbag.device import floating, like
from patchbag.parameters import ONE_OR_MORE, SHARE, TWO_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state, one_blas_thread
from patchbag.storage.declared import Declared, Part, floats, size

NULL_VARIANCE = 1e-10
# rows projected together: in floating point they stay in the second-level cache
BLOCK_ROWS = 1024


def project(bags: Bags, projection: Any) -> Bags:
    """The bags as a fitted transformer of bags makes them; as they are without one."""
    found = bags if projection is None else projection.transform(bags)
    if not isinstance(found, Bags):
        raise ValueError(f"a projection makes bags of bags; {type(projection).__name__} makes {type(found).__name__}")
    return found


@estimator
class BagPCA(TransformerMixin, BaseEstimator):
    """Principal components of descriptors.

    Parameters
    ----------
    n_components : dimensions kept, at most those that the descriptors have; fewer stay (see ``n_components_``) where
        the descriptors lie in a smaller space, as grey pictures' colours do: a direction with less than
        ``NULL_VARIANCE`` of the largest variance holds rounding errors, which a mixture would take for data
    whiten : scale every component to unit variance; a number w divides by the w-th power of its deviation instead, so
        that 0.5 leaves half of the differences between strong and weak components
    max_samples : descriptors drawn for training
    random_state : seed of that draw

    Attributes
    ----------
    n_components_ : the number of directions with variance, at most ``n_components``
    mean_ (d,), components_ (n_components_, d), explained_variance_ (n_components_,), explained_variance_ratio_
    """

    n_components: int = parameter(ONE_OR_MORE, default=64)
    _: KW_ONLY
    whiten: bool | float = parameter("boolean", SHARE, default=False)
    max_samples: int = parameter(TWO_OR_MORE, default=200_000)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "mean_": floats("d"),
        "components_": floats("k", "d"),
        "n_components_": size("k", optional=True),
        "explained_variance_": floats("k", low=0),
        "explained_variance_ratio_": floats("k", optional=True),
        "n_features_in_": size("d"),
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        bags = as_bags(X)
        if self.n_components > bags.dimension:
            raise ValueError(
                f"n_components={self.n_components} exceeds the descriptors' {bags.dimension} dimensions; lower it to "
                f"{bags.dimension} or less"
            )
        sample = bags.sample(self.max_samples, check_random_state(self.random_state)).astype(np.float64)
        if len(sample) < 2:
            raise ValueError(f"PCA needs at least two descriptors, got {len(sample)}")
        if not np.isfinite(sample).all():
            bad = next(i for i, bag in enumerate(bags) if not np.isfinite(bag).all())
            raise ValueError(f"bag {bad} of {len(bags)} has descriptors that are NaN or infinite")
        self.mean_ = sample.mean(axis=0)
        sample -= self.mean_
        with np.errstate(over="ignore", invalid="ignore"), one_blas_thread():
            covariance = sample.T @ sample / (len(sample) - 1)
        if not np.isfinite(covariance).all():
            raise ValueError("the variances of these descriptors are beyond all numbers; rescale the descriptors")
        with one_blas_thread():
            values, vectors = np.linalg.eigh(covariance)
        order = np.argsort(-values)[: self.n_components]
        # at least one: descriptors that are all the same have no direction, but still need a dimension
        self.n_components_ = max(1, int((values[order] > NULL_VARIANCE * values.max()).sum()))
        order = order[: self.n_components_]
        vectors = vectors[:, order].T
        # an eigenvector's sign is arbitrary: fix it, so that a fit is reproducible on every machine
        strongest = np.abs(vectors).argmax(axis=1)
        vectors *= np.sign(vectors[np.arange(len(vectors)), strongest])[:, None]
        self.components_ = vectors
        self.explained_variance_ = np.maximum(values[order], 0)
        self.explained_variance_ratio_ = self.explained_variance_ / max(np.maximum(values, 0).sum(), 1e-300)
        self.n_features_in_ = bags.dimension
        return self

    def transform(self, X: Any) -> Bags:
        check_is_fitted(self, "components_")
        bags = as_bags(X)
        if bags.dimension != self.n_features_in_:
            raise ValueError(f"PCA was fitted on {self.n_features_in_}-D descriptors, got {bags.dimension}-D ones")
        matrix = self.components_.T
        if self.whiten:
            # a direction without variance (all descriptors the same) stays at zero instead of amplifying rounding noise
            deviation = np.sqrt(self.explained_variance_)
            floor = 1e-6 * max(deviation.max(), 1e-300)
            matrix = matrix * np.where(deviation > floor, np.maximum(deviation, floor) ** -float(self.whiten), 0)
        if bags.total and not is_numpy_array(bags.values):
            rows = floating(bags.values)
            return bags.replace((rows - like(self.mean_, rows)) @ like(matrix, rows))
        dtype = np.float64 if bags.dtype == np.float64 else np.float32
        matrix, mean = matrix.astype(dtype), self.mean_.astype(dtype)
        return map_values(bags, lambda rows: np.subtract(rows, mean, dtype=dtype) @ matrix, BLOCK_ROWS)


@estimator
class PerDescriptor(TransformerMixin, BaseEstimator):
    """Any scikit-learn transformer of vectors, applied to the descriptors of bags.

    Parameters
    ----------
    transformer : fitted on a sample of the training descriptors
    max_samples : size of that sample
    random_state : seed of that draw

    >>> from sklearn.preprocessing import StandardScaler
    >>> PerDescriptor(StandardScaler()).fit_transform([np.array([[1.0], [3.0]])])[0].ravel()
    array([-1.,  1.])
    """

    transformer: Any = parameter(HasMethods(["fit", "transform"]))
    _: KW_ONLY
    max_samples: int = parameter(ONE_OR_MORE, default=200_000)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "transformer_": Part(methods=("transform",)),
    }

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None) -> Self:
        sample = as_bags(X).sample(self.max_samples, check_random_state(self.random_state))
        self.transformer_ = clone(self.transformer).fit(sample)
        return self

    def transform(self, X: Any) -> Bags:
        check_is_fitted(self, "transformer_")
        return map_values(as_bags(X), lambda rows: np.asarray(self.transformer_.transform(rows)))
