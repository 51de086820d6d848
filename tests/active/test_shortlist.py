# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from patchbag.active import shortlist
from patchbag.active.learner import ActiveLearner, check_pool_kernel
from patchbag.active.shortlist import list_length, representatives, spectral_coordinates

RNG = np.random.default_rng(0)
Y = np.arange(240) % 6
X = 3 * RNG.normal(size=(6, 5))[Y] + RNG.normal(size=(240, 5))
K = rbf_kernel(X, gamma=0.05)


def test_coordinates_have_the_kernel_as_inner_products(monkeypatch):
    exact = spectral_coordinates(K, 240)
    np.testing.assert_allclose(exact @ exact.T, K, atol=1e-6)
    values = np.sort(np.linalg.eigvalsh(K))[::-1]
    np.testing.assert_allclose((spectral_coordinates(K, 9) ** 2).sum(axis=0), values[:9], rtol=1e-6)
    monkeypatch.setattr(shortlist, "LANDMARKS", 120)
    nearly = spectral_coordinates(K, 240)
    assert np.abs(nearly @ nearly.T - K).mean() < 0.05 * K.mean()  # half of the images as landmarks


def test_every_cluster_has_a_representative_near_its_centre():
    allowed = np.ones(240, bool)
    allowed[:60] = False
    found = representatives(X, 6, allowed)
    assert sorted(Y[found]) == list(range(6))
    assert allowed[found].all()
    for image in found:
        own = np.flatnonzero(allowed & np.isin(Y, Y[image]))
        distances = ((X[own] - X[own].mean(axis=0)) ** 2).sum(axis=1)
        assert own[distances.argmin()] == image


def test_a_list_as_long_as_the_pool_is_the_pool():
    np.testing.assert_array_equal(representatives(X[:5], 5, np.ones(5, bool)), np.arange(5))
    np.testing.assert_array_equal(representatives(np.empty((3, 0)), 1, np.ones(3, bool)), np.arange(3))


def test_copies_of_images_shorten_the_list():
    copies = np.repeat(X[:7], 20, axis=0)
    assert len(set(Y[representatives(copies, 32, np.ones(140, bool)) // 20])) == len(set(Y[:7]))
    kernel = rbf_kernel(copies, gamma=0.05)
    labels = np.repeat(Y[:7], 20)
    learner = ActiveLearner(random_state=0).fit(kernel).teach(np.arange(0, 140, 20), labels[::20])
    for _ in range(20):
        image = learner.query()[0]
        learner.teach([image], [labels[image]])
    assert learner.n_labels_ == 27


def test_lists_grow_in_powers_of_two():
    assert [list_length(c, n) for c, n in ((5, 5), (15, 15), (16, 64), (16, 65))] == [32, 64, 64, 128]


def test_queries_come_from_the_list_until_it_is_used_up():
    learner = ActiveLearner(random_state=0).fit(K).teach(np.arange(6), Y[:6])
    # rounding decides which of two images stands for the others: the kernel as the learner has it
    first = representatives(spectral_coordinates(check_pool_kernel(K, False)), 32, np.ones(240, bool))
    asked = []
    while len(asked) < 40:
        image = learner.query()[0]
        asked.append(image)
        learner.teach([image], [Y[image]])
    assert set(asked[:20]) <= set(first)
    assert not set(asked) <= set(first)
    _, utilities = learner.query(return_utilities=True)
    assert np.isfinite(utilities).sum() < learner.available_.sum()


def test_a_batch_longer_than_the_list_and_skipped_images():
    learner = ActiveLearner(random_state=0).fit(K).teach(np.arange(6), Y[:6])
    skipped = learner.query(8)
    learner.skip(skipped)
    batch = learner.query(100)
    assert len(set(batch)) == 100
    assert not set(batch) & set(skipped)


def test_lists_are_made_again_without_images_that_were_skipped():
    learner = ActiveLearner(random_state=0).fit(K).teach(np.arange(6), Y[:6])
    listed = np.flatnonzero(np.isfinite(learner.query(return_utilities=True)[1][0]))
    learner.skip(listed[:10])
    allowed = ~np.isin(np.arange(240), listed[:10])
    again = np.flatnonzero(np.isfinite(learner.query(return_utilities=True)[1][0]))
    expected = np.setdiff1d(representatives(spectral_coordinates(learner.posterior_.kernel), 32, allowed), np.arange(6))
    np.testing.assert_array_equal(again, expected)
    assert len(again) > len(listed) - 10


@pytest.mark.parametrize("settings", [{"shortlist": None}, {"criterion": "influence"}, {"shortlist": 1000}])
def test_all_images_can_be_chosen(settings):
    learner = ActiveLearner(random_state=0, **settings).fit(K).teach(np.arange(6), Y[:6])
    assert np.isfinite(learner.query(return_utilities=True)[1]).sum() == 234


def test_few_classes_use_a_list_only_on_request():
    for settings, chosen in (({}, 236), ({"shortlist": 16}, 16)):
        learner = ActiveLearner(random_state=0, **settings).fit(K).teach(np.arange(4), Y[:4])
        assert np.isfinite(learner.query(return_utilities=True)[1]).sum() == pytest.approx(chosen, abs=1)


@pytest.mark.parametrize("shortlist", ["all", 0, -3])
def test_a_list_has_a_length(shortlist):
    with pytest.raises(ValueError, match="'shortlist' parameter"):
        ActiveLearner(shortlist=shortlist).fit(K)
