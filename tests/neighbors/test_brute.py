"""Search by matrix products against the literal divergences, ties included."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest
from array_api_compat import array_namespace

from oracles import bregman as oracle
from patchbag.neighbors import brute
from patchbag.neighbors.brute import search_brute, search_radius
from patchbag.neighbors.dense import DensePoints, smallest
from patchbag.neighbors.divergences import GENERATORS, Generator, mahalanobis
from patchbag.neighbors.forms import Form, Points

SIDES = {"right": 0.0, "left": 1.0, "symmetric": 0.5, "mixed": 0.25}


def draw(name: str, n: int, d: int, seed: int = 0) -> np.ndarray:
    """Rows in the domain of a divergence; every tenth of them is there twice."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    if GENERATORS[name].lower == 0:
        X = np.exp(X)
    if GENERATORS[name].simplex:
        X /= X.sum(axis=1, keepdims=True)
    X[n // 2 : n // 2 + n // 10] = X[: n // 10]
    return X


def find(form: Form, X: np.ndarray, Q: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    points = Points.prepare(form, form.clean(X))
    Q = form.clean(Q)
    return search_brute(points, points.ask(Q, Q), k)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("d", [2, 33])
def test_neighbours_are_those_of_the_formula_ties_included(name, side, d):
    X = draw(name, 1500, d)
    Q = np.vstack([draw(name, 30, d, seed=1), X[:20]])
    distances, indices = find(Form(GENERATORS[name], SIDES[side]), X, Q, 7)
    np.testing.assert_array_equal(indices, oracle.nearest(name, side, Q, X, 7, SIDES[side]))
    expected = [oracle.divergences(name, side, q, X, SIDES[side])[i] for q, i in zip(Q, indices)]
    np.testing.assert_allclose(distances, expected, rtol=1e-9, atol=1e-12)


def test_neighbours_in_1111_dimensions_with_zeros():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, (400, 1111)).astype(float)
    form = Form(GENERATORS["kl"], 0.0, 1e-3)
    _, indices = find(form, X, X[:40], 10)
    clean = form.clean(X)
    np.testing.assert_array_equal(indices, oracle.nearest("kl", "right", clean[:40], clean, 10))
    np.testing.assert_array_equal(indices[:, 0], np.arange(40))


@pytest.mark.parametrize("shift", [0.0, 1e6, 1e18])
def test_points_far_from_the_origin_are_told_apart(shift):
    rng = np.random.default_rng(0)
    X = shift + max(shift * 1e-6, 1.0) * rng.normal(size=(2000, 5))
    _, indices = find(Form(GENERATORS["squared_euclidean"]), X, X[:50], 5)
    np.testing.assert_array_equal(indices, oracle.nearest("squared_euclidean", "right", X[:50], X, 5))


def test_many_equal_points_come_in_their_order():
    X = np.repeat(draw("kl", 20, 4), 500, axis=0)
    _, indices = find(Form(GENERATORS["kl"]), X, X[::1000], 30)
    np.testing.assert_array_equal(indices, oracle.nearest("kl", "right", X[::1000], X, 30))
    np.testing.assert_array_equal(indices[0], np.arange(30))


def test_near_ties_below_the_precision_of_float32_are_told_apart():
    rng = np.random.default_rng(0)
    x = rng.random(8) + 0.5
    X = x + 1e-9 * rng.normal(size=(3000, 8))
    X[:1500] += rng.random((1500, 1))
    _, indices = find(Form(GENERATORS["squared_euclidean"]), X, x[None], 20)
    np.testing.assert_array_equal(indices, oracle.nearest("squared_euclidean", "right", x[None], X, 20))


def test_scores_err_by_less_than_the_bound():
    for name in GENERATORS:
        for mixing in (0.0, 1.0, 0.5):
            form = Form(GENERATORS[name], mixing)
            X, Q = draw(name, 300, 40), draw(name, 50, 40, seed=1)
            points = Points.prepare(form, form.clean(X))
            queries = points.ask(Q, Q)
            scores = points.bias - queries.centred @ points.vectors.T
            true = np.array([oracle.divergences(name, "mixed", q, X, mixing) for q in Q])
            error = np.abs(scores + queries.offset[:, None] - true)
            assert np.all(error <= queries.error[:, None])
            assert error.max() > 1e-4 * queries.error.max()  # a bound that says something


def test_a_generator_of_ones_own_and_mahalanobis():
    quartic = Generator("quartic", lambda x: (x**4).sum(-1), lambda x: 4 * x**3, lambda y: np.cbrt(y / 4))
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(500, 4)), rng.normal(size=(20, 4))
    _, indices = find(Form(quartic, 0.0), X, Q, 5)
    expected = [np.argsort(quartic.divergence(np.broadcast_to(q, X.shape), X), kind="stable")[:5] for q in Q]
    np.testing.assert_array_equal(indices, expected)
    A = np.cov(rng.normal(size=(4, 20)))
    distances, indices = find(Form(mahalanobis(A), 0.5), X, Q, 5)
    full = np.einsum("qnd,de,qne->qn", Q[:, None] - X, A, Q[:, None] - X)
    np.testing.assert_array_equal(indices, np.argsort(full, axis=1)[:, :5])
    np.testing.assert_allclose(distances, np.sort(full, axis=1)[:, :5])


def test_all_points_within_a_radius():
    X, Q = draw("kl", 1200, 10), draw("kl", 30, 10, seed=1)
    form = Form(GENERATORS["kl"], 1.0)
    points = Points.prepare(form, X)
    distances, indices = search_radius(points, points.ask(Q, Q), 0.4)
    for q, d, i in zip(Q, distances, indices):
        expected = oracle.divergences("kl", "left", q, X)
        np.testing.assert_array_equal(i, np.flatnonzero(expected <= 0.4))
        np.testing.assert_allclose(d, expected[i], rtol=1e-9)


def test_the_number_of_workers_and_tiles_changes_nothing(monkeypatch):
    X, Q = draw("itakura_saito", 3000, 6), draw("itakura_saito", 600, 6, seed=1)
    form = Form(GENERATORS["itakura_saito"])
    points = Points.prepare(form, X)
    one = search_brute(points, points.ask(Q, Q), 4, 1)
    two = search_brute(points, points.ask(Q, Q), 4, 2)
    monkeypatch.setattr(brute, "COLUMNS", 100)
    three = search_brute(points, points.ask(Q, Q), 4, 1)
    for other in (two, three):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize("side", ["right", "left", "symmetric"])
def test_dense_search_on_any_array_library_finds_the_same(side):
    X, Q = draw("kl", 1500, 12), draw("kl", 40, 12, seed=1)
    form = Form(GENERATORS["kl"], SIDES[side])
    points = Points.prepare(form, X)
    expected = oracle.nearest("kl", side, Q, X, 6)
    for xp in (array_namespace(X), array_api_strict):
        # without groups to spare some queries have to be asked again
        for extra in (0, 8):
            _, indices = DensePoints(points, xp).search(points.ask(Q, Q), 6, extra)
            np.testing.assert_array_equal(np.asarray(indices), expected)


def test_the_smallest_of_many_are_found_by_groups():
    rng = np.random.default_rng(0)
    values = rng.random((5, 20_000))
    np.testing.assert_array_equal(smallest(values, 9, array_namespace(values), None), np.argsort(values)[:, :9])
