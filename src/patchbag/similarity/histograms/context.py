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

Cost: V divisions per pair and step, about ten steps ("kl", "bhattacharyya"); 40 calls per block of pairs for a
user's function.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numba import njit
from sklearn.utils._param_validation import StrOptions

from patchbag.parameters import estimator, parameter
from patchbag.similarity.base import HistogramSimilarity, check_histograms, map_rows
from patchbag.special import newton_step
from patchbag.storage.declared import Declared, floats

FLAT = {"float32": 1e-6, "float64": 1e-9}
EDGE = 1e-12
NEWTON_STEPS = 100
TOLERANCE = 1e-9
GOLDEN_STEPS = 44
BLOCK_NUMBERS = 1 << 22
BLOCK = 64


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


@njit(cache=True, nogil=True)
def _newton(Q, P, u, kl, symmetric):  # pragma: no cover - compiled
    out = np.empty((len(Q), len(P)))
    for pair in range(out.size):
        q, p = Q[pair // len(P)], P[pair % len(P)]
        low, high, omega = 0.0, 1.0, 1.0 - EDGE
        for step in range(NEWTON_STEPS):
            slope, curvature = _slope(q, p, u, omega, kl)
            if symmetric:
                more, bend = _slope(p, q, u, omega, kl)
                slope += more
                curvature += bend
            if step == 0 and slope >= 0:
                omega = 1.0
                break
            if step == 1 and slope <= 0:
                omega = 0.0
                break
            before = omega
            omega, low, high = newton_step(before, slope, curvature, low, high)
            if step < 2:
                omega = EDGE if step == 0 else 0.5
            elif abs(omega - before) < TOLERANCE:
                break
        out[pair // len(P), pair % len(P)] = omega
    return out


def _golden(Q: np.ndarray, P: np.ndarray, u: np.ndarray, f: Callable[..., Any], symmetric: bool) -> np.ndarray:
    """Golden section over ω for all pairs at once."""
    q, p, ratio = Q[:, None, :], P[None], (np.sqrt(5) - 1) / 2
    # what the blend lacks whatever ω is
    q_known, p_known = np.where(p + u > 0, q, 0.0), np.where(q + u > 0, p, 0.0)

    def cost(omega: np.ndarray) -> np.ndarray:
        w = omega[..., None]
        value = np.asarray(f(q_known, w * p + (1 - w) * u))
        if symmetric:
            value = value + np.asarray(f(p_known, w * q + (1 - w) * u))
        if value.shape != omega.shape:
            raise ValueError(f"the divergence must return one number per pair, shape {omega.shape}; got {value.shape}")
        _refuse(np.isnan(value), "NaN", "let words that both lack add 0")
        return value

    low, high = np.zeros((len(Q), len(P))), np.ones((len(Q), len(P)))
    left, right = 1 - ratio + low, ratio + low
    f_left, f_right = cost(left), cost(right)
    _refuse(np.isinf(f_left) & np.isinf(f_right), "infinite", "it cannot be minimised")
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
    return np.where(at_one <= inside, 1.0, np.where(at_zero < inside, 0.0, omega))


def _refuse(wrong: np.ndarray, what: str, why: str) -> None:
    if wrong.any():
        j = np.argwhere(wrong)[0][1]
        raise ValueError(f"the divergence is {what} between a histogram and a blend of reference {j} with u; {why}")


Divergence = str | Callable[[np.ndarray, np.ndarray], np.ndarray]


def contextual_histograms(
    Q: np.ndarray, P: np.ndarray, context: np.ndarray, divergence: Divergence = "kl", symmetric: bool = True
) -> np.ndarray:
    """cs(q, p | u) of every pair of rows: ``(n, m)``, float64.

    Parameters
    ----------
    Q : (n, V), P : (m, V) histograms that sum to one;  context : (V,)
    divergence : ``"kl"``, ``"bhattacharyya"`` or a function f(q, m) of ``(..., V)`` arrays, convex in m
    """
    flat = FLAT["float32" if any(a.dtype == np.float32 for a in (Q, P, context)) else "float64"]
    Q, P, u = (np.ascontiguousarray(a, np.float64) for a in (Q, P, context))
    rows, step = partial(_newton, P=P, u=u, kl=divergence == "kl", symmetric=symmetric), BLOCK
    if callable(divergence):
        rows = partial(_golden, P=P, u=u, f=divergence, symmetric=symmetric)
        step = max(1, BLOCK_NUMBERS // P.size)
    found = map_rows(rows, [Q[start : start + step] for start in range(0, len(Q), step)], len(Q))
    gaps = np.abs(P - u).sum(axis=1)[None]
    if symmetric:
        gaps = np.minimum(gaps, np.abs(Q - u).sum(axis=1)[:, None])
    return np.where(gaps <= flat, 0.5, found)


@estimator
class ContextualHistograms(HistogramSimilarity):
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

    normalized = True
    divergence: Divergence = parameter(StrOptions({"kl", "bhattacharyya"}), callable, default="kl")
    _: KW_ONLY
    symmetric: bool = parameter("boolean", default=True)
    context: Any = parameter("array-like", None, default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "context_": floats("d", low=0),
    }

    def _fit(self, histograms: np.ndarray) -> None:
        super()._fit(histograms)
        self.context_ = histograms.mean(axis=0) if self.context is None else np.asarray(self.context)
        if self.context_.shape != (histograms.shape[1],):
            raise ValueError(
                f"the context must be one histogram of {histograms.shape[1]} words, got shape {self.context_.shape}"
            )
        try:
            check_histograms(self.context_[None], normalized=True)
        except ValueError as error:
            raise ValueError(f"the context: {error}") from error

    def _compare(self, histograms: np.ndarray) -> np.ndarray:
        return contextual_histograms(histograms, self.references_, self.context_, self.divergence, self.symmetric)
