# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from patchbag.classifiers.confidence import ties
from patchbag.classifiers.confidence.ties import looseness, tie_weights


def labelled(n, n_classes, seed=0):
    codes = np.arange(n) % n_classes
    rows = np.eye(20)[codes] + 0.3 * np.random.default_rng(seed).normal(size=(n, 20))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), codes


def test_ties_are_scores_of_ridge_regression():
    x, codes = labelled(24, 4)
    new = labelled(7, 4, seed=1)[0]
    noise = ties.NOISE * np.mean(np.sum(x**2, axis=1))
    targets = 2.0 * np.eye(4)[codes] - 1
    w = np.linalg.solve(x.T @ x + noise * np.eye(20), x.T @ (targets - targets.mean(axis=0)))
    response = 1 - noise * np.trace(np.linalg.inv(x @ x.T + noise * np.eye(24))) / 24
    scores = new @ w / response + targets.mean(axis=0)
    literal = -logsumexp(ties.SHARPNESS * scores, axis=1)
    np.testing.assert_allclose(looseness(new @ x.T, tie_weights(x @ x.T, codes, 4)), literal)


def test_of_many_images_some_speak_for_all(monkeypatch):
    x, codes = labelled(90, 5)
    monkeypatch.setattr(ties, "MOST", 40)
    weights = tie_weights(x @ x.T, codes, 5)
    assert weights.shape == (91, 5) and 20 <= np.count_nonzero(weights[:-1].any(axis=1)) <= 40
    assert looseness(np.zeros((1, 90)), weights) > looseness(x @ x.T, weights).max()


@pytest.mark.parametrize("gram", [np.zeros((6, 6)), np.ones((6, 6)), np.diag([1.0, 1, 1, 1, 1, -0.5])])
def test_similarities_that_are_no_kernel_do_no_harm(gram):
    assert np.isfinite(looseness(gram, tie_weights(gram, np.arange(6) % 3, 3))).all()
