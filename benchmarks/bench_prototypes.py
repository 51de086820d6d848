# SPDX-License-Identifier: BSD-3-Clause
"""Gist against full-size transforms, MLNN against one-versus-all UNN, and prediction against full k-NN.

    python benchmarks/bench_prototypes.py

One thread.  The literal Gist is that of the tests: one inverse transform of the whole image per filter, in double
precision, its filters made once.  Points are Gaussian clusters, two per class, so that neighbours disagree as those
of images do; full k-NN is scikit-learn's search by matrix products.
"""

from __future__ import annotations

import numpy as np
from descriptors import best
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

from patchbag import MulticlassLeveragedNeighbors, UniversalNearestNeighbors
from patchbag.classifiers.prototypes.boosting import boost
from patchbag.classifiers.prototypes.edges import binary_edges, multiclass_edges, vote_matrix
from patchbag.classifiers.prototypes.losses import make_loss
from patchbag.classifiers.prototypes.search import nearest_others
from patchbag.features.gist import BORDER, gabor, gist, prefilter


def literal_gist(image: np.ndarray, filters: list[np.ndarray]) -> np.ndarray:
    u = np.pad(prefilter(image).astype(np.float64), BORDER, mode="symmetric")
    spectrum = np.fft.fft2(u)
    inner = slice(BORDER, -BORDER)
    blocks = [np.abs(np.fft.ifft2(spectrum * f))[inner, inner].reshape(4, 64, 4, 64).mean(axis=(1, 3)) for f in filters]
    return np.ravel(blocks)


def points(n: int, seed: int, n_classes: int = 15, dimension: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Two clusters per class that overlap with those of other classes."""
    centres = np.random.default_rng(0).normal(size=(2 * n_classes, dimension)) * 0.3
    rng = np.random.default_rng(seed)
    cluster = rng.integers(2 * n_classes, size=n)
    return centres[cluster] + rng.normal(size=(n, dimension)), cluster % n_classes


def main() -> None:
    image = np.random.default_rng(0).integers(0, 256, (256, 256)).astype(np.float64)
    filters = [gabor(320, scale, orientation, 8) for scale in range(4) for orientation in range(8)]
    gist(image)
    ours, literal = best(lambda: gist(image), 10), best(lambda: literal_gist(image, filters), 3)
    agreement = np.corrcoef(gist(image), literal_gist(image, filters))[0, 1]
    print(f"Gist 256 x 256: ours {1e3 * ours:.1f} ms, literal {1e3 * literal:.1f} ms: {literal / ours:.1f} x, "
          f"correlation {agreement:.4f}")  # fmt: skip

    m, rounds, k, n_classes = 4000, 2000, 10, 15
    X, y = points(m, 1)
    _, neighbors = nearest_others(X, k, "euclidean", None)
    searching = best(lambda: nearest_others(X, k, "euclidean", None), 3)
    votes, loss, ones = vote_matrix(neighbors, np.ones(neighbors.shape), m), make_loss("exponential"), np.ones(m)
    rest = n_classes - 1

    def multiclass() -> None:
        boost(multiclass_edges(votes, y, n_classes), ones / rest, ones / rest**2, loss, rounds, "once")

    def one_versus_all() -> None:
        for c in range(n_classes):
            boost(binary_edges(votes, np.where(y == c, 1.0, -1.0)), ones, ones, loss, rounds, "once", 1 / m)

    multiclass()
    mlnn, unn = best(multiclass, 3), best(one_versus_all, 1)
    print(f"boosting, m = {m}, T = {rounds}, k = {k}, {n_classes} classes: MLNN {mlnn:.2f} s, "
          f"one-versus-all UNN {unn:.2f} s: {unn / mlnn:.1f} x; search of neighbours {searching:.2f} s")  # fmt: skip

    queries, truth = points(2000, 2)
    full = KNeighborsClassifier(k, algorithm="brute").fit(X, y)
    right, waited = np.mean(full.predict(queries) == truth), best(lambda: full.predict(queries), 3)
    print(f"k-NN of all {m}: {100 * right:.1f} % right, {1e3 * waited:.0f} ms for {len(queries)} queries")
    for model in (MulticlassLeveragedNeighbors, UniversalNearestNeighbors):
        for share in (0.1, 0.2, 0.3):
            fitted = model(k, rounds=share, random_state=0).fit(X, y)
            mine = np.mean(fitted.predict(queries) == truth)
            took = best(lambda fitted=fitted: fitted.predict(queries), 3)
            print(f"  {model.__name__}, {len(fitted.prototypes_)} prototypes: {100 * mine:.1f} % right, "
                  f"{1e3 * took:.0f} ms: {waited / took:.1f} x faster")  # fmt: skip


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
