# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

from patchbag.bags import Bags
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.similarity.sets import minimum_distance as set_distances
from patchbag.similarity.sets.minimum_distance import MinimumDistanceKernel, minimum_distances

RNG = np.random.default_rng(0)
SIZES = RNG.integers(1, 9, 10)
BAGS = Bags.from_list([RNG.normal(size=(m, 4)) for m in SIZES], [RNG.random((m, 2)) for m in SIZES])


def literal(i, j, weight, squared, bags=BAGS):
    x, z = bags[i], bags[j]
    p, q = (bags.positions[bags.offsets[b] : bags.offsets[b + 1]] for b in (i, j))

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
    found = minimum_distances(BAGS[:6], BAGS, [weight], squared)[0]
    np.testing.assert_allclose(found, expected[:6], atol=1e-6)
    kernel = MinimumDistanceKernel(weight, squared=squared)
    gram = kernel.fit_transform(BAGS)
    scale = expected[~np.eye(10, dtype=bool)].mean()
    np.testing.assert_allclose(gram, np.exp(-expected / scale), atol=1e-6)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_array_equal(np.diag(gram), 1.0)
    np.testing.assert_allclose(kernel.transform(BAGS), gram, atol=1e-6)


def shifted(offset, unit):
    return Bags((BAGS.values + offset) * unit, BAGS.offsets, BAGS.positions)


def nearly_equal():
    """Ten bags of the same features but for the fifth digit."""
    values = np.tile(BAGS[0], (10, 1)) + 1e-5 * np.random.default_rng(1).normal(size=(10 * len(BAGS[0]), 4))
    where = np.tile(BAGS.positions[: len(BAGS[0])], (10, 1))
    return Bags(values, np.arange(11) * len(BAGS[0]), where)


@pytest.mark.parametrize("weight", [0.0, 1e-6])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize(
    "bags", [shifted(1000.0, 1.0), shifted(0.0, 1e25), shifted(0.0, 1e-25), shifted(-1e6, 1e-3), nearly_equal()]
)
def test_offset_and_unit_of_the_features_and_close_ones_cost_no_digits(weight, squared, bags):
    expected = np.array([[literal(i, j, weight, squared, bags) for j in range(10)] for i in range(10)])
    found = minimum_distances(bags, bags, [weight], squared)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9 * expected.max())
    np.testing.assert_array_equal(np.diag(found), 0.0)
    gram = MinimumDistanceKernel(weight, squared=squared, output="distance").fit_transform(bags)
    np.testing.assert_allclose(gram, expected, rtol=1e-5, atol=1e-9 * expected.max())


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float32])
def test_distances_of_whole_numbers_and_float32_are_those_of_float64(dtype):
    values = np.random.default_rng(2).integers(0, 100, BAGS.values.shape)
    values[:3] = [[-128] * 4, [127] * 4, [5] * 4] if dtype == np.int8 else [[255] * 4, [0] * 4, [5] * 4]
    values = values + (7777 if dtype == np.float32 else 0)
    single, double = (Bags(values.astype(kind), BAGS.offsets) for kind in (dtype, float))
    np.testing.assert_allclose(minimum_distances(single, double), minimum_distances(double, double), rtol=1e-6)


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
    model = GaussianProcessClassifier("distance", repair=True).fit(distance.transform(bags[:20]), y[:20])
    assert np.mean(model.predict(distance.transform(bags[20:])) == y[20:]) == 1.0
    np.testing.assert_array_equal(distance.diagonal(bags[:3]), 0.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"position_weight": -1.0}, "The 'position_weight' parameter of MinimumDistanceKernel must be"),
        ({"position_weight": 1.0}, "bags have no positions"),
        ({"scale": 0.0}, "The 'scale' parameter"),
        ({"output": "rows"}, "The 'output' parameter"),
    ],
)
def test_bad_input_is_a_clear_error(parameters, message):
    with pytest.raises(ValueError, match=message):
        MinimumDistanceKernel(**parameters).fit(list(BAGS))
