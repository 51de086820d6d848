# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

from patchbag.bags import Bags
from patchbag.classifiers.gaussian_process import GaussianProcessCategorizer
from patchbag.similarity import set_distances
from patchbag.similarity.set_distances import MinimumDistanceKernel, average_minimum_distance

RNG = np.random.default_rng(0)
SIZES = RNG.integers(1, 9, 10)
BAGS = Bags.from_list([RNG.normal(size=(m, 4)) for m in SIZES], [RNG.random((m, 2)) for m in SIZES])


def literal(i, j, weight, squared):
    x, z = BAGS[i], BAGS[j]
    p, q = (BAGS.positions[BAGS.offsets[b] : BAGS.offsets[b + 1]] for b in (i, j))

    def d(a, b):
        distance = np.linalg.norm(x[a] - z[b])
        return (distance**2 if squared else distance) + weight * np.linalg.norm(p[a] - q[b])

    forward = np.mean([min(d(a, b) for b in range(len(z))) for a in range(len(x))])
    backward = np.mean([min(d(a, b) for a in range(len(x))) for b in range(len(z))])
    return 0.5 * (forward + backward)


@pytest.mark.parametrize("weight", [0.0, 0.7])
@pytest.mark.parametrize("squared", [False, True])
def test_distance_equals_the_literal_formula(weight, squared, monkeypatch):
    monkeypatch.setattr(set_distances, "ROWS", 12)
    expected = np.array([[literal(i, j, weight, squared) for j in range(10)] for i in range(10)])
    found = average_minimum_distance(BAGS[:6], BAGS, weight, squared)
    np.testing.assert_allclose(found, expected[:6], atol=2e-3)
    kernel = MinimumDistanceKernel(weight, squared=squared)
    gram = kernel.fit_transform(BAGS)
    scale = expected[~np.eye(10, dtype=bool)].mean()
    np.testing.assert_allclose(gram, np.exp(-expected / scale), atol=2e-3)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_array_equal(np.diag(gram), 1.0)
    np.testing.assert_allclose(kernel.transform(BAGS), gram, atol=2e-3)


def test_moving_features_counts_only_with_a_position_weight():
    moved = Bags(BAGS.values, BAGS.offsets, 1 - BAGS.positions)
    plain = MinimumDistanceKernel().fit(BAGS)
    np.testing.assert_allclose(plain.transform(moved), plain.transform(BAGS))
    placed = MinimumDistanceKernel(1.0).fit(BAGS)
    assert np.all(np.diag(placed.transform(moved)) < np.diag(placed.transform(BAGS)))


def test_distances_feed_the_gaussian_process():
    rng = np.random.default_rng(2)
    y = np.arange(30) % 2
    bags = [rng.normal(size=(8, 3)) + 2.5 * label for label in y]
    distance = MinimumDistanceKernel(output="distance").fit(bags[:20])
    model = GaussianProcessCategorizer("distance", repair=True).fit(distance.transform(bags[:20]), y[:20])
    assert np.mean(model.predict(distance.transform(bags[20:])) == y[20:]) == 1.0
    np.testing.assert_array_equal(distance.diagonal(bags[:3]), 0.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"position_weight": -1.0}, "position_weight must be >= 0"),
        ({"position_weight": 1.0}, "bags have no positions"),
        ({"scale": 0.0}, "scale must be > 0"),
        ({"output": "rows"}, "output must be"),
    ],
)
def test_bad_input_is_a_clear_error(parameters, message):
    with pytest.raises(ValueError, match=message):
        MinimumDistanceKernel(**parameters).fit(list(BAGS))
