# SPDX-License-Identifier: BSD-3-Clause
"""Pyramid match kernel: the Gram matrix of a whole data set, and the growth with the number of features.

1. 3,030 images of about 1,000 features in 12 dimensions (10 of appearance and 2 of position), as dense SIFT reduced
   by PCA gives them, with the bins of recipe ``gp-pmk``.  Target: at most 60 s on two cores.
2. 250 to 16,000 features per bag: the time per feature should not grow (linear), where the optimal matching grows with
   the cube.
"""

from __future__ import annotations

import time

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from patchbag.bags import Bags
from patchbag.runtime import runtime_context
from patchbag.similarity.sets.pyramid_match import PyramidMatchKernel


def make_bags(n: int, low: int, high: int, seed: int = 0) -> Bags:
    """Features from 300 clusters whose variance falls with the dimension, as after PCA."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(low, high + 1, n))])
    scale = np.linspace(1.0, 0.4, 10)
    centers = rng.normal(size=(300, 10)) * scale
    spread = 0.4 * scale * rng.normal(size=(offsets[-1], 10))
    values = centers[rng.integers(0, 300, offsets[-1])] + spread
    return Bags(values.astype(np.float32), offsets, rng.random((offsets[-1], 2)))


def seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    kernel = PyramidMatchKernel(n_levels=4, n_shifts=8, position_weight=1.0, random_state=0)
    kernel.fit_transform(make_bags(5, 50, 50))

    bags = make_bags(3030, 800, 1200)
    elapsed = seconds(lambda: kernel.fit_transform(bags))
    print(f"Gram matrix of 3,030 bags, {len(bags.values):,} features: {elapsed:.1f} s (target 60 s)")

    print("features / bag   Gram of 40 bags   per feature   optimal matching of one pair")
    first = None
    for size in (250, 500, 1000, 2000, 4000, 8000, 16000):
        bags = make_bags(40, size, size)
        ours = min(seconds(lambda bags=bags: kernel.fit_transform(bags)) for _ in range(3))
        each = ours / len(bags.values) * 1e6
        first = first or each
        note = ""
        if size <= 2000:
            optimal = seconds(lambda bags=bags: linear_sum_assignment(cdist(bags[0], bags[1])))
            note = f"{optimal * 1e3:8.0f} ms, all 780 pairs {780 * optimal / ours:7.0f} x ours"
        print(f"{size:14d}   {ours * 1e3:12.0f} ms   {each:6.2f} µs   {note}")
    print(f"time per feature at 16,000 against 250: {each / first:.2f} x (linear is 1)")


if __name__ == "__main__":
    with runtime_context(n_jobs=2):
        main()
