# SPDX-License-Identifier: BSD-3-Clause
"""One round of active learning: a new label in, the next image out.

Pool of 5,000 images, 600 labels, 15 classes.  Target: at most 30 ms.  The peers do what modAL and scikit-activeml do in
a round with any classifier: refit it and predict the pool.  Once with scikit-learn's Gaussian process, its kernel
fixed, and once with our own without its updates.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier as ScikitLearnClassifier
from sklearn.gaussian_process.kernels import RBF
from threadpoolctl import threadpool_limits

from patchbag.active import ActiveLearner
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier

POOL, LABELS, CLASSES, ROUNDS = 5000, 600, 15, 15


def main() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, POOL)
    x = rng.normal(size=(CLASSES, 20))[y] + rng.normal(size=(POOL, 20))
    square = (x**2).sum(axis=1)
    distance = np.maximum(square[:, None] + square - 2 * x @ x.T, 0.0)
    kernel = np.exp(-2 * distance / distance.mean())
    labelled = rng.choice(POOL, LABELS, replace=False)
    for criterion in ("influence", "uncertainty"):
        learner = ActiveLearner(criterion, random_state=0).fit(kernel).teach(labelled, y[labelled])
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            image = learner.query()[0]
            learner.teach([image], [y[image]])
            times.append(time.perf_counter() - start)
        best, median = min(times), float(np.median(times))
        print(f"one round, {criterion}: best {best * 1e3:.1f} ms, median {median * 1e3:.1f} ms (target 30 ms)")

    refits = []
    for _ in range(3):
        start = time.perf_counter()
        model = GaussianProcessClassifier(optimize=None).fit(kernel[np.ix_(labelled, labelled)], y[labelled])
        mean, variance = model.predict_soft_labels(kernel[:, labelled])
        np.argmin((np.abs(mean) / np.sqrt(variance + model.noise)).min(axis=1))
        refits.append(time.perf_counter() - start)
    print(f"refit and predict the pool: {min(refits) * 1e3:.0f} ms   ratio {min(refits) / best:.0f} x")
    start = time.perf_counter()
    gamma = 2 / distance.mean()
    peer = ScikitLearnClassifier(RBF(np.sqrt(0.5 / gamma)), optimizer=None).fit(x[labelled], y[labelled])
    np.argmin(peer.predict_proba(x).max(axis=1))
    seconds = time.perf_counter() - start
    print(f"the same with scikit-learn's Gaussian process: {seconds * 1e3:.0f} ms   ratio {seconds / best:.0f} x")


if __name__ == "__main__":
    with threadpool_limits(2):
        main()
