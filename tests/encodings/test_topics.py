# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from oracles import topics as oracle
from patchbag.encodings.topics import PLSAFisherVector, fit_plsa, fold_in, plsa_gradient, topic_counts


def draw_topics(rng, n=60, size=200):
    pi = np.array([[0.4, 0.4, 0.1, 0.05, 0.05, 0.0], [0.0, 0.05, 0.05, 0.3, 0.3, 0.3]])
    theta = rng.dirichlet([0.6, 0.6], n)
    return np.array([rng.multinomial(size, t @ pi) for t in theta], dtype=float), theta, pi


def test_em_follows_the_loops_and_never_lowers_the_likelihood(rng):
    counts, _, _ = draw_topics(rng, 9)
    theta, pi, history = fit_plsa(counts, 2, random_state=0, tol=1e-7)
    assert (np.diff(history) > -1e-8).all()
    assert history[-1] > history[0]
    new_theta, new_pi, value = oracle.plsa_step(counts, theta, pi)
    assert value == pytest.approx(history[-1], rel=1e-6)
    np.testing.assert_allclose(new_theta, theta, atol=1e-2)
    np.testing.assert_allclose(new_pi, pi, atol=1e-2)


def test_one_step_equals_the_loops(rng):
    counts, _, _ = draw_topics(rng, 7)
    with pytest.warns(ConvergenceWarning):
        theta, pi, _ = fit_plsa(counts, 3, max_iter=4, random_state=0)
    with pytest.warns(ConvergenceWarning):
        next_theta, next_pi, history = fit_plsa(counts, 3, max_iter=5, random_state=0)
    expected_theta, expected_pi, value = oracle.plsa_step(counts, theta, pi)
    np.testing.assert_allclose(next_theta, expected_theta, rtol=1e-10)
    np.testing.assert_allclose(next_pi, expected_pi, rtol=1e-10)
    assert history[-1] == pytest.approx(value, rel=1e-12)


def test_topics_are_recovered(rng):
    counts, theta, pi = draw_topics(rng, 300, 500)
    found_theta, found_pi, _ = fit_plsa(counts, 2, max_iter=1000, tol=1e-7, random_state=1)
    order = [0, 1] if found_pi[0, 0] > found_pi[1, 0] else [1, 0]
    np.testing.assert_allclose(found_pi[order], pi, atol=0.03)
    np.testing.assert_allclose(found_theta[:, order], theta, atol=0.15)


def test_folding_in_the_training_images_gives_their_own_mixing(rng):
    counts, _, _ = draw_topics(rng)
    theta, pi, _ = fit_plsa(counts, 2, max_iter=2000, tol=1e-9, random_state=0)
    np.testing.assert_allclose(fold_in(counts, pi, theta.mean(0), 5000, 1e-9), theta, atol=1e-2)


def test_gradient_in_the_topics_equals_finite_differences_of_the_likelihood(rng):
    counts, theta, pi = draw_topics(rng, 3)
    pi = pi + 0.02
    pi /= pi.sum(1, keepdims=True)
    codes = plsa_gradient(topic_counts(counts, theta, pi), theta.mean(0), pi)[:, 2:].reshape(3, 2, 6)

    def likelihood(i, logits):
        p = np.exp(logits)
        return counts[i] @ np.log(theta[i] @ (p / p.sum(1, keepdims=True)))

    for i, t, k in np.ndindex(3, 2, 6):
        step = np.zeros((2, 6))
        step[t, k] = 1e-6
        slope = (likelihood(i, np.log(pi) + step) - likelihood(i, np.log(pi) - step)) / 2e-6
        assert codes[i, t, k] == pytest.approx(slope, abs=1e-4)


def test_gradient_in_the_mixing_equals_finite_differences_of_the_likelihood_at_the_mean_mixing(rng):
    counts, _, pi = draw_topics(rng, 4)
    pi, mixing = (pi + 0.02) / (pi + 0.02).sum(1, keepdims=True), np.array([0.3, 0.7])
    at_mean = plsa_gradient(topic_counts(counts, np.tile(mixing, (4, 1)), pi), mixing, pi)[:, :2]
    for i, t in np.ndindex(4, 2):
        values = []
        for sign in (1, -1):
            p = mixing * np.exp(sign * 1e-6 * np.eye(2)[t])
            values.append(counts[i] @ np.log(p / p.sum() @ pi))
        assert at_mean[i, t] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-4)


def test_one_topic_is_the_centred_bag_of_words(rng):
    counts, _, _ = draw_topics(rng)
    codes = PLSAFisherVector(1, random_state=0).fit_transform(counts)
    centred = counts - counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    np.testing.assert_allclose(codes[:, 0], 0, atol=1e-9)
    np.testing.assert_allclose(codes[:, 1:], centred, atol=1e-9)


def test_same_seed_same_encoding_and_float32_agrees(rng):
    counts, _, _ = draw_topics(rng)
    encoder = PLSAFisherVector(2, random_state=3).fit(counts)
    codes = encoder.transform(counts)
    np.testing.assert_array_equal(codes, PLSAFisherVector(2, random_state=3).fit_transform(counts))
    single = encoder.transform(counts.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, codes, atol=1e-2)


def test_cells_have_their_own_topics_or_share_them(rng):
    counts, _, _ = draw_topics(rng)
    cells = counts.reshape(30, 2, 6)
    cells[3, 1] = 0
    own = PLSAFisherVector(2, per_cell=True, random_state=0).fit(cells)
    assert own.topics_.shape == (2, 2, 6)
    for encoder in (own, PLSAFisherVector(2, per_cell=False, random_state=0).fit(cells)):
        codes = encoder.transform(cells)
        assert codes.shape == (30, 2, 14)
        assert (codes[3, 1] == 0).all()
        assert np.abs(codes[3, 0]).max() > 1
        np.testing.assert_allclose(codes[:, 0, :2].sum(1), 0, atol=1e-9)
        # over topics, the word gradients are what is left of the counts
        model = encoder.topics_[0]
        words = codes[:, 0, 2:].reshape(30, 2, 6)
        totals = codes[:, 0, :2] + cells[:, 0].sum(1, keepdims=True) * encoder.mixing_[0]
        np.testing.assert_allclose(words.sum(1) + totals @ model, cells[:, 0], atol=1e-8)


def test_a_word_never_seen_in_training_encodes_as_zero(rng):
    counts, _, _ = draw_topics(rng)
    train = counts.copy()
    train[:, 5] = 0
    encoder = PLSAFisherVector(2, random_state=0).fit(train)
    codes = encoder.transform(counts)
    assert np.isfinite(codes).all()
    assert (codes[:, [2 + 5, 2 + 6 + 5]] == 0).all()
    only = np.zeros((1, 6))
    only[0, 5] = 10
    np.testing.assert_array_equal(encoder.transform(only), 0)


def test_bad_input_gives_a_clear_error(rng):
    counts, _, _ = draw_topics(rng)
    with pytest.raises(ValueError, match="8 topics cannot be learned from 5 images"):
        PLSAFisherVector(8).fit(counts[:5])
    with pytest.raises(ValueError, match="'n_topics' parameter of PLSAFisherVector must be"):
        PLSAFisherVector(0).fit(counts)
    with pytest.raises(ValueError, match=r"fitted on .* \(1, 6\), got \(1, 3\)"):
        PLSAFisherVector(random_state=0).fit(counts).transform(counts[:, :3])
    counts[2] = 0
    with pytest.raises(ValueError, match="image 2 of 60 is empty"):
        PLSAFisherVector().fit(counts)
    assert clone(PLSAFisherVector(4)).n_topics == 4
