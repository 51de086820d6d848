# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss

from patchbag.classifiers.confidence.temperature import left_out_folds
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.gaussian_process.posterior import GaussianPosterior


def points(n_classes=8, per_class=60, apart=1.0):
    """Unit vectors of classes that overlap."""
    rng = np.random.default_rng(0)
    y = np.arange(n_classes * per_class) % n_classes
    x = apart * rng.normal(size=(n_classes, 12))[y] + rng.normal(size=(len(y), 12))
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


def scene(*settings):
    x, y = points(*settings)
    return np.exp(-2 * ((x[:, None] - x) ** 2).sum(axis=2)), y


def test_labels_left_out_are_those_of_a_process_that_never_saw_the_fold():
    kernel, y = scene(3, 5)
    targets = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    folds = left_out_folds(y, 3, 0)
    posterior = GaussianPosterior.from_kernel(kernel, targets, 0.1)
    mean, variance = posterior.left_out(folds, posterior.inverse())
    for train, test in folds:
        other = GaussianPosterior.from_kernel(kernel[np.ix_(train, train)], targets[train], 0.1)
        rows = kernel[np.ix_(test, train)]
        expected = other.mean(rows), other.variance(rows, np.diagonal(kernel)[test])
        np.testing.assert_allclose(mean[test], expected[0], rtol=1e-8)
        np.testing.assert_allclose(variance[test], expected[1], rtol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 8])
def test_stated_probabilities_are_as_large_as_the_share_of_right_answers(n_classes):
    kernel, y = scene(n_classes)
    train, test = np.arange(10 * n_classes), np.arange(10 * n_classes, len(y))
    found = {}
    for calibrate in (False, True):
        model = GaussianProcessClassifier(calibrate=calibrate, random_state=0)
        model.fit(kernel[np.ix_(train, train)], y[train])
        found[calibrate] = model, model.predict_proba(kernel[test][:, train])
    (without, plain), (model, calibrated) = found[False], found[True]
    assert without.temperature_ is None
    right = (calibrated.argmax(axis=1) == y[test]).mean()
    assert 0.6 < right < 0.98
    assert abs(calibrated.max(axis=1).mean() - right) < (0.1 if n_classes == 2 else 0.06)
    assert log_loss(y[test], calibrated) <= log_loss(y[test], plain) + 0.01
    if n_classes == 8:
        assert right - plain.max(axis=1).mean() > 0.1  # what there was to mend
    np.testing.assert_array_equal(model.predict(kernel[test][:, train]), calibrated.argmax(axis=1))
    rows = kernel[test][:, train]
    np.testing.assert_array_equal(model.predict_membership(rows), without.predict_membership(rows))


@pytest.mark.parametrize("per_class", [1, 2, 3, 10])
@pytest.mark.parametrize("centred", [False, True])
def test_few_labels_on_a_linear_kernel_are_not_all_noise(per_class, centred):
    """Without a level of its own, a class of a centred kernel was all noise and every probability 1 / 8."""
    x, y = points(8, 60, 0.9)
    gaps = []
    for draw in range(6):
        order = np.random.default_rng(draw).permutation(60) * 8
        train = (order[:per_class, None] + np.arange(8)).ravel()
        test = (order[per_class:, None] + np.arange(8)).ravel()
        a, b = x[train], x[test]
        if centred:
            a, b = a - a.mean(axis=0), b - a.mean(axis=0)
        model = GaussianProcessClassifier(random_state=0).fit(a @ a.T, y[train])
        p = model.predict_proba(b @ a.T)
        gaps.append(p.max(axis=1).mean() - (p.argmax(axis=1) == y[test]).mean())
    # to the evidence, one of the draws of two images per class is noise
    assert abs(np.mean(gaps)) < 0.1 and np.sort(np.abs(gaps))[-2] < 0.2


@pytest.mark.parametrize("settings", [{"likelihood": "probit"}, {"n_inducing": 10}])
def test_other_posteriors_are_not_calibrated(settings):
    kernel, y = scene(3, 8)
    assert GaussianProcessClassifier(**settings).fit(kernel, y).temperature_ is None


def test_two_images_cannot_be_left_out():
    model = GaussianProcessClassifier().fit(np.array([[1.0, 0.2], [0.2, 1.0]]), ["a", "b"])
    assert model.temperature_ is None
    np.testing.assert_allclose(model.predict_proba([[0.5, 0.5]]), [[0.5, 0.5]], atol=1e-6)
