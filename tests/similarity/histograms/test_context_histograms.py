import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from patchbag.similarity.histograms.context import ContextualHistograms, contextual_histograms


def kl(q, m):
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(q > 0, q * np.log(q / m), 0).sum(axis=-1)


def bhattacharyya(q, m):
    return -np.sqrt(q * m).sum(axis=-1)


FUNCTIONS = {"kl": kl, "bhattacharyya": bhattacharyya}


@pytest.fixture
def words():
    """P, Q and a context of 12 words, with rows of Q between rows of P and the context."""
    rng = np.random.default_rng(0)
    P, u = rng.dirichlet(np.ones(12), 4), rng.dirichlet(np.full(12, 3.0))
    return P, np.concatenate([rng.dirichlet(np.ones(12), 3), 0.6 * P + 0.4 * u]), u


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("symmetric", [True, False])
def test_share_is_the_minimum_by_brute_force(words, name, symmetric):
    P, Q, u = words
    f = FUNCTIONS[name]
    found = contextual_histograms(Q, P, u, name, symmetric)
    for i, q in enumerate(Q):
        for j, p in enumerate(P):

            def cost(w, q=q, p=p):
                return f(q, w * p + (1 - w) * u) + (f(p, w * q + (1 - w) * u) if symmetric else 0)

            best = minimize_scalar(cost, bounds=(0, 1), method="bounded", options={"xatol": 1e-10}).x
            assert found[i, j] == pytest.approx(best, abs=2e-5)
    if not symmetric:
        # 0.6 p + 0.4 u is exactly a blend
        np.testing.assert_allclose(found[3:].diagonal(), 0.6, atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_users_function_gives_the_same_share(words, name):
    P, Q, u = words
    for symmetric in (True, False):
        named, own = (contextual_histograms(Q, P, u, f, symmetric) for f in (name, FUNCTIONS[name]))
        np.testing.assert_allclose(own, named, atol=1e-6)


def test_euclidean_distance_as_a_bregman_divergence_has_its_closed_form(words):
    P, Q, u = words
    found = contextual_histograms(Q, P, u, lambda q, m: ((q - m) ** 2).sum(axis=-1), symmetric=False)
    d = P - u
    expected = np.clip((Q - u) @ d.T / (d**2).sum(axis=1), 0, 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("divergence", ["kl", "bhattacharyya", kl])
def test_similarity_is_one_to_itself_and_one_half_to_the_context(words, divergence):
    P, _, u = words
    np.testing.assert_allclose(contextual_histograms(P, P, u, divergence).diagonal(), 1, atol=1e-6)
    np.testing.assert_allclose(contextual_histograms(P, u[None], u, divergence, symmetric=False), 0.5)
    np.testing.assert_allclose(contextual_histograms(u[None], u[None], u, divergence), 0.5)


def test_words_that_are_missing_do_not_break_it():
    u = np.array([0.5, 0.5, 0.0, 0.0])
    P = np.array([[0.0, 0.5, 0.5, 0.0], [0.5, 0.5, 0.0, 0.0]])
    Q = np.array([[0.25, 0.5, 0.25, 0.0], [0.0, 0.0, 0.0, 1.0]])
    for name in FUNCTIONS:
        found = contextual_histograms(Q, P, u, name, symmetric=False)
        assert np.isfinite(found).all()
        assert found[0, 0] == pytest.approx(0.5, abs=1e-6)


def test_transformer_uses_the_mean_of_the_training_histograms_as_context(words):
    P, Q, _ = words
    model = ContextualHistograms("bhattacharyya").fit(P)
    np.testing.assert_allclose(model.transform(Q), contextual_histograms(Q, P, P.mean(axis=0), "bhattacharyya"))


def test_wrong_input_is_named(words):
    P, Q, u = words
    model = ContextualHistograms(context=u).fit(P)
    with pytest.raises(ValueError, match="histogram 1 of 4 sums to 2"):
        model.fit(P * np.array([[1], [2], [1], [1]]))
    with pytest.raises(ValueError, match="histogram 0 of 4 has a negative entry"):
        model.transform(P - 0.5)
    with pytest.raises(ValueError, match="histograms of 11 and of 12 words"):
        model.transform(Q[:, 1:] / Q[:, 1:].sum(axis=1, keepdims=True))
    with pytest.raises(ValueError, match="must return one number per pair"):
        contextual_histograms(Q, P, u, lambda q, m: (q - m) ** 2)


@pytest.mark.parametrize("divergence", ["kl", "bhattacharyya", kl])
def test_one_half_where_either_is_the_context_also_in_the_symmetric_similarity(words, divergence):
    P, _, u = words
    X = np.concatenate([P, u[None]])
    found = contextual_histograms(X, X, u, divergence)
    np.testing.assert_array_equal(found[-1], 0.5)
    np.testing.assert_array_equal(found[:, -1], 0.5)
    found = contextual_histograms(X, X, u, divergence, symmetric=False)
    np.testing.assert_array_equal(found[:, -1], 0.5)
    np.testing.assert_allclose(found[-1, :-1], 0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_a_divergence_that_is_nan_is_named_with_its_reference(words):
    P, Q, u = words
    Q[2] = np.eye(12)[0]
    with pytest.raises(ValueError, match="NaN between a histogram and a blend of reference 0"):
        contextual_histograms(Q, P, u, lambda q, m: (q * np.log(q / m)).sum(axis=-1))


def test_fit_checks_divergence_and_context(words):
    P, _, u = words
    with pytest.raises(ValueError, match="The 'divergence' parameter of ContextualHistograms must be"):
        ContextualHistograms("foo").fit(P)
    with pytest.raises(ValueError, match="the context: histogram 0 of 1 sums to 12"):
        ContextualHistograms(context=np.ones(12)).fit(P)
    with pytest.raises(ValueError, match=r"one histogram of 12 words, got shape \(11,\)"):
        ContextualHistograms(context=u[:11] / u[:11].sum()).fit(P)


def test_words_that_no_blend_has_do_not_decide():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.full(12, 0.4), 6) * (rng.random((6, 12)) < 0.7)
    P /= P.sum(axis=1, keepdims=True)

    def textbook(q, m):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(q > 0, q * np.log(q / m), 0).sum(axis=-1)

    expected = contextual_histograms(P[:3], P[:3], P[5], "kl")
    np.testing.assert_allclose(contextual_histograms(P[:3], P[:3], P[5], textbook), expected, atol=1e-6)
    with pytest.raises(ValueError, match="the divergence is infinite between a histogram and a blend of reference 0"):
        contextual_histograms(P[:3], P[:3], P[5], lambda q, m: np.full(m.shape[:-1], np.inf))


def test_histograms_in_single_precision_may_be_the_context_up_to_rounding():
    rng = np.random.default_rng(0)
    h, q = (rng.dirichlet(np.ones(1000), n).astype(np.float32) for n in (1, 2))
    assert ContextualHistograms().fit(np.tile(h, (7, 1))).transform(q) == pytest.approx(0.5)
