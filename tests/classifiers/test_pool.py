# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np

from patchbag.classifiers.beliefs import FOLDS
from patchbag.classifiers.pool import PoolClassifier
from patchbag.similarity.graph.image_graph import unit_rows


def blobs(n_classes, each, seed, dimension=30, spread=0.12):
    codes = np.repeat(np.arange(n_classes), each)
    return np.eye(dimension)[codes] + spread * np.random.default_rng(seed).normal(size=(len(codes), dimension)), codes


def test_an_image_is_far_from_the_nearest_mean_of_the_labelled_images_of_a_class():
    X, codes = blobs(4, 8, 0)
    labels = [None if i % 8 > 4 else c for i, c in enumerate(codes)]
    model = PoolClassifier(random_state=0).fit(X, labels)
    rows = unit_rows(X - X.mean(axis=0))
    known = np.array([i for i, label in enumerate(labels) if label is not None])
    members = [rows[known[codes[known] == c]].astype(float) for c in range(4)]
    spread = sum(np.sum((part - part.mean(axis=0)) ** 2) for part in members) / (len(known) - 4)

    def distance(row, members):
        return min(np.sum((row - part.mean(axis=0)) ** 2) - spread / len(part) for part in members)

    new = blobs(5, 3, 1)[0]
    literal = [distance(row, members) for row in unit_rows(new - X.mean(axis=0))]
    np.testing.assert_allclose(model._strangeness(new)[0], literal, atol=1e-5)
    part = np.arange(len(known)) % FOLDS  # labels that are left out together
    literal = [
        distance(rows[image], [rows[known[(codes[known] == c) & (part != mine)]] for c in range(4)])
        for image, mine in zip(known, part)
    ]
    np.testing.assert_allclose(model.left_out_.strange[0], np.sort(literal), atol=1e-5)


def test_a_class_that_nobody_named_is_unlike_anything_seen_even_if_its_images_are_in_the_pool():
    X, codes = blobs(6, 30, 0)
    labels = [c if c < 3 and i % 30 < 10 else None for i, c in enumerate(codes)]
    model = PoolClassifier(random_state=0).fit(X, labels)
    typical = model.typicality(blobs(6, 20, 1)[0]).reshape(6, 20)
    assert np.mean(typical[:3] <= 0.05) <= 0.1 and np.mean(typical[3:] <= 0.05) > 0.9
