# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss

from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.gaussian_process.left_out import choose_spread, left_out_labels
from patchbag.classifiers.gaussian_process.posterior import GaussianPosterior


def scene(n_classes=8, per_class=60, apart=1.0):
    """Classes that overlap, and a kernel between their unit vectors."""
    rng = np.random.default_rng(0)
    y = np.arange(n_classes * per_class) % n_classes
    x = apart * rng.normal(size=(n_classes, 12))[y] + rng.normal(size=(len(y), 12))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.exp(-2 * ((x[:, None] - x) ** 2).sum(axis=2)), y


def test_labels_left_out_are_those_of_a_process_that_never_saw_the_image():
    kernel, y = scene(3, 5)
    targets = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    mean, deviation = left_out_labels(GaussianPosterior.from_kernel(kernel, targets, 0.1))
    for i in range(len(y)):
        rest = np.delete(np.arange(len(y)), i)
        other = GaussianPosterior.from_kernel(kernel[np.ix_(rest, rest)], targets[rest], 0.1)
        expected, variance = other.predict(kernel[[i]][:, rest], kernel[[i], [i]])
        np.testing.assert_allclose(mean[i], expected[0], rtol=1e-9)
        np.testing.assert_allclose(deviation[i], np.sqrt(variance[0] + 0.1), rtol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"classwise": True}])
@pytest.mark.parametrize("n_classes", [2, 8])
def test_stated_probabilities_are_as_large_as_the_share_of_right_answers(settings, n_classes):
    kernel, y = scene(n_classes)
    train, test = np.arange(10 * n_classes), np.arange(10 * n_classes, len(y))
    found = {}
    for calibrate in (False, True):
        model = GaussianProcessClassifier(calibrate=calibrate, **settings).fit(kernel[np.ix_(train, train)], y[train])
        found[calibrate] = model.predict_proba(kernel[np.ix_(test, train)]), model
    (plain, without), (calibrated, model) = found[False], found[True]
    assert without.spread_ == 1.0 and model.spread_ != 1.0
    right = (calibrated.argmax(axis=1) == y[test]).mean()
    assert 0.6 < right < 0.98
    assert abs(calibrated.max(axis=1).mean() - right) < 0.06
    assert log_loss(y[test], calibrated) <= log_loss(y[test], plain) + 0.01
    if n_classes == 8:
        assert right - plain.max(axis=1).mean() > 0.1  # what there was to mend
    np.testing.assert_array_equal(
        model.predict_membership(kernel[np.ix_(test, train)]), without.predict_membership(kernel[np.ix_(test, train)])
    )


def test_few_images_move_the_spread_little():
    kernel, y = scene(2, 2)
    targets = np.where(y == 1, 1.0, -1.0)[:, None]
    assert 0.2 < choose_spread([GaussianPosterior.from_kernel(kernel, targets, 0.1)]) < 5


@pytest.mark.parametrize("settings", [{"likelihood": "probit"}, {"n_inducing": 10}])
def test_other_posteriors_are_not_calibrated(settings):
    kernel, y = scene(3, 8)
    assert GaussianProcessClassifier(**settings).fit(kernel, y).spread_ == 1.0
