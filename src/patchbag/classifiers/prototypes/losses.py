# SPDX-License-Identifier: BSD-3-Clause
r"""Surrogate losses of the edge, and the leverage of one prototype.

A loss :math:`\psi` is strictly convex and falls at 0 (piro2010 §A.1, conditions i-iii):

=============  =============================  ===============
exponential    :math:`e^{-x}`                 (4.7)
squared        :math:`(1 - x)^2`              (4.6)
logistic       :math:`\ln(1 + e^{-x})`        (4.8)
=============  =============================  ===============

The weight of an example with edge ρ is :math:`w = -\psi'(\rho)`.  A prototype that adds :math:`\delta r_i` to the edges
of its reciprocal neighbours i lowers the risk most where (A.2, 5.20, B.2)

.. math:: g(\delta) = \sum_i r_i\, \psi'(\rho_i + \delta r_i) = 0 .

We keep the edges ρ where the thesis keeps the weights: the same numbers (:math:`\rho = \psi'^{-1}(-w)`), without an
inverse of ψ' to be known.  g rises with δ, so that Newton's steps (5.28) in a bracket find its only zero.  For the
exponential loss they start at

.. math:: \delta = \frac{1}{\bar r^+ + \bar r^-} \ln \frac{\sum_{r_i > 0} w_i r_i}{\sum_{r_i < 0} w_i |r_i|}, \qquad
    \bar r^\pm = \text{weighted means of } |r_i| ,

which is the zero where all positive and all negative edges are alike: (4.18) for two classes, (5.26) for the k-NN
kernel of any number.  Otherwise they start at the linearised zero (5.29).

**One sign.**  Where all neighbours agree, g has no zero.  A pair of made-up examples with edges :math:`r^+, -r^-` that
do not care for the prototype, and count ε, makes it finite (4.15-4.16, B.10-B.11):

.. math:: \varepsilon r^- \left[\psi'(\delta r^+) - \psi'(-\delta r^-)\right] .

It vanishes at δ = 0, so that the zero moves towards 0 and never past it: the risk of the real examples still falls.

**Slips.**  Table A.1 gives ½ ln(w⁺/w⁻) for the exponential loss "always"; with the class vectors of (4.2) the edges of
class c are 1, -1/(C-1) and 1/(C-1)², and this is the zero for two classes only.  Its logistic update has 1 - w(1 + e)
where 1 - w(1 - e) is right (B.15 is).  (B.10) lacks "= 0".
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import cfunc, njit
from numba.core.errors import NumbaError

REAL = "float64(float64)"
TOLERANCE = 1e-10
STEPS = 80
NUDGE = 1e-5  # of the difference quotient of a slope that a user gives


class Loss(NamedTuple):
    """ψ' and ψ'' as compiled functions of one number; ψ itself is needed nowhere."""

    slope: Any
    bend: Any
    exponential: bool = False


def _exp_slope(x: float) -> float:
    return -math.exp(-x)


def _exp_bend(x: float) -> float:
    return math.exp(-x)


def _square_slope(x: float) -> float:
    return 2.0 * (x - 1.0)


def _square_bend(x: float) -> float:
    return 2.0


def _logistic_slope(x: float) -> float:
    return -1.0 / (1.0 + math.exp(x)) if x < 700 else 0.0


def _logistic_bend(x: float) -> float:
    p = 1.0 / (1.0 + math.exp(-abs(x)))
    return p * (1.0 - p)


LOSSES: dict[str, tuple[Callable[[float], float], ...]] = {
    "exponential": (_exp_slope, _exp_bend),
    "squared": (_square_slope, _square_bend),
    "logistic": (_logistic_slope, _logistic_bend),
}


@cache
def make_loss(loss: str | Callable[[float], float]) -> Loss:
    """A loss by its name, or by its derivative: a function of one number that Numba can compile."""
    if isinstance(loss, str):
        slope, bend = (cfunc(REAL, cache=True)(f) for f in LOSSES[loss])
        return Loss(slope, bend, loss == "exponential")
    try:
        given = njit(REAL)(loss)
    except (NumbaError, TypeError) as error:
        raise ValueError(
            f"a loss is given by its derivative, a function of one number that Numba compiles: {error}"
        ) from error
    at = (-2.0, -1.0, 0.0, 1.0, 2.0)
    slopes = [given(x) for x in at]
    convex = all(a < b for a, b in pairwise(slopes))
    for name, holds in (("fall at 0", given(0.0) < 0), ("be strictly convex", convex)):
        if not holds:
            told = ", ".join(f"{slope:.3g} at {x:g}" for slope, x in zip(slopes, at))
            raise ValueError(f"a loss must {name}; the derivative given is {told}")

    def derivative(x: float) -> float:
        return given(x)

    def difference(x: float) -> float:
        return (given(x + NUDGE) - given(x - NUDGE)) / (2.0 * NUDGE)

    return Loss(cfunc(REAL)(derivative), cfunc(REAL)(difference))


@njit(cache=True, nogil=True)
def solve_leverage(edges, margins, plus, minus, epsilon, slope, bend, exponential):  # pragma: no cover - compiled
    """The zero δ of g for a prototype.

    Parameters
    ----------
    edges : (n,) r of its reciprocal neighbours
    margins : (n,) their edges ρ under the prototypes so far
    plus, minus, epsilon : r⁺, r⁻ and the weight ε of the made-up pair
    slope, bend, exponential : of the loss
    """
    n = edges.shape[0]
    for_it, against, size_for, size_against = epsilon * minus, epsilon * minus, plus, minus
    if exponential:
        squares_for, squares_against = for_it * plus, against * minus
        for i in range(n):
            pull = -edges[i] * slope(margins[i])
            if pull > 0:
                for_it += pull
                squares_for += pull * edges[i]
            else:
                against -= pull
                squares_against += pull * edges[i]
        if for_it <= 0 or against <= 0:  # weights have vanished: there is nothing to gain
            return 0.0
        size_for, size_against = squares_for / for_it, squares_against / against
        delta = math.log(for_it / against) / (size_for + size_against)
    else:
        delta = 0.0
    low, high = -np.inf, np.inf
    for _ in range(STEPS):
        g = epsilon * minus * (slope(delta * plus) - slope(-delta * minus))
        h = epsilon * minus * (plus * bend(delta * plus) + minus * bend(-delta * minus))
        for i in range(n):
            r = edges[i]
            x = margins[i] + delta * r
            g += r * slope(x)
            h += r * r * bend(x)
        if g == 0:
            return delta
        if g < 0:
            low = delta
        else:
            high = delta
        step = -g / h if h > 0 else (np.inf if g < 0 else -np.inf)
        if abs(step) <= TOLERANCE * (1.0 + abs(delta)):
            return delta + step
        further = 4.0 * (1.0 + abs(delta))
        if np.isinf(high) and step > further:  # far out the loss is flat, and Newton's step would leave the sphere
            step = further
        elif np.isinf(low) and step < -further:
            step = -further
        following = delta + step
        delta = following if low < following < high else (low + high) / 2.0
    return delta
