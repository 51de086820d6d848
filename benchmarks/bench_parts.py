# SPDX-License-Identifier: BSD-3-Clause
"""Stochastic gradients on parts whose weights are averaged, beside those of one process: accuracy.

    python benchmarks/bench_parts.py DIR/scene15 [--folder DIR]

Fisher vectors of 16,384 dimensions of 200 images per class: 2,000 of them, and 32,768 made by noise around two thirds
of the images.  They are in a Zarr array in a temporary folder (1 GB), as ``train --stream --vectors`` keeps them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from bench_out_of_core import DRAWN, WIDTH, noisy, real_vectors

from patchbag import StochasticLinearClassifier, runtime_context
from patchbag.classifiers import stochastic
from patchbag.encodings.stored import StoredVectors, create_array, open_array, scratch

ROWS = 32_768
ALPHA = 1e-5
PARTS = (2, 4, 8)


def store(X: np.ndarray, address: str) -> StoredVectors:
    create_array(address, len(X), WIDTH, 64, np.float16)
    open_array(address, "r+")[:] = X
    return StoredVectors(address, np.arange(len(X)))


def compare(
    X: np.ndarray, y: np.ndarray, test: np.ndarray, truth: np.ndarray, epochs: int, seeds: int, folder: str
) -> None:
    """Accuracy of one process, and of each number of parts, in the mean of some seeds."""

    def accuracy(rows: np.ndarray | StoredVectors) -> float:
        models = [StochasticLinearClassifier(ALPHA, epochs=epochs, random_state=seed) for seed in range(seeds)]
        return 100 * float(np.mean([model.fit(rows, y).score(test, truth) for model in models]))

    found = [f"one process {accuracy(X):.1f} %"]
    with scratch(folder) as address:
        vectors = store(X, address)
        for parts in PARTS:
            stochastic.PART = len(X) // parts
            found.append(f"{parts} parts {accuracy(vectors):.1f} %")
    print(f"{len(X):,} vectors, {epochs} epochs: {', '.join(found)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("images", type=Path)
    parser.add_argument("--folder", default=".")
    given = parser.parse_args()
    with runtime_context(n_jobs=1, seed=0):
        vectors, codes = real_vectors(given.images, per_class=200)
        order = np.random.default_rng(1).permutation(len(codes))
        train, test = order[:2000], order[2000:]
        for epochs in (5, 20):
            some = vectors[train].astype(np.float16)
            compare(some, codes[train], vectors[test], codes[test], epochs, 3, given.folder)
        rng, learned = np.random.default_rng(0), np.arange(len(codes)) % 3 != 0
        which = np.flatnonzero(learned)[rng.integers(learned.sum(), size=ROWS)]
        others = np.repeat(np.flatnonzero(~learned), 2)
        test_rows = noisy(vectors, others, rng)
        X = np.empty((ROWS, WIDTH), np.float16)
        for row in range(0, ROWS, DRAWN):
            X[row : row + DRAWN] = noisy(vectors, which[row : row + DRAWN], rng)
        for epochs in (2, 5):
            compare(X, codes[which], test_rows, codes[others], epochs, 1, given.folder)


if __name__ == "__main__":
    main()
