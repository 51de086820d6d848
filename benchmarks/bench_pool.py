# SPDX-License-Identifier: BSD-3-Clause
"""A pool of images and few labels: time to the first question, and from an answer to the next question.

Vectors of 1,280 numbers in 15 classes, drawn, not described.  The peer is scikit-learn's LabelSpreading on a graph of
as many neighbours, which is fitted anew after every answer.  Targets: 4,485 images in 3 s and 100 ms; 100,000 images
(``--large``, with 256 numbers each, ten minutes for the graph) 1 s per answer.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
from sklearn.semi_supervised import LabelSpreading

from patchbag import PoolLearner, runtime_context
from patchbag.similarity.graph.image_graph import ImageGraph


def draw(n: int, dimension: int, n_classes: int = 15) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n)
    centres = rng.normal(size=(n_classes, 32)).astype(np.float32)
    hidden = centres[y] + 0.9 * rng.normal(size=(n, 32)).astype(np.float32)
    return np.abs(hidden @ rng.normal(size=(32, dimension)).astype(np.float32)), y


def answers(graph: ImageGraph, y: np.ndarray, n_labels: int) -> tuple[float, list[float], float]:
    """Seconds to the first question, seconds from each answer to the next question, and the share of right classes."""
    started = time.perf_counter()
    learner = PoolLearner(random_state=0).fit(graph)
    image = learner.query()
    first = time.perf_counter() - started
    seconds = []
    for _ in range(n_labels):
        started = time.perf_counter()
        learner.teach(image, y[image])
        image = learner.query()
        seconds.append(time.perf_counter() - started)
    return first, seconds, float(np.mean(learner.predict() == y))


def report(n: int, dimension: int, n_labels: int, with_peer: bool) -> None:
    X, y = draw(n, dimension)
    ImageGraph.from_vectors(X[:200])  # compiles
    started = time.perf_counter()
    graph = ImageGraph.from_vectors(X)
    building = time.perf_counter() - started
    first, seconds, right = answers(graph, y, n_labels)
    print(
        f"{n:,} images: first question {building + first:.2f} s; answer to question: median "
        f"{1e3 * np.median(seconds):.0f} ms, slowest {1e3 * max(seconds):.0f} ms; {100 * right:.1f} % right after "
        f"{n_labels} labels"
    )
    if with_peer:
        labels = np.full(n, -1)
        some = np.random.default_rng(1).permutation(n)[:n_labels]
        labels[some] = y[some]
        peer = LabelSpreading(kernel="knn", n_neighbors=20, alpha=0.95, max_iter=100)
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer.fit(graph.vectors, labels)
        spent = time.perf_counter() - started
        print(f"scikit-learn's LabelSpreading, one fit: {spent:.2f} s, {spent / np.median(seconds):.0f} × our round")


def main() -> None:
    with runtime_context(n_jobs=-1):
        report(4_485, 1_280, 60, True)
        if "--large" in sys.argv:
            report(100_000, 256, 20, False)


if __name__ == "__main__":
    main()
