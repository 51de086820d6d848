# SPDX-License-Identifier: BSD-3-Clause
"""Statistics and Fisher vectors on a CUDA GPU: the same lines, on tensors, through the Array API.

500 bags of 4,000 descriptors × 64, K = 256, float32.  Prints descriptors a second on the GPU and on one
CPU thread, and how far the two results are apart.  Without PyTorch or a GPU it says so and ends.
"""

from __future__ import annotations

import time

import numpy as np

from patchbag.bags import Bags
from patchbag.encodings.fisher import fisher_vector
from patchbag.mixture.parameters import check_parameters
from patchbag.mixture.statistics import collect

N_BAGS, SIZE, D, K = 500, 4000, 64, 256


def main() -> None:
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: nothing to measure")
        return
    if not torch.cuda.is_available():
        print("no CUDA GPU: nothing to measure")
        return
    rng = np.random.default_rng(0)
    means = rng.normal(size=(K, D))
    parameters = check_parameters(rng.dirichlet(np.full(K, 5.0)), means, rng.uniform(0.2, 0.6, (K, D)))
    labels = rng.integers(0, K, N_BAGS * SIZE)
    values = (means[labels] + 0.6 * rng.normal(size=(len(labels), D))).astype(np.float32)
    offsets = np.arange(N_BAGS + 1) * SIZE
    on_gpu = Bags(torch.asarray(values, device="cuda"), offsets)

    def encode(bags: Bags):
        s = collect(bags, parameters, n_threads=1)
        return fisher_vector(s.s0, s.s1, s.s2, parameters, ("weights", "means", "variances"))

    torch.backends.cuda.matmul.allow_tf32 = False
    encode(on_gpu)
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        started = time.perf_counter()
        fast = encode(on_gpu)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    gpu = min(times)
    few = Bags(values[: 20 * SIZE], offsets[:21])
    encode(few[:2])
    started = time.perf_counter()
    slow = encode(few)
    cpu = (time.perf_counter() - started) / 20 * N_BAGS
    error = np.abs(fast[:20].cpu().numpy() - slow).max() / np.abs(slow).max()
    print(f"{torch.cuda.get_device_name(0)}: {N_BAGS} bags × {SIZE} × {D}, K = {K}, float32")
    print(f"GPU            {1e3 * gpu:9.1f} ms   {len(values) / gpu / 1e6:8.2f} million descriptors/s")
    print(f"one CPU thread {1e3 * cpu:9.1f} ms   {len(values) / cpu / 1e6:8.2f} million descriptors/s")
    print(f"speed-up {cpu / gpu:.0f} ×; largest difference {error:.1e} of the largest entry")


if __name__ == "__main__":
    main()
