# SPDX-License-Identifier: BSD-3-Clause
"""Ten EM iterations on 200,000 × 64 descriptors, K = 256, float32, against scikit-learn's GaussianMixture.

Both start from the same parameters, so the log-likelihood after ten iterations must be the same.
"""

from __future__ import annotations

import os
import threading
import time
import warnings

import numpy as np
from descriptors import photograph_descriptors, verdict
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from patchbag.mixture.em import expectation, maximization
from patchbag.mixture.parameters import GaussianParameters, check_parameters

N, D, K, ITERATIONS = 200_000, 64, 256, 10


class PeakMemory:
    """The most memory that the process held during a ``with`` block, above what it held before, in MB."""

    def __enter__(self) -> PeakMemory:
        self.start, self.peak, self.running = self.now(), 0.0, True
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    @staticmethod
    def now() -> float:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def watch(self) -> None:
        while self.running:
            self.peak = max(self.peak, self.now() - self.start)
            time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        self.running = False
        self.thread.join()


def em(x: np.ndarray, start: GaussianParameters, n_jobs: int) -> tuple[float, float]:
    """Seconds, and the mean log-likelihood that the last E-step saw."""
    started = time.perf_counter()
    parameters = start
    for _ in range(ITERATIONS):
        s0, s12, log_likelihood = expectation(x, parameters, None, n_jobs)
        parameters = maximization(s0, s12, parameters, np.full(D, 1e-6))
    return time.perf_counter() - started, log_likelihood / len(x)


def main() -> None:
    x = photograph_descriptors(N, D)
    rng = np.random.default_rng(0)
    variance = x.var(axis=0, dtype=np.float64)
    start = check_parameters(np.full(K, 1 / K), x[rng.choice(N, K, replace=False)], np.tile(variance, (K, 1)))
    em(x[:20_000], start, 1)
    runs = {n: [] for n in (1, 2)}
    with PeakMemory() as memory:
        for _ in range(2):
            for n in runs:
                runs[n].append(em(x, start, n))
    one, two = (min(runs[n])[0] for n in (1, 2))
    peer = GaussianMixture(
        K, covariance_type="diag", tol=0, max_iter=ITERATIONS, reg_covar=0,
        weights_init=start.weights.astype(np.float32), means_init=start.means.astype(np.float32),
        precisions_init=(1 / start.variances).astype(np.float32), init_params="random_from_data",
    )  # fmt: skip
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        peer.fit(x)
        theirs = time.perf_counter() - started
    print(f"{N} × {D} descriptors of photographs, K = {K}, {ITERATIONS} EM iterations, float32")
    print(f"patchbag, one thread      {one:7.2f} s   mean log-likelihood {runs[1][0][1]:.4f}")
    print(f"scikit-learn, one thread  {theirs:7.2f} s   mean log-likelihood {peer.lower_bound_:.4f}")
    print(f"speed-up {verdict(theirs / one, 3, at_most=False)}")
    print(f"patchbag, two threads     {two:7.2f} s   scaling {verdict(one / two, 1.7, at_most=False)}")
    print(f"same numbers on one and two threads: {runs[1][0][1] == runs[2][0][1]}")
    print(f"memory above the data {verdict(memory.peak, 1000)} MB")


if __name__ == "__main__":
    main()
