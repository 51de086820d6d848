# SPDX-License-Identifier: BSD-3-Clause
"""Literal pyramid matching: dictionaries of bins, one pair of sets and one level at a time."""

from __future__ import annotations

from collections import Counter

import numpy as np
from scipy.optimize import linear_sum_assignment


def intersection(a: Counter, b: Counter) -> int:
    return sum(min(a[key], b[key]) for key in a)


def new_matches(x, z, bin_of, n_levels):
    """Matches that first appear at each level, finest first; ``bin_of(feature, level)`` names a bin."""
    before, new = 0, []
    for level in range(n_levels):
        here = intersection(Counter(bin_of(f, level) for f in x), Counter(bin_of(f, level) for f in z))
        new.append(here - before)
        before = here
    return np.array(new)


def uniform_bin(bins, shift):
    def bin_of(feature, level):
        low, high = bins.low, bins.high
        cell = np.floor((np.clip(feature, low, high) - low + bins.shifts[shift]) / (bins.side * 2.0**level))
        return tuple(cell.astype(int))

    return bin_of


def uniform_match(x, z, bins, weights):
    """Σ w_i N_i, averaged over the shifts."""
    values = [weights @ new_matches(x, z, uniform_bin(bins, shift), bins.n_levels) for shift in range(len(bins.shifts))]
    return np.mean(values)


def vocabulary_path(feature, bins):
    """Nodes from the root to the leaf of a feature."""
    path = [0]
    while bins.children[path[-1]][0] != bins.children[path[-1]][1]:
        nodes = range(*bins.children[path[-1]])
        path.append(min(nodes, key=lambda node: ((feature - bins.centers[node]) ** 2).sum()))
    return path


def vocabulary_match(x, z, bins):
    """Every match weighs one over the size of its bin: matches in a node less those already made in its children."""
    counts_x = Counter(node for f in x for node in vocabulary_path(f, bins))
    counts_z = Counter(node for f in z for node in vocabulary_path(f, bins))
    total = 0.0
    for node in range(len(bins.centers)):
        here = min(counts_x[node], counts_z[node])
        finer = sum(min(counts_x[child], counts_z[child]) for child in range(*bins.children[node]))
        total += (here - finer) / bins.sizes[node]
    return total


def spatial_match(x, z, where_x, where_z, vocabulary, n_levels):
    """A pyramid match in image positions for each word; weights 2^-(L-l), new matches counted from the finest level."""

    def word(feature):
        return int(np.argmin(((feature - vocabulary) ** 2).sum(axis=1)))

    def cell(position, level):
        side = 2**level
        return tuple(min(int(p * side), side - 1) for p in position)

    total, finest = 0.0, n_levels - 1
    for w in range(len(vocabulary)):
        px = [p for f, p in zip(x, where_x) if word(f) == w]
        pz = [p for f, p in zip(z, where_z) if word(f) == w]
        new = new_matches(px, pz, lambda p, i: cell(p, finest - i), n_levels)
        total += sum(2.0**-i * count for i, count in enumerate(new))
    return total


def optimal_partial_cost(x, z):
    distance = np.sqrt(((x[:, None] - z[None]) ** 2).sum(axis=2))
    rows, columns = linear_sum_assignment(distance)
    return distance[rows, columns].sum()


def match_cost_bound(x, z, bins):
    """Upper bounds (n_shifts,) on that cost, for features within the bins: a match costs the diagonal of its bin."""
    diagonals = bins.side * 2.0 ** np.arange(bins.n_levels) * np.sqrt(x.shape[1])
    return [diagonals @ new_matches(x, z, uniform_bin(bins, s), bins.n_levels) for s in range(len(bins.shifts))]
