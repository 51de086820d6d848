# SPDX-License-Identifier: BSD-3-Clause
"""What the mixture benchmarks share: real descriptors, and a clock."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from patchbag import BagPCA, DenseSIFT, UniversalMixture
from patchbag.demo import PHOTOGRAPHS, photograph


def photograph_descriptors(n: int, dimension: int = 64) -> np.ndarray:
    """(n, dimension) float32: RootSIFT of the photographs that come with scikit-image, after PCA, shuffled.

    Flat patches are dropped: their equal descriptors let a variance collapse, and likelihoods would compare floors.
    """
    images = [np.asarray(photograph(name)) for name in PHOTOGRAPHS]
    bags = DenseSIFT(step=4, bin_sizes=(4, 6, 8), root=True, low_contrast="drop").transform(images)
    values = BagPCA(dimension, random_state=0).fit_transform(bags).values
    rows = np.random.default_rng(0).choice(len(values), n, replace=n > len(values))
    return np.ascontiguousarray(values[rows])


def photograph_mixture(values: np.ndarray, n_components: int) -> UniversalMixture:
    return UniversalMixture(n_components, max_samples=100_000, max_iter=8, random_state=0).fit(values)


def best(function: Callable[[], object], repeats: int = 10) -> float:
    """Shortest of several runs, in seconds, after one to warm up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def fastest(*functions: Callable[[], object], repeats: int = 15) -> list[float]:
    """Shortest run of each, in seconds, in turns: a busy machine is busy for all of them."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats + 1):
        for function, taken in zip(functions, times):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return [min(taken[1:]) for taken in times]


def verdict(value: float, limit: float, at_most: bool = True) -> str:
    """The figure beside its target."""
    met = value <= limit if at_most else value >= limit
    return f"{value:.2f} (target {'≤' if at_most else '≥'} {limit:g}: {'met' if met else 'NOT MET'})"
