# SPDX-License-Identifier: BSD-3-Clause
r"""How near a Bregman ball can be to a query: projection by a walk on the geodesic, stopped as soon as enough is known.

In the notation of ``forms`` a ball is all ψ with :math:`D(\psi \| c) = h^*(\psi) + h(\varphi_c) - \langle \varphi_c,
\psi \rangle \le R`, and the question is whether :math:`\min_{\psi \in B} D(\psi \| q)` exceeds what is known as an
upper bound of the k-th divergence.  The minimum lies on the geodesic :math:`\psi_\theta = \nabla h(z_\theta), z_\theta
= (1-\theta) \varphi_q + \theta \varphi_c` (piro2010, 3.9).  One evaluation at θ yields :math:`h(z)` and :math:`s =
\langle \varphi_c - \varphi_q, \nabla h(z) \rangle`, and with them all that is needed:

.. math::
    D(\psi_\theta \| q) &= h(\varphi_q) - h(z) + \theta s \\
    D(\psi_\theta \| c) &= h(\varphi_c) - h(z) - (1 - \theta) s \\
    \min_B D(\psi \| q) &\ge \frac{(1-\theta) h(\varphi_q) + \theta h(\varphi_c) - h(z) - \theta R}{1 - \theta}

The last line is Lagrange's dual function at the multiplier θ/(1−θ) (Cayton 2008): a bound at every θ, so that the walk
need not converge.  It stops where the bound exceeds the limit (the ball is left out), or where ψ_θ is inside the ball
and nearer to the query than the limit (it has to be opened): the annulus of the paper.

**Cuts.**  The paper halves the geodesic by the ratio of Hessians (3.17, ``divergences.hessian_cut``).  Here the cut is
aimed: near c divergences grow with the square of 1 − θ, so that the sphere is expected where :math:`1 - \theta'` is
:math:`(1 - \theta) \sqrt{R / D(\psi_\theta \| c)}`; for squared Euclidean distances it is there.  Fewer than three
evaluations do on the average (``tests/neighbors/test_trees.py`` counts them); halving to 10⁻⁵ takes seventeen.

**Outside of a ball.**  Points of a vantage-point tree's far side have :math:`D(\psi \| c) \ge r`.  None of them is
within :math:`D(\psi \| q) \le u` if :math:`\max \{ D(\psi \| c) : D(\psi \| q) \le u \} < r`.  By the same duality
that maximum is at most :math:`\lambda u + h(\varphi_c) - \lambda h(\varphi_q) + (\lambda - 1) h(z)` for every λ > 1,
with z = (λ φ_q − φ_c) / (λ − 1) beyond the query, on the other side from c, wherever that is in the domain of h.  The
paper's algorithm 2 asks only whether two balls meet.
"""

from typing import Any

import numpy as np
from numba import njit

from patchbag.neighbors.coordinates import LOG_SUM, inside, value_and_slope

STEPS = 8
# multipliers that are tried for the far side, from the nearest sphere outwards
BEYOND = (4.0, 1.5, 10.0)


@njit(cache=True, nogil=True)
def _part(code: int, weight: float, query: Any, center: Any, theta: float, start: int, stop: int) -> Any:
    """h(z) and ⟨φ_c − φ_q, ∇h(z)⟩ of one half of the coordinates; infinite outside of the domain."""
    total = 0.0
    slope = 0.0
    for j in range(start, stop):
        q = query[j]
        step = center[j] - q
        z = q + theta * step
        if not inside(code, z):
            return np.inf, 0.0
        value, gradient = value_and_slope(code, z)
        total += value
        slope += step * gradient
    if code == LOG_SUM:
        slope /= total
        total = np.log(total)
    return weight * total, weight * slope


@njit(cache=True, nogil=True)
def walk(codes: Any, weights: Any, split: int, query: Any, center: Any, theta: float) -> Any:
    """h(z_θ) and ⟨φ_c − φ_q, ∇h(z_θ)⟩."""
    value, slope = _part(codes[0], weights[0], query, center, theta, 0, split)
    if split < query.shape[0]:
        more, further = _part(codes[1], weights[1], query, center, theta, split, query.shape[0])
        value += more
        slope += further
    return value, slope


@njit(cache=True, nogil=True)
def ball_is_beyond(codes: Any, weights: Any, split: int, query: Any, h_query: float, center: Any, h_center: float,
                   to_center: float, radius: float, limit: float, fine: float) -> Any:  # fmt: skip
    """Whether all points of a ball are farther from the query than ``limit``, and how many evaluations that took.

    ``to_center`` is D(ψ_q ‖ c), where the walk begins; ``fine`` bounds the error of values of h.
    """
    if to_center <= radius:
        return False, 0
    low, high = 0.0, 1.0  # outside of the ball at low, inside at high
    theta = 1 - np.sqrt(radius / to_center)
    for step in range(STEPS):
        theta = min(theta, 1 - 1e-6)
        value, slope = walk(codes, weights, split, query, center, theta)
        if ((1 - theta) * h_query + theta * h_center - value - theta * radius - fine) > (1 - theta) * limit:
            return True, step + 1
        from_center = h_center - value - (1 - theta) * slope
        if from_center <= radius:
            if h_query - value + theta * slope <= limit:
                return False, step + 1
            high = theta
        else:
            low = theta
        ratio = np.sqrt(radius / from_center) if from_center > 0 else 2.0
        aim = 1 - (1 - theta) * ratio
        theta = aim if low < aim < high else (low + high) / 2
        if high - low < 1e-6:
            break
    return False, STEPS


@njit(cache=True, nogil=True)
def ball_holds_all_near(codes: Any, weights: Any, split: int, query: Any, h_query: float, center: Any, h_center: float,
                        to_center: float, radius: float, limit: float, fine: float) -> Any:  # fmt: skip
    """Whether all points within ``limit`` of the query have D(ψ ‖ c) < radius, and how many evaluations that took."""
    if to_center >= radius:
        return False, 0
    taken = 0
    for factor in BEYOND:
        # for squared distances the best multiplier is 1 + √(D(q, c) / limit)
        multiplier = 1 + factor / 4 * max(np.sqrt(to_center / limit), 1e-3) if limit > 0 else 1e6
        value, _ = walk(codes, weights, split, query, center, -1 / (multiplier - 1))
        taken += 1
        farthest = multiplier * limit + h_center - multiplier * h_query + (multiplier - 1) * value
        if farthest + (1 + 2 * multiplier) * fine < radius:
            return True, taken
    return False, taken
