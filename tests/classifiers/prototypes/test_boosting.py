"""The leverage of a prototype and the boosting loop, against literal versions and the theorems of piro2010."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from oracles import prototypes as oracle
from patchbag.classifiers.prototypes.boosting import boost
from patchbag.classifiers.prototypes.edges import (
    binary_edges,
    class_vectors,
    multiclass_edges,
    vote_matrix,
)
from patchbag.classifiers.prototypes.losses import LOSSES, make_loss, solve_leverage
from patchbag.classifiers.prototypes.search import nearest_others

C = 4


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    codes = np.arange(60) % C
    X = rng.normal(size=(60, 3)) + 1.2 * np.eye(C, 3)[codes]
    return X, codes


def edges_of(problem, k=5, kernel=None):
    X, codes = problem
    distances, neighbors = nearest_others(X, k, "euclidean", None)
    values = np.ones(distances.shape) if kernel is None else kernel(distances)
    return multiclass_edges(vote_matrix(neighbors, values, len(X)), codes, C), vote_matrix(neighbors, values, len(X))


def solve(r, margins, loss, plus=1.0, minus=1.0, epsilon=0.0):
    made = make_loss(loss)
    return solve_leverage(
        np.asarray(r, float), np.asarray(margins, float), plus, minus, epsilon, made.slope, made.bend, made.exponential
    )


def test_class_vectors_are_symmetric_and_edges_are_their_products(problem):
    X, codes = problem
    y = class_vectors(codes, C)
    np.testing.assert_allclose(y.sum(axis=1), 0, atol=1e-15)
    edges, votes = edges_of(problem)
    np.testing.assert_allclose(edges.toarray(), oracle.edge_matrix(X, codes, 5, y), atol=1e-15)
    one = binary_edges(votes, np.where(codes == 1, 1.0, -1.0))
    np.testing.assert_array_equal(one.toarray(), votes.toarray() * np.sign(np.outer(y[:, 1], y[:, 1])))


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("epsilon", [1e-3, 1.0])
def test_the_leverage_is_the_zero_of_the_learning_equation(loss, epsilon):
    rng = np.random.default_rng(0)
    for _ in range(50):
        r, margins = rng.normal(size=9) * rng.choice([0.01, 1.0]), rng.normal(size=9)
        found = solve(r, margins, loss, 0.5, 0.25, epsilon)
        expected = oracle.leverage(r, margins, oracle.SLOPES[loss], 0.5, 0.25, epsilon)
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_leverage_of_a_column_of_one_sign_is_finite(loss, sign):
    delta = solve(sign * np.full(4, 1 / 3), np.zeros(4), loss, 1 / 3, 1 / 9, 1.0)
    assert np.isfinite(delta) and np.sign(delta) == sign


def test_the_closed_form_of_the_knn_kernel_is_the_zero():
    rng = np.random.default_rng(1)
    for n_classes in (2, 3, 15):
        rest = n_classes - 1
        r = np.array([1 / rest] * 3 + [-1 / rest**2] * 4)
        margins = rng.normal(size=7)
        w = np.exp(-margins)
        found = solve(r, margins, "exponential", 1 / rest, 1 / rest**2, 0.3)
        expected = oracle.closed_form_leverage(w[:3].sum(), w[3:].sum(), n_classes, 0.3)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    # two classes: half the logarithm of the weights' ratio (4.18)
    np.testing.assert_allclose(oracle.closed_form_leverage(3.0, 2.0, 2), 0.5 * np.log(1.5))


def test_a_user_gives_a_loss_by_its_derivative():
    found = solve([1.0, -0.5, 0.3], [0.1, 0.2, -0.4], exponential_slope, 1.0, 1.0, 0.1)
    np.testing.assert_allclose(found, solve([1.0, -0.5, 0.3], [0.1, 0.2, -0.4], "exponential", 1.0, 1.0, 0.1), 1e-6)
    with pytest.raises(ValueError, match="must fall at 0"):
        make_loss(lambda x: x + 1.0)
    for hinge in (lambda x: -1.0 - 0.0 * x, lambda x: -1.0 if x < 1 else 0.0):
        with pytest.raises(ValueError, match="strictly convex"):
            make_loss(hinge)
    for other in (lambda x, y: x, expit, lambda x: unknown(x)):  # noqa: F821
        with pytest.raises(ValueError, match="a function of one number that Numba compiles"):
            make_loss(other)


def exponential_slope(x):
    return -np.exp(-x)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("chooser", ["boosting", "once"])
@pytest.mark.parametrize("kernel", [None, lambda d: np.exp(-(d**2))])
def test_the_loop_equals_solving_every_prototype_in_every_round(problem, loss, chooser, kernel):
    edges, _ = edges_of(problem, kernel=kernel)
    plus, minus = 1 / (C - 1), 1 / (C - 1) ** 2
    m = edges.shape[1]
    found = boost(edges, np.full(m, plus), np.full(m, minus), make_loss(loss), 40, chooser, 1.0)
    chosen, deltas = oracle.boost(edges.toarray(), oracle.SLOPES[loss], plus, minus, 1.0, 40, chooser == "once")
    # prototypes that are equally good may come in another order; what the rounds reach is the same
    risks = [oracle.surrogate_risk(edges.toarray(), c, d, loss) for c, d in (found, (chosen, deltas))]
    np.testing.assert_allclose(risks[0][:20], risks[1][:20], rtol=1e-6)
    np.testing.assert_allclose(found.deltas[:20], deltas[:20], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("chooser", ["lazy", "boosting", "once"])
@pytest.mark.parametrize("kernel", [None, lambda d: np.exp(-(d**2))])
def test_the_surrogate_risk_never_rises(problem, loss, chooser, kernel):
    edges, votes = edges_of(problem, kernel=kernel)
    m = edges.shape[1]
    made = make_loss(loss)
    for matrix, plus, minus in (
        (edges, 1 / 3, 1 / 9),
        (binary_edges(votes, np.where(problem[1] == 2, 1.0, -1.0)), 1, 1),
    ):
        boosted = boost(matrix, np.full(m, float(plus)), np.full(m, float(minus)), made, 150, chooser, 1.0)
        risk = oracle.surrogate_risk(matrix.toarray(), *boosted, loss)
        assert np.diff(risk).max() <= 1e-12 and risk[-1] < risk[0]


def test_the_share_of_negative_edges_keeps_the_bound_of_theorem_2(problem):
    """ε ≤ exp(-2 η γ² τ) with the γ and η that the rounds had."""
    _, votes = edges_of(problem, k=8)
    signs = np.where(problem[1] == 0, 1.0, -1.0)
    edges = binary_edges(votes, signs)
    m = edges.shape[1]
    boosted = boost(edges, np.ones(m), np.ones(m), make_loss("exponential"), 30, "boosting", 0.0)
    R, margins, gamma, eta, risk = edges.toarray(), np.zeros(m), [], [], 1.0
    for tau, (j, delta) in enumerate(zip(*boosted), start=1):
        w = np.exp(-margins)
        plus, minus = w[R[:, j] > 0].sum(), w[R[:, j] < 0].sum()
        gamma.append(abs(plus / (plus + minus) - 0.5))
        eta.append((plus + minus) / w.sum())
        if minus == 0 or plus == 0:
            break
        np.testing.assert_allclose(delta, 0.5 * np.log(plus / minus), rtol=1e-8)
        margins += delta * R[:, j]
        # the proof, round by round: what the risk falls by, and the bound of that
        risk *= 1 - eta[-1] + 2 * np.sqrt(plus * minus) / w.sum()
        np.testing.assert_allclose(np.mean(np.exp(-margins)), risk, rtol=1e-8)
        assert risk <= np.exp(-2 * np.dot(eta, np.square(gamma)))
        assert np.mean(margins < 0) <= risk
        assert np.mean(margins < 0) <= np.exp(-2 * min(eta) * min(gamma) ** 2 * tau)
    assert tau == 30 and risk < 0.8


def test_coefficients_after_some_rounds_are_sums_of_leverages():
    from patchbag.classifiers.prototypes.boosting import Boosted

    boosted = Boosted(np.array([2, 0, 2]), np.array([1.0, 0.5, 0.25]))
    np.testing.assert_array_equal(boosted.coefficients(4), [0.5, 0, 1.25, 0])
    np.testing.assert_array_equal(boosted.coefficients(4, 2), [0.5, 0, 1.0, 0])


def test_a_prototype_that_votes_for_nobody_is_never_worth_a_round():
    edges = sparse.csc_array(np.array([[1.0, 0.0], [1.0, 0.0]]))
    boosted = boost(edges, np.ones(2), np.ones(2), make_loss("exponential"), 50, "boosting", 1.0)
    assert set(boosted.chosen.tolist()) == {0}
