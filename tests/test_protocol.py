"""The papers' random splits."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from patchbag import PerClassSplit
from patchbag.protocol import half_of_smallest

LABELS = np.array(["a"] * 10 + ["b"] * 7)


def test_every_class_trains_with_the_same_number_and_the_rest_tests():
    for train, test in PerClassSplit(4, n_splits=3).split(LABELS, LABELS):
        assert np.unique(LABELS[train], return_counts=True)[1].tolist() == [4, 4]
        assert sorted([*train, *test]) == list(range(17))


def test_test_images_can_be_as_many_per_class():
    ((train, test),) = PerClassSplit(2, 3, n_splits=1).split(LABELS, LABELS)
    assert len(train) == 4 and np.unique(LABELS[test], return_counts=True)[1].tolist() == [3, 3]
    assert not set(train) & set(test)


def test_split_i_has_the_seed_plus_i():
    first = list(PerClassSplit(3, n_splits=3, random_state=5).split(LABELS, LABELS))
    second = list(PerClassSplit(3, n_splits=2, random_state=6).split(LABELS, LABELS))
    for (train, test), (again, other) in zip(first[1:], second):
        assert train.tolist() == again.tolist() and test.tolist() == other.tolist()
    assert first[0][0].tolist() != first[1][0].tolist()


def test_it_is_a_splitter_for_scikit_learn():
    X = np.random.default_rng(0).normal(size=(17, 2)) + (LABELS == "a")[:, None] * 9
    assert cross_val_score(LogisticRegression(), X, LABELS, cv=PerClassSplit(3, n_splits=4)).tolist() == [1.0] * 4


def test_a_class_that_is_too_small_is_named():
    with pytest.raises(ValueError, match="class 'b' has 7 images: 7 for training leave none for testing"):
        list(PerClassSplit(7).split(LABELS, LABELS))
    with pytest.raises(ValueError, match="n_splits must be a whole number, 1 or more; got 0"):
        PerClassSplit(7, n_splits=0)
    with pytest.raises(ValueError, match=r"train_per_class must be a whole number, 0 or more; got 0\.5"):
        PerClassSplit(0.5)


def test_where_nobody_says_how_many_train_it_is_half_of_the_smallest_class():
    assert half_of_smallest(LABELS) == 3
    assert half_of_smallest(["a", "b"]) == 1
    assert half_of_smallest(np.repeat(["a", "b"], 1000)) == 100
    assert half_of_smallest(np.repeat(np.arange(300), 100)) == 20
    assert half_of_smallest(np.repeat(np.arange(7000), 2)) == 1
