# SPDX-License-Identifier: BSD-3-Clause
r"""Learning a combination of kernels by maximising the evidence of a Gaussian process (kapoor2010, §4.4 and §6).

The covariance of the soft labels is a weighted sum of given kernels (eq. 8) and the labels carry Gaussian noise::

    A = sigma^2 I + sum_i alpha_i K_i,     alpha_i = exp(beta_i) > 0

(plus, in every entry, the variance of a level that all labels of a problem share, which is not learned).
With one column of ±1 targets for each of the C one-versus-all problems and the weights shared by all of them (§6.1),
the joint log evidence needs one Cholesky factor of A, whatever C is::

    log p(T) = -1/2 tr(T' A^-1 T) - C/2 log|A| - nC/2 log(2 pi)

Its derivative with respect to A is one matrix, the *sensitivity* S = (W W' - C A^-1) / 2 with W = A^-1 T, and the
derivative for any parameter is the elementwise sum of S * dA.  So a gradient for k weights and the noise costs one
factorisation (n³/3), one inversion (2n³/3), two products (4n²C) and k passes over memory.  What is minimised is
-log p(T) + l1 * sum(alpha) + l2 * sum(alpha²), over beta and log sigma², by L-BFGS.

Noise that is learned is one more weight, that of the kernel I, and is regularised like the others: otherwise a strong
penalty on the alphas has the labels explained as noise.

**Prior.**  A handful of labels says little about the weights, and the maximum of the evidence still is at an edge: one
kernel takes all, the others are driven to nothing.  With ``spread`` s each beta_i has a normal prior around the weight
that gives its kernel a mean self-kernel of one, and (beta_i - log u_i)² / 2s² is added: what the labels do not decide
stays mixed.  The evidence of many labels outweighs it.  The paper has none.

The unit of a kernel says nothing about its use, so the search starts at, and is bounded around, the weight that gives
the kernel a mean self-kernel of one: K and 1e8 K end in the same combination.  The weights themselves, and with them
the penalties, are those of the kernels as given.

Bases can also be *distances* D_i with K_i = exp(-gamma_i D_i); gamma_i is then learned as well.

The uncertainty of the result is Laplace's: the Hessian of the objective at the optimum (differences of the analytic
gradient), inverted, gives the standard deviations of log alpha_i, log gamma_i and log sigma²; inf for a parameter that
was driven to its bound or is not determined.

Deviations and slips in the text.  The regulariser is printed as gamma_2 ||alpha||_2 but its gradient 2 gamma_2
alpha_i is that of the *squared* norm, which is used here.  The printed gradient is for one binary problem and with
respect to alpha: jointly over C classes the trace term is multiplied by C, and optimising beta multiplies each
component by alpha_i.  "sigma is the noise model variance" (eq. 2) should say sigma².  The paper fixes the noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from patchbag.classifiers.gaussian_process.evidence import add_to_diagonal, combine, large, log_evidence
from patchbag.classifiers.gaussian_process.fitted import Combination
from patchbag.classifiers.gaussian_process.posterior import JITTERS
from patchbag.device import to_device, to_host

WARM_START_SIZE = 600
LOG_BOUND = 18.0  # of a weight in units of 1 / mean self-kernel: beyond, a kernel is either absent or all there is
# of the targets' variance: with one image per class nothing else would keep a kernel from being unused
MOST_NOISE = 0.5
LIFT = 1e-2
MAX_ITER = 60

Evidence = Callable[[Any, np.ndarray], tuple[float, Any]]


def unit_weights(kernels: np.ndarray) -> np.ndarray:
    """(k,) weights that give each of ``kernels (k, n, n)`` a mean self-kernel of one; exactly 1 where it is one."""
    means = np.einsum("kii->k", kernels) / max(kernels.shape[1], 1)
    means = np.where((means > 0) & (np.abs(means - 1.0) > 1e-6), means, 1.0)
    return 1.0 / means


def unit_scales(distances: np.ndarray) -> np.ndarray:
    """(k,) length scales 1 / mean of ``distances (k, n, n)``; 1 where all are zero."""
    means = distances.mean(axis=(1, 2))
    return 1.0 / np.where(means > 0, means, 1.0)


def learn_combination(
    bases: np.ndarray,
    targets: np.ndarray,
    *,
    distances: bool = False,
    weights: np.ndarray | None = None,
    noise: float = 1e-2,
    level: float = 0.0,
    learn_weights: bool = True,
    learn_noise: bool = True,
    noise_floor: float = 1e-6,
    l1: float = 0.0,
    l2: float = 0.0,
    spread: float | None = None,
    max_iter: int = MAX_ITER,
    tol: float = 1e-6,
    warm_start: bool = True,
    evidence: Evidence = log_evidence,
) -> Combination:
    """Maximise the (regularised) evidence over kernel weights, length scales of distances and noise.

    Parameters
    ----------
    bases : (k, n, n) kernels, or distances when ``distances``
    targets : (n, C) of ±1
    weights, noise : where to start (default: 1 / mean self-kernel, 0.01); weights that are not learned are 1 by
        default, length scales start at 1 / mean distance
    level : prior variance of the level of each column of targets
    learn_weights, learn_noise : what to optimise; the rest stays where it starts
    noise_floor : smallest noise variance allowed
    l1, l2 : regularisation constants γ1, γ2 of the weights, and of the noise where it is learned
    spread : standard deviation of the prior of log weights that are learned; None for no prior
    max_iter, tol : L-BFGS iterations, and the relative decrease of the objective at which it stops
    warm_start : from 600 samples, start from the optimum for every third sample of each class
    evidence : function of (covariance, targets) like :func:`log_evidence`; for another likelihood
    """
    k, n = bases.shape[:2]
    units = np.ones(k) if distances else unit_weights(bases)
    if weights is None:
        weights = units if learn_weights else np.ones(k)
    start = _Parameters(
        np.asarray(weights, dtype=float),
        unit_scales(bases) if distances else None,
        float(noise),
    )
    settings = (level, learn_weights, learn_noise, l1, l2, spread, evidence, units)
    if warm_start and n >= WARM_START_SIZE:
        subset = _every_third(targets)
        coarse = _Objective(bases[:, subset][:, :, subset], targets[subset], start, *settings)
        start = coarse.unpack(coarse.minimise(noise_floor, max_iter, tol).x)
        # what the coarse problem sent to zero sits on a plateau: lift it, so that the full problem decides
        least = LIFT * units * np.max(start.weights / units)
        lifted = max(start.noise, LIFT * coarse.most_noise()) if learn_noise else start.noise
        start = _Parameters(np.maximum(start.weights, least), start.scales, lifted)
    objective = _Objective(bases, targets, start, *settings)
    optimum = objective.minimise(noise_floor, max_iter, tol)
    theta = optimum.x
    value, slope = objective(theta)
    found = objective.unpack(theta)
    deviations = objective.deviations(theta, slope, noise_floor)
    return Combination(
        weights=found.weights,
        noise=found.noise,
        scales=found.scales,
        log_evidence=float(objective.penalty(found) - value),
        objective=float(value),
        log_weights_std=deviations[0],
        log_scales_std=deviations[1],
        log_noise_std=deviations[2],
        converged=bool(optimum.success),
        n_iterations=int(optimum.nit),
    )


def _every_third(targets: np.ndarray) -> np.ndarray:
    """Sorted indices of a third of the samples, every class in proportion."""
    by_class = np.argsort(np.argmax(targets, axis=1) if targets.shape[1] > 1 else targets[:, 0], kind="stable")
    return np.sort(by_class[::3])


@dataclass(frozen=True)
class _Parameters:
    weights: np.ndarray
    scales: np.ndarray | None
    noise: float


class _Objective:
    """Negative regularised log evidence and its gradient, as a function of the logarithms of the learned parameters."""

    def __init__(
        self,
        bases: np.ndarray,
        targets: np.ndarray,
        start: _Parameters,
        level: float,
        learn_weights: bool,
        learn_noise: bool,
        l1: float,
        l2: float,
        spread: float | None,
        evidence: Evidence,
        units: np.ndarray,
    ) -> None:
        self.bases: Any = np.ascontiguousarray(bases, dtype=float)
        if evidence is log_evidence and start.scales is None and large(self.bases):
            self.bases = to_device(self.bases)
        self.targets = np.asarray(targets, dtype=float)
        self.start, self.level = start, level
        self.learn_weights, self.learn_noise = learn_weights, learn_noise
        self.l1, self.l2 = l1, l2
        self.precision = 0.0 if spread is None else spread**-2
        self.evidence = evidence
        self.log_units = np.log(units)

    def pack(self, p: _Parameters) -> np.ndarray:
        parts = []
        if self.learn_weights:
            parts.append(np.log(np.maximum(p.weights, 1e-300)))
            if p.scales is not None:
                parts.append(np.log(p.scales))
        if self.learn_noise:
            parts.append(np.log([p.noise]))
        return np.concatenate(parts) if parts else np.empty(0)

    def _parts(self, vector: np.ndarray) -> list[np.ndarray]:
        """What belongs to the weights, the length scales and the noise, each empty where it is not learned."""
        k = len(self.bases) if self.learn_weights else 0
        return np.split(vector, [k, k + (0 if self.start.scales is None else k)])

    def unpack(self, theta: np.ndarray) -> _Parameters:
        weights, scales, noise = self._parts(np.exp(theta))
        return _Parameters(
            weights if len(weights) else self.start.weights,
            scales if len(scales) else self.start.scales,
            float(noise[0]) if len(noise) else self.start.noise,
        )

    def bounds(self, noise_floor: float) -> list[tuple[float, float]]:
        bounds = []
        if self.learn_weights:
            bounds += [(u - LOG_BOUND, u + LOG_BOUND) for u in self.log_units.tolist()]
            if self.start.scales is not None:
                bounds += [(np.log(s) - 7.0, np.log(s) + 7.0) for s in self.start.scales]
        if self.learn_noise:
            bounds.append((float(np.log(noise_floor)), float(np.log(max(self.most_noise(), 2.0 * noise_floor)))))
        return bounds

    def most_noise(self) -> float:
        about = self.targets.mean(axis=0) if self.level else 0.0
        return MOST_NOISE * float(np.mean((self.targets - about) ** 2))

    def kernels(self, p: _Parameters) -> Any:
        return self.bases if p.scales is None else np.exp(-p.scales[:, None, None] * self.bases)

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        p = self.unpack(theta)
        kernels = self.kernels(p)
        value, sensitivity = self._evaluate(kernels, p)
        gradient = []
        flat = sensitivity.reshape(-1)
        if self.learn_weights:
            slopes = to_host(kernels.reshape(len(kernels), -1) @ flat) - self.l1 - 2.0 * self.l2 * p.weights
            gradient.append(p.weights * slopes - self.precision * self._from_unit(p))
            if p.scales is not None:
                by_scale = [
                    -float(np.einsum("ij,ij,ij->", sensitivity, d, kernel)) for d, kernel in zip(self.bases, kernels)
                ]
                gradient.append(p.weights * p.scales * np.array(by_scale))
        if self.learn_noise:
            slope = float(sensitivity.trace()) - self.l1 - 2.0 * self.l2 * p.noise
            gradient.append(np.array([p.noise * slope]))
        return self.penalty(p) - value, -np.concatenate(gradient) if gradient else np.empty(0)

    def penalty(self, p: _Parameters) -> float:
        regularised = np.append(p.weights, p.noise) if self.learn_noise else p.weights
        squares = (regularised**2).sum() if self.l2 else 0.0  # those of weights for a tiny unit overflow
        prior = 0.5 * self.precision * (self._from_unit(p) ** 2).sum() if self.learn_weights and self.precision else 0.0
        return float(self.l1 * regularised.sum() + self.l2 * squares + prior)

    def _from_unit(self, p: _Parameters) -> np.ndarray:
        """(k,) how far log weights are from those of kernels with a mean self-kernel of one."""
        return np.asarray(np.log(np.maximum(p.weights, 1e-300)) - self.log_units)

    def _evaluate(self, kernels: Any, p: _Parameters) -> tuple[float, Any]:
        for jitter in JITTERS:
            covariance = combine(kernels, p.weights) + self.level
            mean = float(covariance.trace()) / len(covariance)
            covariance = add_to_diagonal(covariance, p.noise + jitter * mean)
            try:
                return self.evidence(covariance, self.targets)
            except np.linalg.LinAlgError:
                continue
        raise ValueError(
            f"the combined kernel is not positive definite at weights {p.weights} and noise {p.noise:.3g}; repair the "
            "kernels or fix a larger noise"
        )

    def minimise(self, noise_floor: float, max_iter: int, tol: float) -> OptimizeResult:
        theta, bounds = self.pack(self.start), self.bounds(noise_floor)
        if not len(theta):
            return OptimizeResult(x=theta, success=True, nit=0)
        theta = np.clip(theta, *np.transpose(bounds))

        # where every variable is bounded, the first step of L-BFGS-B goes to the bounds, and the search may end there;
        # beside one that is not, and changes nothing, it has length one
        def with_idle(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = self(vector[:-1])
            return value, np.append(slope, 0.0)

        found = minimize(
            with_idle,
            np.append(theta, 0.0),
            jac=True,
            method="L-BFGS-B",
            bounds=[*bounds, (None, None)],
            options={"maxiter": max_iter, "ftol": tol},
        )
        found.x = found.x[:-1]
        return found

    def deviations(
        self, theta: np.ndarray, slope: np.ndarray, noise_floor: float
    ) -> tuple[np.ndarray, np.ndarray | None, float]:
        """Standard deviations of the logarithms from the Hessian at ``theta``; inf for what was not or cannot be
        learned.
        """
        k = len(self.bases)
        bounds = self.bounds(noise_floor)
        std = np.full(len(theta), np.inf)
        inside = [i for i, (low, high) in enumerate(bounds) if low + 1e-3 < theta[i] < high - 1e-3]
        if inside:
            hessian = self._hessian(theta, slope, inside)
            eigenvalues, vectors = np.linalg.eigh(hessian)
            flat = eigenvalues <= 1e-8 * max(eigenvalues.max(), 1e-300)
            variances = (vectors[:, ~flat] ** 2 / eigenvalues[~flat]).sum(axis=1)
            variances[(vectors[:, flat] ** 2).sum(axis=1) > 1e-4] = np.inf
            std[inside] = np.sqrt(variances)
        weights, scales, noise = (part if len(part) else np.full(k, np.inf) for part in self._parts(std))
        return weights, None if self.start.scales is None else scales, float(noise[0])

    def _hessian(self, theta: np.ndarray, slope: np.ndarray, inside: list[int]) -> np.ndarray:
        step = 1e-4
        rows = []
        for i in inside:
            shifted = theta.copy()
            shifted[i] += step
            rows.append((self(shifted)[1] - slope)[inside] / step)
        hessian = np.array(rows)
        return (hessian + hessian.T) / 2
