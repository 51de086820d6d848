# SPDX-License-Identifier: BSD-3-Clause
"""The same recipe on a CUDA GPU: every line of it against its bar, and how far it is from the CPU.

    python benchmarks/bench_cuda.py --images DIR/scene15 [statistics] [kernels] [em] [gp] [sift] [recipe] [accuracy]

statistics  statistics and Fisher vectors of a million 64-D descriptors, K = 256, in FP32 and TF32
kernels     one-to-one KLK and PPK Gram matrices, 3,000 × 1,500 mixtures of 128 Gaussians in 50 dimensions, FP32
em          10 iterations of EM, 10 million descriptors × 64, K = 256, and the likelihood of a part on both devices
gp          combination of 4 kernels of 10,000 images, 101 classes
sift        dense SIFT of 512 × 512 images, every 8 pixels in four sizes
recipe      `fisher` trained and tested on 50,000 images' descriptors that lie in a memory-mapped file
accuracy    every recipe on both devices, and some in TF32, on images of the folder; what has not been measured on a
            card yet comes first.  60 images per class are enough

All parts, unless some are named.  Bars and trials by hand (H200) are printed beside our times, and all lines again at
the end.  No recipe is begun after ``--minutes`` (20), and lines that were not measured are named.  Without PyTorch or a
GPU it says so and ends; ``--dry`` runs every part in miniature on PyTorch's CPU tensors, which measures nothing and
shows that the command is whole.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cuda import find_torch, seconds
from measure_devices import compare

from patchbag import PerClassSplit, open_collection
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
# open lines first: recipes that no card has run yet, and TF32
IN_TF32 = ("fisher", "gmm-klk")
RECIPES = ("deep-linear", "deep-gp", "deep-fisher", "auto", "mom-kl", "words", "gmm-ppk", "context-kl", "mom-ppk",
           "gp-fisher", "latent-fisher", "gp-combined")  # fmt: skip


class Bench:
    """Where it runs, how large it is, and what has been found."""

    def __init__(self, device: str, shrink: int, images: str | None, minutes: float) -> None:
        self.device, self.shrink, self.images = device, shrink, images
        self.ends = time.monotonic() + 60 * minutes
        self.lines: list[str] = []

    def size(self, n: int, least: int = 1) -> int:
        return max(least, n // self.shrink)

    def say(self, line: str, value: float, limit: float, shown: str, at_most: bool = True) -> None:
        """A line: its figure beside its target, and the rest of what is to be said."""
        met = value <= limit if at_most else value >= limit
        word = "dry    " if self.shrink > 1 else "met    " if met else "NOT MET"
        self.lines.append(f"{word} {line}: {shown} ({'≤' if at_most else '≥'} {limit:g})")
        print(self.lines[-1], flush=True)

    def there(self, **options: Any) -> Any:
        return runtime_context(device=self.device, **options)


def distance(found: Any, expected: np.ndarray) -> float:
    """The largest difference, in units of the largest number."""
    return float(np.abs(to_host(found) - expected).max() / np.abs(expected).max())


def made_mixture(rng: np.random.Generator) -> GaussianParameters:
    return check_parameters(rng.dirichlet(np.full(K, 5.0)), rng.normal(size=(K, D)), rng.uniform(0.2, 0.6, (K, D)))


def draw(rng: np.random.Generator, parameters: GaussianParameters, n: int) -> np.ndarray:
    means = parameters.means[rng.integers(0, K, n)].astype(np.float32)
    return means + np.float32(0.6) * rng.standard_normal((n, D), np.float32)


def statistics(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    parameters, images = made_mixture(rng), bench.size(1000, 4)
    n = 1000 * images
    values = draw(rng, parameters, n)
    cuts = np.sort(rng.choice(n - 1, images - 1, replace=False)) + 1
    layouts = {"1,000 each": np.arange(images + 1) * 1000, "of any size": np.concatenate([[0], cuts, [n]])}

    def encode(bags: Bags) -> Any:
        s = collect(bags, parameters)
        return fisher_vector(s.s0, s.s1, s.s2, parameters)

    few = Bags(values[: min(n, 20_000)], np.arange(min(images, 20) + 1) * 1000)
    expected = encode(few)
    with bench.there():
        on_gpu = to_device(values)
    for name, offsets in layouts.items():
        bags = Bags(on_gpu, offsets)
        for tf32, bar, trial in ((False, 5.0, 4.0), (True, 2.5, 2.0)):
            with bench.there(tf32=tf32):
                took = 1e3 * seconds(lambda bags=bags: encode(bags))
                error = distance(encode(Bags(on_gpu[: few.total], few.offsets)), expected)
            how = "TF32" if tf32 else "FP32"
            shown = f"{took:.2f} ms, trial {trial}, largest difference {error:.1e}"
            bench.say(f"statistics + Fisher vectors, bags {name}, {how}", took, bar, shown)
    with runtime_context(n_jobs=1):
        took = time.perf_counter()
        encode(few)
        print(f"  one CPU thread: {1e3 * images / len(few) * (time.perf_counter() - took):.0f} ms")


def kernels(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    n, m = bench.size(3000, 20), bench.size(1500, 10)
    means = rng.normal(size=(128, 50)) + 0.3 * rng.normal(size=(n, 128, 50))
    variances = rng.uniform(0.6, 1.4, (n, 128, 50))
    arrays = [a.astype(np.float32) for a in (rng.dirichlet(np.ones(128), n), means, variances)]
    here = Mixtures(*arrays)
    with bench.there():
        there = Mixtures(*map(to_device, arrays))
    references = there[:m]

    def klk() -> Any:
        return symmetric_kl(there, references)

    def ppk() -> Any:
        return product_kernel(there, references, log_norms=(log_product_norms(there), log_product_norms(references)))

    for kernel, work, bar, trial in (
        (MixtureKernel("klk", gamma=0.01), klk, 1.0, 0.75),
        (MixtureKernel("ppk", normalize=True), ppk, 15.0, 10.0),
    ):
        kernel.fit(here[:m])
        expected = kernel.transform(here[:100])
        took = 1e9 * seconds(work, 10) / (n * m)
        error = distance(kernel.transform(there[:100]), expected)
        shown = f"{took:.2f} ns per pair, trial {trial}, largest difference {error:.1e}"
        bench.say(f"one-to-one {kernel.kernel}", took, bar, shown)


def em(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    parameters, n = made_mixture(rng), bench.size(10_000_000, 20_000)
    piece = min(n, 1_000_000)
    values = np.concatenate([draw(rng, parameters, piece)] * (n // piece))
    floor = np.full(D, 1e-3)
    few = values[: min(n, 200_000)]
    with bench.there():
        on_gpu = Sample(to_device(values))
        took = seconds(lambda: climb(on_gpu, parameters, 10, floor), 1)
        there = climb(Sample(few), parameters, 3, floor)
    with runtime_context(n_jobs=-1):
        here = climb(Sample(few), parameters, 3, floor)
    gap = abs(there.log_likelihoods[-1] - here.log_likelihoods[-1])
    shown = f"{took:.2f} s, log-likelihood per descriptor {gap:.1e} from the CPU's"
    bench.say("EM, 10 iterations", took, 1.5, shown)


def gp(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    n, few = bench.size(10_000, 400), bench.size(2000, 200)
    n_classes = 101 if bench.shrink == 1 else 5
    labels = np.arange(n) % n_classes
    kernels = []
    for strength in (0.3, 0.6, 1.0, 0.0):
        X = rng.standard_normal((n, 256), np.float32) + strength * rng.standard_normal((n_classes, 256))[labels]
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        kernels.append((X @ X.T).astype(np.float64))
    small = [k[:few, :few] for k in kernels]
    with bench.there():
        there = GaussianProcessClassifier(random_state=0).fit(small, labels[:few])
        stack, targets = np.stack(kernels), one_versus_rest(labels, n_classes)
        started = time.perf_counter()
        learn_combination(stack, targets, level=1.0)
        combined = time.perf_counter() - started
        started = time.perf_counter()
        model = GaussianProcessClassifier(random_state=0).fit(kernels, labels)
        took = time.perf_counter() - started
    shown = f"{combined:.1f} s; with checks, posterior and calibration {took:.1f} s; weights {model.weights_.round(5)}"
    bench.say("GP combination of 4 kernels, 10,000 images, 101 classes", combined, 10, shown)
    here = GaussianProcessClassifier(random_state=0).fit(small, labels[:few])
    print(f"  {few:,} images, both devices: evidence {here.log_evidence_:.2f} and {there.log_evidence_:.2f}")


def sift(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    n = bench.size(64, 4)
    texture = np.clip(np.cumsum(rng.normal(0, 6, (n, 512, 512)), axis=2) + 120, 0, 255).astype(np.uint8)
    feature = DenseSIFT(step=8, bin_sizes=(4, 6, 8, 10), root=True, dtype="uint8")
    with bench.there():
        images = to_device(texture)
        took = seconds(lambda: feature.describe_batch(images)) / n
        found = feature.describe_batch(images[:4])
    with runtime_context(n_jobs=1):
        started = time.perf_counter()
        expected = feature.transform(list(texture[:4]))
        here = (time.perf_counter() - started) / 4
    steps = np.abs(to_host(found.values).astype(int) - expected.values)
    shown = f"{1 / took:,.0f} images/s, one CPU thread {1 / here:.0f}; bytes that differ {np.mean(steps > 0):.1e}"
    bench.say("dense SIFT, 512², step 8, four sizes", 1 / took, 1500, f"{shown}, by at most {steps.max()}", False)


def first_of_each(folder: str, count: int) -> Any:
    """The first images of each class of a folder."""
    photos = open_collection(folder).labelled()
    return photos[np.concatenate([np.flatnonzero(photos.labels == c)[:count] for c in np.unique(photos.labels)])]


def described(bench: Bench) -> tuple[Bags, np.ndarray]:
    """Bytes of 12 images of each class of the folder, and their labels; without a folder made ones."""
    if bench.images is not None:
        photos = first_of_each(bench.images, 12)
        with runtime_context(n_jobs=-1):
            return photos.describe(make_recipe("fisher")[0], on_error="raise").bags, photos.labels
    rng = np.random.default_rng(0)
    values = np.clip(draw(rng, made_mixture(rng), 200_000) @ rng.normal(size=(D, 128)) * 8 + 100, 0, 255)
    places = rng.uniform(0, 1, (200_000, 2)).astype(np.float32)
    return Bags(values.astype(np.uint8), np.arange(201) * 1000, places), np.arange(200) % 15


def recipe(bench: Bench) -> None:
    """Descriptors of some images, repeated with noise, in a file."""
    rng = np.random.default_rng(0)
    n, size = bench.size(50_000, 400), 1000
    base, kinds = described(bench)
    labels, width = kinds[np.arange(n) % len(base)], base.dimension
    with tempfile.TemporaryDirectory() as folder:
        values = np.lib.format.open_memmap(Path(folder) / "values.npy", "w+", np.uint8, (n * size, width))
        places = np.empty((n * size, 2), np.float32)
        for i in range(n):
            rows = rng.integers(*base.offsets[i % len(base) :][:2], size)
            part = slice(i * size, (i + 1) * size)
            noise = rng.integers(-12, 13, (size, width), np.int16)
            values[part] = np.clip(base.values[rows] + noise, 0, 255)
            places[part] = base.positions[rows]
        values.flush()
        bags = Bags(np.load(Path(folder) / "values.npy", mmap_mode="r"), np.arange(n + 1) * size, places)
        train, test = np.arange(0, n, 2), np.arange(1, n, 2)
        for device, few in ((bench.device, 1), ("cpu", 50 if bench.shrink == 1 else 1)):
            with runtime_context(n_jobs=-1, seed=0, device=device):
                model = make_recipe("fisher")[1:]
                started = time.perf_counter()
                model.fit(bags[train[::few]], labels[train[::few]])
                trained = time.perf_counter() - started
                right = np.mean(model.predict(bags[test[::few]]) == labels[test[::few]])
                took = time.perf_counter() - started
            shown = f"{took:.1f} s, trained in {trained:.1f} s, {right:.1%} right"
            if device == "cpu":
                print(f"  on the CPU, a {few}th of the images: {shown}")
            else:
                bench.say(f"`fisher` of {n:,} images' descriptors", took, 60, shown)


def accuracy(bench: Bench) -> None:
    if bench.images is None:
        bench.lines.append("not measured: accuracies; give --images or set PATCHBAG_DATA")
        return
    train, test, splits = (15, 45, 4) if bench.shrink == 1 else (4, 4, 2)
    photos = first_of_each(bench.images, train + test)
    split = PerClassSplit(train, test, n_splits=splits)
    for name in (*IN_TF32, *RECIPES):
        if time.monotonic() > bench.ends:
            bench.lines.append(f"not measured: {name}, the time is up")
            continue
        here, *there = compare(photos, name, split, bench.device, name in IN_TF32, -1)
        for one in there:
            shown = f"{one.accuracy:.2f}, {one.change:+.2f} ± {one.error:.2f} from the CPU, {one.seconds:.1f} s"
            line = f"{name} on {one.device}, CPU {here.accuracy:.2f} in {here.seconds:.1f} s"
            bench.say(line, abs(one.change), 0.2, shown)


PARTS = {f.__name__: f for f in (statistics, kernels, em, gp, sift, recipe, accuracy)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="part")
    data = os.environ.get("PATCHBAG_DATA")
    parser.add_argument("--images", default=f"{data}/scene15" if data else None, help="folder with one of each class")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--dry", action="store_true", help="in miniature, on PyTorch's CPU tensors")
    given = parser.parse_args()
    if not given.dry and (torch := find_torch()) is None:
        return
    print("a dry run: no figure counts" if given.dry else f"{torch.cuda.get_device_name(0)} {torch.__version__}")
    bench = Bench("torch" if given.dry else "cuda", 500 if given.dry else 1, given.images or None, given.minutes)
    started = time.monotonic()
    for name in given.parts or PARTS:
        PARTS[name](bench)
    print(f"\nin {(time.monotonic() - started) / 60:.1f} minutes:", *bench.lines, sep="\n")


if __name__ == "__main__":
    main()
