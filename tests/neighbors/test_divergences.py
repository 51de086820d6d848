"""Generators against their definition, their duals and finite differences."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import expit, xlog1py, xlogy

from oracles import bregman as oracle
from patchbag.neighbors import coordinates
from patchbag.neighbors.divergences import GENERATORS, Generator, hessian_cut, mahalanobis, smooth
from patchbag.neighbors.forms import Form

# the dual of the logistic one in closed form
BINARY_ENTROPY = Generator(
    "binary_entropy",
    lambda X: (xlogy(X, X) + xlog1py(1 - X, -X)).sum(axis=-1),
    lambda X: np.log(X) - np.log1p(-X),
    expit,
    lambda X: 1 / (X * (1 - X)),
    lower=0.0,
    upper=1.0,
    code=coordinates.BITS,
)
ALL = {**GENERATORS, "binary_entropy": BINARY_ENTROPY, "mahalanobis": mahalanobis(np.array([[2.0, 0.5], [0.5, 1.0]]))}


def points(generator: Generator, n: int = 40, d: int = 2, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    if generator.upper == 1:
        return 1 / (1 + np.exp(-X))
    return np.exp(X) if generator.lower == 0 else X


@pytest.mark.parametrize("name", ALL)
class TestGenerator:
    def test_the_gradient_is_that_of_finite_differences(self, name):
        g = ALL[name]
        X = points(g)
        for j, step in enumerate(1e-6 * np.eye(2)):
            slope = (g.value(X + step) - g.value(X - step)) / 2e-6
            np.testing.assert_allclose(g.gradient(X)[:, j], slope, rtol=1e-6, atol=1e-6)

    def test_the_hessian_is_the_slope_of_the_gradient(self, name):
        g = ALL[name]
        if g.hessian is None:
            pytest.skip("a matrix")
        X = points(g)
        slope = (g.gradient(X + 1e-6) - g.gradient(X - 1e-6)) / 2e-6
        np.testing.assert_allclose(g.hessian(X), slope, rtol=1e-5)

    def test_the_inverse_gradient_undoes_the_gradient(self, name):
        g = ALL[name]
        X = points(g)
        np.testing.assert_allclose(g.inverse_gradient(g.gradient(X)), X, rtol=1e-9)

    def test_the_conjugate_is_the_supremum(self, name):
        g = ALL[name]
        X, Y = points(g), g.gradient(points(g, seed=1))
        attained = g.conjugate(Y)
        others = (X[:, None] * Y).sum(axis=-1) - g.value(X)[:, None]
        assert np.all(others <= attained + 1e-9)

    def test_duality_exchanges_the_sides(self, name):
        g = ALL[name]
        P, Q = points(g), points(g, seed=1)
        dual = g.dual()
        np.testing.assert_allclose(dual.divergence(g.gradient(Q), g.gradient(P)), g.divergence(P, Q), rtol=1e-8)
        np.testing.assert_allclose(dual.dual().value(P), g.value(P), rtol=1e-9)
        product = g.value(P) + g.conjugate(g.gradient(Q)) - (P * g.gradient(Q)).sum(axis=-1)
        np.testing.assert_allclose(product, g.divergence(P, Q), rtol=1e-8, atol=1e-12)

    def test_the_compiled_version_is_the_same(self, name):
        g = ALL[name]
        if g.code is None:
            pytest.skip("not compiled")
        for one in (g, g.dual()):
            P, Q = (
                (points(g), points(g, seed=1)) if one is g else (g.gradient(points(g)), g.gradient(points(g, seed=1)))
            )
            found = [coordinates.divergence(one.code, p, q) for p, q in zip(P, Q)]
            np.testing.assert_allclose(found, one.divergence(P, Q), rtol=1e-8, atol=1e-13)
            both = np.array([[coordinates.value_and_slope(one.code, z) for z in p] for p in P])
            np.testing.assert_allclose(both[..., 0].sum(axis=1), one.value(P), rtol=1e-9)
            np.testing.assert_allclose(both[..., 1], one.gradient(P), rtol=1e-9)

    def test_divergences_are_positive_and_zero_for_equal_points(self, name):
        g = ALL[name]
        P, Q = points(g), points(g, seed=1)
        assert np.all(g.divergence(P, Q) > 0) and np.all(g.jensen(P, Q) > 0)
        np.testing.assert_allclose(g.divergence(P, P), 0, atol=1e-12)


@pytest.mark.parametrize("name", oracle.LITERAL)
def test_divergences_equal_the_formulas(name):
    g = GENERATORS[name]
    P, Q, R = (points(g, d=5, seed=s) for s in range(3))
    if g.simplex:
        P, Q, R = (x / x.sum(axis=1, keepdims=True) for x in (P, Q, R))
    np.testing.assert_allclose(g.divergence(P, Q), oracle.LITERAL[name](P, Q), rtol=1e-10)
    expected = 0.3 * oracle.LITERAL[name](P, Q) + 0.7 * oracle.LITERAL[name](Q, R)
    np.testing.assert_allclose(g.mixed(P, Q, R, 0.7), expected, rtol=1e-10)


def test_jensens_gap_of_the_entropy_is_the_jensen_shannon_divergence():
    P, Q = (smooth(points(GENERATORS["kl"], d=6, seed=s), GENERATORS["kl"], 0.0) for s in (0, 1))
    expected = [jensenshannon(p, q) ** 2 for p, q in zip(P, Q)]
    np.testing.assert_allclose(GENERATORS["kl"].jensen(P, Q), expected, rtol=1e-9)
    half = (GENERATORS["kl"].divergence(P, Q) + GENERATORS["kl"].divergence(Q, P)) / 2
    assert np.all(half > 2 * np.array(expected))  # which the paper takes for the same


def test_the_hessian_cuts_a_geodesic_better_than_halving():
    g = GENERATORS["kl"]
    rng = np.random.default_rng(0)
    P, Q = rng.random((200, 1)) ** 4 + 1e-3, rng.random((200, 1)) + 0.5

    def imbalance(p, q, cut):
        middle = g.inverse_gradient((1 - cut) * g.gradient(p) + cut * g.gradient(q))
        return abs(np.log(g.divergence(p, middle) / g.divergence(middle, q)))

    ours = np.mean([imbalance(p, q, hessian_cut(g, p, q)) for p, q in zip(P, Q)])
    halves = np.mean([imbalance(p, q, 0.5) for p, q in zip(P, Q)])
    printed = np.mean([imbalance(p, q, 1 - hessian_cut(g, p, q)) for p, q in zip(P, Q)])
    assert ours < halves < printed
    assert hessian_cut(GENERATORS["squared_euclidean"], P[0], Q[0]) == 0.5


def test_smoothing_lifts_zeros_and_keeps_the_simplex():
    X = np.array([[0.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    found = smooth(X, GENERATORS["kl"], 0.1)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found[0, 0], (0.1 * 4 / 3) / 4.4)
    np.testing.assert_allclose(found[1], 1 / 3)
    np.testing.assert_allclose(smooth(X, GENERATORS["generalized_kl"], 0.1)[0], [0.4 / 3, 2 + 0.4 / 3, 2 + 0.4 / 3])


@pytest.mark.parametrize("name", ["kl", "generalized_kl", "itakura_saito"])
@pytest.mark.parametrize("row", [[0.0, 1.0], [-1.0, 3.0], [0.0, 0.0], [-1.0, -3.0], [-1.0, 1.0]])
def test_what_is_outside_of_the_domain_is_named_as_it_was_given(row, name):
    smoothing, X = 0.0 if row == [0.0, 1.0] else 1e-3, np.array([[1.0, 2.0], row])
    for clean in (partial(smooth, generator=GENERATORS[name], smoothing=smoothing),
                  Form(GENERATORS[name], smoothing=smoothing).clean):  # fmt: skip
        with pytest.raises(ValueError, match=f"entry 0 of row 1 is {row[0]:g};"):
            clean(X)


def test_a_precision_must_be_positive_definite():
    with pytest.raises(ValueError, match="positive definite"):
        mahalanobis(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(ValueError, match="symmetric"):
        mahalanobis(np.array([[1.0, 2.0], [0.0, 1.0]]))
