# SPDX-License-Identifier: BSD-3-Clause
r"""Contextual similarity of discrete distributions: word histograms compared in the context of an average one.

For histograms q, p and a context u, all summing to one, the contextual similarity is the share of p in the blend
:math:`m_\omega = \omega p + (1-\omega) u` that is closest to q (liu2010, eq. 6.1-6.5; ``context`` has the theory)

.. math:: cs(q, p | u) = \arg\min_{0 \le \omega \le 1} f(q, m_\omega)\ [+ f(p, \omega q + (1-\omega) u)]

* ``"kl"``: :math:`\sum_i q_i \ln(q_i / m_i)`, the language model of (6.1) with its ω chosen instead of tuned;
* ``"bhattacharyya"``: :math:`-\sum_i \sqrt{q_i m_i}`;
* any function ``f(q, m)`` of histograms ``(..., V)`` that is convex in m and returns ``(...)``: Bregman divergences
  with the blend as first argument (6.7), Csiszár divergences on either side (6.9, 6.10).

The first two are minimised by Newton's method inside a bracket, on the sign of the derivative; a user's function by
golden section, batched over pairs.  cs = 1 when q = p; 1/2, by the thesis' convention,
where p = u or, if symmetric, either is u (also if all three are the same).

Words that p and u both lack add a constant whatever ω, and are left out: there q counts as zero, for a user's function
too.  "The same" means within 1e-9 in the sum of differences, 1e-6 where any of the three is float32.

Cost: V divisions a pair and step, about ten steps ("kl", "bhattacharyya"); 40 calls a block of pairs for a user's
function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numba import njit, prange
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from patchbag.runtime import parallel_njit
from patchbag.similarity.histograms.kernel import check_histograms

DIVERGENCES = ("kl", "bhattacharyya")
FLAT = {"float32": 1e-6, "float64": 1e-9}
EDGE = 1e-12
NEWTON_STEPS = 100
TOLERANCE = 1e-9
GOLDEN_STEPS = 44
BLOCK_NUMBERS = 1 << 22


# sums over words may be reordered (they are over finite numbers); each pair is computed by one thread alone
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _slope(q, p, u, omega, kl):  # pragma: no cover - compiled
    """First derivative of the similarity with respect to ω, and minus the second."""
    slope, curvature = 0.0, 0.0
    for i in range(q.shape[0]):
        d = p[i] - u[i]
        if d != 0.0 and q[i] > 0.0:
            m = u[i] + omega * d
            if kl:
                term = d / m
                slope += q[i] * term
                curvature += q[i] * term * term
            else:
                term = np.sqrt(q[i] / m) * d
                slope += 0.5 * term
                curvature += 0.25 * term * d / m
    return slope, curvature


@parallel_njit()
def _shares(Q, P, u, kl, symmetric, flat, out):  # pragma: no cover - compiled
    n, m = out.shape
    for pair in prange(n * m):
        a, b = pair // m, pair % m
        q, p = Q[a], P[b]
        gap = np.abs(p - u).sum()
        if symmetric:
            gap = min(gap, np.abs(q - u).sum())
        if gap <= flat:
            out[a, b] = 0.5
            continue
        low, high, omega = 0.0, 1.0, 1.0 - EDGE
        for step in range(NEWTON_STEPS):
            slope, curvature = _slope(q, p, u, omega, kl)
            if symmetric:
                more, bend = _slope(p, q, u, omega, kl)
                slope += more
                curvature += bend
            if step == 0:
                if slope >= 0:
                    low = 1.0
                    omega = 1.0
                    break
                high, omega = omega, EDGE
                continue
            if step == 1:
                if slope <= 0:
                    omega = 0.0
                    break
                low, omega = omega, 0.5
                continue
            if slope > 0:
                low = omega
            else:
                high = omega
            target = omega + slope / curvature if curvature > 0 else omega
            if not low < target < high:
                target = 0.5 * (low + high)
            moved = abs(target - omega)
            omega = target
            if moved < TOLERANCE:
                break
        out[a, b] = omega


def contextual_histograms(
    Q: Any,
    P: Any,
    context: Any,
    divergence: str | Callable[[np.ndarray, np.ndarray], np.ndarray] = "kl",
    symmetric: bool = True,
) -> np.ndarray:
    """cs(q, p | u) of every pair of rows: ``(n, m)``, float64.

    Parameters
    ----------
    Q : (n, V), P : (m, V) histograms that sum to one;  context : (V,)
    divergence : ``"kl"``, ``"bhattacharyya"`` or a function f(q, m) of ``(..., V)`` arrays, convex in m
    """
    Q, P = (check_histograms(a, normalized=True) for a in (Q, P))
    single = any(np.asarray(a).dtype == np.float32 for a in (Q, P, context))
    flat = FLAT["float32" if single else "float64"]
    Q, P = (np.ascontiguousarray(a, np.float64) for a in (Q, P))
    u = check_context(context)
    if not Q.shape[1] == P.shape[1] == len(u):
        raise ValueError(
            f"histograms of {Q.shape[1]} and {P.shape[1]} words, context of {len(u)}: they must be the same"
        )
    if callable(divergence):
        return _golden(Q, P, u, divergence, symmetric, flat)
    if divergence not in DIVERGENCES:
        raise ValueError(f"divergence must be one of {DIVERGENCES} or a function, got {divergence!r}")
    out = np.empty((len(Q), len(P)))
    _shares(Q, P, u, divergence == "kl", symmetric, flat, out)
    return out


def check_context(context: Any, n_words: int | None = None) -> np.ndarray:
    """The context as a float64 histogram ``(V,)`` that sums to one."""
    context = np.asarray(context)
    if context.ndim != 1 or (n_words is not None and len(context) != n_words):
        raise ValueError(f"the context must be one histogram of {n_words or 'V'} words, got shape {context.shape}")
    try:
        return np.ascontiguousarray(check_histograms(context[None], normalized=True)[0], np.float64)
    except ValueError as error:
        raise ValueError(f"the context: {error}") from error


def _golden(
    Q: np.ndarray,
    P: np.ndarray,
    u: np.ndarray,
    f: Callable[[np.ndarray, np.ndarray], np.ndarray],
    symmetric: bool,
    flat: float,
) -> np.ndarray:
    """Golden section over ω, for blocks of rows of Q with all of P."""
    ratio = (np.sqrt(5) - 1) / 2
    out = np.empty((len(Q), len(P)))
    step = max(1, BLOCK_NUMBERS // max(1, P.size))
    for start in range(0, len(Q), step):
        q, p = Q[start : start + step, None, :], P[None]
        # what the blend lacks whatever ω is
        q_known, p_known = np.where(p + u > 0, q, 0.0), np.where(q + u > 0, p, 0.0)

        def cost(
            omega: np.ndarray,
            q: np.ndarray = q,
            p: np.ndarray = p,
            q_known: np.ndarray = q_known,
            p_known: np.ndarray = p_known,
            start: int = start,
        ) -> np.ndarray:
            w = omega[..., None]
            value = np.asarray(f(q_known, w * p + (1 - w) * u))
            if symmetric:
                value = value + np.asarray(f(p_known, w * q + (1 - w) * u))
            if value.shape != omega.shape:
                raise ValueError(
                    f"the divergence must return one number a pair, shape {omega.shape}; got {value.shape}"
                )
            if np.isnan(value).any():
                i, j = np.argwhere(np.isnan(value))[0]
                raise ValueError(
                    f"the divergence is NaN between histogram {start + i} and a blend of reference {j} with the "
                    f"context (share {omega[i, j]:.3g}); let words that both lack add 0"
                )
            return value

        low, high = np.zeros((q.shape[0], len(P))), np.ones((q.shape[0], len(P)))
        left, right = 1 - ratio + low, ratio + low
        f_left, f_right = cost(left), cost(right)
        endless = np.isinf(f_left) & np.isinf(f_right)
        if endless.any():
            i, j = np.argwhere(endless)[0]
            raise ValueError(
                f"the divergence is infinite between histogram {start + i} and blends of reference {j} with the "
                "context that lack no word of it; it cannot be minimised"
            )
        for _ in range(GOLDEN_STEPS):
            drop_right = f_left <= f_right
            low, high = np.where(drop_right, low, left), np.where(drop_right, right, high)
            inner = np.where(drop_right, high - ratio * (high - low), low + ratio * (high - low))
            f_inner = cost(inner)
            left, right = np.where(drop_right, inner, right), np.where(drop_right, left, inner)
            f_left, f_right = np.where(drop_right, f_inner, f_right), np.where(drop_right, f_left, f_inner)
        omega = (low + high) / 2
        # a minimum at the border is only approached from inside
        at_zero, at_one, inside = cost(np.zeros_like(omega)), cost(np.ones_like(omega)), cost(omega)
        omega = np.where(at_one <= inside, 1.0, np.where(at_zero < inside, 0.0, omega))
        gap = np.abs(p - u).sum(axis=-1)
        if symmetric:
            gap = np.minimum(gap, np.abs(q - u).sum(axis=-1))
        out[start : start + step] = np.where(gap <= flat, 0.5, omega)
    return out


class ContextualHistograms(TransformerMixin, BaseEstimator):
    """Histograms → contextual similarities to the training histograms, (n, number of references), in [0, 1].

    Parameters
    ----------
    divergence : ``"kl"``, ``"bhattacharyya"`` or a function of (..., V) arrays, convex in its second argument
    symmetric : both directions (6.5)
    context : (V,) histogram; by default the mean of the training histograms

    Attributes
    ----------
    references_ : (m, V);  context_ : (V,)
    """

    def __init__(
        self,
        divergence: str | Callable[[np.ndarray, np.ndarray], np.ndarray] = "kl",
        *,
        symmetric: bool = True,
        context: Any = None,
    ) -> None:
        self.divergence = divergence
        self.symmetric = symmetric
        self.context = context

    def fit(self, X: Any, y: Any = None) -> Self:
        if not callable(self.divergence) and self.divergence not in DIVERGENCES:
            raise ValueError(f"divergence must be one of {DIVERGENCES} or a function, got {self.divergence!r}")
        self.references_ = check_histograms(X, normalized=True)
        self.context_ = self.references_.mean(axis=0) if self.context is None else np.asarray(self.context)
        check_context(self.context_, self.references_.shape[1])
        self.n_features_in_ = self.references_.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Similarities ``(n, number of references)``."""
        check_is_fitted(self, "references_")
        return contextual_histograms(X, self.references_, self.context_, self.divergence, self.symmetric)
