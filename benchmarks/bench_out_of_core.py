# SPDX-License-Identifier: BSD-3-Clause
"""Linear classifiers of 100,000 Fisher vectors of 16,384 dimensions that stay on disk.

    python benchmarks/bench_out_of_core.py DIR/scene15 [--rows 100000] [--folder DIR] [--jobs 2]

Vectors are made by noise around the Fisher vectors of the images of the folder, one sub-folder per class (3.3 GB of
float16 in a temporary file, deleted at the end).  Targets: less than 8 GB of memory; at most 1.5 times the time of
reading the file twice and making the products of two epochs; within 0.3 points of the exact solver on 5,000 of them.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from descriptors import verdict
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from patchbag import (
    BagPCA,
    DenseSIFT,
    FisherVector,
    Normalizer,
    StochasticLinearClassifier,
    UniversalMixture,
    UniversalStatistics,
    open_collection,
    runtime_context,
)
from patchbag.classifiers.stochastic import LAMBDAS

WIDTH = 16_384
EPOCHS = 2
NOISE = 1.0  # length of the noise, where that of a vector is one
DRAWN = 2048


def real_vectors(folder: Path, per_class: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Fisher vectors (n, 16384) of some images of each class, and their class numbers."""
    images = open_collection(folder).labelled()
    codes = np.unique(images.labels, return_inverse=True)[1]
    chosen = np.concatenate([np.flatnonzero(codes == c)[:per_class] for c in range(codes.max() + 1)])
    feature = DenseSIFT(step=8, bin_sizes=(4, 6, 8, 10), root=True, dtype="uint8")
    bags = images[chosen].describe(feature, on_error="raise").bags
    statistics = UniversalStatistics(UniversalMixture(128, max_samples=100_000, random_state=0), BagPCA(64))
    encoder = make_pipeline(statistics, FisherVector(), Normalizer(["power", "l2"]))
    return encoder.fit_transform(bags).astype(np.float32), codes[chosen]


def noisy(vectors: np.ndarray, which: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    rows = vectors[which]
    rows += NOISE * rng.standard_normal(rows.shape, np.float32) / np.float32(WIDTH**0.5)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def read(mapped: np.ndarray) -> float:
    """Seconds to read all rows, in single precision."""
    start = time.perf_counter()
    for row in range(0, len(mapped), DRAWN):
        np.asarray(mapped[row : row + DRAWN]).astype(np.float32)
    return time.perf_counter() - start


def products(n: int, n_classes: int) -> float:
    """Seconds for the two products that an epoch cannot do without: scores and an update of the weights."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((DRAWN, WIDTH), np.float32)
    W, A = rng.standard_normal((WIDTH, n_classes), np.float32), rng.standard_normal((DRAWN, n_classes), np.float32)
    start = time.perf_counter()
    for _ in range(5):
        X @ W, X.T @ A
    return (time.perf_counter() - start) / 5 * n / DRAWN


def fit(alpha: float | str, X: np.ndarray, y: np.ndarray) -> tuple[StochasticLinearClassifier, float]:
    """The classifier, and the seconds of all processors."""
    start = time.process_time()
    return StochasticLinearClassifier(alpha, random_state=0).fit(X, y), time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("images", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--jobs", type=int, default=-1)
    given = parser.parse_args()
    with runtime_context(n_jobs=given.jobs, seed=0):
        measure(given)


def measure(given: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    vectors, codes = real_vectors(given.images)
    train = np.arange(len(codes)) % 3 != 0
    n_classes = codes.max() + 1
    test = noisy(vectors, np.repeat(np.flatnonzero(~train), 10), rng)
    truth = np.repeat(codes[~train], 10)
    which = np.flatnonzero(train)[rng.integers(train.sum(), size=given.rows)]
    y = codes[which]
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "vectors.npy"
        out = np.lib.format.open_memmap(path, "w+", np.float16, (given.rows, WIDTH))
        for row in range(0, given.rows, DRAWN):
            out[row : row + DRAWN] = noisy(vectors, which[row : row + DRAWN], rng)
        del out
        mapped = np.load(path, mmap_mode="r")
        some = np.asarray(mapped[:5000]).astype(np.float32)
        exact = 100 * LinearSVC(loss="hinge", C=1.0, random_state=0).fit(some, y[:5000]).score(test, truth)
        ours, chosen = fit("auto", some, y[:5000])
        peer = SGDClassifier(alpha=ours.alpha_, average=True, max_iter=5, tol=None, random_state=0)
        theirs = 100 * peer.fit(some, y[:5000]).score(test, truth)
        found = 100 * ours.score(test, truth)
        print(f"5,000 vectors: exact {exact:.2f} %, ours {found:.2f} %, scikit-learn's averaged SGD {theirs:.2f} %")
        print(f"behind the exact solver by {verdict(exact - found, 0.3)} points")
        cold = [fit(lam, some, y[:5000]) for lam in LAMBDAS]
        each = ", ".join(f"{lam:g} {100 * model.score(test, truth):.1f} %" for lam, (model, _) in zip(LAMBDAS, cold))
        print(f"λ chosen and learned warm: {ours.alpha_:g} in {chosen:.1f} s of processors")
        print(f"each λ from nothing: {each} in {sum(spent for _, spent in cold):.1f} s")
        del some, exact, cold
        start = time.perf_counter()
        model = StochasticLinearClassifier("auto", epochs=EPOCHS, random_state=0).fit(mapped, y)
        spent = time.perf_counter() - start
        reading, multiplying = EPOCHS * read(mapped), EPOCHS * products(given.rows, n_classes)
        print(
            f"{given.rows:,} vectors, {n_classes} classes: {spent:.1f} s with the choice of λ ({model.alpha_:g}); "
            f"read twice {reading:.1f} s, products {multiplying:.1f} s"
        )
        print(f"ratio {verdict(spent / (reading + multiplying), 1.5)}; accuracy {100 * model.score(test, truth):.2f} %")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"most memory, mapped pages included: {verdict(memory, 8)} GB")


if __name__ == "__main__":
    main()
