"""What labels may be: one per image, of one kind, and none missing where the classifier needs them all."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from patchbag import (
    AdditiveClassifier,
    GaussianProcessClassifier,
    LinearClassifier,
    MulticlassLeveragedNeighbors,
    PoolClassifier,
    SparseLogisticClassifier,
    StochasticLinearClassifier,
)
from patchbag.active.pool_learner import PoolLearner
from patchbag.classifiers.targets import in_proportion
from patchbag.records import is_label

X = np.abs(np.random.default_rng(0).normal(size=(12, 12))) + np.eye(12)
KERNEL = X @ X.T
NA = type("NAType", (), {"__eq__": lambda self, other: self, "__bool__": None, "__hash__": None})()  # as pandas has it


@pytest.mark.parametrize("missing", [None, np.nan, NA], ids=["None", "NaN", "NA"])
@pytest.mark.parametrize(
    "classifier",
    [
        AdditiveClassifier(),
        GaussianProcessClassifier(),
        LinearClassifier(),
        MulticlassLeveragedNeighbors(),
        SparseLogisticClassifier(),
        StochasticLinearClassifier(),
    ],
    ids=lambda classifier: type(classifier).__name__,
)
def test_an_image_without_a_label_is_named(classifier, missing):
    rows = KERNEL if isinstance(classifier, GaussianProcessClassifier) else X
    for y in (["a", "b", "c", missing] * 3, [0.0, 1.0, 2.0, missing] * 3):
        with pytest.raises(ValueError, match="image 3 of 12 has no label"):
            classifier.fit(rows, y)


def test_numbers_with_gaps_are_labels_with_gaps():
    with pytest.raises(ValueError, match="image 3 of 12 has no label"):
        StochasticLinearClassifier().fit(X, np.array([0, 1, 2, np.nan] * 3))


@pytest.mark.parametrize("learner", [PoolClassifier(), PoolLearner()], ids=["classifier", "learner"])
@pytest.mark.parametrize("labels", [dict.fromkeys(range(12), "a"), set(range(12)), SimpleNamespace(columns=["label"])])
def test_what_iterates_over_other_things_than_labels_is_refused(learner, labels):
    with pytest.raises(ValueError, match="one per image in the order of the images"):
        learner.fit(X, labels)


def test_none_nan_and_what_pandas_has_are_no_labels():
    known = ["", "nan", 0, False, np.str_("a"), np.float32(0), ("a",), np.array([np.nan])]
    assert [is_label(label) for label in known] == [True] * len(known)
    assert not any(map(is_label, [None, np.nan, np.float32("nan"), NA]))


def test_a_sample_in_proportion_has_every_class_and_its_share():
    codes = np.repeat([0, 1, 2], [600, 300, 2])
    chosen = in_proportion(codes, 91, np.random.RandomState(0))
    assert np.bincount(codes[chosen]).tolist() == [60, 30, 1]
    assert np.array_equal(chosen, np.unique(chosen))
    other = in_proportion(codes, 91, np.random.RandomState(1))
    assert not np.array_equal(chosen, other)
    assert np.array_equal(in_proportion(codes, 902, np.random.RandomState(0)), np.arange(902))
