# SPDX-License-Identifier: BSD-3-Clause
r"""The boosting loop: one prototype per round, and only the examples that it votes for are touched.

An edge matrix R (examples × prototypes) holds :math:`r_{ij}`, what prototype j adds to the edge of example i for a
coefficient of one.  A round (piro2010, algorithms 3 to 6) takes a prototype j, finds its leverage δ
(:mod:`~patchbag.classifiers.prototypes.losses`), adds it to the coefficient and :math:`\delta r_{ij}` to the edges.
Which one is the **weak index chooser**'s affair:

* ``"lazy"``: one after the other, in any order ([a] of §4.2.4);
* ``"boosting"``: the one with the largest δ, any number of times ([b], 5.24), until none is above zero;
* ``"once"``: the one with the largest δ among those that were not taken yet;
* ``"equal"``: nothing is learned, the first T of the order get a coefficient of one each: the plain k-NN rule with all
  examples or with a random part of them, to compare with.

R is sparse.  A round changes the edges of the reciprocal neighbours of j, and with them the leverages of the prototypes
that vote for the same examples, about k² of them.  Their pulls :math:`S^\pm = \sum_{r_i \gtrless 0} w_i |r_i|` are
brought up to date by one addition each.  For the exponential loss these bound the leverage from above,

.. math:: \delta \le \frac{\ln (S^+ / S^-)}{\rho}, \qquad
    \rho = \begin{cases} \min r^+ + \min |r^-| & S^+ > S^- \\ \max r^+ + \max |r^-| & \text{else,} \end{cases}

with equality where edges of a sign are equal (the k-NN kernel), so that only the few prototypes are solved whose bound
is above the largest leverage known.  Other losses solve all k² again.  Cost per round: k² additions and logarithms, a
few solves, and one pass over m numbers.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

from patchbag.classifiers.prototypes.losses import Loss, solve_leverage

CHOOSERS = ("lazy", "boosting", "once", "equal")
NOTHING = 1e-9  # a leverage that is worth no round
TINY = 1e-6  # pulls below that of which sums of differences from 1 keep too few digits
ROUNDING = 1e-6  # of a bound


class Boosted(NamedTuple):
    """Rounds in their order: ``chosen (T,)`` prototypes and the leverages ``deltas (T,)`` that each of them got."""

    chosen: np.ndarray
    deltas: np.ndarray

    def coefficients(self, m: int, rounds: int | None = None) -> np.ndarray:
        """(m,) coefficients of the prototypes after some rounds, or all."""
        return np.bincount(self.chosen[:rounds], self.deltas[:rounds], m)


def boost(
    edges: sparse.csc_array,
    plus: np.ndarray,
    minus: np.ndarray,
    loss: Loss,
    rounds: int,
    chooser: str = "boosting",
    epsilon: float = 1.0,
    order: np.ndarray | None = None,
) -> Boosted:
    """Coefficients of the prototypes that lower the mean loss of the examples' edges.

    Parameters
    ----------
    edges : (n, m) r of examples (rows) and prototypes (columns)
    plus, minus : (m,) sizes r⁺, r⁻ of the edges of the pair that keeps a prototype's leverage finite
    epsilon : what the pair counts, in examples
    order : (m,) of the lazy and equal choosers; None for that of the columns
    """
    order = np.arange(edges.shape[1]) if order is None else order
    if chooser == "equal":
        return Boosted(order[:rounds], np.ones(min(rounds, len(order))))
    rows = edges.tocsr()
    most = min(rounds, edges.shape[1]) if chooser == "once" else rounds
    chosen, deltas = _boost(
        edges.indptr, edges.indices, edges.data, rows.indptr, rows.indices, rows.data, plus, minus, epsilon,
        loss.slope, loss.bend, loss.exponential, most, CHOOSERS.index(chooser), order,
    )  # fmt: skip
    return Boosted(chosen, deltas)


@njit(cache=True, nogil=True)
def _pulls(edges, margins, plus, minus, epsilon, slope):  # pragma: no cover - compiled
    """S⁺, S⁻ with the made-up pair, and the sums of the least and of the greatest edges of both signs."""
    for_it, against = epsilon * minus, epsilon * minus
    least_for, least_against, most_for, most_against = np.inf, np.inf, 0.0, 0.0
    if epsilon > 0:
        least_for, least_against, most_for, most_against = plus, minus, plus, minus
    for i in range(edges.shape[0]):
        r = edges[i]
        if r > 0:
            for_it -= r * slope(margins[i])
            least_for, most_for = min(least_for, r), max(most_for, r)
        elif r < 0:
            against += r * slope(margins[i])
            least_against, most_against = min(least_against, -r), max(most_against, -r)
    return for_it, against, least_for + least_against, most_for + most_against


@njit(cache=True, nogil=True)
def _bound(for_it, against, least, most):  # pragma: no cover - compiled
    """What the leverage of the exponential loss is at most; infinite where rounding may have eaten the pulls."""
    if not (for_it > TINY and against > TINY and np.isfinite(least)):
        return np.inf
    ratio = np.log(for_it / against)
    return ratio / (least if ratio > 0 else most) + ROUNDING


@njit(cache=True, nogil=True)
def _boost(
    starts,
    members,
    edges,
    row_starts,
    row_columns,
    row_edges,
    plus,
    minus,
    epsilon,
    slope,
    bend,
    exponential,
    rounds,
    chooser,
    order,
):  # pragma: no cover - compiled
    m, n = starts.shape[0] - 1, row_starts.shape[0] - 1
    margins = np.zeros(n)
    free, solved, seen = np.ones(m, np.bool_), np.zeros(m, np.bool_), np.full(m, -1, np.int64)
    at_most = np.zeros(m)  # leverages where they are solved, bounds elsewhere
    for_it, against, least, most = np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(m)
    chosen, deltas = np.empty(rounds, np.int64), np.empty(rounds)

    def solve(c):
        part = slice(starts[c], starts[c + 1])
        return solve_leverage(edges[part], margins[members[part]], plus[c], minus[c], epsilon, slope, bend, exponential)

    if chooser != 0:
        for c in range(m):
            part = slice(starts[c], starts[c + 1])
            for_it[c], against[c], least[c], most[c] = _pulls(
                edges[part], margins[members[part]], plus[c], minus[c], epsilon, slope
            )
            at_most[c] = _bound(for_it[c], against[c], least[c], most[c]) if exponential else np.inf
            if at_most[c] == np.inf:
                at_most[c], solved[c] = solve(c), True
    done = 0
    for t in range(rounds):
        j = order[t % m]
        while chooser != 0:
            best = -np.inf
            for c in range(m):
                if free[c] and at_most[c] > best:
                    j, best = c, at_most[c]
            if best == -np.inf or solved[j]:
                break
            at_most[j], solved[j] = solve(j), True
        if chooser != 0 and (not free[j] or (chooser == 1 and at_most[j] <= NOTHING)):
            break
        delta = solve(j) if chooser == 0 else at_most[j]
        chosen[t], deltas[t] = j, delta
        done = t + 1
        free[j] = chooser < 2
        for p in range(starts[j], starts[j + 1]):
            i = members[p]
            before = slope(margins[i])
            margins[i] += delta * edges[p]
            change = before - slope(margins[i])
            if chooser != 0:
                for q in range(row_starts[i], row_starts[i + 1]):
                    c, pull = row_columns[q], row_edges[q] * change
                    if row_edges[q] > 0:
                        for_it[c] += pull
                    else:
                        against[c] -= pull
        if chooser == 0:
            continue
        for p in range(starts[j], starts[j + 1]):
            i = members[p]
            for q in range(row_starts[i], row_starts[i + 1]):
                c = row_columns[q]
                if seen[c] == t or not free[c]:
                    continue
                seen[c] = t
                at_most[c] = _bound(for_it[c], against[c], least[c], most[c]) if exponential else np.inf
                solved[c] = at_most[c] == np.inf
                if solved[c]:
                    at_most[c] = solve(c)
        if starts[j] == starts[j + 1]:  # it votes for nobody, and would be chosen for ever
            at_most[j] = 0.0
    return chosen[:done], deltas[:done]
