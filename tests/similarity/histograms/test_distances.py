"""Distances between histograms, against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from patchbag.similarity.histograms.distances import DISTANCES, pairwise_distances

LITERAL = {
    "euclidean": lambda a, b: np.sqrt(np.sum((a - b) ** 2)),
    "manhattan": lambda a, b: np.sum(np.abs(a - b)),
    "canberra": lambda a, b: sum(abs(x - y) / (x + y) for x, y in zip(a, b) if x + y > 0),
    "lorentzian": lambda a, b: np.sum(np.log1p(np.abs(a - b))),
    "chi2": lambda a, b: 0.5 * sum((x - y) ** 2 / (x + y) for x, y in zip(a, b) if x + y > 0),
    "intersection": lambda a, b: (a.sum() + b.sum()) / 2 - np.minimum(a, b).sum(),
}


@pytest.mark.parametrize("metric", DISTANCES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_are_those_of_the_formulas(metric, dtype):
    rng = np.random.default_rng(0)
    A, B = ((rng.dirichlet(np.full(37, 0.2), n) * 5).astype(dtype) for n in (70, 9))
    A[:, 3] = B[:, 3] = 0
    expected = [[LITERAL[metric](a.astype(float), b.astype(float)) for b in B] for a in A]
    found = pairwise_distances(A, B, metric)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, atol=1e-5 if dtype == np.float32 else 1e-10)


def test_large_numbers_do_not_overflow_the_product_of_logarithms():
    A, B = np.full((1, 64), 1e15), np.zeros((1, 64))
    np.testing.assert_allclose(pairwise_distances(A, B, "lorentzian"), 64 * np.log1p(1e15))
