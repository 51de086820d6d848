import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import clone

from oracles import references as oracle
from oracles.mixtures import components
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.gaussian import UniversalMixture
from patchbag.mixture.parameters import check_parameters
from patchbag.similarity.mixtures import matching
from patchbag.similarity.mixtures.context import ContextualSimilarity, average_mixture, contextual_similarity
from patchbag.similarity.mixtures.references import ReferenceWeights


@pytest.fixture
def scene(make_mixtures):
    """P, Q and a context; three of Q are halfway between one of P and the context, so that shares lie inside (0, 1)."""
    P, u = make_mixtures(4, seed=1), make_mixtures(1, seed=5)
    Q = make_mixtures(5, seed=2)
    mixed = [(getattr(P, a)[:3] + 1.3 * getattr(u, a)) / 2.3 for a in ("weights", "means", "variances")]
    return P, Mixtures.concatenate([Q, Mixtures(*mixed)]), u


def terms(P, Q, u, i, j, symmetric, one_to_one):
    p, q, c = components(P, i), components(Q, j), components(u, 0)
    found = oracle.context_terms(p, q, c, one_to_one)
    return found + oracle.context_terms(q, p, c, one_to_one) if symmetric else found


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("matching", ["one-to-one", "all"])
def test_early_stopped_shares_equal_the_em_steps_as_printed(scene, symmetric, matching):
    P, Q, u = scene
    for iterations in (1, 4):
        found = contextual_similarity(P, Q, u, symmetric, matching, iterations, np.float64)
        expected = [
            [
                oracle.context_share(terms(P, Q, u, i, j, symmetric, matching == "one-to-one"), iterations)
                for j in range(len(Q))
            ]
            for i in range(len(P))
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize("symmetric", [True, False])
def test_converged_shares_maximise_the_bound(scene, symmetric):
    P, Q, u = scene
    found = contextual_similarity(P, Q, u, symmetric, dtype=np.float64)
    inside = 0
    for i in range(len(P)):
        for j in range(len(Q)):
            t = terms(P, Q, u, i, j, symmetric, True)
            best = minimize_scalar(
                lambda w, t=t: -oracle.context_objective(w, t), bounds=(0, 1), method="bounded", options={"xatol": 1e-9}
            ).x
            assert found[i, j] == pytest.approx(best, abs=1e-5)
            inside += 0.01 < best < 0.99
    assert inside >= 5


@pytest.mark.parametrize("matching", ["one-to-one", "all"])
def test_similarity_is_one_to_itself_and_one_half_to_the_context(make_mixtures, matching):
    P, u = make_mixtures(6, seed=1), make_mixtures(1, seed=5)
    found = contextual_similarity(P, P, u, matching=matching)
    np.testing.assert_allclose(found.diagonal(), 1)
    assert contextual_similarity(P, u, u, symmetric=False, matching=matching) == pytest.approx(0.5)
    assert contextual_similarity(u, u, u, matching=matching) == pytest.approx(0.5)
    np.testing.assert_allclose(found, found.T, atol=1e-4)


def test_similarity_to_itself_is_one_where_components_overlap():
    weights, variances = np.array([[0.5, 0.5]]), np.ones((1, 2, 1))
    q = Mixtures(weights, np.array([[[0.0], [1.0]]]), variances)
    u = Mixtures(weights, np.array([[[0.5], [0.5]]]), variances)
    for symmetric in (True, False):
        assert contextual_similarity(q, q, u, symmetric, matching="all") == 1
        assert contextual_similarity(u, u, u, symmetric, matching="all") == 0.5


@pytest.mark.parametrize(
    "wrong", [{"iterations": 0}, {"iterations": 2.5}, {"matching": "best"}, {"precision": "float16"}]
)
@pytest.mark.parametrize("estimator", [ContextualSimilarity, ReferenceWeights])
def test_wrong_options_are_named(make_mixtures, estimator, wrong):
    with pytest.raises(ValueError, match=f"The '{next(iter(wrong))}' parameter of {estimator.__name__} must be"):
        estimator(**wrong).fit(make_mixtures(3))


def test_float32_agrees_with_float64(make_mixtures):
    P, Q, u = (make_mixtures(n, k=16, d=20, seed=s, spread=0.15) for n, s in ((9, 1), (70, 2), (1, 5)))
    for iterations in (None, 3):
        single, double = (
            contextual_similarity(P, Q, u, iterations=iterations, dtype=t) for t in (np.float32, np.float64)
        )
        np.testing.assert_allclose(single, double, atol=2e-4)
        assert double.max() > 0


def test_blocks_do_not_change_the_result(scene, monkeypatch):
    P, Q, u = scene
    whole = contextual_similarity(P, Q, u)
    monkeypatch.setattr(matching, "BLOCK_NUMBERS", 50)
    np.testing.assert_allclose(contextual_similarity(P, Q, u), whole, atol=1e-6)


def test_context_comes_from_the_argument_then_the_mixtures_then_their_average(make_mixtures):
    X, u = make_mixtures(5, seed=1), make_mixtures(1, seed=5)
    parameters = check_parameters(u.weights[0], u.means[0], u.variances[0])
    np.testing.assert_array_equal(ContextualSimilarity(context=parameters).fit(X).context_.means, u.means)
    carrying = Mixtures(X.weights, X.means, X.variances, universal=parameters)
    np.testing.assert_array_equal(ContextualSimilarity().fit(carrying).context_.means, u.means)
    average = ContextualSimilarity().fit(X).context_
    np.testing.assert_allclose(average.weights[0], X.weights.mean(axis=0))
    # pooled first and second moments of component 0
    share = X.weights[:, 0] / X.weights[:, 0].sum()
    mean = share @ X.means[:, 0]
    np.testing.assert_allclose(average.means[0, 0], mean)
    np.testing.assert_allclose(average.variances[0, 0], share @ (X.variances[:, 0] + X.means[:, 0] ** 2) - mean**2)
    np.testing.assert_allclose(average_mixture(X[:1]).variances, X[:1].variances)


def test_wrong_use_is_named(make_mixtures):
    X = make_mixtures(3)
    assert clone(ContextualSimilarity(iterations=2)).get_params()["iterations"] == 2
    with pytest.raises(ValueError, match="The 'context' parameter of ContextualSimilarity must be"):
        ContextualSimilarity(context=np.zeros(3)).fit(X)
    u = make_mixtures(1, k=2)
    with pytest.raises(ValueError, match="the context have 2 components"):
        ContextualSimilarity(context=check_parameters(u.weights[0], u.means[0], u.variances[0])).fit(X)
    with pytest.raises(ValueError, match="the context UniversalMixture is not fitted"):
        ContextualSimilarity(context=UniversalMixture()).fit(X)


@pytest.mark.parametrize("matching", ["one-to-one", "all"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [(5, 3), (32, 50)])
def test_one_half_where_either_is_the_context_also_in_the_symmetric_similarity(make_mixtures, matching, dtype, size):
    k, d = size
    P, u = make_mixtures(4, k, d, seed=1, spread=0.2), make_mixtures(1, k, d, seed=5, spread=0.2)
    X = Mixtures.concatenate([P, u])
    for iterations in (None, 2):
        found = contextual_similarity(X, X, u, matching=matching, iterations=iterations, dtype=dtype)
        np.testing.assert_array_equal(found[-1], 0.5)
        np.testing.assert_array_equal(found[:, -1], 0.5)
        if iterations is None:
            np.testing.assert_array_equal(found.diagonal()[:-1], 1)
    # one direction: p = u is undefined, q = u is best explained by the context
    found = contextual_similarity(X, X, u, symmetric=False, matching=matching, dtype=dtype)
    np.testing.assert_array_equal(found[:, -1], 0.5)
    np.testing.assert_allclose(found[-1, :-1], 0, atol=1e-3)
    np.testing.assert_array_equal(found.diagonal()[:-1], 1)


def test_how_near_the_context_counts_as_equal_follows_the_precision(make_mixtures):
    u = make_mixtures(1, seed=5)
    moved = u.means + 1e-5 * np.random.default_rng(0).normal(size=(3, 5, 3))
    near = Mixtures(np.repeat(u.weights, 3, 0), moved, np.repeat(u.variances, 3, 0))
    np.testing.assert_allclose(contextual_similarity(near, near, u, dtype=np.float64).diagonal(), 1)
    np.testing.assert_array_equal(contextual_similarity(near, near, u, dtype=np.float32), 0.5)
