# SPDX-License-Identifier: BSD-3-Clause
r"""The universal model: a diagonal Gaussian mixture of the descriptors of all images, trained by EM.

E- and M-step are in ``em``, where EM starts and ends in ``training``; this module is the estimator around them.

Variances are floored at ``variance_floor`` times the data's variance in that dimension.  A component left with less
than ``min_count`` descriptors is re-seeded by splitting the heaviest one, with a warning.  Except at a re-seeding, at a
component moved elsewhere or at an active floor, the log-likelihood never decreases.

``partial_fit`` continues from the sums behind the present parameters, those of ``fit`` included: S0 = mass · w and so
on, with ``mass_`` the (weighted) number of descriptors trained on so far.

Cost: 4·N·D·K operations per iteration, almost all of them in one BLAS product.
"""

import inspect
import warnings
from dataclasses import KW_ONLY
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags
from patchbag.mixture.accumulate import log_densities
from patchbag.mixture.em import Sample, expectation, from_raw, maximization, sums_of, to_raw
from patchbag.mixture.parameters import GaussianParameters, check_parameters
from patchbag.mixture.statistics import Statistics, collect
from patchbag.mixture.training import train
from patchbag.parameters import NOT_NEGATIVE, ONE_OR_MORE, POSITIVE, ZERO_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state
from patchbag.storage.declared import Declared, Either, Many, Part, boolean, floats, integer, real, size


def suggest_components(n_images: int, images_per_component: float, largest: int) -> int:
    """Number of Gaussians that a dataset of this size can feed: a power of two from 8 up to ``largest``."""
    return int(min(largest, max(8, 2 ** int(np.log2(max(n_images / images_per_component, 1))))))


def _as_bags(X: Any) -> Bags:
    """Bags, also of an (N, D) array of descriptors."""
    flat = not isinstance(X, Bags) and getattr(X, "ndim", 0) == 2
    return Bags(X, [0, len(X)]) if flat else as_bags(X)


@estimator
class UniversalMixture(BaseEstimator):
    """Diagonal Gaussian mixture trained by EM.

    Parameters
    ----------
    n_components : number K of Gaussians, or ``"auto"``: a power of two chosen from the number of bags
    images_per_component, max_components : how ``"auto"`` chooses
    init : ``"split"`` (iterative splitting) or ``"kmeans"``
    max_iter : EM iterations with all K components
    tol : EM stops when the mean log-likelihood of a descriptor rises by less, twice in a row
    split_iter : EM iterations after each splitting
    split_distance : how far a half is moved in each of the D dimensions, in standard deviations; at least 1 / √D
    variance_floor : smallest variance, as a fraction of the data's variance
    min_count : a component with fewer (soft) descriptors is re-seeded; with sample weights, as if their mean were one
    max_samples : descriptors drawn for training; None uses all
    n_jobs : workers, None for those of the context; the result does not depend on it
    random_state : seed of the sampling and of k-means

    Attributes
    ----------
    weights_ (K,), means_ (K, D), variances_ (K, D)
    log_likelihoods_ : mean log-likelihood of a descriptor before each of the final EM iterations
    lower_bound_ : the last of them;  n_iter_ : their number
    converged_ : whether EM came to rest, and moving one component elsewhere did not help; False also where
        ``max_iter`` left no time to find out
    mass_ : number of descriptors trained on, or the sum of their weights

    >>> values = np.random.default_rng(0).normal([0.0, 9.0], 1, (500, 2)).reshape(-1, 1)
    >>> np.sort(UniversalMixture(2).fit(values).means_.ravel()).round() + 0.0
    array([0., 9.])
    """

    n_components: int | str = parameter(ONE_OR_MORE, StrOptions({"auto"}), default=64)
    _: KW_ONLY
    images_per_component: float = parameter(POSITIVE, default=8.0)
    max_components: int = parameter(ONE_OR_MORE, default=256)
    init: str = parameter(StrOptions({"split", "kmeans"}), default="split")
    max_iter: int = parameter(ZERO_OR_MORE, default=20)
    tol: float = parameter(NOT_NEGATIVE, default=1e-3)
    split_iter: int = parameter(ZERO_OR_MORE, default=4)
    split_distance: float = parameter(POSITIVE, default=0.2)
    variance_floor: float = parameter(POSITIVE, default=1e-3)
    min_count: float = parameter(NOT_NEGATIVE, default=1.0)
    max_samples: int | None = parameter(ONE_OR_MORE, None, default=500_000)
    n_jobs: int | None = parameter(Integral, None, default=None)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "parameters_": Part("GaussianParameters", K="K", D="D"),
        "floor_": floats("D", low=0, optional=True),
        "n_components_": size("K", optional=True),
        "n_features_in_": size("D"),
        "converged_": boolean(optional=True),
        "mass_": real(low=0, optional=True),
        "log_likelihoods_": floats("iterations", finite=False, optional=True),
        "lower_bound_": real(finite=False, optional=True),
        "n_iter_": integer(optional=True),
        "totals_": Many(Either((floats("K"), floats("K", "moments"))), optional=True),
    }

    # --- training ------------------------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on bags or on an (N, D) array of descriptors, with optional weights ``(N,)`` of descriptors."""
        sample = self._draw(X, sample_weight)
        self._store(*self._train(X, sample), sample.mass)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """One incremental EM step: add the batch's sums, under the present parameters, to all sums so far.

        The first call trains the mixture on its batch; after ``fit``, or :meth:`from_parameters` with a ``mass``, the
        sums so far are those of that model.  Calling it again and again over the same data weighs old responsibilities
        with new ones; for exact EM on data that do not fit into memory, call ``fit`` with memory-mapped bags.
        """
        sample = self._draw(X, sample_weight)
        if hasattr(self, "parameters_"):
            self._check_dimension(sample.values)
            parameters, before = self.parameters_, self._sums()
        else:
            parameters = self._train(X, sample)[0]
            before = sums_of(parameters, 0.0)
        s0, s12, log_likelihood = expectation(sample.values, parameters, sample.weight, self.n_jobs)
        raw0, raw12 = before[0] + s0, before[1] + to_raw(s0, s12, parameters)
        updated = maximization(raw0, from_raw(raw0, raw12, parameters), parameters, self.floor_)
        self._store(updated, [log_likelihood / sample.mass], float(raw0.sum()))
        self.totals_ = (raw0, raw12)
        return self

    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        """The sums that the next batch is added to: those of earlier batches, or those behind the parameters."""
        if hasattr(self, "totals_"):
            return self.totals_
        mass = getattr(self, "mass_", None)  # files of earlier versions do not have it
        if mass is None:
            raise ValueError(
                "partial_fit cannot continue from this mixture: nobody knows how many descriptors its parameters stand "
                "for; make it with from_parameters(..., mass=that number), or train it with fit or partial_fit"
            )
        return sums_of(self.parameters_, mass)

    def schedule(self) -> dict[str, Any]:
        """What :func:`patchbag.mixture.training.train` is told."""
        names = inspect.signature(train).parameters.keys() - {"sample"}
        return {name: getattr(self, name) for name in names}

    def resolve_components(self, X: Any) -> int:
        """The number of Gaussians for these data: ``n_components``, or what ``"auto"`` makes of the number of bags."""
        if self.n_components != "auto":
            return int(self.n_components)
        if not isinstance(X, Bags):
            raise ValueError('n_components="auto" counts images: pass Bags, or give a number')
        return suggest_components(len(X), self.images_per_component, self.max_components)

    def _draw(self, X: Any, sample_weight: Any) -> Sample:
        """The descriptors to train on, at most ``max_samples``, and their weights."""
        bags = _as_bags(X)
        total = int(bags.offsets[-1])
        size = min(total, self.max_samples or total)
        random_state = check_random_state(self.random_state)
        if total == 0:
            raise ValueError("a batch needs at least one descriptor")
        if sample_weight is None:
            return Sample(bags.sample(size, random_state))
        weight = np.asarray(sample_weight, np.float64)
        if weight.shape != (total,) or not np.isfinite(weight).all() or weight.min() < 0:
            raise ValueError(f"sample_weight must be {total} finite numbers ≥ 0, one per descriptor")
        rows = slice(None) if size == total else np.sort(random_state.choice(total, size, replace=False))
        weight = weight[rows]
        if weight.max() <= 0:
            raise ValueError("all sample weights are zero")
        return Sample(bags.values[rows], weight)

    def _train(self, X: Any, sample: Sample) -> tuple[GaussianParameters, list[float]]:
        """Parameters and log-likelihoods of a mixture trained from scratch, with a warning where it was starved."""
        n_components = self.resolve_components(X)
        if len(sample.values) < n_components:
            raise ValueError(
                f"{len(sample.values)} descriptors cannot train {n_components} Gaussians; lower n_components"
            )
        found, self.floor_ = train(sample, **{**self.schedule(), "n_components": n_components})
        if found.reseeded:
            many = "1 component" if found.reseeded == 1 else f"{found.reseeded} components"
            warnings.warn(
                f"the mixture was short of descriptors: {many} of {n_components} had fewer than {self.min_count:g} and "
                "had to be re-seeded; more images or a smaller n_components would avoid this",
                stacklevel=4,
            )
        self.n_components_, self.converged_ = n_components, found.converged
        return found.parameters, found.log_likelihoods

    def _store(self, parameters: GaussianParameters, history: list[float], mass: float | None) -> None:
        if hasattr(self, "totals_"):
            del self.totals_  # the sums of another model
        self.parameters_: GaussianParameters = parameters
        self.mass_ = mass
        self.log_likelihoods_ = np.array(history or [np.nan])
        self.lower_bound_ = float(self.log_likelihoods_[-1])
        self.n_iter_ = len(self.log_likelihoods_)
        self.n_features_in_ = parameters.dimension

    @classmethod
    def from_parameters(
        cls, weights: Any, means: Any, variances: Any, *, mass: float | None = None, **options: Any
    ) -> Self:
        """A fitted mixture with the given parameters.

        ``mass`` is the number of descriptors that they stand for; only ``partial_fit`` needs it.
        """
        parameters = check_parameters(weights, means, variances)
        if mass is not None and not 0 < mass < np.inf:
            raise ValueError(f"mass must be a positive number of descriptors, got {mass!r}")
        mixture = cls(parameters.n_components, **options)
        mixture._store(parameters, [], mass)
        mixture.n_components_ = parameters.n_components
        mixture.floor_ = mixture.variance_floor * parameters.scale**2
        return mixture

    @property
    def weights_(self) -> np.ndarray:
        return self.parameters_.weights

    @property
    def means_(self) -> np.ndarray:
        return self.parameters_.means

    @property
    def variances_(self) -> np.ndarray:
        return self.parameters_.variances

    # --- use -----------------------------------------------------------------------------------------------------

    def statistics(self, X: Any) -> Statistics:
        """Soft counts and moments of every bag."""
        check_is_fitted(self, "parameters_")
        return collect(as_bags(X), self.parameters_, n_jobs=self.n_jobs)

    def score_samples(self, X: Any) -> np.ndarray:
        """(N,) log-likelihood of each descriptor of the bags, or of the (N, D) array."""
        return np.logaddexp.reduce(self._log_densities(X), axis=1)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of a descriptor of the bags, or of the (N, D) array."""
        check_is_fitted(self, "parameters_")
        values = self._check_dimension(_as_bags(X).values)
        return expectation(values, self.parameters_, None, self.n_jobs)[2] / len(values)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, K) posteriors of the components for each descriptor of the bags, or of the (N, D) array."""
        logits = self._log_densities(X)
        return np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))

    def _log_densities(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "parameters_")
        return log_densities(np.asarray(self._check_dimension(_as_bags(X).values), np.float64), self.parameters_)

    def _check_dimension(self, values: np.ndarray) -> np.ndarray:
        if values.shape[1] != self.n_features_in_:
            raise ValueError(
                f"the mixture was trained on {self.n_features_in_}-D descriptors, got {values.shape[1]}-D ones"
            )
        return values

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        shapes = [a.shape for a in values.get("totals_") or ()]
        if shapes not in ([], [(sizes["K"],), (sizes["K"], 2 * sizes["D"])]):
            return f"its sums have shapes {shapes}"
        return None
