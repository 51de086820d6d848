# SPDX-License-Identifier: BSD-3-Clause
"""The same recipe on a CUDA GPU: every line of it against its bar, and how far it is from the CPU.

    python benchmarks/bench_cuda.py [statistics] [kernels] [em] [gp] [sift] [recipe]

statistics  statistics and Fisher vectors of a million 64-D descriptors, K = 256, in FP32 and TF32
kernels     one-to-one KLK and PPK Gram matrices, 3,000 × 1,500 mixtures of 128 Gaussians in 50 dimensions, FP32
em          10 iterations of EM, 10 million descriptors × 64, K = 256, and the likelihood of a part on both devices
gp          combination of 4 kernels of 10,000 images, 101 classes
sift        dense SIFT of 512 × 512 images, every 8 pixels in four sizes
recipe      `fisher` trained and tested on 50,000 images' descriptors that lie in a memory-mapped file

Bars and trials by hand (H200) are printed beside our times.  Without PyTorch or a GPU it says so and ends.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cuda import find_torch, seconds

from patchbag.bags import Bags
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.gaussian_process.combination import learn_combination
from patchbag.classifiers.targets import one_versus_rest
from patchbag.device import to_device, to_host
from patchbag.encodings.fisher import fisher_vector
from patchbag.features.dense_sift import DenseSIFT
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.em import Sample, climb
from patchbag.mixture.parameters import GaussianParameters, check_parameters
from patchbag.mixture.statistics import collect
from patchbag.recipes import make_recipe
from patchbag.runtime import runtime_context
from patchbag.similarity.mixtures.kernel import MixtureKernel, log_product_norms, product_kernel, symmetric_kl

K, D = 256, 64


def distance(found: Any, expected: np.ndarray) -> float:
    """The largest difference, in units of the largest number."""
    return float(np.abs(to_host(found) - expected).max() / np.abs(expected).max())


def made_mixture(rng: np.random.Generator) -> GaussianParameters:
    return check_parameters(rng.dirichlet(np.full(K, 5.0)), rng.normal(size=(K, D)), rng.uniform(0.2, 0.6, (K, D)))


def draw(rng: np.random.Generator, parameters: GaussianParameters, n: int) -> np.ndarray:
    means = parameters.means[rng.integers(0, K, n)].astype(np.float32)
    return means + np.float32(0.6) * rng.standard_normal((n, D), np.float32)


def statistics() -> None:
    rng = np.random.default_rng(0)
    parameters, n = made_mixture(rng), 1_000_000
    values = draw(rng, parameters, n)
    cuts = np.sort(rng.choice(n - 1, 999, replace=False)) + 1
    layouts = {"1,000 each": np.arange(1001) * 1000, "of any size": np.concatenate([[0], cuts, [n]])}

    def encode(bags: Bags) -> Any:
        s = collect(bags, parameters)
        return fisher_vector(s.s0, s.s1, s.s2, parameters)

    few = Bags(values[:20_000], np.arange(21) * 1000)
    expected = encode(few)
    with runtime_context(device="cuda"):
        on_gpu = to_device(values)
    for name, offsets in layouts.items():
        bags = Bags(on_gpu, offsets)
        for tf32, bar, trial in ((False, 5.0, 4.0), (True, 2.5, 2.0)):
            with runtime_context(device="cuda", tf32=tf32):
                took = 1e3 * seconds(lambda bags=bags: encode(bags))
                error = distance(encode(Bags(on_gpu[:20_000], few.offsets)), expected)
            how = "TF32" if tf32 else "FP32"
            print(f"statistics + Fisher vectors, bags {name}, {how}: {took:.2f} ms (≤ {bar}; trial {trial}), "
                  f"largest difference {error:.1e}")  # fmt: skip
    with runtime_context(n_jobs=1):
        took = time.perf_counter()
        encode(few)
        print(f"  one CPU thread: {1e3 * 50 * (time.perf_counter() - took):.0f} ms")


def kernels() -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(128, 50)) + 0.3 * rng.normal(size=(3000, 128, 50))
    variances = rng.uniform(0.6, 1.4, (3000, 128, 50))
    arrays = [a.astype(np.float32) for a in (rng.dirichlet(np.ones(128), 3000), means, variances)]
    here = Mixtures(*arrays)
    with runtime_context(device="cuda"):
        there = Mixtures(*map(to_device, arrays))
    references = there[:1500]

    def klk() -> Any:
        return symmetric_kl(there, references)

    def ppk() -> Any:
        return product_kernel(there, references, log_norms=(log_product_norms(there), log_product_norms(references)))

    for kernel, work, bar, trial in (
        (MixtureKernel("klk", gamma=0.01), klk, 1.0, 0.75),
        (MixtureKernel("ppk", normalize=True), ppk, 15.0, 10.0),
    ):
        kernel.fit(here[:1500])
        expected = kernel.transform(here[:100])
        took = 1e9 * seconds(work, 10) / (3000 * 1500)
        error = distance(kernel.transform(there[:100]), expected)
        print(f"one-to-one {kernel.kernel}: {took:.2f} ns per pair (≤ {bar}; trial {trial}), "
              f"largest difference {error:.1e}")  # fmt: skip


def em() -> None:
    rng = np.random.default_rng(0)
    parameters, n = made_mixture(rng), 10_000_000
    values = np.concatenate([draw(rng, parameters, 1_000_000)] * (n // 1_000_000))
    floor = np.full(D, 1e-3)
    with runtime_context(device="cuda"):
        on_gpu = Sample(to_device(values))
        took = seconds(lambda: climb(on_gpu, parameters, 10, floor), 1)
        there = climb(Sample(values[:200_000]), parameters, 3, floor)
    with runtime_context(n_jobs=-1):
        here = climb(Sample(values[:200_000]), parameters, 3, floor)
    gap = abs(there.log_likelihoods[-1] - here.log_likelihoods[-1])
    print(f"EM, 10 iterations: {took:.2f} s (≤ 1.5); log-likelihood per descriptor {gap:.1e} from the CPU's")


def gp() -> None:
    rng = np.random.default_rng(0)
    n, n_classes = 10_000, 101
    labels = np.arange(n) % n_classes
    kernels = []
    for strength in (0.3, 0.6, 1.0, 0.0):
        X = rng.standard_normal((n, 256), np.float32) + strength * rng.standard_normal((n_classes, 256))[labels]
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        kernels.append((X @ X.T).astype(np.float64))
    with runtime_context(device="cuda"):
        GaussianProcessClassifier(random_state=0).fit([k[:2000, :2000] for k in kernels], labels[:2000])
        stack, targets = np.stack(kernels), one_versus_rest(labels, n_classes)
        started = time.perf_counter()
        learn_combination(stack, targets, level=1.0)
        combined = time.perf_counter() - started
        started = time.perf_counter()
        model = GaussianProcessClassifier(random_state=0).fit(kernels, labels)
        took = time.perf_counter() - started
    print(f"GP combination of 4 kernels, 10,000 images, 101 classes: {combined:.1f} s (≤ 10), "
          f"with checks, posterior and calibration {took:.1f} s; weights {model.weights_.round(5)}")  # fmt: skip
    small = [k[:2000, :2000] for k in kernels]
    here = GaussianProcessClassifier(random_state=0).fit(small, labels[:2000])
    with runtime_context(device="cuda"):
        there = GaussianProcessClassifier(random_state=0).fit(small, labels[:2000])
    print(f"  2,000 images, both devices: evidence {here.log_evidence_:.2f} and {there.log_evidence_:.2f}")


def sift() -> None:
    rng = np.random.default_rng(0)
    texture = np.clip(np.cumsum(rng.normal(0, 6, (64, 512, 512)), axis=2) + 120, 0, 255).astype(np.uint8)
    feature = DenseSIFT(step=8, bin_sizes=(4, 6, 8, 10), root=True, dtype="uint8")
    with runtime_context(device="cuda"):
        images = to_device(texture)
        took = seconds(lambda: feature.describe_batch(images)) / len(texture)
        found = feature.describe_batch(images[:4])
    with runtime_context(n_jobs=1):
        started = time.perf_counter()
        expected = feature.transform(list(texture[:4]))
        here = (time.perf_counter() - started) / 4
    steps = np.abs(to_host(found.values).astype(int) - expected.values)
    print(f"dense SIFT, 512², step 8, four sizes: {1 / took:,.0f} images/s (≥ 1,500), one CPU thread {1 / here:.0f}; "
          f"bytes that differ {np.mean(steps > 0):.1e}, by at most {steps.max()}")  # fmt: skip


def recipe(n: int = 50_000, source: str | None = None) -> None:
    """Descriptors of real images (an .npz with values, offsets, labels), or made ones, repeated with noise."""
    rng = np.random.default_rng(0)
    if source is None:
        parameters = made_mixture(rng)
        base = np.clip(draw(rng, parameters, 200_000) @ rng.normal(size=(D, 128)) * 8 + 100, 0, 255).astype(np.uint8)
        offsets, kinds = np.arange(201) * 1000, np.arange(200) % 15
        where = rng.uniform(0, 1, (200_000, 2)).astype(np.float32)
    else:
        data = np.load(source)
        base, offsets, kinds, where = data["values"], data["offsets"], data["labels"], data["positions"]
    images, size = len(offsets) - 1, 1000
    labels = kinds[np.arange(n) % images]
    with tempfile.TemporaryDirectory() as folder:
        values = np.lib.format.open_memmap(Path(folder) / "values.npy", "w+", np.uint8, (n * size, base.shape[1]))
        places = np.empty((n * size, 2), np.float32)
        for i in range(n):
            first, last = offsets[i % images : i % images + 2]
            rows = rng.integers(first, last, size)
            part = slice(i * size, (i + 1) * size)
            noise = rng.integers(-12, 13, (size, base.shape[1]), np.int16)
            values[part] = np.clip(base[rows] + noise, 0, 255)
            places[part] = where[rows]
        values.flush()
        bags = Bags(np.load(Path(folder) / "values.npy", mmap_mode="r"), np.arange(n + 1) * size, places)
        train, test = np.arange(0, n, 2), np.arange(1, n, 2)
        for device, few in (("cuda", 1), ("cpu", 50)):
            with runtime_context(n_jobs=-1, seed=0, device=device):
                model = make_recipe("fisher")[1:]
                started = time.perf_counter()
                model.fit(bags[train[::few]], labels[train[::few]])
                trained = time.perf_counter() - started
                right = np.mean(model.predict(bags[test[::few]]) == labels[test[::few]])
                took = time.perf_counter() - started
            of = "" if few == 1 else f", a {few}th of the images"
            print(f"fisher on {device}{of}: trained in {trained:.1f} s, {took:.1f} s in all (≤ 60), {right:.1%} right")


def main() -> None:
    if (torch := find_torch()) is None:
        return
    print(torch.cuda.get_device_name(0), torch.__version__)
    parts = {f.__name__: f for f in (statistics, kernels, em, gp, sift, recipe)}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
