from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from patchbag import (
    BagPCA,
    Bags,
    ColorStatistics,
    FisherVector,
    PerDescriptor,
    UniversalMixture,
    UniversalStatistics,
)


@pytest.mark.parametrize("whiten", [False, True])
def test_it_is_scikit_learns_pca_up_to_signs(bags, whiten):
    ours = BagPCA(3, whiten=whiten).fit(bags)
    theirs = PCA(3, whiten=whiten).fit(bags.values)
    assert np.allclose(np.abs(ours.transform(bags).values), np.abs(theirs.transform(bags.values)), atol=1e-8)
    assert np.allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_)


def test_bytes_give_the_same_projection_as_floats(rng):
    values = rng.integers(0, 255, (500, 16)).astype(np.uint8)
    a, b = Bags(values, [0, 500]), Bags(values.astype(np.float32), [0, 500])
    pca = BagPCA(4).fit(a)
    assert pca.transform(a).dtype == np.float32
    assert np.array_equal(pca.transform(a).values, pca.transform(b).values)


def test_a_direction_without_variance_is_dropped_and_not_amplified_when_whitened(rng):
    values = rng.normal(size=(50, 3))
    values[:, 2] = 1.0
    out = BagPCA(3, whiten=True).fit_transform(Bags(values, [0, 50]))
    assert out.values.shape == (50, 2)
    assert np.allclose(out.values.var(axis=0, ddof=1), 1)


@pytest.mark.parametrize("whiten", [False, True])
def test_descriptors_that_are_all_the_same_become_zeros_of_one_dimension(whiten):
    pca = BagPCA(2, whiten=whiten).fit(Bags(np.full((9, 3), 7.0), [0, 9]))
    assert pca.n_components_ == 1
    assert np.array_equal(pca.transform([np.full((4, 3), 7.0)]).values, np.zeros((4, 1)))


def test_null_directions_of_grey_pictures_do_not_reach_the_fisher_vector(rng):
    images = [rng.integers(0, 256, (40, 48), dtype=np.uint8) for _ in range(4)]
    colours = ColorStatistics(8, (4,)).transform(images)  # three equal channels: 32 different numbers of 96
    steps = UniversalStatistics(UniversalMixture(2, random_state=0), BagPCA(64)).fit(colours)
    assert steps.projection_.n_components_ == len(steps.projection_.components_) == 32
    codes = FisherVector().fit_transform(steps.transform(colours))
    exact = UniversalStatistics(UniversalMixture(2, random_state=0), BagPCA(32)).fit(colours)
    assert codes.shape == (4, 2 * 2 * 32)
    assert np.allclose(codes, FisherVector().fit_transform(exact.transform(colours)))


def test_positions_and_offsets_are_kept(bags):
    out = BagPCA(2).fit_transform(bags)
    assert out.positions is bags.positions and np.array_equal(out.offsets, bags.offsets)


def test_the_sample_is_decided_by_the_seed(bags):
    a, b, c = (BagPCA(2, max_samples=40, random_state=s).fit(bags).components_ for s in (0, 0, 1))
    assert np.array_equal(a, b) and not np.allclose(a, c)


def test_any_transformer_can_be_lifted_to_bags(bags):
    out = PerDescriptor(StandardScaler()).fit_transform(bags)
    assert np.allclose(out.values, StandardScaler().fit_transform(bags.values))


def test_bad_input_is_a_clear_error(bags):
    with pytest.raises(ValueError, match="n_components=6 exceeds the descriptors' 5 dimensions; lower it to 5 or less"):
        BagPCA(6).fit(bags)
    with pytest.raises(ValueError, match="fitted on 5-D descriptors, got 2-D"):
        BagPCA(2).fit(bags).transform([np.zeros((3, 2))])
    arrays = [np.array(bag, copy=True) for bag in bags]
    arrays[7][1] = np.nan
    with pytest.raises(ValueError, match="bag 7 of 30 has descriptors that are NaN or infinite"):
        BagPCA(2).fit(arrays)
    with pytest.raises(ValueError, match="at least two"):
        BagPCA(1).fit([np.zeros((1, 2))])
