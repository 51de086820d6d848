# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from patchbag.classifiers.confidence.temperature import fit_temperature, left_out_folds, typical_temperature


def labelled_scores(n, temperature, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 0.3, size=(n, n_classes))
    p = softmax(temperature * scores, axis=1)
    return scores, (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


@pytest.mark.parametrize("temperature", [1.0, 8.0])
def test_many_images_overrule_the_prior(temperature):
    scores, targets = labelled_scores(20_000, temperature)
    assert fit_temperature(scores, targets) == pytest.approx(temperature, rel=0.1)


def test_the_temperature_is_the_most_probable_one():
    scores, targets = labelled_scores(30, 8.0)
    typical, found = typical_temperature(scores, targets), fit_temperature(scores, targets)

    def log_density(a):
        logs = np.log(softmax(a * scores, axis=1))
        own = logs[np.arange(30), targets]
        others = (logs.sum(axis=1) - own) / (scores.shape[1] - 1)
        return (30.75 * own + 0.75 * others).sum() / 31.5 - 0.5 * (np.log(a / typical) / 0.5) ** 2

    assert log_density(found) > max(log_density(1.02 * found), log_density(found / 1.02))


@pytest.mark.parametrize("per_class", [2, 4, 50])
def test_separable_scores_do_not_make_sure(per_class):
    targets = np.repeat(np.arange(4), per_class)
    rng = np.random.default_rng(0)
    scores = np.where(targets[:, None] == np.arange(4), 0.3, -0.6) + rng.normal(0, 0.1, (len(targets), 4))
    assert (scores.argmax(axis=1) == targets).all()
    p = softmax(fit_temperature(scores, targets) * scores, axis=1).max(axis=1)
    assert p.mean() > 0.9 and p.max() < 1 - 0.03 / len(targets)


def test_what_is_expected_depends_on_the_classes_an_image_does_not_belong_to():
    scores, targets = labelled_scores(50, 5.0)
    own = np.arange(50), targets
    higher = scores.copy()
    higher[own] += 1.0
    assert typical_temperature(higher, targets) == pytest.approx(typical_temperature(scores, targets))
    rest = np.delete(scores.ravel(), np.ravel_multi_index(own, scores.shape))
    assert typical_temperature(scores, targets) == pytest.approx(1.75 * rest.std() ** (-2 / 3))


def test_without_a_left_out_image_of_a_known_class_the_prior_stays():
    scores, targets = labelled_scores(6, 5.0, n_classes=6)
    scores[np.arange(6), targets] = np.nan
    assert fit_temperature(scores, targets) == pytest.approx(typical_temperature(scores, targets), rel=1e-3)
    # rows without any score are images that were not left out
    with_rest = np.vstack([scores, np.full((3, 6), np.nan)])
    assert fit_temperature(with_rest, np.append(targets, [0, 1, 2])) == fit_temperature(scores, targets)


def test_folds_leave_every_image_out_once_and_keep_every_class():
    targets = np.repeat([0, 1, 2, 3], [7, 5, 4, 1])
    folds = left_out_folds(targets, 3, 0)
    assert len(folds) == 3
    tested = np.concatenate([test for _, test in folds])
    np.testing.assert_array_equal(np.sort(tested), np.arange(16))  # all but the only image of class 3
    for train, test in folds:
        assert not set(train) & set(test) and len(train) + len(test) == 17
        assert set(targets[train]) == {0, 1, 2, 3}


def test_fewer_folds_where_a_class_has_fewer_images():
    assert len(left_out_folds(np.repeat([0, 1], [2, 2]), 5, 0)) == 2
    assert len(left_out_folds(np.repeat([0, 1, 2], [9, 9, 2]), 5, 0)) == 5  # one small class does not cost the others
    for train, _ in left_out_folds(np.repeat([0, 1, 2], [9, 9, 2]), 5, 0):
        assert len(np.unique(np.repeat([0, 1, 2], [9, 9, 2])[train])) == 3


def test_of_few_images_smaller_parts_are_left_out_but_the_same_share_of_every_class():
    few, many = np.arange(60) % 6, np.arange(600) % 6
    assert len(left_out_folds(few, "auto", 0)) == 10 and len(left_out_folds(many, "auto", 0)) == 3
    for _, test in left_out_folds(few, "auto", 0):
        np.testing.assert_array_equal(np.bincount(few[test]), np.ones(6))


def test_classes_of_one_image_are_left_out_whole():
    folds = left_out_folds(np.array([2, 0, 1, 3]), 3, 0)
    assert len(folds) == 3
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(4))
    assert left_out_folds(np.array([0, 1]), 3, 0) == []


def test_scores_that_do_not_differ_are_not_sure():
    scores = np.zeros((6, 3))
    assert fit_temperature(scores, np.arange(6) % 3) < 50
