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

R is sparse.  The leverages of all prototypes are kept: a round changes the edges of the reciprocal neighbours of j, and
with them the leverages of the prototypes that vote for the same examples, about k² of them, which alone are solved
again.  Cost per round: k² small solves and one pass over m numbers for the largest; T = 2,000 rounds for m = 4,000
examples with 10 neighbours take about a tenth of a second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

from patchbag.classifiers.prototypes.losses import Loss, solve_leverage

CHOOSERS = ("lazy", "boosting", "once", "equal")
NOTHING = 1e-9  # a leverage that is worth no round


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
        edges.indptr, edges.indices, edges.data, rows.indptr, rows.indices, plus, minus, epsilon,
        loss.slope, loss.bend, loss.exponential, most, CHOOSERS.index(chooser), order,
    )  # fmt: skip
    return Boosted(chosen, deltas)


@njit(cache=True, nogil=True)
def _boost(
    starts,
    members,
    edges,
    row_starts,
    row_columns,
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
    leverage, free, seen = np.zeros(m), np.ones(m, np.bool_), np.full(m, -1, np.int64)
    chosen, deltas = np.empty(rounds, np.int64), np.empty(rounds)
    if chooser != 0:
        for j in range(m):
            part = slice(starts[j], starts[j + 1])
            leverage[j] = solve_leverage(
                edges[part], margins[members[part]], plus[j], minus[j], epsilon, slope, bend, exponential
            )
    done = 0
    for t in range(rounds):
        j = order[t % m]
        if chooser != 0:
            best = -np.inf
            for c in range(m):
                if free[c] and leverage[c] > best:
                    j, best = c, leverage[c]
            if best == -np.inf or (chooser == 1 and best <= NOTHING):
                break
            free[j] = chooser == 1
        part = slice(starts[j], starts[j + 1])
        delta = leverage[j]
        if chooser == 0:
            delta = solve_leverage(
                edges[part], margins[members[part]], plus[j], minus[j], epsilon, slope, bend, exponential
            )
        chosen[t], deltas[t] = j, delta
        done = t + 1
        for p in range(starts[j], starts[j + 1]):
            margins[members[p]] += delta * edges[p]
        if chooser == 0:
            continue
        for p in range(starts[j], starts[j + 1]):
            i = members[p]
            for q in range(row_starts[i], row_starts[i + 1]):
                c = row_columns[q]
                if seen[c] == t or not free[c]:
                    continue
                seen[c] = t
                part = slice(starts[c], starts[c + 1])
                leverage[c] = solve_leverage(
                    edges[part], margins[members[part]], plus[c], minus[c], epsilon, slope, bend, exponential
                )
        if starts[j] == starts[j + 1]:  # it votes for nobody, and would be chosen for ever
            leverage[j] = 0.0
    return chosen[:done], deltas[:done]
