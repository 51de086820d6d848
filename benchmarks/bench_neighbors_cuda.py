# SPDX-License-Identifier: BSD-3-Clause
"""Exact neighbours under KL on a CUDA GPU: 10,000 queries, 1,000,000 points of 64 bins, the 10 nearest.

    python benchmarks/bench_neighbors_cuda.py

Against the bare matrix product in the same precision (float32 without TF32), and against the neighbours that float64
products give for 200 of the queries.  Without PyTorch or a GPU it says so and ends.
"""

from __future__ import annotations

import numpy as np
from cuda import find_torch, seconds

from patchbag.neighbors.dense import DensePoints
from patchbag.neighbors.divergences import find_generator
from patchbag.neighbors.forms import Form, Points

POINTS, QUERIES, BINS, K = 1_000_000, 10_000, 64, 10


def histograms(n: int, seed: int) -> np.ndarray:
    """Half of them around 500 centres, half drawn on their own."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).dirichlet(np.ones(BINS), 500)
    X = rng.gamma(1.0, size=(n, BINS))
    some = np.arange(0, n, 2)
    X[some] = rng.gamma(200 * centres[rng.integers(500, size=len(some))] + 0.01)
    return X / X.sum(axis=1, keepdims=True)


def main() -> None:
    if (torch := find_torch()) is None:
        return
    from array_api_compat import torch as xp

    form = Form(find_generator("kl"), 0.0, 1e-6)
    rows, asked = (form.clean(histograms(n, seed)) for n, seed in ((POINTS, 1), (QUERIES, 2)))
    points = Points.prepare(form, rows)
    there = DensePoints(points, xp, torch.device("cuda"))
    queries = points.ask(asked, asked)
    left, right = (torch.randn(n, BINS, device="cuda") for n in (QUERIES, POINTS))

    def product() -> None:
        for first in range(0, POINTS, 200_000):
            left @ right[first : first + 200_000].T

    ours, bare = seconds(lambda: there.search(queries, K)), seconds(product)
    print(f"{QUERIES} x {POINTS} x {BINS}: {1e3 * ours:.1f} ms, bare product {1e3 * bare:.1f} ms: {ours / bare:.2f} x")
    _, found = there.search(queries, K)
    some = slice(0, 200)
    double = torch.asarray(asked[some], device="cuda")
    logs = torch.log(torch.asarray(rows, device="cuda"))
    # of D(query ‖ point) only the cross term depends on the point, for rows that sum to one
    expected = torch.topk(-(double @ logs.T), K, largest=False).indices.cpu().numpy()
    mine = found[some].cpu().numpy()
    recall = np.mean([len(set(a) & set(b)) / K for a, b in zip(mine, expected, strict=True)])
    print(f"recall against float64: {recall:.4f}")


if __name__ == "__main__":
    main()
