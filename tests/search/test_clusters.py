"""Groups of images without labels: the right ones where they are plain to see, and a typical image of each."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from patchbag import HistogramKernel, ImageClusters


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), (60, 40, 30, 20))
    return 6 * np.eye(8)[truth] + rng.normal(size=(150, 8)), truth


def test_groups_that_are_plain_to_see_are_found_and_counted(blobs):
    X, truth = blobs
    model = ImageClusters(random_state=0).fit(X)
    assert normalized_mutual_info_score(truth, model.labels_) > 0.98
    assert list(np.bincount(model.labels_)) == sorted(np.bincount(model.labels_), reverse=True)
    assert list(model.labels_[model.typical_]) == [0, 1, 2, 3]


def test_the_typical_image_is_nearer_to_the_others_than_most(blobs):
    X, _ = blobs
    model = ImageClusters(4, random_state=0).fit(X)
    for cluster, typical in enumerate(model.typical_):
        members = np.flatnonzero(model.labels_ == cluster)
        distances = np.linalg.norm(X[members][:, None] - X[members], axis=2).mean(axis=1)
        own = distances[np.flatnonzero(members == typical)[0]]
        assert own < np.quantile(distances, 0.4)
        assert model.central_[typical] == pytest.approx(1.0)


def test_a_kernel_serves_as_well(blobs):
    X, truth = blobs
    histograms = np.exp(X) / np.exp(X).sum(axis=1, keepdims=True)
    kernel = HistogramKernel("chi2", exponential=True).fit_transform(histograms)
    found = ImageClusters(4, given="kernel", random_state=0).fit_predict(kernel)
    assert normalized_mutual_info_score(truth, found) > 0.9
    with pytest.raises(ValueError, match="square matrix"):
        ImageClusters(2, given="kernel").fit(kernel[:5])


def test_images_that_are_all_the_same_are_one_group():
    model = ImageClusters(2, random_state=0).fit(np.ones((10, 3)))
    assert len(model.typical_) >= 1 and len(model.labels_) == 10
    with pytest.raises(ValueError, match="cannot make"):
        ImageClusters(12).fit(np.random.default_rng(0).random((10, 3)))
