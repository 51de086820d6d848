# SPDX-License-Identifier: BSD-3-Clause
"""Sums of training vectors answer as the training vectors do, where kernels are inner products."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from patchbag import Categorizer, Channel, Channels, GaussianProcessClassifier, InnerProductKernel, KernelUnion
from patchbag.classifiers.gaussian_process.condensed import CondensedPosterior, condensed
from patchbag.explain.images import process_shares
from patchbag.storage import models as storage

RNG = np.random.default_rng(0)
LABELS = np.array(["bird", "cat", "dog"])[np.arange(60) % 3]
CENTRES = RNG.normal(size=(3, 8))[np.arange(60) % 3]
# fewer dimensions than images: the kernel is singular, and what rounding makes negative is clipped
SHAPES, COLOURS = ((CENTRES + RNG.normal(size=(60, 8))).astype(np.float32) for _ in range(2))
TRAIN, NEW = slice(0, 45), slice(45, 60)


def union(labels):
    branches = [(name, Pipeline([("channel", Channel(name)), ("kernel", InnerProductKernel())])) for name in ("a", "b")]
    steps = [("kernels", KernelUnion(branches)), ("classifier", GaussianProcessClassifier(random_state=0))]
    X = Channels(a=SHAPES, b=COLOURS)
    return Pipeline(steps).fit(X[TRAIN], labels[TRAIN]), X[NEW]


def single(labels):
    steps = [("kernel", InnerProductKernel(normalize=False)), ("classifier", GaussianProcessClassifier(random_state=0))]
    return Pipeline(steps).fit(SHAPES[TRAIN], labels[TRAIN]), SHAPES[NEW]


def inside(labels):
    process = GaussianProcessClassifier([InnerProductKernel(), InnerProductKernel(False)], random_state=0)
    steps = [("same", FunctionTransformer()), ("classifier", process)]
    return Pipeline(steps).fit(SHAPES[TRAIN], labels[TRAIN]), SHAPES[NEW]


@pytest.mark.parametrize("made", [union, single, inside])
@pytest.mark.parametrize("labels", [LABELS, np.where(LABELS == "cat", "cat", "other")], ids=["three", "two"])
def test_labels_probabilities_sets_and_typicality_are_those_of_all_training_images(made, labels):
    whole, new = made(labels)
    small = condensed(whole)
    assert isinstance(small[-1].posterior_, CondensedPosterior)
    assert isinstance(whole[-1].posterior_.mean(np.zeros((1, 45))), np.ndarray)  # what was fitted is left as it was
    rows, few = whole[:-1].transform(new), small[:-1].transform(new)
    np.testing.assert_array_equal(small.predict(new), whole.predict(new))
    np.testing.assert_allclose(small.decision_function(new), whole.decision_function(new), atol=2e-5)
    np.testing.assert_allclose(small.predict_proba(new), whole.predict_proba(new), atol=1e-5)
    np.testing.assert_array_equal(small[-1].predict_set(few), whole[-1].predict_set(rows))
    np.testing.assert_allclose(small[-1].typicality(few), whole[-1].typicality(rows), atol=1e-3)


def test_two_sums_per_class_are_kept():
    whole, _ = union(LABELS)
    small = condensed(whole)
    assert [len(branch[-1].references_) for _, branch in small[0].branches_] == [6, 6]
    assert [len(branch[-1].references_) for _, branch in whole[0].branches_] == [45, 45]


def test_similarities_to_sums_are_the_similarities_times_the_weights():
    kernel, weights = InnerProductKernel().fit(SHAPES[TRAIN]), RNG.normal(size=(45, 3))
    np.testing.assert_allclose(
        kernel.with_sums([weights]).transform(SHAPES), kernel.transform(SHAPES) @ weights, atol=1e-5
    )


def test_variances_and_shares_of_images_say_what_to_do():
    whole, new = single(LABELS)
    small = condensed(whole)
    row = small[0].transform(new[:1])
    for ask in (small[-1].predict_soft_labels, small[-1].predict_membership, lambda X: process_shares(small[-1], X)):
        with pytest.raises(ValueError, match=r"Categorizer\(condense=False\)"):
            ask(row)
    with pytest.raises(ValueError, match="condense"):
        small[-1].update(row, ["cat"])


@pytest.mark.parametrize(
    "process",
    [
        GaussianProcessClassifier(calibrate=False),
        GaussianProcessClassifier(likelihood="probit"),
        GaussianProcessClassifier(n_inducing=20),
    ],
)
def test_what_needs_variances_keeps_the_training_images(process):
    model = Pipeline([("kernel", InnerProductKernel()), ("classifier", process)]).fit(SHAPES[TRAIN], LABELS[TRAIN])
    assert condensed(model) is model


def test_kernels_that_are_no_inner_products_keep_the_training_images():
    rbf = FunctionTransformer(lambda X: rbf_kernel(X, SHAPES[TRAIN]))
    model = Pipeline([("kernel", rbf), ("classifier", GaussianProcessClassifier())]).fit(SHAPES[TRAIN], LABELS[TRAIN])
    assert condensed(model) is model


def test_fewer_images_than_sums_are_kept():
    model = Pipeline([("kernel", InnerProductKernel()), ("classifier", GaussianProcessClassifier(random_state=0))])
    model.fit(SHAPES[:6], LABELS[:6])
    assert condensed(model) is model


def test_a_categorizer_is_condensed_and_its_file_answers_with_the_same_bits(textures, tmp_path):
    images, labels = textures
    model = Categorizer("gp-fisher").fit(images, labels)
    whole = Categorizer("gp-fisher", condense=False).fit(images, labels)
    np.testing.assert_allclose(model.predict_proba(images[:4]), whole.predict_proba(images[:4]), atol=1e-5)
    read = Categorizer.load(model.save(tmp_path / "model.patchbag"))
    for one, other in zip(model.judge(images[:4]), read.judge(images[:4])):
        np.testing.assert_array_equal(one, other)
    assert (tmp_path / "model.patchbag").stat().st_size < whole.save(tmp_path / "whole.patchbag").stat().st_size


def test_a_forged_number_of_classes_is_told(tmp_path):
    small = condensed(single(LABELS)[0])
    object.__setattr__(small[-1].posterior_, "norms", np.zeros(4))
    with pytest.raises(storage.ModelFileError):
        storage.load(storage.save(small, tmp_path / "forged.patchbag"))
