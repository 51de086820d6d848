# SPDX-License-Identifier: BSD-3-Clause
r"""Gaussian process categorizer for kernels between images (kapoor2010, §4 to §6).

Each class is a one-versus-all problem with targets ±1 and a Gaussian process prior whose covariance is a kernel, or a
weighted sum of kernels, between images.  Two classes are one problem.  Mean and variance of the soft labels (eq. 5, 6)
are in posterior, weights, length scales and noise by the evidence (§6.1) in combination, class probabilities in
membership and left_out, the probit likelihood in laplace, inducing images for more than a few thousand in nystroem: the
weights are then learned on these alone, and the kernels are still given, and kept in memory, whole.

``predict`` is the paper's rule, the largest mean.  ``predict_proba`` ranks classes the same way when they share one
variance, which is the case for the joint Gaussian model; with ``classwise=True`` or the probit likelihood, a class
with an uncertain soft label can be less probable than one with a smaller mean.

The variance of a new image needs its kernel with itself, which a precomputed kernel does not contain.  Pass
``diagonal``; without it the mean self-kernel of the training images is used, which is exact for normalised kernels
(all ones).

The paper's "noise model variance sigma = 1e-5" may be σ or σ²; here ``noise`` is σ².
"""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from patchbag.classifiers.gaussian_process.combination import (
    MAX_ITER,
    Combination,
    combine,
    learn_combination,
    log_evidence,
    unit_scales,
    unit_weights,
)
from patchbag.classifiers.gaussian_process.kernel_input import KernelInput
from patchbag.classifiers.gaussian_process.laplace import find_mode, laplace_evidence
from patchbag.classifiers.gaussian_process.left_out import choose_spread
from patchbag.classifiers.gaussian_process.membership import (
    encode_label,
    encode_labels,
    membership,
    winning_probabilities,
)
from patchbag.classifiers.gaussian_process.nystroem import METHODS, choose_inducing, fit_inducing
from patchbag.classifiers.gaussian_process.posterior import GaussianPosterior, row_order
from patchbag.runtime import check_random_state

SMALL = 256
OPTIMIZE = {"all": (True, True), "weights": (True, False), "noise": (False, True), None: (False, False)}


class GaussianProcessClassifier(ClassifierMixin, BaseEstimator):
    """Classify images by a Gaussian process on one or several kernels.

    Parameters
    ----------
    kernel : "precomputed", "distance", a kernel transformer or a list of them
        "precomputed": X holds kernel values in any form of ``kernel_stack.stack_kernels``, "distance": distances, and
        the kernel is exp(-γ D).  Transformers (such as ``PyramidMatchKernel``): X is what they take, e.g. ``Bags``.
    likelihood : "gaussian" or "probit"
    noise : σ², where its optimisation starts
    weights : (k,) where the weights start; default 1 over the mean self-kernel, or 1 where they are not learned
    optimize : "all", "weights", "noise" or None, what the evidence chooses; a single kernel has a weight too, its scale
    classwise : learn separate weights for every class (slower by the number of classes; to compare)
    l1, l2 : regularisation of the weights, and of the noise where it is learned; for few labels or many kernels
    n_inducing : None for the exact process, or the number of inducing images
    approximation : "fitc" or "nystroem"
    repair : clip negative eigenvalues of kernels (for distances, with γ fixed to one over the mean distance)
    calibrate : widen or narrow the class probabilities so that they fit training images left out one at a time
        (exact Gaussian process only; memberships stay the paper's)
    n_restarts : additional random starts of the optimisation
    max_iter : L-BFGS iterations; a warning says when they did not suffice, unless fewer than the default were asked for

    Attributes
    ----------
    classes_ ; weights_ (k,) or (C, k) ; scales_ (the same, or None) ; noise_ (float or (C,)) ; log_evidence_
    combinations_ : list of Combination, with standard deviations; one for all classes, or one per class
    spread_ : factor of the deviations in ``predict_proba``, 1 without calibration
    inducing_, trace_error_ : indices of the inducing images and the share of variance they miss (None, 0 when exact)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": "no_validation",
        "likelihood": [StrOptions({"gaussian", "probit"})],
        "noise": [Interval(Real, 0, None, closed="neither")],
        "weights": ["array-like", None],
        "optimize": [StrOptions({"all", "weights", "noise"}), None],
        "classwise": ["boolean"],
        "l1": [Interval(Real, 0, None, closed="left")],
        "l2": [Interval(Real, 0, None, closed="left")],
        "n_inducing": [Interval(Integral, 1, None, closed="left"), None],
        "approximation": [StrOptions(set(METHODS))],
        "repair": ["boolean"],
        "calibrate": ["boolean"],
        "n_restarts": [Interval(Integral, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        kernel: Any = "precomputed",
        *,
        likelihood: str = "gaussian",
        noise: float = 1e-2,
        weights: Any = None,
        optimize: str | None = "all",
        classwise: bool = False,
        l1: float = 0.0,
        l2: float = 0.0,
        n_inducing: int | None = None,
        approximation: str = "fitc",
        repair: bool = False,
        calibrate: bool = True,
        n_restarts: int = 0,
        max_iter: int = MAX_ITER,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.noise = noise
        self.weights = weights
        self.optimize = optimize
        self.classwise = classwise
        self.l1 = l1
        self.l2 = l2
        self.n_inducing = n_inducing
        self.approximation = approximation
        self.repair = repair
        self.calibrate = calibrate
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str)
        return tags

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any) -> Self:
        if self.n_inducing is not None and self.likelihood != "gaussian":
            raise ValueError(
                "inducing images are for the gaussian likelihood; set n_inducing=None or likelihood='gaussian'"
            )
        self.classes_, targets = encode_labels(y)
        self.input_ = KernelInput(self.kernel, self.repair)
        bases = self.input_.learn(X)
        if bases.shape[1] != len(targets):
            raise ValueError(f"there are {bases.shape[1]} images in the kernel but {len(targets)} labels")
        self.inducing_ = None if self.n_inducing is None else self._choose_inducing(bases)
        bases, self_kernels = self.input_.check(bases, self.inducing_)
        rows = slice(None) if self.inducing_ is None else self.inducing_
        learned_from = bases[:, rows][:, :, rows]
        groups = [slice(c, c + 1) for c in range(targets.shape[1])] if self.classwise else [slice(None)]
        # hundreds of factorisations of a small matrix: waking threads for each takes longer than the work
        with threadpool_limits(limits=1 if learned_from.shape[1] < SMALL else None):
            self.combinations_ = [self._learn(learned_from, targets[rows][:, group]) for group in groups]
        self.posteriors_ = [
            row_order(self._condition(bases, self_kernels, targets[:, group], found))
            for group, found in zip(groups, self.combinations_)
        ]
        self._collect_results()
        return self

    def _choose_inducing(self, bases: np.ndarray) -> np.ndarray:
        assert self.n_inducing is not None
        n = bases.shape[1]
        if not 1 <= self.n_inducing <= n:
            raise ValueError(f"n_inducing must be between 1 and the {n} training images, got {self.n_inducing}")
        kernels = np.exp(-unit_scales(bases)[:, None, None] * bases) if self.input_.distances_ else bases
        return choose_inducing(combine(kernels, self._starting_weights(bases)), self.n_inducing)

    def _starting_weights(self, bases: np.ndarray) -> np.ndarray:
        k = len(bases)
        if self.weights is None:
            learned_kernels = OPTIMIZE[self.optimize][0] and not self.input_.distances_
            return unit_weights(bases) if learned_kernels else np.ones(k)
        weights = np.asarray(self.weights, dtype=float)
        if weights.shape != (k,) or not np.all((weights >= 0) & np.isfinite(weights)) or not np.any(weights > 0):
            raise ValueError(f"weights must be {k} numbers >= 0, not all zero; got {self.weights!r}")
        return weights

    def _learn(self, bases: np.ndarray, targets: np.ndarray) -> Combination:
        weights = self._starting_weights(bases)
        learn_weights, learn_noise = OPTIMIZE[self.optimize]
        probit = self.likelihood == "probit"
        random = check_random_state(self.random_state)
        best: Combination | None = None
        for restart in range(self.n_restarts + 1):
            start = weights if restart == 0 else weights * np.exp(random.normal(size=len(weights)))
            found = learn_combination(
                bases,
                targets,
                distances=self.input_.distances_,
                weights=start,
                noise=1e-6 if probit else self.noise,
                learn_weights=learn_weights,
                learn_noise=learn_noise and not probit,
                noise_floor=min(1e-6, self.noise),
                l1=self.l1,
                l2=self.l2,
                max_iter=self.max_iter,
                evidence=laplace_evidence if probit else log_evidence,
            )
            if best is None or found.objective < best.objective:
                best = found
        assert best is not None
        # fewer iterations than the default are a choice to stop early
        if not best.converged and best.n_iterations >= self.max_iter >= MAX_ITER:
            warnings.warn(
                f"weights and noise had not converged after max_iter={self.max_iter} iterations; raise max_iter",
                RuntimeWarning,
                stacklevel=3,
            )
        return best

    def _condition(self, bases: np.ndarray, self_kernels: np.ndarray, targets: np.ndarray, found: Combination) -> Any:
        if self.inducing_ is not None:
            cross = self._covariance(bases[:, :, self.inducing_], found)
            diagonal = combine(self_kernels, found.weights)
            return fit_inducing(cross, diagonal, self.inducing_, targets, found.noise, self.approximation)
        kernel = self._covariance(bases, found)
        if self.likelihood == "gaussian":
            return GaussianPosterior.from_kernel(kernel, targets, found.noise)
        kernel.flat[:: len(kernel) + 1] += found.noise
        return [find_mode(kernel, column)[0] for column in targets.T]

    @staticmethod
    def _covariance(bases: np.ndarray, found: Combination) -> np.ndarray:
        return combine(bases if found.scales is None else np.exp(-found.scales[:, None, None] * bases), found.weights)

    def _collect_results(self) -> None:
        found = self.combinations_
        one = len(found) == 1 and not self.classwise
        self.weights_ = found[0].weights if one else np.stack([c.weights for c in found])
        self.log_weights_std_ = found[0].log_weights_std if one else np.stack([c.log_weights_std for c in found])
        self.noise_ = found[0].noise if one else np.array([c.noise for c in found])
        self.scales_: Any = None
        if found[0].scales is not None:
            self.scales_ = found[0].scales if one else np.stack([np.asarray(c.scales) for c in found])
        flat = [
            p for posterior in self.posteriors_ for p in (posterior if isinstance(posterior, list) else [posterior])
        ]
        self.log_evidence_ = float(sum(p.log_evidence for p in flat))
        exact = self.likelihood == "gaussian" and self.inducing_ is None
        self.spread_ = choose_spread(flat) if self.calibrate and exact else 1.0
        self.trace_error_ = max((p.trace_error for p in flat), default=0.0) if self.inducing_ is not None else 0.0

    def predict_soft_labels(self, X: Any, diagonal: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the soft labels, without the label noise (eq. 5, 6).

        Parameters
        ----------
        X : kernel rows (or distances, or bags) of m images
        diagonal : (m,) or (m, k) kernel of each image with itself, for precomputed kernels

        Returns
        -------
        mean, variance : (m, C); C is 1 for two classes, and the mean is then that of ``classes_[1]``
        """
        check_is_fitted(self, "classes_")
        rows, self_kernels = self.input_.rows(X, diagonal)
        if self.inducing_ is not None:
            rows = rows[:, :, self.inducing_]
        means, variances = [], []
        # what overflows is an error of its own below, with the image that is to blame
        with np.errstate(over="ignore", invalid="ignore"):
            for found, posterior in zip(self.combinations_, self.posteriors_):
                covariance = self._covariance(rows, found)
                prior = combine(self_kernels, found.weights)
                for part in posterior if isinstance(posterior, list) else [posterior]:
                    mean, variance = part.predict(covariance, prior)
                    means.append(mean if mean.ndim == 2 else mean[:, None])
                    variances.append(np.repeat(variance[:, None], means[-1].shape[1], axis=1))
        mean, variance = np.hstack(means), np.hstack(variances)
        self.input_.check_finite(np.hstack([mean, variance]), rows, self_kernels)
        return mean, np.maximum(variance, 0.0)

    def decision_function(self, X: Any) -> np.ndarray:
        """Mean soft labels: (m, C), or (m,) for two classes."""
        mean, _ = self.predict_soft_labels(X)
        return mean[:, 0] if mean.shape[1] == 1 else mean

    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest mean soft label."""
        mean, _ = self.predict_soft_labels(X)
        return self.classes_[(mean[:, 0] > 0).astype(int) if mean.shape[1] == 1 else np.argmax(mean, axis=1)]

    def predict_membership(self, X: Any, diagonal: Any = None) -> np.ndarray:
        """p(t ≥ 0) of each one-versus-all problem, (m, C) or (m, 1); the rows do not sum to one."""
        mean, variance = self.predict_soft_labels(X, diagonal)
        return membership(mean, self._deviation(variance))

    def predict_proba(self, X: Any, diagonal: Any = None) -> np.ndarray:
        """Probability of each class, (m, number of classes)."""
        mean, variance = self.predict_soft_labels(X, diagonal)
        deviation = self.spread_ * self._deviation(variance)
        if mean.shape[1] == 1:
            p = membership(mean, deviation)
            return np.hstack([1.0 - p, p])
        return winning_probabilities(mean, deviation)

    def _deviation(self, variance: np.ndarray) -> np.ndarray:
        return np.sqrt(variance + (1.0 if self.likelihood == "probit" else np.asarray(self.noise_)))

    def update(self, X: Any, y: Any, diagonal: Any = None) -> Self:
        """Learn from one more labelled image in O(n²): weights and noise stay, the Cholesky factor gains a row.

        Parameters
        ----------
        X : kernel values of the new image with the n training images, (1, n) or any form with one row
        y : its label, one of ``classes_``; or a sequence with that label
        diagonal : its kernel with itself (default: the mean of the training images)

        Kernels given to ``predict`` afterwards have n + 1 columns, the new image last.
        """
        check_is_fitted(self, "classes_")
        if self.likelihood != "gaussian" or self.inducing_ is not None:
            raise ValueError("update is for the gaussian likelihood without inducing images; call fit")
        targets = encode_label(y, self.classes_)
        self.input_.check_extendable()
        rows, self_kernels = self.input_.rows(X, diagonal)
        if rows.shape[1] != 1:
            raise ValueError(f"update takes one image at a time, got {rows.shape[1]}")
        parts = np.split(targets, len(targets)) if self.classwise else [targets]
        # all posteriors before anything changes: an image that one of them refuses leaves the model as it was
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                posteriors = [
                    posterior.append(self._covariance(rows, found)[0], *combine(self_kernels, found.weights), part)
                    for posterior, found, part in zip(self.posteriors_, self.combinations_, parts)
                ]
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "the kernel row of the new image does not fit the training kernel: together they are not positive "
                f"definite; check the row, its order and unit, and diagonal ({error})"
            ) from error
        self.input_.append(self_kernels[:, 0])
        self.posteriors_ = row_order(posteriors)
        self.log_evidence_ = float(sum(p.log_evidence for p in self.posteriors_))
        return self
