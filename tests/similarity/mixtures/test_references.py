import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from oracles import references as oracle
from oracles.gaussians import grid, kl_integral, mixture_density, product_integral
from oracles.mixtures import components
from patchbag.bags import Bags
from patchbag.channels import Channels
from patchbag.mixture.adaptation import Mixtures
from patchbag.similarity.mixtures import matching, point_estimates
from patchbag.similarity.mixtures.references import ReferenceWeights, blend_weights, reference_weights, sampled_weights

MEASURES = {"kl": oracle.kl_weights, "bhattacharyya": oracle.bhattacharyya_weights}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("name", ["one-to-one", "all"])
@pytest.mark.parametrize("iterations", [1, 3])
def test_weights_equal_the_em_steps_as_printed(make_mixtures, measure, name, iterations):
    X, R = make_mixtures(3, seed=1), make_mixtures(4, seed=2)
    references = [components(R, k) for k in range(4)]
    expected = [MEASURES[measure](components(X, i), references, iterations, name == "one-to-one") for i in range(3)]
    found = ReferenceWeights(measure, matching=name, iterations=iterations, precision="float64").fit(R).transform(X)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_sampled_weights_equal_the_em_steps_as_printed(make_mixtures):
    R, rng = make_mixtures(4, seed=2), np.random.default_rng(0)
    bags = [2 * rng.normal(size=(t, 3)) for t in (20, 9)]
    references = [components(R, k) for k in range(4)]
    expected = [oracle.sampled_weights(x, references, 3) for x in bags]
    found = ReferenceWeights("sampling", precision="float64").fit(R).transform(Bags.from_list(bags))
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    mixed = ReferenceWeights("sampling", precision="float64").fit(R).transform([x[::-1] for x in bags])
    np.testing.assert_allclose(mixed, found, rtol=1e-10)


# --- the toy example of §5.2: q = ½N(2,1) + ½N(-2,1), p1 = N(-2,1), p2 = N(2,1), p3 = ½N(2+δ,1) + ½N(-2-δ,1) ----------


def toy(delta):
    """q, and p1, p2, p3, as mixtures of two components."""
    one = np.ones((1, 2, 1))
    q = Mixtures(np.array([[0.5, 0.5]]), np.array([[[2.0], [-2.0]]]), one)
    p = Mixtures(
        np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]),
        np.array([[[2.0], [-2.0]], [[2.0], [-2.0]], [[2.0 + delta], [-2.0 - delta]]]),
        np.ones((3, 2, 1)),
    )
    return q, p


def crossing(value_to_p1, value_to_p3):
    """The δ between 0.5 and 4 at which the two values are the same, by bisection."""
    low, high = 0.5, 4.0
    sign = np.sign(value_to_p3(low) - value_to_p1)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if np.sign(value_to_p3(middle) - value_to_p1) == sign else (low, middle)
    return low


def toy_density(mixtures, image):
    arrays = (mixtures.weights[image], mixtures.means[image], mixtures.variances[image])
    return lambda x: mixture_density(x, *arrays)


def test_toy_example_deltas_by_numerical_integration():
    points, volume = grid(1, size=4001)

    def skl(a, b):
        return kl_integral(a, b, points, volume) + kl_integral(b, a, points, volume)

    def bha(a, b):
        return product_integral(a, b, 0.5, points, volume)

    for measure, expected in ((skl, 2.0), (bha, 1.5)):
        q, p = toy(0.0)
        to_p1 = measure(toy_density(q, 0), toy_density(p, 0))
        delta = crossing(to_p1, lambda d, m=measure: m(toy_density(toy(d)[0], 0), toy_density(toy(d)[1], 2)))
        assert delta == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize("delta", [0.5, 1.5, 2.0, 4.0])
def test_toy_example_weights_converge_to_one_half_each_of_the_perfect_matches(delta):
    q, p = toy(delta)
    for measure in ("kl", "bhattacharyya"):
        found = reference_weights(q, p, measure, iterations=None, dtype=np.float64)
        np.testing.assert_allclose(found, [[0.5, 0.5, 0]], atol=1e-3)
    samples = Bags.from_list([point_estimates.draw(q, 4000, 0)])
    found = sampled_weights(samples, p, iterations=None, dtype=np.float64)
    np.testing.assert_allclose(found, [[0.5, 0.5, 0]], atol=0.08)


def test_a_larger_delta_drives_the_third_weight_to_zero_faster():
    third = [reference_weights(*toy(delta), iterations=3)[0, 2] for delta in (0.5, 1.0, 2.0)]
    assert third[0] > third[1] > third[2] > 0


# --- properties ------------------------------------------------------------------------------------------------------


def test_early_stopping_keeps_an_image_among_the_references_from_taking_all(make_mixtures):
    R = make_mixtures(12, seed=3, spread=0.3)
    for measure in MEASURES:
        early = ReferenceWeights(measure).fit(R).transform(R)
        assert (early.argmax(axis=1) == np.arange(12)).all()
        assert early.diagonal().max() < 0.9
        assert np.sort(early, axis=1)[:, -2].min() > 1e-3
        converged = ReferenceWeights(measure, iterations=None, leave_out_self=False).fit_transform(R)
        np.testing.assert_allclose(converged, np.eye(12), atol=1e-3)


@pytest.mark.parametrize("measure", MEASURES)
def test_training_images_are_described_by_the_others(make_mixtures, measure):
    R = make_mixtures(6, seed=3)
    found = ReferenceWeights(measure, precision="float64").fit_transform(R)
    assert (found.diagonal() == 0).all()
    for i in range(6):
        others = np.delete(np.arange(6), i)
        alone = ReferenceWeights(measure, precision="float64").fit(R[others]).transform(R[i])
        np.testing.assert_allclose(found[i, others], alone[0], rtol=1e-8)


def test_float32_agrees_with_float64(make_mixtures):
    X, R = make_mixtures(9, k=16, d=30, seed=1), make_mixtures(70, k=16, d=30, seed=2)
    for measure in MEASURES:
        single, double = (ReferenceWeights(measure, precision=p).fit(R).transform(X) for p in ("float32", "float64"))
        np.testing.assert_allclose(single, double, atol=1e-5)


def test_blocks_do_not_change_the_result(make_mixtures, monkeypatch):
    X, R = make_mixtures(9, seed=1), make_mixtures(7, seed=2)
    whole = ReferenceWeights("bhattacharyya").fit(R).transform(X)
    monkeypatch.setattr(matching, "BLOCK_NUMBERS", 80)
    np.testing.assert_array_equal(ReferenceWeights("bhattacharyya").fit(R).transform(X), whole)


def test_an_image_that_no_reference_answers_gets_finite_weights(make_mixtures):
    far = make_mixtures(2, seed=1)
    far = Mixtures(far.weights, far.means + 1e3, far.variances)
    for measure in MEASURES:
        found = ReferenceWeights(measure).fit(make_mixtures(4, seed=2)).transform(far)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


def test_wrong_use_is_named(make_mixtures):
    R = make_mixtures(4)
    assert clone(ReferenceWeights("bhattacharyya", iterations=None)).get_params()["iterations"] is None
    with pytest.raises(ValueError, match="The 'measure' parameter"):
        ReferenceWeights("ppk").fit(R)
    with pytest.raises(ValueError, match="2 dimensions, the references have 5 in 3"):
        ReferenceWeights().fit(R).transform(make_mixtures(2, d=2))
    sampling = ReferenceWeights("sampling").fit(R)
    with pytest.raises(TypeError, match="transform takes Bags"):
        sampling.transform(R)
    with pytest.raises(ValueError, match="bag 1 of 2 has no descriptors"):
        sampling.transform(Bags(np.zeros((3, 3)), [0, 3, 3]))
    with pytest.raises(ValueError, match="bag 1 of 2 has a feature that is not finite"):
        sampling.transform([np.zeros((2, 3)), np.full((2, 3), np.nan)])
    with pytest.raises(ValueError, match="features have 2 dimensions, the reference bags 3"):
        sampling.transform([np.zeros((2, 2))])


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("share", [0.0, 1e-35])
def test_a_component_of_weight_zero_does_not_drown_the_others(precision, share):
    # component 0 is the same everywhere and weighs nothing; component 1 is far from every reference's
    means = np.zeros((3, 2, 60))
    means[:, 1] = 8 * np.random.default_rng(0).normal(size=(3, 60))
    X = Mixtures(np.array([[share, 1.0]] * 3), means, np.ones((3, 2, 60)))
    for measure in MEASURES:
        for iterations in (1, 3, None):
            found = ReferenceWeights(measure, iterations=iterations, precision=precision).fit_transform(X)
            np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    if share == 0:
        alone = Mixtures(np.ones((3, 1)), means[:, 1:], np.ones((3, 1, 60)))
        expected = ReferenceWeights("bhattacharyya", precision=precision).fit_transform(alone)
        found = ReferenceWeights("bhattacharyya", precision=precision).fit_transform(X)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_weights_stay_equal_where_no_reference_answers():
    logs = np.full((2, 1, 3), -np.inf)
    for measure in MEASURES:
        np.testing.assert_allclose(blend_weights(logs.copy(), np.full((1, 2), 0.5), measure), 1 / 3)


def test_sampling_works_in_a_pipeline_and_leaves_out_the_image_itself(make_mixtures):
    R = Mixtures.concatenate([make_mixtures(8, seed=1, spread=0.2), make_mixtures(8, seed=7, spread=0.2)])
    R.means[8:] += 1.5
    bags = Bags.from_list([point_estimates.draw(R[i], 30, i) for i in range(16)])
    channels = Channels(mixtures=R, bags=bags)
    sampling = ReferenceWeights("sampling", precision="float64")
    found = sampling.fit_transform(channels)
    assert (found.diagonal() == 0).all()
    others = np.delete(np.arange(16), 3)
    alone = ReferenceWeights("sampling", precision="float64").fit(R[others]).transform(bags[3:4])
    np.testing.assert_allclose(found[3, others], alone[0], rtol=1e-8)
    np.testing.assert_array_equal(sampling.transform(channels), sampling.transform(bags))
    whole = ReferenceWeights("sampling", precision="float64", leave_out_self=False).fit_transform(channels)
    np.testing.assert_array_equal(whole, sampling.transform(bags))
    pipeline = make_pipeline(ReferenceWeights("sampling"), LogisticRegression(C=100))
    search = GridSearchCV(pipeline, {"referenceweights__iterations": [1, 3]}, cv=2, error_score="raise")
    assert search.fit(channels, np.repeat([0, 1], 8)).best_score_ > 0.8


def test_wrong_use_of_sampling_is_named(make_mixtures):
    R = make_mixtures(4)
    bags = Bags.from_list([np.zeros((2, 3))] * 4)
    with pytest.raises(TypeError, match=r"fit_transform takes Channels\(mixtures=..., bags=...\), got Mixtures"):
        ReferenceWeights("sampling").fit_transform(R)
    with pytest.raises(ValueError, match="needs a channel 'bags'; there are mixtures"):
        ReferenceWeights("sampling").fit_transform(Channels(mixtures=R))
    with pytest.raises(ValueError, match="matching='all' does not apply to measure='sampling'"):
        ReferenceWeights("sampling", matching="all").fit(R)
    with pytest.raises(TypeError, match="measure='kl' takes Mixtures; only 'sampling' takes Channels"):
        ReferenceWeights().fit(Channels(mixtures=R, bags=bags))
