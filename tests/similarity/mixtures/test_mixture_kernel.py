import tracemalloc

import array_api_strict as xp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from oracles import mixtures as oracle
from oracles.gaussians import grid, kl_integral, mixture_density, product_integral
from patchbag.mixture.adaptation import Mixtures
from patchbag.similarity.definite import DefiniteKernel
from patchbag.similarity.mixtures import gaussians, matching, one_to_one, point_estimates
from patchbag.similarity.mixtures import kernel as mixtures
from patchbag.similarity.mixtures.context import ContextualSimilarity
from patchbag.similarity.mixtures.kernel import MixtureKernel, log_self_products
from patchbag.similarity.mixtures.references import ReferenceWeights


@pytest.fixture
def pairs(make_mixtures):
    return make_mixtures(4, seed=1), make_mixtures(3, seed=2)


def test_one_to_one_divergence_equals_the_sum_over_components(pairs):
    P, Q = pairs
    expected = oracle.for_pairs(P, Q, oracle.kl_one_to_one)
    np.testing.assert_allclose(one_to_one.kl_one_to_one(P, Q, np.float64), expected, rtol=1e-10)
    backward = oracle.for_pairs(Q, P, oracle.kl_one_to_one).T
    np.testing.assert_allclose(one_to_one.symmetric_kl_one_to_one(P, Q, np.float64), expected + backward, rtol=1e-10)


@pytest.mark.parametrize("rho", [0.5, 1.0, 0.3])
def test_one_to_one_product_kernel_equals_the_sum_over_components(pairs, rho):
    expected = oracle.for_pairs(*pairs, lambda p, q: oracle.product_one_to_one(p, q, rho))
    np.testing.assert_allclose(one_to_one.product_one_to_one(*pairs, rho, np.float64), expected, rtol=1e-10)


@pytest.mark.parametrize("rho", [0.5, 1.0, 0.3])
def test_one_to_many_and_matched_product_kernels_equal_the_formulas(pairs, rho):
    expected = oracle.for_pairs(*pairs, lambda p, q: oracle.product_one_to_many(p, q, rho))
    np.testing.assert_allclose(matching.product_one_to_many(*pairs, rho, np.float64), expected, rtol=1e-8)
    expected = oracle.for_pairs(*pairs, lambda p, q: oracle.product_matched(p, q, rho))
    np.testing.assert_allclose(matching.product_matched(*pairs, rho, np.float64), expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["kl_matched", "kl_variational", "kl_unscented", "bhattacharyya_bound"])
def test_slow_estimates_equal_the_formulas(pairs, name):
    expected = oracle.for_pairs(*pairs, getattr(oracle, name))
    module = point_estimates if name == "kl_unscented" else matching
    np.testing.assert_allclose(getattr(module, name)(*pairs, dtype=np.float64), expected, rtol=1e-7)


def test_monte_carlo_and_integral_agree(make_mixtures):
    P, Q = make_mixtures(1, k=2, d=2, seed=1, spread=0.2), make_mixtures(1, k=2, d=2, seed=2, spread=0.2)
    densities = [lambda x, m=m: mixture_density(x, *(a[0] for a in (m.weights, m.means, m.variances))) for m in (P, Q)]
    points, volume = grid(2)
    exact = kl_integral(*densities, points, volume)
    found = point_estimates.kl_monte_carlo(P, Q, 100_000, random_state=0)[0, 0]
    assert found == pytest.approx(exact, rel=0.05)
    assert found == point_estimates.kl_monte_carlo(P, Q, 100_000, random_state=0)[0, 0]


def test_both_bounds_lie_below_the_true_bhattacharyya_kernel(make_mixtures):
    # the thesis calls (4.11) an upper bound for rho ≤ 1: Jensen says lower
    P, Q = make_mixtures(1, k=3, d=1, seed=1), make_mixtures(1, k=3, d=1, seed=2)
    densities = [lambda x, m=m: mixture_density(x, *(a[0] for a in (m.weights, m.means, m.variances))) for m in (P, Q)]
    exact = product_integral(*densities, 0.5, *grid(1))
    one_to_many = matching.product_one_to_many(P, Q)[0, 0]
    variational = matching.bhattacharyya_bound(P, Q)[0, 0]
    assert one_to_many < variational < exact


def test_one_to_one_equals_one_to_many_when_components_do_not_overlap(make_mixtures):
    P, Q = make_mixtures(4, seed=1), make_mixtures(3, seed=2)
    shift = 200.0 * np.arange(5)[None, :, None]
    P, Q = (Mixtures(m.weights, m.means + shift, m.variances) for m in (P, Q))
    product, divergence = one_to_one.product_one_to_one(P, Q), one_to_one.kl_one_to_one(P, Q)
    np.testing.assert_allclose(product, matching.product_one_to_many(P, Q, dtype=np.float64), rtol=1e-5)
    np.testing.assert_allclose(divergence, matching.kl_matched(P, Q, np.float64), rtol=1e-5)
    np.testing.assert_allclose(divergence, matching.kl_variational(P, Q, np.float64), rtol=1e-5)


def test_float32_agrees_with_float64_in_raw_coordinates(make_mixtures):
    P, Q = (make_mixtures(40, k=16, d=20, seed=s) for s in (1, 2))
    raw = [Mixtures(m.weights, 500 + 30 * m.means, 900 * m.variances) for m in (P, Q)]
    single = [Mixtures(*(a.astype(np.float32) for a in m.arrays().values())) for m in raw]
    for function in (one_to_one.symmetric_kl_one_to_one, one_to_one.product_one_to_one):
        np.testing.assert_allclose(function(*single), function(*raw, dtype=np.float64), rtol=2e-4)


def test_blocks_do_not_change_the_result(make_mixtures, monkeypatch):
    P, Q = make_mixtures(23, seed=1), make_mixtures(17, seed=2)

    def results():
        one = one_to_one.symmetric_kl_one_to_one(P, Q), one_to_one.product_one_to_one(P, Q)
        return *one, matching.kl_matched(P, Q), matching.product_one_to_many(P, Q), matching.product_matched(P, Q)

    whole = results()
    for module, name, value in (
        (one_to_one, "ROW_NUMBERS", 1000),
        (one_to_one, "REFERENCE_NUMBERS", 700),
        (matching, "BLOCK_NUMBERS", 5000),
        (matching, "PAIR_NUMBERS", 100),
    ):
        monkeypatch.setattr(module, name, value)
    for a, b in zip(whole, results()):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("kernel", [MixtureKernel("klk"), MixtureKernel(), MixtureKernel(normalize=True, rho=0.7)])
def test_array_api_path_gives_the_same_numbers(pairs, kernel, monkeypatch):
    kernel = clone(kernel).set_params(precision="float64", random_state=0)
    elsewhere = [Mixtures(*(xp.asarray(a) for a in m.arrays().values())) for m in pairs]
    monkeypatch.setattr(one_to_one, "BLOCK_IMAGES", 3)
    for P, Q in (pairs, pairs[::-1]):
        expected = kernel.fit(Q).transform(P)
        found = kernel.fit(elsewhere[Q is pairs[1]]).transform(elsewhere[P is pairs[1]])
        assert type(found).__module__.startswith("array_api_strict")
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-10)


def test_memory_beyond_the_result_is_bounded(make_mixtures):
    X = make_mixtures(6000, k=2, d=2, seed=3)
    for function in (one_to_one.symmetric_kl_one_to_one, one_to_one.product_one_to_one):
        function(X[:10], X[:10])
        tracemalloc.start()
        function(X, X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # 144 MB of result: a whole block of the same size beside it would not pass
        assert peak < 1.7 * 4 * 6000**2


def test_components_far_apart_keep_their_digits(make_mixtures):
    X = make_mixtures(6, k=8, d=20, seed=2, spread=0.2)
    far = np.random.default_rng(0).normal(size=(8, 20)) * 300
    X = Mixtures(X.weights, (X.means + far).astype(np.float64), X.variances)
    single, double = (mixtures.symmetric_kl(X, X, "matched", dtype=t) for t in (np.float32, np.float64))
    np.testing.assert_allclose(single, double, atol=1e-3 * double.mean())
    small = [a.astype(np.float32) for a in (X.means[0], X.variances[0])]
    exact = gaussians.kl_divergence(*(a.astype(np.float64) for a in (*small, *small)))
    np.testing.assert_allclose(gaussians.kl_divergence(*small, *small).diagonal(), exact.diagonal(), atol=1e-2)


def test_mixtures_of_single_images_are_not_compared_one_to_one(make_mixtures):
    X = make_mixtures(4)
    alone = Mixtures(X.weights, X.means, X.variances, corresponding=False)
    for estimator in (MixtureKernel(), MixtureKernel("klk"), ReferenceWeights(), ContextualSimilarity()):
        with pytest.raises(ValueError, match="no components that correspond one to one"):
            estimator.fit(alone)
    assert MixtureKernel(matching="one-to-many").fit_transform(alone[1:]).shape == (3, 3)


def test_the_subset_for_gamma_is_the_one_asked_for(make_mixtures):
    X = make_mixtures(60)
    chosen = [MixtureKernel("klk", matching="matched", gamma_samples=g, random_state=0).fit(X).gamma_ for g in (2, 60)]
    assert chosen[0] != chosen[1]
    skl = mixtures.symmetric_kl(X, X, "matched")
    assert chosen[1] == pytest.approx(60 * 59 / (skl.sum() - skl.trace()), rel=1e-5)
    with pytest.raises(ValueError, match="The 'gamma_samples' parameter"):
        MixtureKernel("klk", gamma_samples=1).fit(X)


def test_a_component_of_weight_zero_adds_nothing_to_the_product_kernel(pairs):
    P, Q = pairs
    weights = P.weights.copy()
    weights[:, 0] = 0
    weights /= weights.sum(axis=1, keepdims=True)
    found = one_to_one.product_one_to_one(Mixtures(weights, P.means, P.variances), Q, dtype=np.float64)
    rest = Mixtures(weights[:, 1:], P.means[:, 1:], P.variances[:, 1:])
    others = Mixtures(Q.weights[:, 1:], Q.means[:, 1:], Q.variances[:, 1:])
    alone = one_to_one.product_one_to_one(rest, others, dtype=np.float64)
    np.testing.assert_allclose(found, alone, rtol=1e-10)
    assert np.isfinite(one_to_one.symmetric_kl_one_to_one(Mixtures(weights, P.means, P.variances), Q)).all()


def test_klk_has_gamma_of_one_over_the_mean_divergence(make_mixtures):
    X = make_mixtures(30, seed=3)
    kernel = MixtureKernel("klk", precision="float64").fit(X)
    divergence = one_to_one.symmetric_kl_one_to_one(X, X, np.float64)
    off = ~np.eye(30, dtype=bool)
    assert kernel.gamma_ == pytest.approx(1 / divergence[off].mean(), rel=1e-6)
    np.testing.assert_allclose(kernel.transform(X[:4]), np.exp(-kernel.gamma_ * divergence[:4]), rtol=1e-6, atol=1e-9)
    assert MixtureKernel("klk", gamma=0.3).fit(X).gamma_ == 0.3


@pytest.mark.parametrize(
    ("kernel", "names"), [("ppk", mixtures.PRODUCT_MATCHINGS), ("klk", mixtures.DIVERGENCE_MATCHINGS)]
)
def test_every_matching_gives_a_symmetric_matrix_that_prefers_the_image_itself(make_mixtures, kernel, names):
    X = make_mixtures(6, k=3, d=2, seed=4, spread=0.8)
    for name in names:
        gram = MixtureKernel(kernel, matching=name, normalize=True, n_samples=4000, random_state=0).fit_transform(X)
        assert gram.shape == (6, 6)
        np.testing.assert_allclose(gram, gram.T, rtol=0.02 if name == "monte-carlo" else 1e-4)
        assert (gram.argmax(axis=1) == np.arange(6)).all(), name


def test_normalized_product_kernel_has_ones_on_the_diagonal(make_mixtures):
    X = make_mixtures(8, seed=5)
    for name in mixtures.PRODUCT_MATCHINGS:
        gram = MixtureKernel("ppk", matching=name, normalize=True).fit_transform(X)
        np.testing.assert_allclose(gram.diagonal(), 1, rtol=1e-5)


@pytest.mark.parametrize("rho", [0.5, 0.8, 1.0])
def test_self_products_are_the_diagonal(make_mixtures, rho):
    X = make_mixtures(5, seed=5)
    gram = one_to_one.product_one_to_one(X, X, rho, np.float64)
    np.testing.assert_allclose(np.exp(log_self_products(X, rho)), gram.diagonal(), rtol=1e-10)


def test_kernel_works_in_a_grid_search_over_mixtures(make_mixtures):
    a, b = make_mixtures(20, seed=6, spread=0.2), make_mixtures(20, seed=7, spread=0.2)
    X = Mixtures.concatenate([a, Mixtures(b.weights, b.means + 0.4, b.variances)])
    y = np.repeat([0, 1], 20)
    pipeline = make_pipeline(MixtureKernel("klk"), DefiniteKernel("clip"), SVC(kernel="precomputed"))
    search = GridSearchCV(pipeline, {"svc__C": [1, 10], "mixturekernel__kernel": ["ppk", "klk"]}, cv=3)
    search.fit(X, y)
    assert search.best_score_ > 0.9
    assert search.predict(X[35:]).shape == (5,)


def test_estimator_parameters_are_only_stored(make_mixtures):
    kernel = MixtureKernel("klk", gamma=2.0, matching="matched")
    assert clone(kernel).get_params() == kernel.get_params()
    with pytest.raises(ValueError, match="The 'kernel' parameter of MixtureKernel must be"):
        MixtureKernel("rbf").fit(make_mixtures(3))
    with pytest.raises(ValueError, match="matching of kernel 'ppk' must be one of"):
        MixtureKernel("ppk", matching="unscented").fit(make_mixtures(3))
    with pytest.raises(ValueError, match=r"rho = 0\.5"):
        MixtureKernel("ppk", matching="variational", rho=1.0).fit_transform(make_mixtures(3))
    for wrong in ({"gamma": -1}, {"rho": 0.0}, {"rho": np.nan}, {"precision": "float16"}):
        with pytest.raises(ValueError, match=f"The '{next(iter(wrong))}' parameter of MixtureKernel must be"):
            MixtureKernel("klk", **wrong).fit(make_mixtures(3))


def test_bad_mixtures_are_named(make_mixtures):
    X = make_mixtures(4)
    kernel = MixtureKernel().fit(X)
    with pytest.raises(ValueError, match="3 components in 3 dimensions, the references have 5 in 3"):
        kernel.transform(make_mixtures(2, k=3))
    X.variances[2, 1, 0] = 0
    with pytest.raises(ValueError, match="image 2 of 4 has a variance that is not positive"):
        kernel.transform(X)
    with pytest.raises(TypeError, match=r"expected Mixtures .*, got ndarray"):
        kernel.transform(np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"mean SKL between training mixtures is .* are the same"):
        MixtureKernel("klk").fit(make_mixtures(4, spread=0.0)[[0, 0, 0]])


def test_monte_carlo_rows_do_not_depend_on_their_batch_and_the_gram_matrix_is_symmetric(make_mixtures):
    X, R = make_mixtures(4, seed=1), make_mixtures(5, seed=2)
    kernel = MixtureKernel("klk", matching="monte-carlo", n_samples=50).fit(R)
    np.testing.assert_array_equal(kernel.transform(X)[2], kernel.transform(X[2])[0])
    gram = kernel.transform(R)
    np.testing.assert_array_equal(gram, gram.T)
    divergence = mixtures.symmetric_kl(R, R, "monte-carlo", n_samples=50)
    np.testing.assert_array_equal(divergence, divergence.T)
    assert DefiniteKernel("clip").fit(gram).transform(gram).shape == (5, 5)
    again = [MixtureKernel("klk", matching="monte-carlo", n_samples=50, random_state=3).fit_transform(R) for _ in "ab"]
    np.testing.assert_array_equal(*again)
