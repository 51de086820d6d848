# SPDX-License-Identifier: BSD-3-Clause
r"""The universal model: a diagonal Gaussian mixture of the descriptors of all images, trained by EM.

E- and M-step are in ``em``; this module is the estimator around them.

Start: by **iterative splitting** (liu2010 §4.3.1, after HTK): one Gaussian; every component is split in two by moving
its mean forth and back; a few EM iterations; again, until K.  When K is no power of two the heaviest components are
split in the last round.  Or by k-means.  Which dimensions move up while others move down follows the component's main
axis, because a split across the data is a saddle that EM is slow to leave (``splitting``).

End: when the log-likelihood has risen by less than ``tol`` twice in a row, one component is moved to where it seems to
be missed, and EM goes on from there.  If that is better it is kept and the same is tried again, else EM has converged.
All this happens within ``max_iter`` iterations.

Variances are floored at ``variance_floor`` times the data's variance in that dimension.  A component left with less
than ``min_count`` descriptors is re-seeded by splitting the heaviest one, with a warning.  Except at a re-seeding, at a
component moved elsewhere or at an active floor, the log-likelihood never decreases.

``partial_fit`` continues from the sums behind the present parameters, those of ``fit`` included: S0 = mass · w and so
on, with ``mass_`` the (weighted) number of descriptors trained on so far.

Cost: 4·N·D·K operations an iteration, almost all of them in one BLAS product.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags
from patchbag.mixture.accumulate import log_densities
from patchbag.mixture.em import expectation, from_raw, mass_of, maximization, sums_of, to_raw
from patchbag.mixture.initialization import by_kmeans, overall_gaussian, split_heaviest
from patchbag.mixture.parameters import GaussianParameters, check_parameters
from patchbag.mixture.splitting import draw, relocate
from patchbag.mixture.statistics import Statistics, collect

# small rises of the log-likelihood in a row that end EM
PATIENCE = 2


def suggest_components(n_images: int, images_per_component: float, largest: int) -> int:
    """Number of Gaussians that a dataset of this size can feed: a power of two from 8 up to ``largest``."""
    return int(min(largest, max(8, 2 ** int(np.log2(max(n_images / images_per_component, 1))))))


def descriptors_of(X: Any) -> np.ndarray:
    """(N, D) descriptors of bags, or the (N, D) array itself."""
    if not isinstance(X, Bags) and hasattr(X, "ndim") and X.ndim == 2:
        return np.asarray(X)
    return as_bags(X).values


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
    n_threads : threads, all cores by default; the result does not depend on it
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
    >>> np.sort(UniversalMixture(2).fit(values).means_.ravel()).round()
    array([0., 9.])
    """

    parameters_: GaussianParameters

    def __init__(
        self,
        n_components: int | str = 64,
        *,
        images_per_component: float = 8.0,
        max_components: int = 256,
        init: str = "split",
        max_iter: int = 20,
        tol: float = 1e-3,
        split_iter: int = 4,
        split_distance: float = 0.2,
        variance_floor: float = 1e-3,
        min_count: float = 1.0,
        max_samples: int | None = 500_000,
        n_threads: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.images_per_component = images_per_component
        self.max_components = max_components
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.split_iter = split_iter
        self.split_distance = split_distance
        self.variance_floor = variance_floor
        self.min_count = min_count
        self.max_samples = max_samples
        self.n_threads = n_threads
        self.random_state = random_state

    # --- training ------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on bags or on an (N, D) array of descriptors, with optional weights ``(N,)`` of descriptors."""
        values, weight = self._check_input(X, sample_weight, start=True)
        parameters, history, self.converged_ = self._train(values, weight, self._initialize(values, weight))
        self._store(parameters, history or [float("nan")], mass_of(values, weight))
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """One incremental EM step: add the batch's sums, under the present parameters, to all sums so far.

        The first call trains the mixture on its batch; after ``fit``, or :meth:`from_parameters` with a ``mass``, the
        sums so far are those of that model.  Calling it again and again over the same data weighs old responsibilities
        with new ones; for exact EM on data that do not fit into memory, call ``fit`` with memory-mapped bags.
        """
        start = not hasattr(self, "parameters_")
        values, weight = self._check_input(X, sample_weight, start)
        if start:
            parameters = self._train(values, weight, self._initialize(values, weight))[0]
            before = (np.zeros(parameters.n_components), np.zeros((parameters.n_components, 2 * values.shape[1])))
        else:
            parameters, before = self.parameters_, self._sums()
        s0, s12, log_likelihood = expectation(values, parameters, weight, self.n_threads)
        raw0, raw12 = before[0] + s0, before[1] + to_raw(s0, s12, parameters)
        updated = maximization(raw0, from_raw(raw0, raw12, parameters), parameters, self.floor_)
        self._store(updated, [log_likelihood / mass_of(values, weight)], float(raw0.sum()))
        self.totals_ = (raw0, raw12)
        return self

    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        """The sums that the next batch is added to: those of earlier batches, or those behind the parameters."""
        if hasattr(self, "totals_"):
            return self.totals_
        mass = getattr(self, "mass_", None)
        if mass is None:
            raise ValueError(
                "partial_fit cannot continue from this mixture: nobody knows how many descriptors its parameters stand "
                "for; make it with from_parameters(..., mass=that number), or train it with fit or partial_fit"
            )
        return sums_of(self.parameters_, mass)

    def resolve_components(self, X: Any) -> int:
        """The number of Gaussians for these data: ``n_components``, or what ``"auto"`` makes of the number of bags."""
        if self.n_components == "auto":
            if not isinstance(X, Bags):
                raise ValueError('n_components="auto" counts images: pass Bags, or give a number')
            return suggest_components(len(X), self.images_per_component, self.max_components)
        if isinstance(self.n_components, str) or self.n_components < 1:
            raise ValueError(f'n_components must be a positive number or "auto", got {self.n_components!r}')
        return int(self.n_components)

    def _check_input(self, X: Any, sample_weight: Any, start: bool) -> tuple[np.ndarray, np.ndarray | None]:
        if start:
            values = descriptors_of(X)
            self.n_components_ = self.resolve_components(X)
            if self.init not in ("split", "kmeans"):
                raise ValueError(f"init must be 'split' or 'kmeans', got {self.init!r}")
            if len(values) < self.n_components_:
                raise ValueError(
                    f"{len(values)} descriptors cannot train {self.n_components_} Gaussians; lower n_components"
                )
        else:
            values = self._check_dimension(X)
            if len(values) == 0:
                raise ValueError("a batch needs at least one descriptor")
        weight = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        if weight is not None and (weight.shape != (len(values),) or not np.isfinite(weight).all() or weight.min() < 0):
            raise ValueError(f"sample_weight must be {len(values)} finite numbers ≥ 0, one a descriptor")
        if self.max_samples is not None and len(values) > self.max_samples:
            rows = check_random_state(self.random_state).choice(len(values), self.max_samples, replace=False)
            rows.sort()
            values, weight = values[rows], None if weight is None else weight[rows]
        if weight is not None and weight.max() <= 0:
            raise ValueError("all sample weights are zero")
        return values, weight

    def _initialize(self, values: np.ndarray, weight: np.ndarray | None) -> GaussianParameters:
        root = overall_gaussian(values, weight)
        self.floor_ = self.variance_floor * root.variances[0]
        if self.init == "kmeans":
            return by_kmeans(values, weight, root, self.n_components_, self.floor_, self.random_state)
        parameters = root
        while parameters.n_components < self.n_components_:
            parameters = split_heaviest(
                parameters, values, weight, self.n_components_, self.floor_, self.split_distance
            )
            if parameters.n_components < self.n_components_:
                # all of them: a rise is small at first, where the halves are still close to each other
                parameters = self._run(values, weight, parameters, self.split_iter, tol=0.0)[0]
        return parameters

    def _train(
        self, values: np.ndarray, weight: np.ndarray | None, parameters: GaussianParameters
    ) -> tuple[GaussianParameters, list[float], bool]:
        """EM until nothing helps any more, also not moving a component; parameters, log-likelihoods, whether it did."""
        parameters, history, converged = self._run(values, weight, parameters, self.max_iter, self.tol, warn=True)
        left = self.max_iter - len(history)
        while converged and parameters.n_components > 1:
            sample = draw(values, weight, parameters.n_components)
            moved = relocate(parameters, sample, self.floor_, self.split_distance)
            if moved is None:
                break
            moved, steps, converged = self._run(values, weight, moved, left, self.tol)
            left -= len(steps)
            if not steps or steps[-1] <= history[-1] + self.tol:
                break
            parameters, history = moved, history + steps
        return parameters, history, converged

    def _run(
        self,
        values: np.ndarray,
        weight: np.ndarray | None,
        parameters: GaussianParameters,
        iterations: int,
        tol: float,
        warn: bool = False,
    ) -> tuple[GaussianParameters, list[float], bool]:
        """EM for at most ``iterations``, ending on an M-step; parameters, log-likelihoods, whether it came to rest."""
        mass = mass_of(values, weight)
        # counts as they would be with weights of mean one: their unit is the caller's own affair
        unit = 1.0 if weight is None else np.count_nonzero(weight) / mass
        history: list[float] = []
        small = 0
        for _ in range(iterations):
            s0, s12, log_likelihood = expectation(values, parameters, weight, self.n_threads)
            history.append(log_likelihood / mass)
            parameters = self._reseed(maximization(s0, s12, parameters, self.floor_), unit * s0, warn)
            small = small + 1 if len(history) > 1 and abs(history[-1] - history[-2]) < tol else 0
            if small == PATIENCE:
                return parameters, history, True
        return parameters, history, False

    def _reseed(self, parameters: GaussianParameters, s0: np.ndarray, warn: bool) -> GaussianParameters:
        """Give components without descriptors half of a heavy one; during the splitting that is nothing to report."""
        empty = np.flatnonzero(s0 < self.min_count)
        if not len(empty) or len(empty) == len(s0):
            return parameters
        if warn:
            warnings.warn(
                f"{len(empty)} of {len(s0)} Gaussians had fewer than {self.min_count:g} descriptors left and were "
                "re-seeded; fewer components or more descriptors would avoid this",
                stacklevel=5,
            )
        heavy = np.argsort(-s0, kind="stable")[: len(empty)]
        empty = empty[: len(heavy)]
        weights, means, variances = (a.copy() for a in (parameters.weights, parameters.means, parameters.variances))
        shift = self.split_distance * np.sqrt(variances[heavy])
        means[empty], variances[empty] = means[heavy] + shift, variances[heavy]
        means[heavy] -= shift
        weights[heavy] /= 2
        weights[empty] = weights[heavy]
        return check_parameters(weights, means, variances)

    def _store(self, parameters: GaussianParameters, history: list[float], mass: float | None) -> None:
        if hasattr(self, "totals_"):
            del self.totals_  # the sums of another model
        self.parameters_ = parameters
        self.mass_ = mass
        self.log_likelihoods_ = np.array(history)
        self.lower_bound_ = history[-1]
        self.n_iter_ = len(history)
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
        mixture._store(parameters, [float("nan")], mass)
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
        return collect(as_bags(X), self.parameters_, n_threads=self.n_threads)

    def score_samples(self, X: Any) -> np.ndarray:
        """(N,) log-likelihood of each descriptor of the bags, or of the (N, D) array."""
        return np.logaddexp.reduce(self._log_densities(X), axis=1)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of a descriptor of the bags, or of the (N, D) array."""
        check_is_fitted(self, "parameters_")
        values = self._check_dimension(X)
        return expectation(values, self.parameters_, None, self.n_threads)[2] / len(values)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, K) posteriors of the components for each descriptor of the bags, or of the (N, D) array."""
        logits = self._log_densities(X)
        return np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))

    def _log_densities(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "parameters_")
        return log_densities(np.asarray(self._check_dimension(X), np.float64), self.parameters_)

    def _check_dimension(self, X: Any) -> np.ndarray:
        values = descriptors_of(X)
        if values.shape[1] != self.n_features_in_:
            raise ValueError(
                f"the mixture was trained on {self.n_features_in_}-D descriptors, got {values.shape[1]}-D ones"
            )
        return values
