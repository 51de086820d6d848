# SPDX-License-Identifier: BSD-3-Clause
r"""The vote: prototypes with coefficients, and a search among those of each neighbourhood.

.. math:: h_c(x) = \sum_{j \in NN_k(x)} \alpha_{jc}\, K(x, x_j)\, y_{jc} \qquad (4.10, 5.12)

A panel is made once from what was learned, so that an index of a search is built once and asked many times.
Cost: one search per neighbourhood, and k times C additions per image.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from patchbag.classifiers.prototypes.search import make_search


class Voter(NamedTuple):
    """k, the coefficients (m, C) or (m, 1) of the prototypes, and σ if it is fixed."""

    n_neighbors: int
    coefficients: np.ndarray
    width: float | None


def voting(voters: Sequence[Voter]) -> np.ndarray:
    """Numbers of the images that have a coefficient."""
    return np.flatnonzero(np.any([one.coefficients.any(axis=1) for one in voters], axis=0))


class Panel:
    """What votes.

    Parameters
    ----------
    references : (m, d) vectors of the prototypes; of similarities, their columns (m,)
    y : (m, C) their class vectors
    voters : one per neighbourhood
    kernel : K (n, k) from distances (n, k) and a fixed width
    metric, search : those of the classifier
    """

    def __init__(
        self,
        references: np.ndarray,
        y: np.ndarray,
        voters: list[Voter],
        kernel: Callable[[np.ndarray, float | None], np.ndarray],
        metric: Any,
        search: Any,
    ) -> None:
        self.y, self.kernel = y, kernel
        self.members: list[tuple[Voter, np.ndarray, Any]] = []
        self.mass = 0.0  # how much the prototypes that are asked would say, were all kernel values 1
        for voter in voters:
            kept = np.flatnonzero(voter.coefficients.any(axis=1))
            self.mass += min(voter.n_neighbors, len(kept)) * float(np.abs(voter.coefficients[kept]).mean())
            self.members.append((voter, kept, make_search(search, metric).fit(references[kept])))

    def strengths(self, X: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """One nearest prototype after the other: numbers (n,) of references, and coefficients · K (n, C or 1)."""
        for (k, coefficients, width), kept, search in self.members:
            distances, near = search.kneighbors(X, min(k, len(kept)))
            strength = self.kernel(np.asarray(distances, np.float64), width)
            for rank in range(near.shape[1]):  # one neighbour at a time: never (n, k, C) numbers
                who = kept[near[:, rank]]
                yield who, strength[:, rank, None] * coefficients[who]

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Votes (n, C)."""
        scores = np.zeros((len(X), self.y.shape[1]))
        for who, strength in self.strengths(X):
            scores += strength * self.y[who]
        return scores

    def votes(self, X: np.ndarray) -> np.ndarray:
        """(n, m) what each prototype says of the class with the largest score."""
        guess, rows = self.scores(X).argmax(axis=1), np.arange(len(X))
        found = np.zeros((len(X), len(self.y)))
        for who, strength in self.strengths(X):
            found[rows, who] += strength[rows, guess if strength.shape[1] > 1 else 0] * self.y[who, guess]
        return found
