# SPDX-License-Identifier: BSD-3-Clause
"""addkPCA of 4,000 words: time to learn and to embed, and how far inner products are from the χ² kernel.

    python benchmarks/bench_embeddings.py

The peer is scikit-learn's AdditiveChi2Sampler, with two steps (three numbers per word; ours has two).  Histograms are
drawn, a fifth of their words is there.  Targets: learned in 3 s, half of the peer's error, embedded 3 times as fast.
"""

from __future__ import annotations

import numpy as np
from descriptors import best
from scipy import sparse
from sklearn.kernel_approximation import AdditiveChi2Sampler

from patchbag import AdditiveKernelPCA, runtime_context
from patchbag.similarity.histograms.kernel import histogram_kernel

WORDS = 4000


def draw(n: int, rng: np.random.Generator, popular: np.ndarray) -> np.ndarray:
    X = rng.gamma(np.maximum(300 * popular, 1e-3), size=(n, WORDS)) * (rng.random((n, WORDS)) < 0.4)
    X[np.quantile(X, 0.8) > X] = 0
    return (X / X.sum(axis=1, keepdims=True)).astype(np.float32)


def main() -> None:
    rng = np.random.default_rng(0)
    popular = rng.dirichlet(np.full(WORDS, 0.3))
    train, test = draw(1000, rng, popular), draw(1000, rng, popular)
    many = sparse.csr_matrix(np.vstack([draw(1000, rng, popular) for _ in range(5)]))
    ours, theirs = AdditiveKernelPCA(random_state=0), AdditiveChi2Sampler(sample_steps=2).fit(train)
    seconds = best(lambda: ours.fit(train), 2)
    print(
        f"learned in {seconds:.2f} s; {100 * ours.energy_:.1f} % of the energy in {len(ours.tables_) // 64} functions"
    )
    exact = histogram_kernel(test.astype(float), test.astype(float), "chi2")
    errors = []
    for model in (ours, theirs):
        phi = model.transform(test).astype(float)
        errors.append(np.abs(phi @ phi.T - exact).mean())
    print(f"mean absolute error {errors[0]:.2e}, scikit-learn {errors[1]:.2e}: {errors[1] / errors[0]:.1f} x smaller")
    ours.transform(many[:2])
    mine, peer = best(lambda: ours.transform(many)), best(lambda: theirs.transform(many))
    print(f"5,000 rows, a fifth not zero: {1e3 * mine:.0f} ms, scikit-learn {1e3 * peer:.0f} ms: {peer / mine:.1f} x")


if __name__ == "__main__":
    with runtime_context(n_jobs=-1):
        main()
