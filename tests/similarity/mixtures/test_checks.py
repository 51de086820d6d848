from dataclasses import replace

import numpy as np
import pytest

from patchbag.bags import Bags
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.parameters import check_parameters
from patchbag.similarity.mixtures import matching, one_to_one, point_estimates
from patchbag.similarity.mixtures.context import ContextualSimilarity, contextual_similarity
from patchbag.similarity.mixtures.kernel import MixtureKernel, product_kernel, symmetric_kl
from patchbag.similarity.mixtures.references import ReferenceWeights, reference_weights, sampled_weights

ONE_TO_ONE = {
    "product_kernel": product_kernel,
    "symmetric_kl": symmetric_kl,
    "reference_weights": reference_weights,
    "contextual_similarity": lambda P, Q: contextual_similarity(P, Q, P[0]),
    "kl_one_to_one": one_to_one.kl_one_to_one,
    "symmetric_kl_one_to_one": one_to_one.symmetric_kl_one_to_one,
    "product_one_to_one": one_to_one.product_one_to_one,
}
FUNCTIONS = {
    **ONE_TO_ONE,
    "kl_matched": matching.kl_matched,
    "kl_variational": matching.kl_variational,
    "product_one_to_many": matching.product_one_to_many,
    "product_matched": matching.product_matched,
    "bhattacharyya_bound": matching.bhattacharyya_bound,
    "kl_unscented": point_estimates.kl_unscented,
    "kl_monte_carlo": point_estimates.kl_monte_carlo,
    "monte-carlo": lambda P, Q: symmetric_kl(P, Q, "monte-carlo"),
    "all": lambda P, Q: reference_weights(P, Q, matching="all"),
}


def spoiled(mixtures, field, value):
    a = getattr(mixtures, field).copy()
    a[2] = value
    return replace(mixtures, **{field: a})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_name_the_image_and_the_fault(make_mixtures, name):
    function, P, Q = FUNCTIONS[name], make_mixtures(3, seed=1), make_mixtures(4, seed=2)
    function(P, Q)
    for field, value, fault in (
        ("means", np.nan, "a mean that is NaN"),
        ("variances", 0.0, "a variance that is not positive"),
        ("weights", 0.5, "weights that do not sum to one"),
    ):
        with pytest.raises(ValueError, match=f"the references: image 2 of 4 has {fault}"):
            function(P, spoiled(Q, field, value))
        with pytest.raises(ValueError, match=f"mixtures: image 2 of 3 has {fault}"):
            function(spoiled(P, field, value), Q)
    for k, d in ((4, 3), (6, 3), (5, 2)):
        with pytest.raises(ValueError, match=rf"mixtures have 5 components in 3 dimensions, .* have {k} in {d}"):
            function(P, make_mixtures(4, k=k, d=d))
    with pytest.raises(ValueError, match="the references are empty"):
        function(P, Q[:0])
    with pytest.raises(TypeError, match=r"expected Mixtures .*, got ndarray"):
        function(P, np.zeros((3, 2)))


def universal(shift):
    return check_parameters(np.ones(5), np.full((5, 3), shift), np.ones((5, 3)))


@pytest.mark.parametrize("name", ONE_TO_ONE)
def test_components_of_different_universal_models_do_not_answer_each_other(make_mixtures, name):
    P, Q = (replace(make_mixtures(3, seed=s), universal=universal(s)) for s in (1, 2))
    with pytest.raises(ValueError, match="different universal models"):
        ONE_TO_ONE[name](P, Q)
    ONE_TO_ONE[name](P, replace(Q, universal=universal(1)))
    ONE_TO_ONE[name](P, replace(Q, universal=None))


@pytest.mark.parametrize(
    "estimator", [MixtureKernel(), MixtureKernel("klk"), ReferenceWeights(), ContextualSimilarity()], ids=str
)
def test_estimators_refuse_mixtures_of_another_universal_model(make_mixtures, estimator):
    P, Q = (replace(make_mixtures(3, seed=s), universal=universal(s)) for s in (1, 2))
    estimator.fit(P).transform(P)
    with pytest.raises(ValueError, match="different universal models"):
        estimator.transform(Q)


def test_matchings_of_all_components_take_any_universal_model(make_mixtures):
    P, Q = (replace(make_mixtures(3, seed=s), universal=universal(s)) for s in (1, 2))
    assert MixtureKernel(matching="one-to-many").fit(P).transform(Q).shape == (3, 3)
    assert ReferenceWeights(matching="all").fit(P).transform(Q).shape == (3, 3)
    assert product_kernel(P, Q, matching="one-to-many").shape == (3, 3)


def test_context_and_sampled_references_are_checked(make_mixtures):
    P = make_mixtures(3, seed=1)
    with pytest.raises(ValueError, match="the context have 4 components"):
        contextual_similarity(P, P, make_mixtures(1, k=4))
    with pytest.raises(ValueError, match="the context must be one mixture, got 3"):
        contextual_similarity(P, P, P)
    with pytest.raises(ValueError, match="the references: image 2 of 3 has a mean that is NaN"):
        sampled_weights(Bags.from_list([np.zeros((4, 3))]), spoiled(P, "means", np.nan))


# --- range of the product kernel -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["one-to-one", "one-to-many", "matched"])
@pytest.mark.parametrize(("rho", "scale"), [(1.0, 1e3), (1.0, 1e-3), (0.3, 1e6), (1.0, 1e9)])
def test_the_normalised_product_kernel_is_free_of_scale(make_mixtures, name, rho, scale):
    X = make_mixtures(5, k=3, d=50, spread=0.1)
    large = Mixtures(X.weights, X.means * np.sqrt(scale), X.variances * scale)
    options = {"rho": rho, "matching": name, "normalize": True}
    expected = MixtureKernel(**options, precision="float64").fit_transform(X)
    assert (expected[~np.eye(5, dtype=bool)] > 1e-6).all()
    for precision in ("float32", "float64"):
        found = MixtureKernel(**options, precision=precision).fit_transform(large)
        assert found.dtype == precision
        np.testing.assert_allclose(found, expected, rtol=1e-3 if precision == "float32" else 1e-7)


@pytest.mark.parametrize("name", ["one-to-one", "one-to-many", "matched"])
@pytest.mark.parametrize(("rho", "scale", "fault"), [(1.0, 1e3, "below"), (1.0, 1e-5, "overflows")])
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_a_kernel_that_float32_cannot_hold_is_an_error(make_mixtures, name, rho, scale, fault):
    X = make_mixtures(4, k=3, d=50, spread=0.1)
    X = Mixtures(X.weights, X.means * np.sqrt(scale), X.variances * scale)
    with pytest.raises(ValueError, match=f"{fault}.* in float32.*use normalize=True or precision='float64'"):
        MixtureKernel(rho=rho, matching=name).fit_transform(X)
    assert (MixtureKernel(rho=rho, matching=name, precision="float64").fit_transform(X).diagonal() > 0).all()


def test_mixtures_that_are_merely_far_apart_have_a_kernel_of_zero(make_mixtures):
    X = make_mixtures(3)
    far = Mixtures(X.weights, X.means + 1e3, X.variances)
    for rho in (0.5, 1.0):
        assert not product_kernel(far, X, rho).any()
