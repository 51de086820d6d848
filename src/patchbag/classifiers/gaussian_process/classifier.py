# SPDX-License-Identifier: BSD-3-Clause
r"""Gaussian process classifier for kernels between images (kapoor2010, §4 to §6).

Each class is a one-versus-all problem with targets ±1 and a Gaussian process prior whose covariance is a kernel, or a
weighted sum of kernels, between images.  Two classes are one problem.  To the kernel is added the prior variance of a
``level`` that all soft labels of a class share.  Without it, as in the paper, that 14 of 15 targets are -1 is explained
by what the images have in common, or, where that was taken out by centring the kernel, as noise: every class is then
given 1/15.  What is computed, and where:

* mean and variance of the soft labels (eq. 5, 6), one Cholesky factor for all classes: posterior;
* weights of the kernels, length scales and noise by the evidence, jointly over classes (§6.1): combination
  (class by class: scikit-learn's ``OneVsRestClassifier`` around this one);
* probability of a class: by the posteriors of training images that are left out, in closed form
  (:mod:`~patchbag.classifiers.confidence.temperature`), or membership (one against the rest, §7; or that its soft label
  is the largest).  Regression on targets ±1 is right about the order of the classes and far from sure enough of it;
* the probit likelihood in place of Gaussian noise: laplace; thousands of images: inducing images, nystroem, on which
  alone the weights are then learned.

``predict`` is the paper's rule, the largest mean.  ``predict_proba`` ranks classes the same way where it is calibrated
or all classes share one variance; else a class with an uncertain soft label can be less probable than one with a
smaller mean.

A precomputed kernel does not contain the kernel of a new image with itself.  Pass ``diagonal``; without it the mean of
the training images is used, exact for normalised kernels.

The paper's "noise model variance sigma = 1e-5" may be σ or σ²; here ``noise`` is σ².
"""

import warnings
from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from patchbag.classifiers.confidence.left_out import SaysHowSure, energy
from patchbag.classifiers.gaussian_process.calibration import calibrate
from patchbag.classifiers.gaussian_process.combination import (
    MAX_ITER,
    learn_combination,
    unit_scales,
    unit_weights,
)
from patchbag.classifiers.gaussian_process.evidence import combine, log_evidence
from patchbag.classifiers.gaussian_process.fitted import Combination, FittedProcess
from patchbag.classifiers.gaussian_process.kernel_input import KernelInput
from patchbag.classifiers.gaussian_process.laplace import LaplacePosterior, laplace_evidence
from patchbag.classifiers.gaussian_process.membership import membership, winning_probabilities
from patchbag.classifiers.gaussian_process.nystroem import choose_inducing, fit_inducing
from patchbag.classifiers.gaussian_process.posterior import GaussianPosterior, row_order
from patchbag.classifiers.targets import encode_labels, in_proportion, one_column_a_class, one_versus_rest
from patchbag.parameters import NOT_NEGATIVE, ONE_OR_MORE, POSITIVE, ZERO_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state

SMALL = 256
OPTIMIZE = {"all": (True, True), "weights": (True, False), "noise": (False, True), None: (False, False)}


@estimator
class GaussianProcessClassifier(FittedProcess, SaysHowSure, ClassifierMixin, BaseEstimator):
    """Classify images by a Gaussian process on one or several kernels.

    Parameters
    ----------
    kernel : "precomputed", "distance", a kernel transformer or a list of them
        "precomputed": X holds kernel values in any form of ``kernel_stack.stack_kernels``, "distance": distances, and
        the kernel is exp(-γ D).  Transformers (such as ``PyramidMatchKernel``): X is what they take, e.g. ``Bags``.
    likelihood : "gaussian" or "probit"
    noise : σ², where its optimisation starts
    level : prior variance of the level of a class, in units of the targets ±1; 0 for the paper's process
    weights : (k,) where the weights start, and where those of several kernels stay while no class has two images;
        default 1 over the mean self-kernel, or 1 where they are not learned
    optimize : "all", "weights", "noise" or None, what the evidence chooses; a single kernel has a weight too, its scale
    l1, l2 : regularisation of the weights, and of the noise where it is learned; for few labels or many kernels
    spread : standard deviation of a prior of the log weights, around those that give kernels a mean self-kernel of one;
        None for the paper's process, which has none, and by which few labels leave one kernel of several
    n_evidence : the evidence is that of so many training images at most, drawn from all classes in proportion; what
        is learned of a few numbers changes little beyond, and its cost grows with the cube.  None for all
    n_inducing : None for the exact process, or the number of inducing images
    approximation : "fitc" or "nystroem"
    repair : clip negative eigenvalues of kernels (for distances, with γ fixed to one over the mean distance)
    calibrate : probabilities of the classes as training images that are left out have them; else, and for the probit
        likelihood and inducing images, as the posterior has them, which is far from sure enough
    n_restarts : additional random starts of the optimisation
    max_iter : L-BFGS iterations; a warning says when they did not suffice, unless fewer than the default were asked for

    Attributes
    ----------
    classes_ ; weights_ (k,) ; scales_ (k,) or None ; noise_ ; log_evidence_
    combination_ : the same with standard deviations ; posterior_
    temperature_ : factor of the soft labels in calibrated probabilities, or None
    left_out_ : what left-out images say of new ones, or None
    inducing_, trace_error_ : indices of the inducing images and the share of variance they miss (None, 0 when exact)
    """

    kernel: Any = parameter(
        StrOptions({"precomputed", "distance"}),
        list,
        tuple,
        HasMethods(["fit_transform", "transform"]),
        default="precomputed",
    )
    _: KW_ONLY
    likelihood: str = parameter(StrOptions({"gaussian", "probit"}), default="gaussian")
    noise: float = parameter(POSITIVE, default=1e-2)
    level: float = parameter(NOT_NEGATIVE, default=1.0)
    weights: Any = parameter("array-like", None, default=None)
    optimize: str | None = parameter(StrOptions({"all", "weights", "noise"}), None, default="all")
    l1: float = parameter(NOT_NEGATIVE, default=0.0)
    l2: float = parameter(NOT_NEGATIVE, default=0.0)
    spread: float | None = parameter(POSITIVE, None, default=None)
    n_evidence: int | None = parameter(ONE_OR_MORE, None, default=2000)
    n_inducing: int | None = parameter(ONE_OR_MORE, None, default=None)
    approximation: str = parameter(StrOptions({"fitc", "nystroem"}), default="fitc")
    repair: bool = parameter("boolean", default=False)
    calibrate: bool = parameter("boolean", default=True)
    n_restarts: int = parameter(ZERO_OR_MORE, default=0)
    max_iter: int = parameter(ZERO_OR_MORE, default=MAX_ITER)
    random_state: Any = parameter("random_state", default=None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str)
        return tags

    # --- fitting -------------------------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any) -> Self:
        if self.n_inducing is not None and self.likelihood != "gaussian":
            raise ValueError("inducing images are for likelihood='gaussian'")
        self.classes_, labels = encode_labels(y)
        targets = one_versus_rest(labels, len(self.classes_))
        self.input_ = KernelInput(self.kernel, self.repair)
        bases = self.input_.learn(X)
        if bases.shape[1] != len(targets):
            raise ValueError(f"there are {bases.shape[1]} images in the kernel but {len(targets)} labels")
        if self.n_inducing is not None and self.n_inducing > len(targets):
            raise ValueError(f"n_inducing must be at most the {len(targets)} images, got {self.n_inducing}")
        self.inducing_ = None if self.n_inducing is None else self._choose_inducing(bases, self.n_inducing)
        bases, self_kernels = self.input_.check(bases, self.inducing_)
        small = (self.n_inducing or len(targets)) < SMALL
        # hundreds of factorisations of a small matrix: waking threads for each takes longer than the work
        with threadpool_limits(limits=1 if small else None):
            self._fit(bases, self_kernels, labels, targets)
        return self

    def _fit(self, bases: np.ndarray, self_kernels: np.ndarray, labels: np.ndarray, targets: np.ndarray) -> None:
        found = self.combination_ = self._learn(*self._evidence(bases, labels, targets))
        self.weights_, self.log_weights_std_ = found.weights, found.log_weights_std
        self.scales_, self.noise_ = found.scales, found.noise
        self.posterior_ = row_order(self._condition(bases, self_kernels, targets))
        self.log_evidence_ = self.posterior_.log_evidence
        self.trace_error_ = 0.0 if self.inducing_ is None else self.posterior_.trace_error
        self.temperature_, self.left_out_ = None, None
        if self.calibrate and self.likelihood == "gaussian" and self.inducing_ is None:
            random = check_random_state(self.random_state)
            self.temperature_, self.left_out_ = calibrate(self.posterior_, labels, random)

    def _evidence(self, bases: np.ndarray, labels: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Kernels and targets of the images of which weights and noise are learned."""
        chosen = self.inducing_
        if chosen is None and self.n_evidence is not None and len(labels) > self.n_evidence:
            chosen = in_proportion(labels, self.n_evidence, check_random_state(self.random_state))
        return (bases, targets) if chosen is None else (bases[:, chosen[:, None], chosen], targets[chosen])

    def _choose_inducing(self, bases: np.ndarray, size: int) -> np.ndarray:
        kernels = np.exp(-unit_scales(bases)[:, None, None] * bases) if self.input_.distances_ else bases
        return choose_inducing(combine(kernels, self._starting_weights(bases)), size)

    def _starting_weights(self, bases: np.ndarray) -> np.ndarray:
        k = len(bases)
        if self.weights is None:
            return unit_weights(bases) if OPTIMIZE[self.optimize][0] and not self.input_.distances_ else np.ones(k)
        weights = np.asarray(self.weights, dtype=float)
        if weights.shape != (k,) or not np.all((weights >= 0) & np.isfinite(weights)) or not np.any(weights > 0):
            raise ValueError(f"weights must be {k} numbers >= 0, not all zero; got {self.weights!r}")
        return weights

    def _learn(self, bases: np.ndarray, targets: np.ndarray) -> Combination:
        weights = self._starting_weights(bases)
        learn_weights, learn_noise = OPTIMIZE[self.optimize]
        # one image per class: all that the evidence can reward is that images are unlike each other
        learn_weights &= len(bases) == 1 or (targets > 0).sum(axis=0).max() > 1
        probit = self.likelihood == "probit"
        random = check_random_state(self.random_state)
        others = (weights * np.exp(random.normal(size=len(weights))) for _ in range(self.n_restarts))
        trials = (
            learn_combination(
                bases,
                targets,
                distances=self.input_.distances_,
                weights=start,
                noise=1e-6 if probit else self.noise,
                level=self.level,
                learn_weights=learn_weights,
                learn_noise=learn_noise and not probit,
                noise_floor=min(1e-6, self.noise),
                l1=self.l1,
                l2=self.l2,
                spread=self.spread,
                max_iter=self.max_iter,
                evidence=laplace_evidence if probit else log_evidence,
            )
            for start in (weights, *others)
        )
        best = min(trials, key=lambda found: found.objective)
        if not best.converged and best.n_iterations >= self.max_iter >= MAX_ITER:
            warnings.warn(
                f"weights and noise had not converged after max_iter={self.max_iter} iterations; raise max_iter",
                RuntimeWarning,
                stacklevel=5,
            )
        return best

    def _condition(self, bases: np.ndarray, self_kernels: np.ndarray, targets: np.ndarray) -> Any:
        if self.inducing_ is not None:
            cross, diagonal = self._covariance(bases[:, :, self.inducing_], self_kernels)
            return fit_inducing(cross, diagonal, self.inducing_, targets, self.noise_, self.approximation)
        posterior = GaussianPosterior if self.likelihood == "gaussian" else LaplacePosterior
        return posterior.from_kernel(self._covariance(bases, self_kernels)[0], targets, self.noise_)

    def _covariance(self, bases: np.ndarray, self_kernels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Prior covariance (m, n) of m images with n, and variance (m,), from kernels or distances (k, m, n)."""
        kernels = bases if self.scales_ is None else np.exp(-self.scales_[:, None, None] * bases)
        return combine(kernels, self.weights_) + self.level, combine(self_kernels, self.weights_) + self.level

    # --- prediction ----------------------------------------------------------------------------------------------

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
        mean, covariance, prior = self._mean(X, diagonal)
        with np.errstate(over="ignore", invalid="ignore"):
            variance = self.posterior_.variance(covariance, prior)
        variance = np.broadcast_to(variance if variance.ndim == 2 else variance[:, None], mean.shape)
        self.input_.check_finite(variance, covariance[None], prior[None])
        return mean, np.maximum(variance, 0.0)

    def _mean(self, X: Any, diagonal: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean (m, C), and the prior covariance with the training images (m, n) and variance (m,)."""
        check_is_fitted(self, "classes_")
        rows, self_kernels = self.input_.rows(X, diagonal)
        if self.inducing_ is not None:
            rows = rows[:, :, self.inducing_]
        # what overflows is an error of its own below, with the image that is to blame
        with np.errstate(over="ignore", invalid="ignore"):
            covariance, prior = self._covariance(rows, self_kernels)
            mean = self.posterior_.mean(covariance)
        self.input_.check_finite(mean, rows, self_kernels)
        return mean, covariance, prior

    def decision_function(self, X: Any) -> np.ndarray:
        """Mean soft labels: (m, C), or (m,) for two classes."""
        mean = self._mean(X)[0]
        return mean[:, 0] if mean.shape[1] == 1 else mean

    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest mean soft label."""
        best = one_column_a_class(self._mean(X)[0]).argmax(axis=1)
        return self.classes_[best]

    def predict_membership(self, X: Any, diagonal: Any = None) -> np.ndarray:
        """p(t ≥ 0) of each one-versus-all problem, (m, C) or (m, 1); the rows do not sum to one."""
        mean, variance = self.predict_soft_labels(X, diagonal)
        return membership(mean, self._deviation(variance))

    def predict_proba(self, X: Any, diagonal: Any = None) -> np.ndarray:
        """Probability of each class, (m, number of classes)."""
        check_is_fitted(self, "classes_")
        if self.temperature_ is not None:
            return softmax(self.temperature_ * one_column_a_class(self._mean(X, diagonal)[0]), axis=1)
        mean, variance = self.predict_soft_labels(X, diagonal)
        deviation = self._deviation(variance)
        if mean.shape[1] == 1:
            p = membership(mean, deviation)
            return np.hstack([1.0 - p, p])
        return winning_probabilities(mean, deviation)

    def _strangeness(self, X: Any) -> np.ndarray:
        mean, covariance, prior = self._mean(X)
        surprise = energy((self.temperature_ or 1.0) * one_column_a_class(mean))
        if self.left_out_ is None:
            return surprise[None]
        return np.stack([surprise, self.posterior_.nearest(covariance, prior)])

    def _deviation(self, variance: np.ndarray) -> np.ndarray:
        return np.sqrt(variance + (1.0 if self.likelihood == "probit" else self.noise_))

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
        if not isinstance(self.posterior_, GaussianPosterior):
            raise ValueError(
                "update is for the gaussian likelihood and all training images, neither inducing images nor condensed "
                "ones; call fit"
            )
        label = np.ravel(np.asarray(y))
        if len(label) != 1:
            raise ValueError(f"update takes one image and its label at a time, got {len(label)} labels")
        code = np.flatnonzero(self.classes_ == label[0])
        if not len(code):
            raise ValueError(f"label {y!r} is not one of the classes {self.classes_.tolist()}; call fit to add a class")
        targets = one_versus_rest(code, len(self.classes_))
        self.input_.check_extendable()
        rows, self_kernels = self.input_.rows(X, diagonal)
        if rows.shape[1] != 1:
            raise ValueError(f"update takes one image at a time, got {rows.shape[1]}")
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                covariance, variance = self._covariance(rows, self_kernels)
                posterior = self.posterior_.append(covariance[0], variance[0], targets[0])
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "the kernel row of the new image does not fit the training kernel: together they are not positive "
                f"definite; check the row, its order and unit, and diagonal ({error})"
            ) from error
        self.input_.append(self_kernels[:, 0])
        self.posterior_ = row_order(posterior)
        self.log_evidence_ = posterior.log_evidence
        return self
