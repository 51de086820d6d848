# SPDX-License-Identifier: BSD-3-Clause
"""Speed of the encodings of non-iid models.

* latent-mixture Fisher vectors from statistics (K = 256, D = 64): at most 3 × the time of the plain Fisher vector;
* Pólya encoding of 5,000 images × 1,024 words: at most 1 s;
* LDA Fisher encoding of 2,000 images × 1,000 words × 25 topics: at least 3 × the speed of scikit-learn's
  ``LatentDirichletAllocation.transform`` at the same tolerance.

    python benchmarks/bench_noniid.py
"""

from __future__ import annotations

import warnings

import numpy as np
from descriptors import fastest
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import ConvergenceWarning

from patchbag.encodings.fisher import FisherVector
from patchbag.encodings.latent_fisher import LatentFisherVector
from patchbag.encodings.lda import LDAFisherVector
from patchbag.encodings.polya import PolyaVector
from patchbag.mixture.parameters import GaussianParameters
from patchbag.mixture.statistics import Statistics
from patchbag.runtime import runtime_context


def bench_latent(rng: np.random.Generator, n: int = 200, K: int = 256, D: int = 64) -> None:
    weights, means, variances = rng.dirichlet(np.ones(K)), rng.normal(0, 2, (K, D)), rng.gamma(5, 0.2, (K, D))
    s0 = 1000 * rng.dirichlet(60 * weights + 1e-3, n)
    own = means + 0.3 * rng.normal(size=(n, K, D))
    spread = variances * rng.gamma(10, 0.1, (n, K, D))
    s1, s2 = s0[..., None] * own, s0[..., None] * (spread + own**2)
    universal = GaussianParameters(weights, means, variances)
    statistics = Statistics(*(a.astype(np.float32) for a in (s0, s1, s2)), universal=universal)
    plain, latent = FisherVector().fit(statistics), LatentFisherVector(tol=1e-3).fit(statistics)
    ours, theirs = fastest(lambda: latent.transform(statistics), lambda: plain.transform(statistics), repeats=15)
    print(f"latent mixture, {n} images, K={K}, D={D}: {ours * 1e3:.0f} ms; Fisher vector {theirs * 1e3:.0f} ms")
    print(f"  ratio {ours / theirs:.2f} (target at most 3)")


def bench_polya(rng: np.random.Generator, n: int = 5000, K: int = 1024) -> None:
    counts = rng.negative_binomial(0.3, 0.2, (n, K)).astype(np.float32)
    encoder = PolyaVector().fit(counts[:1000])
    (ours,) = fastest(lambda: encoder.transform(counts), repeats=5)
    print(f"Pólya, {n} images × {K} words: {ours:.3f} s (target at most 1 s)")


def bench_lda(rng: np.random.Generator, n: int = 2000, K: int = 1000, T: int = 25, size: int = 1500) -> None:
    topics = rng.dirichlet(np.full(K, 0.1), T)
    mixing = rng.dirichlet(np.full(T, 0.3), n)
    # every image has its own topics around the common ones, as the model has it
    counts = np.array(
        [rng.multinomial(size, theta @ np.array([rng.dirichlet(50 * p + 1e-6) for p in topics])) for theta in mixing]
    ).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = LDAFisherVector(T, max_iter=60, random_state=0).fit(counts[:500])
    peer = LatentDirichletAllocation(
        T, max_iter=3, mean_change_tol=ours.inference_tol, max_doc_update_iter=ours.max_inference, random_state=0
    ).fit(counts[:500])
    fast, slow = fastest(lambda: ours.transform(counts), lambda: peer.transform(counts), repeats=3)
    print(f"LDA Fisher, {n} images × {K} words × {T} topics, {np.mean(counts > 0):.0%} non-zero: {fast:.2f} s")
    print(f"  scikit-learn's transform {slow:.2f} s, speed ratio {slow / fast:.2f} (target at least 3)")


def main() -> None:
    rng = np.random.default_rng(0)
    with runtime_context(n_jobs=-1):
        bench_latent(rng)
        bench_polya(rng)
        bench_lda(rng)


if __name__ == "__main__":
    main()
