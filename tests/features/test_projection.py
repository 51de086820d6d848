from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from patchbag import BagPCA, Bags, PerDescriptor


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


def test_a_direction_without_variance_stays_zero_when_whitened(rng):
    values = rng.normal(size=(50, 3))
    values[:, 2] = 1.0
    out = BagPCA(3, whiten=True).fit_transform(Bags(values, [0, 50]))
    assert np.isfinite(out.values).all()
    assert np.allclose(out.values[:, 2], 0)


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
    with pytest.raises(ValueError, match="between 1 and the descriptors' 5"):
        BagPCA(6).fit(bags)
    with pytest.raises(ValueError, match="fitted on 5-D descriptors, got 2-D"):
        BagPCA(2).fit(bags).transform([np.zeros((3, 2))])
    with pytest.raises(ValueError, match="at least two"):
        BagPCA(1).fit([np.zeros((1, 2))])
