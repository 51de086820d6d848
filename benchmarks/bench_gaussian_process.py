# SPDX-License-Identifier: BSD-3-Clause
"""Learning a combination of kernels by evidence: jointly over all classes against a loop over the classes.

The problem has the size of kapoor2010: 4 kernels, 101 classes of 15 images (n = 1,515).  Target: at most 5 s on two
cores, and at least 50 times faster than class by class.  The loop is run on a few classes and its time scaled to all
of them. Everything runs on one thread, so that a busy machine does not decide.  The same script times one more label
(rank-one update) against a new factorisation, and scikit-learn's GP classifier on one fixed kernel of the first 150
images.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier as ScikitLearnClassifier
from sklearn.gaussian_process.kernels import RBF
from threadpoolctl import threadpool_limits

from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.gaussian_process.combination import learn_combination
from patchbag.classifiers.gaussian_process.posterior import GaussianPosterior

N_CLASSES, PER_CLASS, N_KERNELS, LOOP_CLASSES = 101, 15, 4, 3


def make_problem() -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(N_CLASSES), PER_CLASS)
    kernels = []
    for i in range(N_KERNELS):
        x = rng.normal(size=(N_CLASSES, 40))[y] * (0.5 + 0.3 * i) + rng.normal(size=(len(y), 40))
        square = (x**2).sum(axis=1)
        distance = np.maximum(square[:, None] + square - 2 * x @ x.T, 0.0)
        kernels.append(np.exp(-distance / distance.mean()))
    return kernels, y, x


def best_of(repeats: int, function) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    kernels, y, x = make_problem()
    stack = np.stack(kernels)
    targets = np.where(y[:, None] == np.arange(N_CLASSES), 1.0, -1.0)
    joint = best_of(3, lambda: GaussianProcessClassifier().fit(kernels, y))
    print(f"joint, {N_CLASSES} classes, {N_KERNELS} kernels, n = {len(y)}: {joint:.2f} s (target 5 s)")
    start = time.perf_counter()
    for c in range(LOOP_CLASSES):
        learn_combination(stack, targets[:, [c]])
    loop = (time.perf_counter() - start) / LOOP_CLASSES * N_CLASSES
    print(f"class by class: {loop:.0f} s (from {LOOP_CLASSES} classes)   ratio {loop / joint:.0f} x (target 50 x)")

    n = len(y) - 1
    posterior = GaussianPosterior.from_kernel(stack[3, :n, :n], targets[:n], 0.01)
    update = best_of(5, lambda: posterior.append(stack[3, n, :n], 1.0, targets[n]))
    refit = best_of(3, lambda: GaussianPosterior.from_kernel(stack[3], targets, 0.01))
    print(f"one more label: update {update * 1e3:.1f} ms, refit {refit * 1e3:.1f} ms   ratio {refit / update:.1f} x")

    few = 150
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = best_of(1, lambda: ScikitLearnClassifier(RBF(5.0), optimizer=None).fit(x[:few], y[:few]))
    ours = best_of(
        3, lambda: GaussianProcessClassifier(optimize=None, calibrate=False).fit(kernels[3][:few, :few], y[:few])
    )
    ratio = theirs / ours
    print(
        f"one fixed kernel, n = {few}, 10 classes: scikit-learn {theirs:.3f} s, ours {ours:.4f} s   ratio {ratio:.0f} x"
    )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
