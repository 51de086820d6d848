from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from patchbag.bags import Bags
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.parameters import check_parameters
from patchbag.similarity.mixtures.context import ContextualSimilarity
from patchbag.similarity.mixtures.kernel import DIVERGENCE_MATCHINGS, PRODUCT_MATCHINGS, MixtureKernel, product_kernel
from patchbag.similarity.mixtures.references import ReferenceWeights

ONE_TO_ONE = [MixtureKernel(), MixtureKernel("klk", gamma=1.0), ReferenceWeights(), ContextualSimilarity()]
ALL = [
    *ONE_TO_ONE,
    *(MixtureKernel(matching=name) for name in PRODUCT_MATCHINGS[1:]),
    *(MixtureKernel("klk", matching=name, gamma=1.0, n_samples=10) for name in DIVERGENCE_MATCHINGS[1:]),
    ReferenceWeights(matching="all"),
    ContextualSimilarity(matching="all"),
]


def spoiled(mixtures, field, value):
    a = getattr(mixtures, field).copy()
    a[2] = value
    return replace(mixtures, **{field: a})


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_the_image_and_the_fault_are_named(make_mixtures, estimator):
    P, Q = make_mixtures(3, seed=1), make_mixtures(4, seed=2)
    fitted = estimator.fit(Q)
    assert fitted.transform(P).shape == (3, 4)
    for field, value, fault in (
        ("means", np.nan, "a mean that is NaN"),
        ("variances", 0.0, "a variance that is not positive"),
        ("weights", 0.5, "weights that do not sum to one"),
    ):
        with pytest.raises(ValueError, match=f"mixtures: image 2 of 4 has {fault}"):
            clone(estimator).fit(spoiled(Q, field, value))
        with pytest.raises(ValueError, match=f"mixtures: image 2 of 3 has {fault}"):
            fitted.transform(spoiled(P, field, value))
    for k, d in ((4, 3), (6, 3), (5, 2)):
        with pytest.raises(ValueError, match=rf"mixtures have {k} components in {d} dimensions, .* have 5 in 3"):
            fitted.transform(make_mixtures(4, k=k, d=d))
    with pytest.raises(ValueError, match="mixtures are empty"):
        clone(estimator).fit(Q[:0])
    with pytest.raises(TypeError, match=r"expected Mixtures .*, got ndarray"):
        fitted.transform(np.zeros((3, 2)))


def universal(shift):
    return check_parameters(np.ones(5), np.full((5, 3), shift), np.ones((5, 3)))


@pytest.mark.parametrize("estimator", ONE_TO_ONE, ids=str)
def test_components_of_different_universal_models_do_not_answer_each_other(make_mixtures, estimator):
    P, Q = (replace(make_mixtures(3, seed=s), universal=universal(s)) for s in (1, 2))
    fitted = estimator.fit(P)
    with pytest.raises(ValueError, match="different universal models"):
        fitted.transform(Q)
    fitted.transform(replace(Q, universal=universal(1)))
    fitted.transform(replace(Q, universal=None))


def test_matchings_of_all_components_take_any_universal_model(make_mixtures):
    P, Q = (replace(make_mixtures(3, seed=s), universal=universal(s)) for s in (1, 2))
    assert MixtureKernel(matching="one-to-many").fit(P).transform(Q).shape == (3, 3)
    assert ReferenceWeights(matching="all").fit(P).transform(Q).shape == (3, 3)


def test_references_of_sampling_are_checked(make_mixtures):
    bags = Bags.from_list([np.zeros((4, 3))])
    with pytest.raises(ValueError, match="mixtures: image 2 of 3 has a mean that is NaN"):
        ReferenceWeights("sampling").fit(spoiled(make_mixtures(3, seed=1), "means", np.nan)).transform(bags)


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
