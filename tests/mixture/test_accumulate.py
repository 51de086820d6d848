from __future__ import annotations

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone

from oracles import mixture as oracle
from patchbag import BagOfWords, Bags, DenseSIFT, FisherVector, MAPAdaptation, UniversalMixture, UniversalStatistics
from patchbag.features.projection import BagPCA
from patchbag.mixture.accumulate import accumulate, log_densities
from patchbag.mixture.dense import dense_expectation, dense_sums
from patchbag.mixture.parameters import GaussianParameters, check_parameters
from patchbag.mixture.spatial import SpatialPyramid, parse_grid
from patchbag.mixture.statistics import Statistics, collect


def parts(mixture):
    return mixture.weights_, mixture.means_, mixture.variances_


def test_log_densities_are_those_of_the_formula(bags, mixture):
    values = bags.values[:20]
    expected = [oracle.log_joint(x, *parts(mixture)) for x in values]
    assert np.allclose(log_densities(values, mixture.parameters_), expected, atol=1e-9)


def test_statistics_equal_the_literal_sums(bags, mixture):
    s = collect(bags[:4], mixture.parameters_)
    for i in range(4):
        for mine, literal in zip((s.s0[i], s.s1[i], s.s2[i]), oracle.statistics(bags[i], *parts(mixture))):
            # what the cutoff leaves out weighs at most K · 1e-6 of a descriptor
            assert np.allclose(mine, literal, atol=1e-3, rtol=1e-5)


def test_counts_alone_are_the_same_counts(bags, mixture):
    both, counts = collect(bags, mixture.parameters_), collect(bags, mixture.parameters_, moments=False)
    np.testing.assert_array_equal(counts.s0, both.s0)
    assert counts.s1.shape == counts.s2.shape == (*both.s0.shape, 0)
    np.testing.assert_array_equal(BagOfWords().fit_transform(counts), BagOfWords().fit_transform(both))
    np.testing.assert_array_equal((counts + both.counts()).s0, 2 * both.s0)
    with pytest.raises(ValueError, match="counts alone; make them with moments=True"):
        FisherVector().fit(counts)
    with pytest.raises(ValueError, match="do not belong to a universal model"):
        MAPAdaptation().fit_transform(counts)


def test_counts_alone_in_spatial_cells(bags, mixture, rng):
    placed = Bags(bags.values, bags.offsets, rng.random((len(bags.values), 2)))
    pyramid = SpatialPyramid(["1x1", "2x1"])
    both = collect(placed, mixture.parameters_, pyramid)
    np.testing.assert_array_equal(collect(placed, mixture.parameters_, pyramid, moments=False).s0, both.s0)


def test_soft_counts_sum_to_the_number_of_descriptors(bags, mixture):
    assert np.allclose(collect(bags, mixture.parameters_).s0.sum(axis=1), bags.sizes)


def test_float32_and_float64_agree_far_from_the_origin(bags, mixture):
    far = 1000.0
    shifted = UniversalMixture.from_parameters(mixture.weights_, mixture.means_ + far, mixture.variances_)
    wide = collect(bags.replace(bags.values + far), shifted.parameters_)
    narrow = collect(bags.replace((bags.values + far).astype(np.float32)), shifted.parameters_)
    assert narrow.s0.dtype == np.float32
    assert np.allclose(wide.s0, narrow.s0, atol=5e-3)
    assert np.allclose(wide.s1, narrow.s1, rtol=1e-4, atol=5)


def test_permuting_a_bag_changes_nothing_and_duplicates_count_twice(bags, mixture, rng):
    one = bags[0]
    s = collect(Bags.from_list([one, one[rng.permutation(len(one))], np.concatenate([one, one])]), mixture.parameters_)
    assert np.allclose(s.s1[0], s.s1[1])
    assert np.allclose(2 * s.s2[0], s.s2[2])


@pytest.mark.parametrize("k", [1, 3, 16, 37, 130])
def test_any_number_of_components_is_searched_completely(k):
    rng = np.random.default_rng(k)
    crowd = check_parameters(rng.dirichlet(np.ones(k)), rng.normal(0, 1, (k, 6)), rng.uniform(0.2, 2, (k, 6)))
    values = rng.normal(0, 1, (700, 6))
    segments = np.sort(rng.integers(0, 3, 700))
    s0, s12, log_likelihood = accumulate(values, segments, 3, crowd)
    dense = dense_sums(values, np.searchsorted(segments, range(4)), crowd)
    # a descriptor loses at most the cutoff in each component, and what it loses is shared out among the others
    assert np.abs(s0 - dense[0]).max() <= k * 1e-6 * 700
    assert np.allclose(s12, dense[1], atol=k * 1e-6 * 700 * 9)
    assert log_likelihood == pytest.approx(dense_expectation(values, crowd)[2], rel=1e-7)


def test_the_number_and_the_kind_of_workers_change_no_bit(bags, mixture):
    many = Bags(np.tile(bags.values, (60, 1)), np.concatenate([[0], np.cumsum(np.tile(bags.sizes, 60))]))
    model = UniversalStatistics(UniversalMixture(4, random_state=0), BagPCA(3, random_state=0))
    expected = model.fit(many).transform(many)
    for backend, n_jobs in (("threading", 2), ("loky", 2), ("threading", 3)):
        with parallel_config(backend, n_jobs=n_jobs):
            found = clone(model).fit(many).transform(many)
        assert found.universal == expected.universal
        assert all(np.array_equal(a, b) for a, b in zip(found.arrays().values(), expected.arrays().values()))


def test_statistics_add(bags, mixture):
    halves = [Bags.from_list([b[:9] for b in bags]), Bags.from_list([b[9:] for b in bags])]
    total = collect(halves[0], mixture.parameters_) + collect(halves[1], mixture.parameters_)
    whole = collect(bags, mixture.parameters_)
    assert np.allclose(total.s2, whole.s2)
    assert np.allclose(whole.pool().s0[0], whole.s0.sum(axis=0))
    with pytest.raises(ValueError, match="same images under the same mixture"):
        total + whole[:2]


def test_statistics_of_different_mixtures_do_not_mix(bags, mixture):
    mine = mixture.statistics(bags)
    other = check_parameters(mixture.weights_, mixture.means_ + 1, mixture.variances_)
    theirs = collect(bags, other)
    with pytest.raises(ValueError, match="refer to different universal models"):
        mine + theirs
    with pytest.raises(ValueError, match="refer to different universal models"):
        Statistics.concatenate([mine, theirs])
    unknown = Statistics(theirs.s0, theirs.s1, theirs.s2)
    assert np.array_equal((mine + unknown).s0, mine.s0 + theirs.s0)
    equal = check_parameters(mixture.weights_, other.means - 1, mixture.variances_)
    assert equal == GaussianParameters(equal.weights, equal.means.copy(), equal.variances) and equal != other
    with pytest.raises(ValueError, match="another universal mixture than the one to adapt"):
        MAPAdaptation().fit(mine).transform(theirs)


@pytest.mark.parametrize("dtype", ["float16", ">f4", ">f8", "uint8", ">u2"])
def test_any_dtype_of_descriptors_gives_the_sums_of_its_numbers(bags, mixture, dtype):
    stored = bags.replace(np.clip(np.rint(8 * bags.values) + 90, 0, 255).astype(dtype))
    plain = bags.replace(stored.values.astype(np.float64))
    fit, expected = (UniversalMixture(3, random_state=0).fit(b) for b in (stored, plain))
    assert np.allclose(fit.means_, expected.means_, rtol=1e-3)
    s, t = (collect(b, expected.parameters_) for b in (stored, plain))
    assert s.s0.dtype == (np.float64 if dtype == ">f8" else np.float32)
    assert np.allclose(s.s0, t.s0, atol=1e-3) and np.allclose(s.s2, t.s2, rtol=1e-3)
    dense = dense_sums(stored.values, stored.offsets, expected.parameters_)[0]
    assert np.allclose(dense, t.s0, atol=1e-3)


def test_half_precision_features_train_a_mixture(textures):
    images, _ = textures
    half = DenseSIFT(8, (4,), dtype="float16").transform(images[:4])
    full = half.replace(half.values.astype(np.float32))
    a, b = (UniversalMixture(3, random_state=0).fit(x) for x in (half, full))
    assert np.array_equal(a.means_, b.means_)
    assert np.array_equal(a.statistics(half).s2, b.statistics(full).s2)


def test_the_dense_array_api_path_gives_the_same_sums(bags, mixture):
    s0, s12 = dense_sums(bags.values, bags.offsets, mixture.parameters_)
    assert np.allclose(s0, collect(bags, mixture.parameters_).s0, atol=1e-3)
    log_likelihood = dense_expectation(bags.values, mixture.parameters_)[2]
    assert log_likelihood == pytest.approx(oracle.log_likelihood(bags.values, *parts(mixture)))
    assert s12.shape == (30, 4, 10)


def test_torch_tensors_give_the_same_statistics(bags, mixture):
    torch = pytest.importorskip("torch")
    on_torch = Bags(torch.asarray(bags.values), bags.offsets)
    s = collect(on_torch, mixture.parameters_)
    assert isinstance(s.s1, torch.Tensor)
    assert np.allclose(s.s1.numpy(), collect(bags, mixture.parameters_).s1, atol=1e-2)


def test_hard_assignment_counts_the_most_probable_component(bags, mixture):
    s = collect(bags, mixture.parameters_, assignment="hard")
    winners = [np.bincount(mixture.predict_proba(b).argmax(axis=1), minlength=4) for b in bags]
    assert np.array_equal(s.s0, winners)


def test_nearest_assignment_counts_the_nearest_mean(bags, mixture):
    s = collect(bags, mixture.parameters_, assignment="nearest")
    for i in range(3):
        distance = ((bags[i][:, None] - mixture.means_) ** 2).sum(axis=2)
        assert np.array_equal(s.s0[i], np.bincount(distance.argmin(axis=1), minlength=4))
    with pytest.raises(ValueError, match="'assignment' parameter of UniversalStatistics must be a str among"):
        UniversalStatistics(assignment="fuzzy").fit(bags)


def test_nan_empty_and_wrong_sized_bags_are_named(bags, mixture):
    broken = bags.replace(bags.values.copy())
    broken.values[bags.offsets[2]] = np.nan
    with pytest.raises(ValueError, match="bag 2 of 30 has descriptors that are NaN"):
        collect(broken, mixture.parameters_)
    with pytest.raises(ValueError, match="bag 0 of 1 has no descriptors"):
        collect(Bags(np.zeros((0, 5)), [0, 0]), mixture.parameters_)
    with pytest.raises(ValueError, match="5-D descriptors, these bags have 2-D"):
        collect(Bags.from_list([np.zeros((3, 2))]), mixture.parameters_)


@pytest.mark.parametrize(
    "weights, variances, message",
    [([1.0], [[0.0]], "not positive"), ([np.nan], [[1.0]], "weights contain NaN"), ([-1.0], [[1.0]], "negative")],
)
def test_impossible_parameters_are_refused(weights, variances, message):
    with pytest.raises(ValueError, match=message):
        check_parameters(weights, [[0.0]], variances)


# --- spatial cells -----------------------------------------------------------------------------------------------


def test_cells_of_a_pyramid_hold_the_descriptors_inside_them(bags, mixture):
    pyramid = SpatialPyramid(["1x1", "2x2", "3x1"])
    s = collect(bags, mixture.parameters_, pyramid)
    assert s.s0.shape == (30, 8, 4)
    x, y = bags.positions[: bags.sizes[0]].T
    inside = [y >= 0, (y < 0.5) & (x < 0.5), (y < 0.5) & (x >= 0.5), (y >= 0.5) & (x < 0.5), (y >= 0.5) & (x >= 0.5)]
    inside += [y < 1 / 3, (y >= 1 / 3) & (y < 2 / 3), y >= 2 / 3]
    for cell, mask in enumerate(inside):
        assert s.s0[0, cell].sum() == pytest.approx(mask.sum(), abs=1e-4)
        expected = oracle.statistics(bags[0][mask], *parts(mixture))[1]
        assert np.allclose(s.s1[0, cell], expected, atol=1e-3)


def test_every_level_of_a_pyramid_sums_to_the_whole_image(bags, mixture):
    s = collect(bags, mixture.parameters_, SpatialPyramid(["1x1", "2x2", "3x1"]))
    for cells in (slice(1, 5), slice(5, 8)):
        assert np.allclose(s.s2[:, cells].sum(axis=1), s.s2[:, 0])


def test_bad_grids_and_positions_are_refused(bags, mixture):
    for grid in ("2", "0x1", "axb", "2x"):
        with pytest.raises(ValueError, match="rows x columns"):
            parse_grid(grid)
    with pytest.raises(ValueError, match="no positions"):
        collect(Bags(bags.values, bags.offsets), mixture.parameters_, SpatialPyramid(["2x2"]))
    with pytest.raises(ValueError, match="divide pixel coordinates"):
        SpatialPyramid(["2x2"]).assign(np.array([[3.0, 0.5]]))


def test_universal_statistics_project_and_collect_in_chunks(bags):
    estimator = UniversalStatistics(UniversalMixture(3, random_state=0), BagPCA(2), pyramid=["1x1", "2x1"])
    s = estimator.fit_transform(bags)
    assert s.s1.shape == (30, 3, 3, 2)
    assert s.universal is estimator.mixture_.parameters_
    direct = collect(estimator.projection_.transform(bags), estimator.mixture_.parameters_)
    assert np.allclose(s.s0[:, 0], direct.s0)
    assert isinstance(s[[1, 2]], Statistics) and s[[1, 2]].universal is s.universal


def test_descriptors_that_no_component_explains_are_not_added_behind_the_end_of_the_sums(monkeypatch):
    """Six components are computed as eight, and the last two may be the likeliest."""
    from patchbag.mixture import accumulate as module

    rng = np.random.default_rng(0)
    means = rng.normal(size=(6, 5))
    means[3, 2] = 1e25
    parameters = GaussianParameters(np.full(6, 1 / 6), means, np.ones((6, 5)))
    given, add = [], module._add
    monkeypatch.setattr(module, "_add", lambda *arguments: given.append(arguments) or add(*arguments))
    with np.errstate(all="ignore"):
        values = rng.normal(size=(40, 5)).astype(np.float32)
        s0, s12, _ = module.accumulate(values, np.zeros(40, np.int64), 1, parameters)
    assert s0.shape == (1, 6) and s12.shape == (1, 6, 10)
    starts, chosen, *_, sums, moments = given[0]
    assert 6 <= chosen[: starts[-1]].max() < sums.shape[1] == moments.shape[1]
