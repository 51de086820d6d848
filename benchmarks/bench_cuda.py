# SPDX-License-Identifier: BSD-3-Clause
"""Fisher vectors and kernels between mixtures on a CUDA GPU: the same lines, on tensors, through the Array API.

1. 500 bags of 4,000 descriptors × 64, K = 256, float32: descriptors a second on the GPU and on one CPU thread.
2. One-to-one KL and PPK between 1,500 and 3,000 mixtures, 128 × 50, float32: time a pair on the GPU and on the CPU.

Prints how far the results of the two are apart.  Without PyTorch or a GPU it says so and ends.
"""

from __future__ import annotations

import time

import numpy as np

from patchbag.bags import Bags
from patchbag.encodings.fisher import fisher_vector
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.parameters import check_parameters
from patchbag.mixture.statistics import collect
from patchbag.similarity.mixtures.kernel import MixtureKernel

N_BAGS, SIZE, D, K = 500, 4000, 64, 256
N_IMAGES, N_REFERENCES = 3000, 1500


def main() -> None:
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: nothing to measure")
        return
    if not torch.cuda.is_available():
        print("no CUDA GPU: nothing to measure")
        return
    fisher_vectors(torch)
    mixture_kernels(torch)


def mixture_kernels(torch) -> None:
    rng = np.random.default_rng(0)
    universal = rng.normal(size=(128, 50))
    means = universal + 0.3 * rng.normal(size=(N_IMAGES, 128, 50))
    variances = rng.uniform(0.6, 1.4, (N_IMAGES, 128, 50))
    arrays = [a.astype(np.float32) for a in (rng.dirichlet(np.ones(128), N_IMAGES), means, variances)]
    here, there = Mixtures(*arrays), Mixtures(*(torch.asarray(a, device="cuda") for a in arrays))
    for kernel in (MixtureKernel("klk", gamma=0.01), MixtureKernel("ppk", normalize=True)):
        expected, seconds = [], []
        for mixtures in (here, there):
            kernel.fit(mixtures[:N_REFERENCES]).transform(mixtures[:8])
            torch.cuda.synchronize()
            started = time.perf_counter()
            expected.append(kernel.transform(mixtures))
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
        error = np.abs(expected[1].cpu().numpy() - expected[0]).max() / np.abs(expected[0]).max()
        cpu, gpu = (1e6 * s / (N_IMAGES * N_REFERENCES) for s in seconds)
        ratio = f"{cpu / gpu:.0f} ×; largest difference {error:.1e} of the largest entry"
        print(f"one-to-one {kernel.kernel} a pair: GPU {gpu:.4f} µs, CPU {cpu:.2f} µs, {ratio}")


def fisher_vectors(torch) -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(K, D))
    parameters = check_parameters(rng.dirichlet(np.full(K, 5.0)), means, rng.uniform(0.2, 0.6, (K, D)))
    labels = rng.integers(0, K, N_BAGS * SIZE)
    values = (means[labels] + 0.6 * rng.normal(size=(len(labels), D))).astype(np.float32)
    offsets = np.arange(N_BAGS + 1) * SIZE
    on_gpu = Bags(torch.asarray(values, device="cuda"), offsets)

    def encode(bags: Bags):
        s = collect(bags, parameters, n_jobs=1)
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
