# SPDX-License-Identifier: BSD-3-Clause
"""What the categorizer makes of the kernels, distances and transformers that it is given."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline

from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.gaussian_process.kernel_stack import is_definite

RNG = np.random.default_rng(0)
N, M = 45, 15
Y = np.array(["bird", "cat", "dog"])[np.arange(N + M) % 3]
POINTS = RNG.normal(size=(3, 4))[np.arange(N + M) % 3] * 2.2 + RNG.normal(size=(N + M, 4))
GOOD, NOISE = rbf_kernel(POINTS, gamma=0.2), rbf_kernel(RNG.normal(size=(N + M, 4)), gamma=0.2)


class Rbf(TransformerMixin, BaseEstimator):
    """A kernel transformer without a diagonal method."""

    def __init__(self, columns=(0, 1, 2, 3)):
        self.columns = columns

    def fit(self, X, y=None):
        self.reference_ = X[:, list(self.columns)]
        return self

    def transform(self, X):
        return rbf_kernel(X[:, list(self.columns)], self.reference_, gamma=0.2)


def test_inducing_images_spare_the_full_definiteness_test(monkeypatch):
    sizes = []

    def note(kernel, *tolerance):
        sizes.append(len(kernel))
        return is_definite(kernel, *tolerance)

    monkeypatch.setattr("patchbag.classifiers.gaussian_process.kernel_stack.is_definite", note)
    for kernel, data in (("precomputed", GOOD[:N, :N]), ("distance", -np.log(GOOD[:N, :N]))):
        GaussianProcessClassifier(kernel, n_inducing=6, max_iter=5).fit(data, Y[:N])
    assert len(sizes) == 2 and max(sizes) <= 12


def test_an_indefinite_kernel_does_not_pass_for_being_sampled():
    values, vectors = np.linalg.eigh(GOOD[:N, :N])
    bad = (vectors * np.append(-5.0, values[1:])) @ vectors.T
    with pytest.raises(ValueError, match=r"the 45 × 45 Gram matrix is not positive semidefinite"):
        GaussianProcessClassifier(n_inducing=20).fit(bad, Y[:N])
    model = GaussianProcessClassifier(n_inducing=20, repair=True, optimize=None).fit(bad, Y[:N])
    assert model.input_.projections_[0] is not None
    assert np.isfinite(model.predict_proba(bad)).all()


def test_distances_learn_their_length_scale():
    distance = ((POINTS[:, None] - POINTS[None]) ** 2).sum(axis=2)
    model = GaussianProcessClassifier("distance").fit(distance[:N, :N], Y[:N])
    fixed = GaussianProcessClassifier().fit(np.exp(-distance[:N, :N] / distance[:N, :N].mean()), Y[:N])
    assert model.log_evidence_ > fixed.log_evidence_ - 1e-3
    assert np.mean(model.predict(distance[N:, :N]) == Y[N:]) > 0.75


def test_transformers_give_the_answers_of_precomputed_kernels():
    kernels = [Rbf(), Rbf((0, 1))]
    model = GaussianProcessClassifier(kernels, random_state=0).fit(POINTS[:N], Y[:N])
    gram = [k.fit_transform(POINTS[:N]) for k in kernels]
    rows = [k.transform(POINTS[N:]) for k in kernels]
    expected = GaussianProcessClassifier(random_state=0).fit(gram, Y[:N]).predict_proba(rows)
    np.testing.assert_allclose(model.predict_proba(POINTS[N:]), expected, atol=1e-8)


class Linear(TransformerMixin, BaseEstimator):
    """A kernel transformer that says how large the kernel of an image with itself is."""

    def fit(self, X, y=None):
        self.reference_ = X
        return self

    def transform(self, X):
        return X @ self.reference_.T

    def diagonal(self, X):
        return (X**2).sum(axis=1)


def test_self_kernels_of_transformers_are_used():
    settings = {"optimize": None, "noise": 0.1}
    model = GaussianProcessClassifier(Linear(), **settings).fit(POINTS[:N], Y[:N])
    expected = GaussianProcessClassifier(**settings).fit(POINTS[:N] @ POINTS[:N].T, Y[:N])
    rows, diagonal = POINTS[N:] @ POINTS[:N].T, (POINTS[N:] ** 2).sum(axis=1)
    found = model.predict_soft_labels(POINTS[N:])[1]
    np.testing.assert_allclose(found, expected.predict_soft_labels(rows, diagonal)[1], atol=1e-10)
    assert np.abs(found - expected.predict_soft_labels(rows)[1]).max() > 1.0


def test_pipeline_and_grid_search_cut_kernels_correctly():
    union = FeatureUnion([("all", Rbf()), ("two", Rbf((0, 1)))])
    scores = cross_val_score(make_pipeline(union, GaussianProcessClassifier(max_iter=5)), POINTS, Y, cv=3)
    search = GridSearchCV(GaussianProcessClassifier(max_iter=5), {"l2": [0.0, 1.0]}, cv=3)
    search.fit(np.stack([GOOD, NOISE], axis=2), Y)
    assert scores.mean() > 0.7
    assert search.best_score_ > 0.7


def test_repair_accepts_an_indefinite_kernel_and_projects_new_rows():
    values, vectors = np.linalg.eigh(GOOD[:N, :N])
    values[0] = -0.5
    bad = (vectors * values) @ vectors.T
    with pytest.raises(ValueError, match=r"not positive semidefinite: .*1 of them negative"):
        GaussianProcessClassifier().fit(bad, Y[:N])
    model = GaussianProcessClassifier(repair=True, optimize=None, noise=0.1, random_state=0).fit(bad, Y[:N])
    clipped = (vectors * np.maximum(values, 0)) @ vectors.T
    expected = GaussianProcessClassifier(optimize=None, noise=0.1, random_state=0).fit(clipped, Y[:N])
    np.testing.assert_allclose(model.predict_proba(bad[:5]), expected.predict_proba(clipped[:5]), atol=1e-10)


def test_a_kernel_indefinite_by_less_than_the_trace_shows_is_repaired():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(600, 60))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    other = np.linalg.qr(np.hstack([points, rng.normal(size=(600, 20))]))[0][:, 60:]
    kernel, y = points @ points.T - 3e-6 * other @ other.T, np.arange(600) % 6
    model = GaussianProcessClassifier(optimize=None, noise=1e-6, repair=True).fit(kernel, y)
    expected = GaussianProcessClassifier(optimize=None, noise=1e-6).fit(points @ points.T, y)
    new = rng.normal(size=(5, 60)) @ points.T
    # both are solved with a condition number of 1e7
    np.testing.assert_allclose(model.decision_function(new), expected.decision_function(new), atol=1e-6)


def test_neither_fitting_nor_predicting_changes_the_arrays_given():
    for unsymmetric, repair in ((1e-7, False), (0.0, True)):
        train = GOOD[:N, :N] + unsymmetric * RNG.normal(size=(N, N)) - 0.5 * repair * np.eye(N)
        rows = GOOD[N:, :N].copy()
        given = train.copy(), rows.copy()
        model = GaussianProcessClassifier(repair=repair, optimize=None, noise=0.1).fit(train, Y[:N])
        model.predict_proba(rows)
        assert (model.input_.projections_[0] is not None) == repair
        np.testing.assert_array_equal(train, given[0])
        np.testing.assert_array_equal(rows, given[1])


def test_a_kernel_of_single_precision_can_still_be_updated():
    points = np.random.default_rng(1).normal(size=(90, 5)).astype(np.float32)
    kernel, y = points @ points.T, np.arange(90) % 3
    model = GaussianProcessClassifier(optimize=None, noise=0.01)
    more = clone(model).fit(kernel[:81, :81], y[:81])
    model.fit(kernel[:80, :80], y[:80]).update(kernel[80:81, :80], y[80], diagonal=[kernel[80, 80]])
    assert model.input_.projections_[0] is not None
    rows = kernel[81:, :81]
    np.testing.assert_allclose(model.decision_function(rows), more.decision_function(rows), atol=1e-3)


def test_float32_kernels_agree_with_float64():
    model = GaussianProcessClassifier(optimize=None, noise=0.1, random_state=0)
    expected = model.fit(GOOD[:N, :N], Y[:N]).predict_proba(GOOD[N:, :N])
    small = GOOD.astype(np.float32)
    np.testing.assert_allclose(model.fit(small[:N, :N], Y[:N]).predict_proba(small[N:, :N]), expected, atol=1e-4)
