# SPDX-License-Identifier: BSD-3-Clause
r"""Weights of references and shares in a context through the Array API: what a GPU runs, one to one.

The formulas are those of ``references`` and ``context``; their loops over images and components become batched matrix
products (5.15-5.25) and passes over all pairs, a component at a time (6.13-6.17).  Affinities and ratios are float32,
shares and slopes float64.  Memory: ``NUMBERS`` affinities, twice, for blocks of images.
"""

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from patchbag.device import like, product
from patchbag.mixture.adaptation import Mixtures
from patchbag.similarity.blend import EDGE, NEWTON_STEPS
from patchbag.similarity.blend import TOLERANCE as SHARE_TOLERANCE
from patchbag.similarity.mixtures.gaussians import left_features, log_product_kernel, right_features
from patchbag.similarity.mixtures.matching import WEIGHT_FLOOR, by_component, component_frame

NUMBERS = 1 << 29


def _blocks(n: int, each: int) -> list[slice]:
    step = max(1, NUMBERS // each)
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


class DenseAnswers:
    """ln a_i of blocks of mixtures with all of Q, one to one: ``matching.answers_of`` for tensors.

    Parameters
    ----------
    Q : the mixtures that answer
    measure : "cross-entropy" or "squared-product"
    back : the blocks answer, and the mixtures of Q are asked (cross-entropies only)
    """

    def __init__(self, Q: Mixtures, measure: str = "cross-entropy", back: bool = False) -> None:
        self.Q, self.measure, self.back = Q, measure, back
        centre, scale = component_frame(Q)
        self.frame = like(centre, Q.means), like(scale, Q.means)
        if measure == "cross-entropy":
            self.others = self._features(Q, not back)

    def _features(self, mixtures: Mixtures, right: bool) -> Any:
        features = (right_features if right else left_features)(*by_component(mixtures), self.frame)
        if right:
            features[..., -1] -= _log_weights(mixtures)
        return features

    def __call__(self, P: Mixtures) -> Any:
        """``(K, rows, len(Q))``."""
        xp = array_namespace(P.means)
        if self.measure == "cross-entropy":
            return -product(self._features(P, self.back), xp.matrix_transpose(self.others))
        # in the frame, and so without the volume that is common to all pairs of a component
        centre, scale = self.frame
        sides = (((m - centre) / scale, v / scale**2) for m, v in map(by_component, (P, self.Q)))
        parts = zip(*(a for side in sides for a in side))
        logs = [log_product_kernel(*part) for part in parts]
        return 2 * xp.stack(logs) + _log_weights(self.Q)[:, None, :]


def _log_weights(mixtures: Mixtures) -> Any:
    """(K, n)."""
    xp = array_namespace(mixtures.weights)
    return xp.log(xp.clip(mixtures.weights, WEIGHT_FLOOR, None)).T


# --- mixtures of references ------------------------------------------------------------------------------------------


def blend_weights(
    logs: Any, shares: Any, root: bool, iterations: int, tolerance: float, own: np.ndarray | None = None
) -> Any:
    """Weights (n, R) of the references, from the logarithms (K, n, R) of the affinities: ``references.blend_weights``.

    EM ends after ``iterations``, or when no weight of any image changes by ``tolerance``.
    """
    xp = array_namespace(logs)
    logs = xp.permute_dims(logs, (1, 0, 2))
    if own is not None:
        columns = xp.arange(logs.shape[2], device=device(logs))
        left_out = xp.asarray(own, device=device(logs))[:, None] == columns
        logs = xp.where(left_out[:, None, :], xp.asarray(-xp.inf, dtype=logs.dtype, device=device(logs)), logs)
    best = xp.max(logs, axis=2, keepdims=True)
    best = xp.where(xp.isfinite(best), best, xp.zeros_like(best))
    affinities = xp.exp(logs - best)
    pi = xp.astype(shares, xp.float64)
    if root:
        scaled = xp.log(pi) + 0.5 * xp.astype(best[..., 0], xp.float64)
        pi = xp.exp(scaled - xp.max(scaled, axis=1, keepdims=True))
    pi = xp.astype(pi, logs.dtype)
    omega = xp.full(affinities.shape[::2], 1 / affinities.shape[2], dtype=logs.dtype, device=device(logs))
    for _ in range(iterations):
        z = product(affinities, omega[..., None])[..., 0]
        known = z > 0
        safe = xp.where(known, z, xp.ones_like(z))
        scale = xp.where(known, pi / (xp.sqrt(safe) if root else safe), xp.zeros_like(z))
        factor = product(scale[:, None, :], affinities)[:, 0, :]
        new = omega * (factor * factor if root else factor)
        total = xp.sum(new, axis=1, keepdims=True)
        new = xp.where(total > 0, new / xp.where(total > 0, total, xp.ones_like(total)), omega)
        change = xp.max(xp.abs(new - omega))
        omega = new
        if tolerance > 0 and float(change) < tolerance:
            break
    return omega


def dense_weights(
    X: Mixtures, references: Mixtures, measure: str, iterations: int, tolerance: float, leave_out_self: bool
) -> Any:
    """``references.reference_weights``, one to one."""
    xp, root = array_namespace(X.means), measure == "squared-product"
    answers = DenseAnswers(references, measure)
    found = []
    for part in _blocks(len(X), X.n_components * len(references)):
        own = np.arange(part.start, part.stop) if leave_out_self else None
        found.append(blend_weights(answers(X[part]), X[part].weights, root, iterations, tolerance, own))
    return xp.concat(found, axis=0)


# --- contextual similarity -------------------------------------------------------------------------------------------


def best_shares(sides: list[tuple[Any, Any]], iterations: int | None) -> Any:
    """``blend.best_shares``: of ratios (K, n, m) and weights (K, n, 1) or (K, 1, m), one side or both."""
    ratios = sides[0][0]
    xp, shape = array_namespace(ratios), ratios.shape[1:]

    def full(value: float) -> Any:
        return xp.full(shape, value, dtype=xp.float64, device=device(ratios))

    def slopes(omega: Any) -> tuple[Any, Any]:
        slope, curvature = full(0.0), full(0.0)
        for found, weights in sides:
            for i in range(found.shape[0]):
                excess = xp.astype(found[i, ...], xp.float64) - 1
                term = excess / (1 + omega * excess)
                slope += weights[i, ...] * term
                curvature += weights[i, ...] * term * term
        return slope, curvature

    omega = full(0.5)
    if iterations is not None:
        total = sum(xp.sum(weights, axis=0) for _, weights in sides)
        for _ in range(iterations):
            omega = omega + omega * (1 - omega) * slopes(omega)[0] / total
        return omega
    none, all_ = slopes(full(EDGE))[0] <= 0, slopes(full(1 - EDGE))[0] >= 0
    low, high = full(0.0), full(1.0)
    for _ in range(NEWTON_STEPS):
        slope, curvature = slopes(omega)
        low, high = xp.where(slope > 0, omega, low), xp.where(slope > 0, high, omega)
        target = omega + slope / xp.where(curvature > 0, curvature, xp.ones_like(curvature))
        target = xp.where((low < target) & (target < high), target, (low + high) / 2)
        moved = xp.where(none | all_, xp.zeros_like(target), xp.abs(target - omega))
        omega = target
        if float(xp.max(moved)) < SHARE_TOLERANCE:
            break
    return xp.where(none, full(0.0), xp.where(all_, full(1.0), omega))


def dense_context(
    P: Mixtures, Q: Mixtures, context: Mixtures, symmetric: bool, iterations: int | None, flat: float, limit: float
) -> Any:
    """``context.contextual_similarity``, one to one, before equal mixtures are marked."""
    xp = array_namespace(P.means)
    u = DenseAnswers(context)
    answers, replies = DenseAnswers(Q), DenseAnswers(Q, back=True)
    in_context = u(Q)[..., 0][:, None, :]  # (K, 1, m)

    def side(logs: Any, relative_to: Any, weights: Any) -> tuple[Any, Any]:
        return xp.exp(xp.clip(logs - like(relative_to, logs), -limit, limit)), xp.astype(weights, xp.float64)

    found = []
    for part in _blocks(len(P), 2 * P.n_components * len(Q)):
        p = P[part]
        sides = [side(answers(p), u(p), p.weights.T[:, :, None])]
        if symmetric:
            sides.append(side(replies(p), in_context, Q.weights.T[:, None, :]))
        shares = best_shares(sides, iterations)
        for ratios, weights in sides:
            gaps = (weights[i, ...] * xp.abs(ratios[i, ...] - 1) for i in range(ratios.shape[0]))
            same = sum(gaps) / xp.sum(weights, axis=0) <= flat
            shares = xp.where(same, 0.5 * xp.ones_like(shares), shares)
        found.append(xp.astype(shares, P.means.dtype))
    return xp.concat(found, axis=0)
