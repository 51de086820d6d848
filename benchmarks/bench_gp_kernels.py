# SPDX-License-Identifier: BSD-3-Clause
"""The four kernels of recipe ``gp-combined`` (kapoor2010 §8) on bags of the size that Caltech-101 gives.

1,515 reference images (15 per class) and as many new ones: per image 150 points of geometric blur in 64 dimensions for
GB and GBdist, 3,700 dense SIFT descriptors in 10 and 32 dimensions for the pyramid matches.  The peer is the same
average minimum distance as it was computed before: one pass for each of GB and GBdist over products of blocks of 4,096
features, minima by a plain loop; it runs on few images, and its time is given per pair.  A smaller number of images is
the first argument.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange
from sklearn.pipeline import make_pipeline

from patchbag.bags import Bags
from patchbag.channels import Channel, Channels
from patchbag.runtime import runtime_context
from patchbag.similarity.sets.minimum_distance import MinimumDistanceKernel
from patchbag.similarity.sets.pyramid_match import PyramidMatchKernel
from patchbag.similarity.sets.spatial_match import SpatialPyramidMatch
from patchbag.similarity.union import KernelUnion

PEER_IMAGES, PEER_ROWS = 120, 4096


@njit(parallel=True, fastmath={"nnan", "nsz"})
def plain_minima(products, squares_x, squares_z, where_x, where_z, offsets_x, offsets_z, weight):  # pragma: no cover
    n, m = len(offsets_x) - 1, len(offsets_z) - 1
    result = np.empty((n, m))
    for i in prange(n):
        nearest = np.full(offsets_z[m], np.float32(np.inf), np.float32)
        distance, forward = np.empty(offsets_z[m], np.float32), np.zeros(m)
        for a in range(offsets_x[i], offsets_x[i + 1]):
            for b in range(offsets_z[m]):
                distance[b] = max(squares_x[a] + squares_z[b] - np.float32(2) * products[a, b], np.float32(0))
            if weight > 0:
                for b in range(offsets_z[m]):
                    dx, dy = where_x[a, 0] - where_z[0, b], where_x[a, 1] - where_z[1, b]
                    distance[b] = np.sqrt(distance[b]) + weight * np.sqrt(dx * dx + dy * dy)
            for b in range(offsets_z[m]):
                nearest[b] = min(nearest[b], distance[b])
            for j in range(m):
                best = distance[offsets_z[j]]
                for b in range(offsets_z[j] + 1, offsets_z[j + 1]):
                    best = min(best, distance[b])
                forward[j] += best if weight > 0 else np.sqrt(best)
        for j in range(m):
            backward = 0.0
            for b in range(offsets_z[j], offsets_z[j + 1]):
                backward += nearest[b] if weight > 0 else np.sqrt(nearest[b])
            sizes = offsets_x[i + 1] - offsets_x[i], offsets_z[j + 1] - offsets_z[j]
            result[i, j] = 0.5 * (forward[j] / sizes[0] + backward / sizes[1])
    return result


def plain_distance(a: Bags, b: Bags, weight: float) -> np.ndarray:
    rows = []
    for x in a.chunks(PEER_ROWS):
        strip = []
        for z in b.chunks(PEER_ROWS):
            features = (x.values @ z.values.T, (x.values**2).sum(axis=1), (z.values**2).sum(axis=1))
            where = (x.positions, np.ascontiguousarray(z.positions.T))
            strip.append(plain_minima(*features, *where, x.offsets, z.offsets, np.float32(weight)))
        rows.append(np.hstack(strip))
    return np.vstack(rows)


def make_bags(n: int, size: int, dimension: int, seed: int) -> Bags:
    """Features from 300 clusters whose variance falls with the dimension, as after PCA."""
    rng, common = np.random.default_rng(seed), np.random.default_rng(0)
    scale = np.linspace(1.0, 0.3, dimension, dtype=np.float32)
    centers = common.standard_normal((300, dimension), np.float32) * scale
    values = rng.standard_normal((n * size, dimension), np.float32)
    values *= 0.5 * scale
    values += centers[rng.integers(0, 300, n * size)]
    return Bags(values, np.arange(n + 1) * size, rng.random((n * size, 2), np.float32))


def clock(function: Callable[[], Any]) -> tuple[float, float, Any]:
    start, used = time.perf_counter(), time.process_time()
    result = function()
    return time.perf_counter() - start, time.process_time() - used, result


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1515
    pairs = n * (n + 1) // 2 + n * n

    def branch(channel: str, kernel: Any) -> tuple[str, Any]:
        return channel, make_pipeline(Channel(channel.removesuffix("dist")), kernel)

    cases: list[tuple[str, int, int, list[tuple[str, Any]]]] = [
        ("PMK", 3700, 10, [branch("pmk", PyramidMatchKernel(n_levels=4, n_shifts=8, position_weight=1.0))]),
        ("SPM", 3700, 32, [branch("spm", SpatialPyramidMatch(400))]),
        (
            "GB and GBdist",
            150,
            64,
            [branch("gb", MinimumDistanceKernel()), branch("gbdist", MinimumDistanceKernel(0.5))],
        ),
    ]
    for name, size, dimension, branches in cases:
        union, channel = KernelUnion(branches), branches[0][0]
        known, new = (Channels({channel: make_bags(n, size, dimension, seed)}) for seed in (1, 2))
        few = known[: min(n, 20)]
        union.fit(few).transform(few)
        seconds, cpu, _ = clock(lambda union=union, known=known: union.fit_transform(known))
        more, more_cpu, _ = clock(lambda union=union, new=new: union.transform(new))
        print(
            f"{name:<16}{n} references {seconds:7.1f} s, as many new images {more:7.1f} s"
            f"   ({cpu + more_cpu:.1f} s of CPU, {1e6 * (cpu + more_cpu) / pairs:.0f} µs per pair)",
            flush=True,
        )
    x, z = known["gb"][:PEER_IMAGES], new["gb"][:PEER_IMAGES]
    plain_distance(x[:2], z[:2], 0.0), plain_distance(x[:2], z[:2], 0.5)
    _, cpu_peer, peer = clock(lambda: [plain_distance(x, z, weight) for weight in (0.0, 0.5)])
    kernels = [MinimumDistanceKernel(weight, output="distance").fit(z) for weight in (0.0, 0.5)]
    _, cpu_ours, ours = clock(lambda: MinimumDistanceKernel.transform_all(kernels, x))
    print(
        f"GB and GBdist one after the other, plain minima: {1e6 * cpu_peer / peer[0].size:.0f} µs of CPU a pair; ours "
        f"{1e6 * cpu_ours / peer[0].size:.0f}, {cpu_peer / cpu_ours:.1f} × less (target ≥ 2); largest difference "
        f"{max(np.abs(a / b - 1).max() for a, b in zip(ours, peer)):.1e}"
    )


if __name__ == "__main__":
    with runtime_context(n_jobs=-1, seed=0):
        main()
