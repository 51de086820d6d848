# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numba
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from oracles.pyramid_match import match_cost_bound, optimal_partial_cost, uniform_match, vocabulary_match
from patchbag.bags import Bags
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.similarity.sets.pyramid_bins import UniformBins
from patchbag.similarity.sets.pyramid_match import PyramidMatchKernel


def make_bags(n=12, d=3, seed=0, dtype=np.float64, classes=2):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(classes, 4, d)) * 2
    arrays, positions = [], []
    for i in range(n):
        m = int(rng.integers(5, 25))
        arrays.append((centers[i % classes][rng.integers(0, 4, m)] + 0.3 * rng.normal(size=(m, d))).astype(dtype))
        positions.append(rng.random((m, 2)))
    return Bags.from_list(arrays, positions)


BAGS = make_bags()


@pytest.mark.parametrize("parameters", [{"n_shifts": 1}, {"n_shifts": 3}, {"weights": [3.0, 3.0, 1.0, 0.5, 0.0]}])
def test_uniform_kernel_equals_the_literal_match(parameters):
    kernel = PyramidMatchKernel(n_levels=5, normalize=False, random_state=0, **parameters)
    gram = kernel.fit_transform(BAGS)
    expected = [[uniform_match(x, z, kernel.bins_, kernel.level_weights_) for z in BAGS] for x in BAGS]
    np.testing.assert_allclose(gram, expected, atol=1e-12)


def test_vocabulary_kernel_equals_the_literal_match():
    kernel = PyramidMatchKernel("vocabulary", n_levels=4, n_branches=3, normalize=False, random_state=0)
    gram = kernel.fit_transform(BAGS)
    expected = [[vocabulary_match(x, z, kernel.bins_) for z in BAGS] for x in BAGS]
    np.testing.assert_allclose(gram, expected, rtol=1e-10)
    assert len(kernel.bins_.centers) > 10
    assert np.all(kernel.bins_.sizes <= kernel.bins_.sizes[kernel.bins_.parents])
    assert kernel.bins_.sizes.min() > 0.01 * kernel.bins_.sizes[0]


@pytest.mark.parametrize("bins", ["uniform", "vocabulary"])
@pytest.mark.parametrize("normalize", [False, True])
def test_transform_of_the_reference_equals_the_gram_and_new_bags_match_the_literal(bins, normalize):
    kernel = PyramidMatchKernel(bins, n_levels=4, n_branches=3, normalize=normalize, random_state=0)
    gram = kernel.fit_transform(BAGS[:8])
    np.testing.assert_allclose(kernel.transform(BAGS[:8]), gram, atol=1e-12)
    np.testing.assert_allclose(np.diag(gram), kernel.diagonal(BAGS[:8]), atol=1e-12)
    new = BAGS[8:]

    def literal(x, z):
        if bins == "uniform":
            return uniform_match(x, z, kernel.bins_, kernel.level_weights_)
        return vocabulary_match(x, z, kernel.bins_)

    expected = np.array([[literal(x, z) for z in BAGS[:8]] for x in new])
    own = np.array([literal(x, x) for x in BAGS])
    if normalize:
        expected /= np.sqrt(np.outer(own[8:], own[:8]))
    np.testing.assert_allclose(kernel.transform(new), expected, atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(new), np.ones(4) if normalize else own[8:], atol=1e-12)


@pytest.mark.parametrize("bins", ["uniform", "vocabulary"])
@pytest.mark.parametrize("normalize", [False, True])
def test_kernel_is_mercer(bins, normalize):
    bags = make_bags(n=60, seed=3)
    gram = PyramidMatchKernel(bins, n_levels=5, n_branches=4, normalize=normalize, random_state=1).fit_transform(bags)
    np.testing.assert_array_equal(gram, gram.T)
    assert np.linalg.eigvalsh(gram)[0] > -1e-10 * np.trace(gram)


def test_dense_and_sparse_bins_of_many_images_agree_with_the_literal_match():
    """More images than one block, and bins filled by all, some and one of them."""
    rng = np.random.default_rng(5)
    bags = Bags.from_list([rng.normal(size=(4, 2)) for _ in range(150)])
    kernel = PyramidMatchKernel(n_levels=6, normalize=False, random_state=0)
    gram = kernel.fit_transform(bags)
    for i, j in rng.integers(0, 150, (200, 2)):
        expected = uniform_match(bags[i], bags[j], kernel.bins_, kernel.level_weights_)
        assert gram[i, j] == pytest.approx(expected, abs=1e-12)


def test_order_of_the_features_changes_nothing_and_duplicates_count_twice():
    kernel = PyramidMatchKernel(n_levels=5, normalize=False, random_state=0).fit(BAGS)
    shuffled = [np.random.default_rng(i).permutation(bag) for i, bag in enumerate(BAGS)]
    np.testing.assert_array_equal(kernel.transform(shuffled), kernel.transform(BAGS))
    twice = [np.vstack([bag, bag]) for bag in BAGS]
    np.testing.assert_allclose(kernel.diagonal(twice), 2 * kernel.diagonal(BAGS))


def test_float32_and_float64_features_agree():
    single = make_bags(dtype=np.float32)
    double = single.replace(single.values.astype(float))
    for bins in ("uniform", "vocabulary"):
        kernel = PyramidMatchKernel(bins, n_levels=4, n_branches=3, random_state=0)
        np.testing.assert_allclose(kernel.fit_transform(single), kernel.fit_transform(double), atol=1e-12)


def test_same_seed_same_kernel_whatever_the_number_of_threads():
    bags = make_bags(n=150)
    kernel = PyramidMatchKernel(n_shifts=2, random_state=7)
    first = kernel.fit_transform(bags)
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        np.testing.assert_array_equal(kernel.fit_transform(bags), first)
    finally:
        numba.set_num_threads(threads)
    assert not np.array_equal(PyramidMatchKernel(n_shifts=2, random_state=8).fit_transform(bags), first)


def test_positions_are_two_more_dimensions():
    kernel = PyramidMatchKernel(n_levels=5, position_weight=0.5, random_state=0)
    extent = np.ptp(BAGS.values, axis=0).max()
    joined = BAGS.replace(np.hstack([BAGS.values, 0.5 * extent * BAGS.positions]))
    expected = PyramidMatchKernel(n_levels=5, random_state=0).fit_transform(joined)
    np.testing.assert_allclose(kernel.fit_transform(BAGS), expected)
    with pytest.raises(ValueError, match="bags have no positions"):
        kernel.fit(list(BAGS))


def test_cost_bound_lies_above_the_optimal_matching_and_within_the_known_factor():
    rng = np.random.default_rng(0)
    d, ratios = 2, []
    for trial in range(4):
        x, z = rng.random((8, d)), rng.random((15, d))
        bins = UniformBins.cover(np.vstack([x, z]), n_levels=12, n_shifts=6, random_state=trial)
        bounds, optimum = match_cost_bound(x, z, bins), optimal_partial_cost(x, z)
        assert np.min(bounds) >= optimum
        ratios.append(np.mean(bounds) / optimum)
    # Indyk & Thaper: the expected cost of the embedding is within a factor of order d log D of the optimum
    assert np.mean(ratios) < d * np.log2(2**11)


def test_the_most_levels_that_are_allowed_still_tell_features_apart():
    gram = PyramidMatchKernel(n_levels=53, random_state=0).fit_transform(BAGS)
    expected = PyramidMatchKernel(n_levels=53, random_state=0, normalize=False).fit(BAGS)
    for i, j in ((0, 1), (2, 5)):
        x, z = BAGS[i], BAGS[j]
        own = [uniform_match(bag, bag, expected.bins_, expected.level_weights_) for bag in (x, z)]
        match = uniform_match(x, z, expected.bins_, expected.level_weights_)
        assert gram[i, j] == pytest.approx(match / np.sqrt(own[0] * own[1]), abs=1e-12)
    assert np.abs(gram - np.eye(len(gram))).max() < 0.5


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_small_integers_make_the_kernel_of_the_same_numbers(dtype):
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(4)
    whole = [rng.integers(limits.min, limits.max, size=(6, 2), endpoint=True) for _ in range(5)]
    whole[0][:2] = [[limits.min], [limits.max]]
    where = [rng.random((6, 2)) for _ in range(5)]
    kernels = [
        PyramidMatchKernel(position_weight=0.5, random_state=0).fit(
            Bags.from_list([b.astype(kind) for b in whole], where)
        )
        for kind in (dtype, float)
    ]
    assert [kernel.extent_ for kernel in kernels] == [255.0, 255.0]
    bags = Bags.from_list(whole, where)
    np.testing.assert_allclose(kernels[0].transform(bags), kernels[1].transform(bags))


def test_kernel_ranks_pairs_as_the_optimal_matching_does():
    rng = np.random.default_rng(1)
    reference = rng.random((12, 2))
    moved = [reference + step * rng.normal(size=(12, 2)) for step in (0.01, 0.05, 0.2, 0.6)]
    kernel = PyramidMatchKernel(n_levels=9, n_shifts=20, random_state=0).fit([reference, *moved])
    assert np.all(np.diff(kernel.transform([reference])[0]) < 0)


def test_kernel_works_in_a_pipeline_with_svc_and_gaussian_process():
    bags, y = make_bags(n=40, seed=2), np.arange(40) % 2
    svc = make_pipeline(PyramidMatchKernel(random_state=0), SVC(kernel="precomputed"))
    search = GridSearchCV(svc, {"pyramidmatchkernel__n_levels": [4, 6]}, cv=3).fit(bags, y)
    assert search.best_score_ > 0.9
    kernel = PyramidMatchKernel(n_levels=5, random_state=0)
    model = GaussianProcessClassifier(kernel, max_iter=5).fit(bags[:30], y[:30])
    assert np.mean(model.predict(bags[30:]) == y[30:]) > 0.8
    assert np.isfinite(model.predict_proba(bags[30:])).all()


def test_features_outside_the_reference_are_moved_to_its_border():
    kernel = PyramidMatchKernel(n_levels=4, random_state=0).fit(BAGS)
    far = [1000 * np.ones((3, 3)), -1000 * np.ones((3, 3))]
    assert np.all(kernel.transform(far) > 0)


def test_identical_features_match_completely():
    same = [np.full((4, 2), 3.0), np.full((9, 2), 3.0)]
    for bins in ("uniform", "vocabulary"):
        gram = PyramidMatchKernel(bins, n_levels=4, normalize=False, random_state=0).fit_transform(same)
        assert gram[0, 1] == pytest.approx(gram[0, 0])


@pytest.mark.parametrize(
    ("parameters", "bags", "message"),
    [
        ({}, [np.ones((3, 2)), np.empty((0, 2))], "bag 1 of 2 has no descriptors"),
        ({}, [np.ones((3, 2)), np.array([[1.0, 2.0], [np.nan, 1.0]])], r"bag 1 of 2 has a feature .* \(row 1\)"),
        ({"weights": [1.0, 2.0]}, BAGS, "do not increase"),
        ({"weights": [1.0, -0.5], "n_levels": 2}, BAGS, "do not increase"),
        ({"bins": "round"}, BAGS, "The 'bins' parameter"),
        ({"n_levels": 0}, BAGS, "The 'n_levels' parameter"),
        ({"n_levels": 70}, BAGS, r"The 'n_levels' parameter .* in the range \[1, 53\]"),
        ({"bins": "vocabulary", "weights": [1.0]}, BAGS, "weights are for uniform bins"),
    ],
)
def test_bad_input_is_a_clear_error(parameters, bags, message):
    with pytest.raises(ValueError, match=message):
        PyramidMatchKernel(**parameters).fit(bags)


def test_new_bags_of_another_dimension_are_a_clear_error():
    kernel = PyramidMatchKernel(n_levels=3, random_state=0).fit(BAGS)
    with pytest.raises(ValueError, match="2 dimensions, the reference bags 3"):
        kernel.transform([np.ones((3, 2))])
