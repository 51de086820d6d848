# SPDX-License-Identifier: BSD-3-Clause
r"""The universal model: a diagonal Gaussian mixture of the descriptors of all images, trained by EM.

E- and M-step are in ``em``; this module is the estimator around them.

Start: by **iterative splitting** (liu2010 §4.3.1, after HTK): one Gaussian; every component is split in two by moving
its mean up and down by ``split_distance`` standard deviations; a few EM iterations; again, until K.  When K is no
power of two the heaviest components are split in the last round.  Or by k-means.

Variances are floored at ``variance_floor`` times the data's variance in that dimension.  A component left with less
than ``min_count`` descriptors is re-seeded by splitting the heaviest one, with a warning.  Except at such a
re-seeding or an active floor, the log-likelihood never decreases.

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
from patchbag.mixture.em import expectation, from_raw, maximization, split, to_raw
from patchbag.mixture.parameters import GaussianParameters, check_parameters
from patchbag.mixture.statistics import JOB_ROWS, Statistics, collect


def suggest_components(n_images: int, images_per_component: float, largest: int) -> int:
    """Number of Gaussians that a dataset of this size can feed: a power of two from 8 up to ``largest``."""
    return int(min(largest, max(8, 2 ** int(np.log2(max(n_images / images_per_component, 1))))))


def descriptors_of(X: Any) -> np.ndarray:
    """(N, D) descriptors of bags, or the (N, D) array itself."""
    if not isinstance(X, Bags) and hasattr(X, "ndim") and X.ndim == 2:
        return np.asarray(X)
    return as_bags(X).values


def _mass(values: np.ndarray, weight: np.ndarray | None) -> float:
    return float(len(values)) if weight is None else float(weight.sum())


class UniversalMixture(BaseEstimator):
    """Diagonal Gaussian mixture trained by EM.

    Parameters
    ----------
    n_components : number K of Gaussians, or ``"auto"``: a power of two chosen from the number of bags
    images_per_component, max_components : how ``"auto"`` chooses
    init : ``"split"`` (iterative splitting) or ``"kmeans"``
    max_iter : EM iterations with all K components
    tol : EM stops when the mean log-likelihood of a descriptor rises by less
    split_iter : EM iterations after each splitting
    split_distance : how far the means are moved apart, in standard deviations
    variance_floor : smallest variance, as a fraction of the data's variance
    min_count : a component with fewer (soft) descriptors is re-seeded
    max_samples : descriptors drawn for training; None uses all
    n_threads : threads, all cores by default; the result does not depend on it
    random_state : seed of the sampling and of k-means

    Attributes
    ----------
    weights_ (K,), means_ (K, D), variances_ (K, D)
    log_likelihoods_ : mean log-likelihood of a descriptor before each of the final EM iterations
    lower_bound_ : the last of them;  n_iter_, converged_

    >>> values = np.random.default_rng(0).normal([0.0, 9.0], 1, (500, 2)).reshape(-1, 1)
    >>> np.sort(UniversalMixture(2).fit(values).means_.ravel()).round()
    array([0., 9.])
    """

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
        values, weight = self._check_input(X, sample_weight)
        self._measure(values, weight)
        parameters = self._initialize(values, weight)
        self._run(values, weight, parameters, self.max_iter, keep=True)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """One incremental EM step: add the batch's sums, under the present parameters, to all sums so far.

        The first call trains the mixture on its batch.  Calling it again and again over the same data
        weighs old responsibilities with new ones; for exact EM on data that do not fit into memory, call ``fit`` with
        memory-mapped bags.
        """
        values, weight = self._check_input(X, sample_weight)
        if not hasattr(self, "parameters_"):
            self._measure(values, weight)
            parameters = self._initialize(values, weight)
            parameters = self._run(values, weight, parameters, self.max_iter, keep=False)
            self.totals_ = (np.zeros(parameters.n_components), np.zeros((parameters.n_components, 2 * values.shape[1])))
        else:
            parameters = self.parameters_
        s0, s12, log_likelihood = expectation(values, parameters, weight, self.n_threads)
        raw0, raw12 = self.totals_[0] + s0, self.totals_[1] + to_raw(s0, s12, parameters)
        self.totals_ = (raw0, raw12)
        updated = maximization(raw0, from_raw(raw0, raw12, parameters), parameters, self.floor_)
        self._store(updated, [log_likelihood / _mass(values, weight)])
        return self

    def resolve_components(self, X: Any) -> int:
        """The number of Gaussians for these data: ``n_components``, or what ``"auto"`` makes of the number of bags."""
        if self.n_components == "auto":
            if not isinstance(X, Bags):
                raise ValueError('n_components="auto" counts images: pass Bags, or give a number')
            return suggest_components(len(X), self.images_per_component, self.max_components)
        if isinstance(self.n_components, str) or self.n_components < 1:
            raise ValueError(f'n_components must be a positive number or "auto", got {self.n_components!r}')
        return int(self.n_components)

    def _check_input(self, X: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray | None]:
        values = descriptors_of(X)
        self.n_components_ = self.resolve_components(X)
        if self.init not in ("split", "kmeans"):
            raise ValueError(f"init must be 'split' or 'kmeans', got {self.init!r}")
        if len(values) < self.n_components_:
            raise ValueError(
                f"{len(values)} descriptors cannot train {self.n_components_} Gaussians; lower n_components"
            )
        weight = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        if weight is not None and (weight.shape != (len(values),) or not np.isfinite(weight).all() or weight.min() < 0):
            raise ValueError(f"sample_weight must be {len(values)} finite numbers ≥ 0, one a descriptor")
        if self.max_samples is not None and len(values) > self.max_samples:
            rows = check_random_state(self.random_state).choice(len(values), self.max_samples, replace=False)
            rows.sort()
            values, weight = values[rows], None if weight is None else weight[rows]
        return values, weight

    def _measure(self, values: np.ndarray, weight: np.ndarray | None) -> None:
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
        if n <= 0:
            raise ValueError("all sample weights are zero")
        mean, square = mean / n, square / n
        variance = np.maximum(square - mean**2, 0)
        # a constant dimension says nothing; give it the smallest scale that keeps the densities finite
        variance[variance <= 0] = max(variance.max() * 1e-6, 1e-12)
        self.root_ = GaussianParameters(np.ones(1), (origin + mean)[None], variance[None])
        self.floor_ = self.variance_floor * variance

    def _initialize(self, values: np.ndarray, weight: np.ndarray | None) -> GaussianParameters:
        if self.init == "kmeans":
            return self._from_kmeans(values, weight)
        parameters = self.root_
        while parameters.n_components < self.n_components_:
            room = self.n_components_ - parameters.n_components
            # a component at the floor in most dimensions is one repeated descriptor: its halves would stay equal
            point = np.mean(parameters.variances <= 1.01 * self.floor_, axis=1) > 0.5
            order = np.argsort(np.where(point, 1.0, 0.0) - parameters.weights, kind="stable")
            heaviest = order[: max(1, min(room, int((~point).sum())))]
            parameters = split(parameters, np.sort(heaviest), self.split_distance)
            if parameters.n_components < self.n_components_:
                parameters = self._run(values, weight, parameters, self.split_iter, keep=False)
        return parameters

    def _from_kmeans(self, values: np.ndarray, weight: np.ndarray | None) -> GaussianParameters:
        from sklearn.cluster import MiniBatchKMeans

        root = self.root_
        z = (values - root.means[0]) / np.sqrt(root.variances[0])
        seed = check_random_state(self.random_state)
        kmeans = MiniBatchKMeans(self.n_components_, n_init=1, batch_size=4096, random_state=seed)
        labels = kmeans.fit(z.astype(np.float32), sample_weight=weight).labels_
        w = np.ones(len(z)) if weight is None else weight
        s0 = np.bincount(labels, w, self.n_components_)
        s12 = np.zeros((self.n_components_, 2 * z.shape[1]))
        np.add.at(s12, labels, w[:, None] * np.concatenate([z, z * z], axis=1))
        template = GaussianParameters(
            np.full(self.n_components_, 1 / self.n_components_),
            np.repeat(root.means, self.n_components_, axis=0),
            np.repeat(root.variances, self.n_components_, axis=0),
        )
        return maximization(s0, s12, template, self.floor_)

    def _run(
        self, values: np.ndarray, weight: np.ndarray | None, parameters: GaussianParameters, iterations: int, keep: bool
    ) -> GaussianParameters:
        """EM for at most ``iterations``, ending on an M-step."""
        mass = _mass(values, weight)
        history: list[float] = []
        converged = False
        for _ in range(iterations):
            s0, s12, log_likelihood = expectation(values, parameters, weight, self.n_threads)
            history.append(log_likelihood / mass)
            parameters = self._reseed(maximization(s0, s12, parameters, self.floor_), s0, warn=keep)
            converged = len(history) > 1 and abs(history[-1] - history[-2]) < self.tol
            if converged:
                break
        if keep:
            self._store(parameters, history or [float("nan")])
            self.converged_ = converged
        return parameters

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

    def _store(self, parameters: GaussianParameters, history: list[float]) -> None:
        self.parameters_ = parameters
        self.log_likelihoods_ = np.array(history)
        self.lower_bound_ = history[-1]
        self.n_iter_ = len(history)
        self.n_features_in_ = parameters.dimension

    @classmethod
    def from_parameters(cls, weights: Any, means: Any, variances: Any, **options: Any) -> Self:
        """A fitted mixture with the given parameters."""
        parameters = check_parameters(weights, means, variances)
        mixture = cls(parameters.n_components, **options)
        mixture._store(parameters, [float("nan")])
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
        """(N,) log-likelihood of each descriptor."""
        check_is_fitted(self, "parameters_")
        logits = log_densities(np.asarray(X, np.float64), self.parameters_)
        return np.logaddexp.reduce(logits, axis=1)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of a descriptor of the bags, or of the (N, D) array."""
        check_is_fitted(self, "parameters_")
        values = descriptors_of(X)
        return expectation(values, self.parameters_, None, self.n_threads)[2] / len(values)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, K) posteriors of the components for each descriptor."""
        check_is_fitted(self, "parameters_")
        logits = log_densities(np.asarray(X, np.float64), self.parameters_)
        return np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
