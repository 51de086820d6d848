import numpy as np
import pytest
from sklearn.base import clone

from oracles.mixtures import map_adaptation, statistics
from patchbag.bags import Bags
from patchbag.features.projection import BagPCA
from patchbag.mixture.adaptation import MAPAdaptation, Mixtures, adapt, adapt_bags
from patchbag.mixture.gaussian import UniversalMixture
from patchbag.mixture.maximum_likelihood import MaximumLikelihoodMixtures, maximum_likelihood
from patchbag.mixture.parameters import check_parameters
from patchbag.mixture.statistics import Statistics


@pytest.fixture
def universal():
    rng = np.random.default_rng(0)
    return check_parameters(rng.dirichlet(np.ones(4) * 5), rng.normal(size=(4, 3)), rng.uniform(0.3, 1.5, (4, 3)))


@pytest.fixture
def images():
    rng = np.random.default_rng(1)
    return [rng.normal(size=(t, 3)) for t in (30, 50, 7)]


def collected(images, universal, dtype=np.float64):
    arrays = statistics(images, universal.weights, universal.means, universal.variances)
    return Statistics(*(a.astype(dtype) for a in arrays), universal=universal)


@pytest.mark.parametrize("prior", ["universal", "uniform"])
@pytest.mark.parametrize("tau", [0.1, 10.0])
def test_adaptation_equals_the_printed_equations(universal, images, tau, prior):
    found = MAPAdaptation(tau, weight_prior=prior).fit_transform(collected(images, universal))
    for i, x in enumerate(images):
        w, mu, var = map_adaptation(x, universal.weights, universal.means, universal.variances, tau, prior)
        np.testing.assert_allclose(found.weights[i], w, rtol=1e-10)
        np.testing.assert_allclose(found.means[i], mu, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found.variances[i], var, rtol=1e-8)


@pytest.mark.parametrize("tau", [1e12, np.inf])
def test_infinite_relevance_gives_the_universal_model(universal, images, tau):
    found = MAPAdaptation(tau).fit_transform(collected(images, universal))
    for i in range(len(images)):
        np.testing.assert_allclose(found.weights[i], universal.weights, rtol=1e-9)
        np.testing.assert_allclose(found.means[i], universal.means, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.variances[i], universal.variances, rtol=1e-9)


@pytest.mark.parametrize("tau", [1e-12, 0.0])
def test_zero_relevance_gives_maximum_likelihood(universal, images, tau):
    s = collected(images, universal)
    found = MAPAdaptation(tau, variance_floor=1e-9).fit_transform(s)
    np.testing.assert_allclose(found.weights, s.s0 / s.s0.sum(axis=1, keepdims=True), rtol=1e-6)
    means = s.s1 / s.s0[..., None]
    np.testing.assert_allclose(found.means, means, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.variances, s.s2 / s.s0[..., None] - means**2, rtol=1e-4, atol=1e-7)


def test_a_component_without_descriptors_and_prior_keeps_the_universal_gaussian(universal):
    s0, s1, s2 = np.zeros((1, 4)), np.zeros((1, 4, 3)), np.zeros((1, 4, 3))
    s0[0, 0], s1[0, 0], s2[0, 0] = 10, 20, 90
    w, mu, var = adapt(s0, s1, s2, universal, relevance=0.0)
    np.testing.assert_allclose(w, [[1, 0, 0, 0]])
    np.testing.assert_allclose(mu[0, 1:], universal.means[1:])
    np.testing.assert_allclose(var[0, 1:], universal.variances[1:])
    np.testing.assert_allclose(mu[0, 0], 2)


def test_variances_stay_above_the_floor(universal):
    x = np.repeat(universal.means[:1], 40, axis=0)  # all descriptors the same
    found = MAPAdaptation(1e-9, variance_floor=0.25).fit_transform(collected([x], universal))
    # the component that took them collapses to the floor
    np.testing.assert_allclose(found.variances[0, 0], 0.25 * universal.variances[0], rtol=1e-6)


def test_float32_statistics_agree_with_float64_far_from_the_origin(universal, images):
    far = check_parameters(universal.weights, universal.means + 30, universal.variances)
    s = collected([x + 30 for x in images], far)
    double = MAPAdaptation().fit_transform(s)
    single = MAPAdaptation().fit_transform(
        Statistics(*(a.astype(np.float32) for a in s.arrays().values()), universal=far)
    )
    assert single.variances.dtype == np.float32
    np.testing.assert_allclose(single.variances, double.variances, rtol=5e-3)
    np.testing.assert_allclose(single.means, double.means, rtol=1e-5)


def test_more_iterations_take_responsibilities_from_the_images_own_model(universal, images):
    found = adapt_bags(Bags.from_list(images), universal, iterations=3, relevance=2.0)
    for i, x in enumerate(images):
        w, mu, var = universal.weights, universal.means, universal.variances
        for _ in range(3):
            s0, s1, s2 = (a[0] for a in statistics([x], w, mu, var))
            w, mu, var = adapt(s0, s1, s2, universal, relevance=2.0)
        np.testing.assert_allclose(found.means[i], mu, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.weights[i], w, rtol=1e-4)
    once = adapt_bags(Bags.from_list(images), universal, relevance=2.0)
    assert np.abs(once.means - found.means).max() > 0.01


def test_order_of_descriptors_does_not_matter_and_duplicates_count_twice(universal, images):
    mixed = [x[np.random.default_rng(5).permutation(len(x))] for x in images]
    a, b = (adapt_bags(Bags.from_list(bags), universal) for bags in (images, mixed))
    np.testing.assert_allclose(a.means, b.means, rtol=1e-10, atol=1e-12)
    doubled = adapt_bags(Bags.from_list([np.concatenate([x, x]) for x in images]), universal, relevance=20.0)
    np.testing.assert_allclose(doubled.means, a.means, rtol=1e-10, atol=1e-12)


def test_maximum_likelihood_trains_each_image_alone_by_the_universal_schedule(images):
    schedule = UniversalMixture(2, random_state=0)
    found = maximum_likelihood(Bags.from_list(images[:2]), schedule)
    alone = clone(schedule).fit(images[1])
    np.testing.assert_allclose(found.means[1], alone.means_, rtol=1e-6)
    with pytest.raises(ValueError, match="bag 2 of 3 has 7 descriptors, too few to train 8 Gaussians"):
        maximum_likelihood(Bags.from_list(images), UniversalMixture(8))


def test_starved_components_of_single_images_are_no_news(images):
    schedule = UniversalMixture(4, min_count=6)
    with pytest.warns(UserWarning, match="had to be re-seeded"):
        clone(schedule).fit(images[0])
    found = maximum_likelihood(Bags.from_list(images[:2]), schedule, n_jobs=2)  # where a warning would be an error
    assert found.means.shape == (2, 4, 3)


def test_maximum_likelihood_estimator_projects_and_trains(images):
    bags = Bags.from_list(images[:2])
    model = MaximumLikelihoodMixtures(UniversalMixture(2, random_state=0), BagPCA(1)).fit(bags)
    found = model.transform(bags)
    expected = maximum_likelihood(model.projection_.transform(bags), UniversalMixture(2, random_state=0))
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-6)
    with pytest.raises(ValueError, match="needs a number of components, not 'auto'"):
        MaximumLikelihoodMixtures(UniversalMixture("auto")).fit(bags).transform(bags)


def test_estimator_takes_the_given_mixture_and_refuses_statistics_of_another(universal, images):
    other = UniversalMixture.from_parameters(universal.weights, universal.means + 1, universal.variances)
    found = MAPAdaptation(mixture=other).fit(collected(images, universal))
    np.testing.assert_array_equal(found.universal_.means, universal.means + 1)
    with pytest.raises(ValueError, match="collected under another universal mixture"):
        found.transform(collected(images, universal))
    assert clone(found).get_params()["relevance"] == 10.0
    assert MAPAdaptation().fit_transform(collected(images, universal))[1:].universal is universal


def test_wrong_use_is_named(universal, images):
    s = collected(images, universal)
    with pytest.raises(ValueError, match="no universal model"):
        MAPAdaptation().fit(Statistics(s.s0, s.s1, s.s2))
    with pytest.raises(ValueError, match="need the descriptors"):
        MAPAdaptation(iterations=2).fit_transform(s)
    with pytest.raises(ValueError, match="spatial cells"):
        MAPAdaptation().fit_transform(Statistics(s.s0[:, None], s.s1[:, None], s.s2[:, None], universal=universal))
    empty = Statistics(s.s0 * [[1], [0], [1]], s.s1, s.s2, universal=universal)
    with pytest.raises(ValueError, match="image 1 of 3 has no descriptors"):
        MAPAdaptation().fit_transform(empty)
    broken = Statistics(s.s0, s.s1 * np.array([1, 1, np.nan])[:, None, None], s.s2, universal=universal)
    with pytest.raises(ValueError, match="image 2 of 3 has a mean that is NaN"):
        MAPAdaptation().fit_transform(broken)


def mixtures(n=3, k=4, d=2):
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(k), n), rng.normal(size=(n, k, d)), rng.uniform(0.5, 1, (n, k, d))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (2, 0.0, "image 1 of 3 has a variance that is not positive .*component 2"),
        (2, -1.0, "image 1 of 3 has a variance that is not positive"),
        (2, np.nan, "image 1 of 3 has a variance that is NaN"),
        (1, np.inf, "image 1 of 3 has a mean that is NaN or infinite, component 2"),
        (0, 0.9999, "image 1 of 3 has weights that do not sum to one: "),
        (0, -0.1, "image 1 of 3 has a negative weight, component 2"),
    ],
)
def test_check_says_which_image_and_what(field, value, message):
    arrays = mixtures()
    arrays[field][1, 2] = value
    with pytest.raises(ValueError, match=message):
        Mixtures(*arrays).check()


def test_check_compares_components_and_dimensions():
    with pytest.raises(ValueError, match="4 components in 2 dimensions, the references have 5 in 2"):
        Mixtures(*mixtures()).check(like=Mixtures(*mixtures(k=5)))
    with pytest.raises(ValueError, match="expected weights"):
        Mixtures(mixtures()[0], mixtures()[1], mixtures(d=3)[2]).check()


@pytest.mark.parametrize(
    "options", [{"weight_prior": "unifrom"}, {"relevance": -1}, {"relevance": np.nan}, {"variance_floor": 0}]
)
def test_impossible_options_are_named(universal, images, options):
    with pytest.raises(ValueError, match=f"The '{next(iter(options))}' parameter of MAPAdaptation must be"):
        MAPAdaptation(**options).fit(collected(images, universal))


def test_a_negative_count_is_called_so(universal, images):
    s = collected(images, universal)
    s.s0[1, 2] = -1
    with pytest.raises(ValueError, match="image 1 of 3 has a negative count in component 2"):
        MAPAdaptation().fit_transform(s)


@pytest.mark.parametrize("count", [1e-40, 1e-44])
def test_without_prior_a_count_too_small_to_invert_keeps_the_universal_gaussian(count):
    u = check_parameters([0.5, 0.5], [[0.0], [50.0]], np.ones((2, 1)))
    arrays = ([[10, count]], [[[1.0], [50 * count]]], [[[10.0], [2500 * count]]])
    s = Statistics(*(np.array(a, np.float32) for a in arrays), universal=u)
    found = MAPAdaptation(0).fit_transform(s)
    np.testing.assert_allclose(found.means[0, :, 0], [0.1, 50])
    np.testing.assert_allclose(found.variances[0, :, 0], [0.99, 1], rtol=1e-6)


def test_bags_are_numbered_in_the_whole_input_whatever_the_chunks(images, monkeypatch):
    chunks = Bags.chunks
    monkeypatch.setattr(Bags, "chunks", lambda self, size: chunks(self, 1))
    model = MaximumLikelihoodMixtures(UniversalMixture(2, random_state=0)).fit(Bags.from_list(images))
    assert len(model.transform(Bags.from_list(images))) == 3
    with pytest.raises(ValueError, match="bag 2 of 3 has 1 descriptors"):
        model.transform(Bags.from_list([*images[:2], images[2][:1]]))
    with pytest.raises(ValueError, match="bag 1 of 3: "):
        model.transform(Bags.from_list([images[0], images[1] * np.nan, images[2]]))


def test_mixtures_of_different_sizes_cannot_be_concatenated():
    with pytest.raises(ValueError, match=r"Mixtures cannot be put together: .* \(4,\) in part 0 and \(5,\) in part 1"):
        Mixtures.concatenate([Mixtures(*mixtures()), Mixtures(*mixtures(k=5))])
