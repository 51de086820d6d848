from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from skimage.feature import fisher_vector as skimage_fisher
from sklearn.mixture import GaussianMixture

from oracles import mixture as oracle
from patchbag import VLAD, BagOfWords, Bags, FisherVector, UniversalMixture
from patchbag.encodings.fisher import fisher_vector
from patchbag.encodings.normalize import intra_normalize, l2_normalize, signed_power
from patchbag.mixture.spatial import SpatialPyramid
from patchbag.mixture.statistics import Statistics, collect

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "vlfeat_fisher_small.npz")


@pytest.fixture(scope="module")
def golden():
    mixture = UniversalMixture.from_parameters(GOLDEN["weights"], GOLDEN["means"], GOLDEN["vars"])
    return mixture, Bags.from_list([GOLDEN["descriptors"]])


def relative_error(mine, theirs):
    return np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)


def test_the_fisher_vector_is_the_scaled_gradient_of_the_log_likelihood(bags, mixture):
    one = bags[0]
    w, mu, var = mixture.weights_, mixture.means_, mixture.variances_
    n, sigma, logits = len(one), np.sqrt(var), np.log(w)

    def softmax(a):
        return np.exp(a - np.logaddexp.reduce(a))

    by_weight = oracle.numerical_gradient(lambda a: oracle.log_likelihood(one, softmax(a), mu, var), logits)
    by_mean = oracle.numerical_gradient(lambda m: oracle.log_likelihood(one, w, m, var), mu)
    by_sigma = oracle.numerical_gradient(lambda s: oracle.log_likelihood(one, w, mu, s**2), sigma)
    expected = np.concatenate(
        [
            by_weight / (n * np.sqrt(w)),
            (by_mean * sigma / (n * np.sqrt(w))[:, None]).ravel(),
            (by_sigma * sigma / (n * np.sqrt(2 * w))[:, None]).ravel(),
        ]
    )
    s = mixture.statistics(bags[:1])
    mine = fisher_vector(s.s0, s.s1, s.s2, mixture.parameters_, ("weights", "means", "variances"))[0]
    assert np.allclose(mine, expected, atol=2e-5)


def test_it_equals_vlfeats_output(golden):
    mixture, bags = golden
    s = mixture.statistics(bags)
    mine = FisherVector().fit(s).transform(s)[0]
    assert mine.dtype == np.float32
    assert relative_error(mine, GOLDEN["fisher_plain"]) < 1e-5
    assert relative_error(l2_normalize(signed_power(mine)), GOLDEN["fisher_improved"]) < 1e-5
    assert relative_error(signed_power(mine), GOLDEN["fisher_sqrt"]) < 1e-5


def test_it_equals_scikit_images_with_the_sign_of_the_variances_turned(bags):
    theirs = GaussianMixture(3, covariance_type="diag", random_state=0).fit(bags.values)
    ours = UniversalMixture.from_parameters(theirs.weights_, theirs.means_, theirs.covariances_)
    s = ours.statistics(bags[:1])
    mine = fisher_vector(s.s0, s.s1, s.s2, ours.parameters_, ("weights", "means", "variances"))[0]
    other = skimage_fisher(bags[0], theirs)
    assert np.allclose(mine[3:18], other[3:18], atol=1e-5)
    assert np.allclose(mine[18:], -other[18:], atol=1e-5)


def test_vlad_equals_vlfeats_output(golden):
    mixture, bags = golden
    s = collect(bags, mixture.parameters_, assignment="nearest")
    mine = VLAD().fit_transform(s)
    assert relative_error(mine[0], GOLDEN["vlad_unnormalized"]) < 1e-5
    assert relative_error(l2_normalize(mine)[0], GOLDEN["vlad_default_l2"]) < 1e-5
    per_word = l2_normalize(intra_normalize(mine, mixture.n_components))
    assert relative_error(per_word[0], GOLDEN["vlad_normcomp"]) < 1e-5
    mass = VLAD(mass=True).fit_transform(s)
    assert relative_error(mass[0], GOLDEN["vlad_normmass_unnormalized"]) < 1e-5


def test_the_mean_gradient_over_the_training_data_vanishes_at_the_maximum(bags):
    fit = UniversalMixture(3, max_iter=300, tol=0, variance_floor=1e-6).fit(bags)
    s = fit.statistics(bags).pool()
    assert np.abs(fisher_vector(s.s0, s.s1, s.s2, fit.parameters_)).max() < 2e-3


def test_blocks_can_be_left_out_and_keep_their_order(bags, mixture):
    s = mixture.statistics(bags)
    full = FisherVector(("weights", "means", "variances")).fit_transform(s)
    assert np.array_equal(FisherVector(("means",)).fit_transform(s), full[:, 4:24])
    assert np.array_equal(FisherVector(("weights", "variances")).fit_transform(s), np.delete(full, np.s_[4:24], axis=1))
    with pytest.raises(ValueError, match="'blocks' parameter of FisherVector must be"):
        FisherVector(("skew",)).fit(s)


def test_cells_are_encoded_each_on_its_own(bags, mixture):
    s = mixture.statistics(bags)
    stacked = Statistics(*(np.stack([a, 2 * a], axis=1) for a in s.arrays().values()), universal=s.universal)
    encoded = FisherVector().fit_transform(stacked)
    assert encoded.shape == (30, 2, 40)
    assert np.allclose(encoded[:, 0], encoded[:, 1])  # a Fisher vector is a mean: duplicates change nothing


def test_words_are_relative_frequencies_or_counts(bags, mixture):
    s = mixture.statistics(bags)
    assert np.allclose(BagOfWords().fit_transform(s).sum(axis=1), 1)
    assert np.array_equal(BagOfWords(normalize=False).fit_transform(s), s.s0)


@pytest.mark.parametrize("far", [0, 10, 100, 1000])
def test_float32_descriptors_far_from_the_origin_keep_their_fisher_vector(far):
    rng = np.random.default_rng(0)
    means = rng.normal(0, 1, (4, 6))
    x = (means[rng.integers(0, 4, 1500)] + rng.normal(0, 0.5, (1500, 6)) + far).astype(np.float32)
    moved = UniversalMixture.from_parameters(np.ones(4) / 4, means + far, np.full((4, 6), 0.25))
    narrow, wide = (moved.statistics(Bags(v, [0, 1500])) for v in (x, x.astype(np.float64)))
    assert narrow.s1.dtype == (np.float64 if far else np.float32)
    for encoding in (FisherVector(("means",)), FisherVector(("variances",)), VLAD()):
        code = encoding.fit_transform(narrow)
        assert code.dtype == np.float32
        assert relative_error(code, encoding.fit_transform(wide)) < 1e-4


def test_cells_far_from_the_origin_keep_their_fisher_vector(bags, mixture):
    far = UniversalMixture.from_parameters(mixture.weights_, mixture.means_ + 500, mixture.variances_)
    narrow = bags.replace((bags.values + 500).astype(np.float32))
    whole = FisherVector().fit_transform(collect(narrow, far.parameters_))
    cells = collect(narrow, far.parameters_, SpatialPyramid(["1x1", "2x2"]))
    assert cells.s2.dtype == np.float64
    assert relative_error(FisherVector().fit_transform(cells)[:, 0], whole) < 1e-4


def test_sums_of_statistics_far_from_the_origin_keep_their_fisher_vector(bags, mixture):
    far = UniversalMixture.from_parameters(mixture.weights_, mixture.means_ + 500, mixture.variances_)
    narrow = bags.replace((bags.values + 500).astype(np.float32))
    halves = (Bags.from_list([b[part] for b in narrow]) for part in (np.s_[:9], np.s_[9:]))
    first, second = (collect(half, far.parameters_) for half in halves)
    whole = collect(narrow, far.parameters_)
    expected = FisherVector().fit_transform(collect(narrow.replace(narrow.values.astype(np.float64)), far.parameters_))
    assert relative_error(FisherVector().fit(whole).transform(first + second), expected) < 1e-4
    together = Bags(narrow.values.astype(np.float64), [0, len(narrow.values)])
    expected = FisherVector().fit_transform(collect(together, far.parameters_))
    assert relative_error(FisherVector().fit_transform(whole.pool()), expected) < 1e-3
