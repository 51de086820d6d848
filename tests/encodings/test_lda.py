# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from oracles import topics as oracle
from oracles.polya import draw_polya
from patchbag.encodings.lda import LDAFisherVector, lda_counts
from patchbag.encodings.polya import PolyaVector


@pytest.fixture
def model(rng):
    return rng.gamma(2.0, 0.5, 3), rng.gamma(0.8, 1.0, (3, 7)) + 0.01


def draw(alpha, eta, n, size, rng):
    """Images of the model: their own mixing and their own topics."""
    rows = []
    for _ in range(n):
        topics = np.array([rng.dirichlet(e) for e in eta])
        rows.append(rng.multinomial(size, rng.dirichlet(alpha) @ topics))
    return np.array(rows, dtype=float)


def bounds(soft, alpha, eta):
    return np.array([oracle.lda_bound(s, alpha, eta) for s in soft])


def gradients(soft, alpha, eta):
    return np.array([oracle.lda_gradient(s, alpha, eta) for s in soft])


def run_oracle(counts, alpha, eta, steps=4000):
    q = alpha[:, None] * eta / eta.sum(1, keepdims=True)
    q, bounds = q / q.sum(0), []
    for _ in range(steps):
        alpha_star, eta_star, new_q = oracle.lda_update(counts, q, alpha, eta)
        bounds.append(oracle.lda_free_energy(counts, q, alpha_star, eta_star, alpha, eta))
        if np.abs(new_q - q).max() < 1e-12:
            break
        q = new_q
    return q, alpha_star, eta_star, bounds


def test_inference_ends_at_a_fixed_point_of_the_printed_updates(rng, model):
    alpha, eta = model
    counts = draw(alpha, eta, 12, 40, rng)
    soft, iterations = lda_counts(counts, alpha, eta, max_iter=5000, tol=1e-4)
    assert iterations.max() < 5000
    np.testing.assert_allclose(soft.sum(axis=1), counts, rtol=1e-5)
    for n, s in zip(counts, soft):
        q = s / np.where(n > 0, n, 1)
        _, _, new_q = oracle.lda_update(n, q, alpha, eta)
        np.testing.assert_allclose((n * new_q).sum(axis=1), s.sum(axis=1), atol=1e-3)
        np.testing.assert_allclose(n * new_q, s, atol=5e-2)


def test_inference_reaches_the_bound_of_the_plain_iteration_which_never_falls(rng, model):
    alpha, eta = model
    counts = draw(alpha, eta, 12, 40, rng)
    soft, _ = lda_counts(counts, alpha, eta, max_iter=5000, tol=1e-4)
    ours, plain = bounds(soft, alpha, eta), []
    for n in counts:
        rising = run_oracle(n, alpha, eta)[3]
        assert (np.diff(rising) > -1e-9).all()
        plain.append(rising[-1])
    # another local maximum may be found, better or worse
    assert np.mean(np.abs(ours - plain) < 1e-3) > 0.6
    assert ours.mean() > np.mean(plain) - 0.05


def test_gradient_equals_finite_differences_of_the_bound(rng, model):
    alpha, eta = model
    n = rng.multinomial(30, np.ones(7) / 7).astype(float)
    encoder = LDAFisherVector(3)
    encoder.alpha_, encoder.eta_, encoder.seen_ = alpha[None], eta[None], np.ones((1, 7), dtype=bool)
    codes, soft, h = encoder.transform(n[None])[0], lda_counts(n[None], alpha, eta)[0][0], 1e-6
    for t in range(3):
        step = h * np.eye(3)[t]
        slope = (oracle.lda_bound(soft, alpha + step, eta) - oracle.lda_bound(soft, alpha - step, eta)) / (2 * h)
        assert codes[t] == pytest.approx(slope, rel=1e-4, abs=1e-5)
    for t, k in np.ndindex(3, 7):
        step = np.zeros((3, 7))
        step[t, k] = h
        slope = (oracle.lda_bound(soft, alpha, eta + step) - oracle.lda_bound(soft, alpha, eta - step)) / (2 * h)
        assert codes[3 + 7 * t + k] == pytest.approx(slope, rel=1e-4, abs=1e-5)


def test_encoding_is_the_gradient_at_the_inferred_counts(rng, model):
    counts = draw(*model, 60, 80, rng)
    encoder = LDAFisherVector(3, random_state=0).fit(counts)
    soft, _ = lda_counts(counts, encoder.alpha_[0], encoder.eta_[0])
    expected = gradients(soft, encoder.alpha_[0], encoder.eta_[0])
    np.testing.assert_allclose(encoder.transform(counts), expected, rtol=1e-5, atol=1e-5)


def test_one_topic_is_the_polya_encoding():
    counts = draw_polya(np.array([0.1, 0.3, 0.5, 1.0, 2.0]), 80, 60, np.random.default_rng(0))
    codes = LDAFisherVector(1, random_state=0).fit_transform(counts)
    np.testing.assert_allclose(codes[:, 0], 0, atol=1e-7)
    np.testing.assert_allclose(codes[:, 1:], PolyaVector().fit_transform(counts), rtol=1e-4, atol=1e-5)


def test_rounds_of_variational_em_raise_the_bound(rng, model):
    counts = draw(*model, 80, 60, rng)
    reached = []
    for rounds in (0, 1, 3):
        encoder = LDAFisherVector(2, n_rounds=rounds, random_state=0).fit(counts)
        soft, _ = lda_counts(counts, encoder.alpha_[0], encoder.eta_[0], 2000, 1e-4)
        reached.append(bounds(soft, encoder.alpha_[0], encoder.eta_[0]).sum())
    assert reached[0] < reached[1] < reached[2]


def test_tiny_priors_do_not_underflow(rng):
    counts = rng.multinomial(50, np.ones(4) / 4, 5).astype(float)
    soft, _ = lda_counts(counts, np.array([1e-4, 1e-4]), np.full((2, 4), 1e-4))
    assert np.isfinite(soft).all()
    np.testing.assert_allclose(soft.sum(axis=1), counts, rtol=1e-5)


def test_same_seed_same_encoding_and_float32_agrees(rng, model):
    counts = draw(*model, 60, 80, rng)
    encoder = LDAFisherVector(2, random_state=5).fit(counts)
    codes = encoder.transform(counts)
    again = LDAFisherVector(2, random_state=5).fit_transform(counts)
    np.testing.assert_array_equal(codes, again)
    assert codes.dtype == np.float32
    np.testing.assert_array_equal(encoder.transform(counts.astype(np.float32)), codes)


def test_cells_have_their_own_model_or_share_one_and_empty_cells_are_zero(rng, model):
    cells = draw(*model, 60, 80, rng).reshape(30, 2, 7)
    cells[4, 0] = 0
    for per_cell, models in ((True, 2), (False, 1)):
        encoder = LDAFisherVector(2, per_cell=per_cell, random_state=0).fit(cells)
        assert encoder.eta_.shape == (models, 2, 7)
        codes = encoder.transform(cells)
        assert codes.shape == (30, 2, 16)
        np.testing.assert_allclose(codes[4, 0], 0, atol=1e-12)
        m = models - 1
        soft, _ = lda_counts(np.ascontiguousarray(cells[:, 1]), encoder.alpha_[m], encoder.eta_[m])
        expected = gradients(soft, encoder.alpha_[m], encoder.eta_[m])
        np.testing.assert_allclose(codes[:, 1], expected, rtol=1e-5, atol=1e-5)


def test_count_scale_is_the_same_as_scaled_counts(rng, model):
    counts = draw(*model, 60, 80, rng)
    a = LDAFisherVector(2, count_scale=0.5, random_state=0).fit_transform(counts)
    b = LDAFisherVector(2, random_state=0).fit_transform(0.5 * counts)
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_word_never_seen_in_training_encodes_as_zero(rng, model):
    counts = draw(*model, 60, 80, rng)
    train = counts.copy()
    train[:, 3] = 0
    encoder = LDAFisherVector(2, random_state=0).fit(train)
    codes = encoder.transform(counts)
    assert np.isfinite(codes).all()
    assert (codes[:, [2 + 3, 2 + 7 + 3]] == 0).all()
    assert not encoder.seen_[0, 3]


def test_bad_input_gives_a_clear_error(rng, model):
    counts = draw(*model, 30, 80, rng)
    with pytest.raises(ValueError, match="40 topics cannot be learned from 30 images"):
        LDAFisherVector(40).fit(counts)
    with pytest.raises(ValueError, match="'count_scale' parameter of LDAFisherVector must be"):
        LDAFisherVector(count_scale=-1).fit(counts)
    with pytest.raises(ValueError, match=r"fitted on .* \(1, 7\), got \(1, 6\)"):
        LDAFisherVector(random_state=0).fit(counts).transform(counts[:, :6])
    counts[7, 2] = np.inf
    with pytest.raises(ValueError, match="image 7 of 30"):
        LDAFisherVector().fit(counts)
    assert clone(LDAFisherVector(4)).n_topics == 4
