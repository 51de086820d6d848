from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline

from patchbag import BagPCA, Channels, DenseSIFT, GeometricBlur
from patchbag.channels import Channel
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.features.channels import FeatureChannels
from patchbag.runtime import runtime_context
from patchbag.similarity.inner_product import InnerProductKernel
from patchbag.similarity.sets.minimum_distance import MinimumDistanceKernel
from patchbag.similarity.sets.spatial_match import SpatialPyramidMatch
from patchbag.similarity.union import KernelUnion


def spatial(channel: str) -> Pipeline:
    return make_pipeline(Channel(channel), BagPCA(3, random_state=0), SpatialPyramidMatch(8, random_state=0))


@pytest.fixture
def channels(bags) -> Channels:
    """The same bags twice, the second time with other values."""
    return Channels(a=bags, b=bags.replace(bags.values[:, :3] * 2 + 1))


@pytest.fixture
def union() -> KernelUnion:
    return KernelUnion([("words", spatial("a")), ("near", make_pipeline(Channel("b"), MinimumDistanceKernel()))])


def test_every_layer_is_the_kernel_of_its_branch_alone(union, channels):
    stack = union.fit_transform(channels[:20])
    rows = union.transform(channels[20:])
    assert stack.shape == (20, 20, 2) and rows.shape == (10, 20, 2)
    assert [name for name, _ in union.branches_] == ["words", "near"]
    alone = MinimumDistanceKernel()
    assert np.array_equal(stack[:, :, 1], alone.fit_transform(channels["b"][:20]))
    assert np.array_equal(rows[:, :, 1], alone.transform(channels["b"][20:]))
    assert np.array_equal(stack[:, :, 0], spatial("a").fit_transform(channels[:20]))


def test_fit_then_transform_gives_the_rows_that_fit_transform_promises(union, channels):
    stack = union.fit_transform(channels)
    assert np.allclose(clone(union).fit(channels).transform(channels)[:, :, 0], stack[:, :, 0], atol=1e-6)


def test_use_names_the_kernels_and_their_order(union, channels):
    both = union.fit_transform(channels)
    chosen = clone(union).set_params(use=["near"]).fit(channels)
    assert [name for name, _ in chosen.branches_] == ["near"] and chosen.transform(channels).shape[2] == 1
    turned = clone(union).set_params(use=["near", "words"]).fit_transform(channels)
    assert np.array_equal(turned[:, :, ::-1], both)
    for wrong in (["far"], [], ["near", "near"]):
        with pytest.raises(ValueError, match="use must name some of the kernels words, near"):
            clone(union).set_params(use=wrong).fit(channels)


def test_kernels_that_are_not_used_are_not_computed(union, channels):
    class Never(InnerProductKernel):
        def fit(self, X, y=None):
            raise AssertionError("fitted")

    union.set_params(words=Never(), use=["near"])
    assert union.fit_transform(channels).shape == (30, 30, 1)


def test_images_that_lack_a_channel_are_a_clear_error(union, channels, bags):
    with pytest.raises(ValueError, match="no channel 'b' among a"):
        union.fit(Channels(a=bags))
    with pytest.raises(ValueError, match="expected Channels with a dataset named 'a', got a Bags"):
        union.fit(bags)


def test_a_branch_that_ends_in_no_kernel_is_named(channels):
    vectors = KernelUnion([("sizes", _Sizes())])
    with pytest.raises(ValueError, match="branch 'sizes' does not end in a kernel"):
        vectors.fit_transform(channels)
    kernel = KernelUnion([("sizes", make_pipeline(_Sizes(), InnerProductKernel()))])
    assert np.array_equal(kernel.fit_transform(channels), np.ones((30, 30, 1)))
    with pytest.raises(ValueError, match="at least one branch"):
        KernelUnion([]).fit(channels)


class _Sizes(Channel):
    def __init__(self, name: str = "a") -> None:
        super().__init__(name)

    def transform(self, X):
        return X[self.name].sizes[:, None].astype(float)


def test_inner_products_equal_their_definition_and_keep_zero_vectors():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 4)), rng.normal(size=(3, 4))
    a[2] = 0
    unit = [v / np.linalg.norm(v) if v.any() else v for v in a]
    kernel = InnerProductKernel().fit(a)
    expected = [[float(x @ y) / np.linalg.norm(x) for y in unit] for x in b]
    assert np.allclose(kernel.transform(b), expected)
    assert np.allclose(InnerProductKernel(normalize=False).fit(a).transform(b), b @ a.T)
    assert np.allclose(kernel.transform(b.astype(np.float32)), expected, atol=1e-6)
    with pytest.raises(ValueError, match="vectors of 4 numbers, got 3"):
        kernel.transform(b[:, :3])
    a[4, 1] = np.nan
    with pytest.raises(ValueError, match="image 4 of 6"):
        kernel.fit(a)


def test_features_are_extracted_once_each_and_runtime_settings_reach_them(textures, tmp_path):
    images, _ = textures
    features = FeatureChannels([("sift", DenseSIFT(step=24)), ("gb", GeometricBlur(10, random_state=4))])
    made = features.fit(images).transform(images[:4])
    assert made.names == ("sift", "gb") and made["gb"].sizes.tolist() == [10] * 4
    assert np.array_equal(made["sift"].values, DenseSIFT(step=24).transform(images[:4]).values)
    assert features.transform(made) is made


def test_the_points_of_a_feature_do_not_change_with_the_seed_of_a_run(textures):
    images, _ = textures
    made = []
    for seed in (1, 2):
        with runtime_context(seed=seed):
            made.append(GeometricBlur(10).transform(images[:2]).values)
    assert np.array_equal(*made)


def test_a_dropped_channel_is_not_extracted(textures):
    images, _ = textures
    features = FeatureChannels([("sift", DenseSIFT(step=24)), ("gb", GeometricBlur())])
    assert features.set_params(gb="drop").transform(images[:2]).names == ("sift",)
    with pytest.raises(ValueError, match="at least one channel"):
        features.set_params(sift="drop").fit()


def test_scikit_learns_search_cuts_channels_and_chooses_kernels(union, channels):
    y = np.arange(30) % 2
    pipeline = Pipeline([("kernels", union), ("classifier", GaussianProcessClassifier(repair=True, max_iter=3))])
    search = GridSearchCV(pipeline, {"kernels__use": [["near"], None]}, cv=2, error_score="raise").fit(channels, y)
    assert search.cv_results_["mean_test_score"].shape == (2,)
    assert search.best_estimator_.predict_proba(channels[:3]).sum(axis=1) == pytest.approx(1)
