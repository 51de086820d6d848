# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from oracles import polya as oracle
from patchbag.encodings.conjugate import polya_terms
from patchbag.encodings.polya import PolyaVector, discount_curve, polya_gradient
from patchbag.mixture.statistics import Statistics


@pytest.fixture
def counts():
    return oracle.draw_polya(np.array([0.05, 0.3, 0.3, 1.0, 2.0]), 80, 60, np.random.default_rng(0))


def test_likelihood_equals_the_integral_over_multinomials():
    alpha, n = np.array([0.7, 1.9]), np.array([3.0, 2.0])
    integral = oracle.polya_likelihood_by_integration(n, alpha)
    assert polya_terms(n[None], alpha).value == pytest.approx(np.log(integral), rel=1e-8)


def test_gradient_equals_the_formula_and_finite_differences(counts):
    alpha = np.array([0.1, 0.5, 1.0, 2.0, 8.0])
    soft = counts * 0.37
    gradient = polya_gradient(soft, alpha)
    for i in range(5):
        np.testing.assert_allclose(gradient[i], oracle.polya_gradient(soft[i], alpha), rtol=1e-10, atol=1e-12)
        for k in range(5):
            step = 1e-6 * np.eye(5)[k]
            up = oracle.polya_log_likelihood(soft[i], alpha + step)
            down = oracle.polya_log_likelihood(soft[i], alpha - step)
            assert gradient[i, k] == pytest.approx((up - down) / 2e-6, abs=1e-5)


def test_large_alpha_makes_the_encoding_linear_in_the_counts(counts):
    alpha = 1e6 * np.array([0.1, 0.2, 0.2, 0.2, 0.3])
    linear = counts / alpha - counts.sum(1, keepdims=True) / alpha.sum()
    np.testing.assert_allclose(polya_gradient(counts, alpha), linear, rtol=2e-3, atol=1e-9)
    n = np.arange(51)
    np.testing.assert_allclose(discount_curve(1e7, n), n / 50, atol=1e-5)


def test_small_alpha_makes_the_discount_a_step():
    curve = discount_curve(1e-6, np.arange(51))
    assert curve[0] == 0
    assert (curve[1:] > 0.99999).all()


def test_discount_curves_are_concave_and_ordered_by_alpha_and_enclose_the_square_root():
    n = np.arange(0, 101)
    curves = np.array([discount_curve(a, n) for a in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)])
    assert (np.diff(curves, axis=1) > 0).all()
    assert (np.diff(curves, 2, axis=1) < 1e-12).all()
    assert (np.diff(curves[:, 1:-1], axis=0) < 0).all()
    root = np.sqrt(n / 100)
    assert (curves[0, 1:-1] > root[1:-1]).all()
    assert (curves[-1, 1:-1] < root[1:-1]).all()


def test_encoding_has_zero_mean_over_the_images_it_was_fitted_on(counts):
    codes = PolyaVector(tol=1e-10).fit_transform(counts)
    assert np.abs(codes.mean(axis=0)).max() < 1e-4 * np.abs(codes).max()


def test_dense_sparse_statistics_and_float32_agree(counts):
    encoder = PolyaVector().fit(counts)
    expected = encoder.transform(counts)
    np.testing.assert_array_equal(encoder.transform(sparse.csr_matrix(counts)), expected)
    nothing = np.zeros((*counts.shape, 2))
    np.testing.assert_array_equal(encoder.transform(Statistics(counts, nothing, nothing)), expected)
    np.testing.assert_array_equal(encoder.transform(counts.astype(int)), expected)
    single = encoder.transform(counts.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-5, atol=1e-5)


def test_count_scale_is_the_same_as_scaled_counts(counts):
    scaled = PolyaVector(count_scale=0.25).fit_transform(counts)
    np.testing.assert_allclose(scaled, PolyaVector().fit_transform(0.25 * counts), rtol=1e-10)


def test_cells_have_their_own_alpha_or_share_one(counts):
    cells = np.stack([counts[:40], 3 * counts[40:]], axis=1)
    own = PolyaVector(per_cell=True).fit(cells)
    assert own.alpha_.shape == (2, 5)
    codes = own.transform(cells)
    for c in range(2):
        np.testing.assert_allclose(codes[:, c], PolyaVector().fit_transform(cells[:, c]), rtol=1e-12)
    shared = PolyaVector(per_cell=False).fit(cells)
    assert shared.alpha_.shape == (5,)
    together = PolyaVector().fit(cells.reshape(-1, 5))
    np.testing.assert_allclose(shared.transform(cells).reshape(-1, 5), together.transform(cells.reshape(-1, 5)))


def test_an_empty_cell_encodes_as_zeros(counts):
    cells = np.stack([counts[:40], counts[40:]], axis=1)
    encoder = PolyaVector().fit(cells)
    cells[3, 1] = 0
    codes = encoder.transform(cells)
    np.testing.assert_allclose(codes[3, 1], 0, atol=1e-12)
    assert np.abs(codes[3, 0]).max() > 0.1


def test_a_word_never_seen_in_training_encodes_as_zero_and_the_rest_stays_finite(counts):
    train = counts.copy()
    train[:, 2] = 0
    encoder = PolyaVector().fit(train)
    codes = encoder.transform(counts)
    assert (codes[:, 2] == 0).all()
    assert np.isfinite(codes).all()
    assert not encoder.seen_[2]


def test_counts_without_burstiness_give_a_warning():
    with pytest.warns(UserWarning, match="linear in the counts"):
        PolyaVector().fit(np.tile([10.0, 20.0, 70.0], (30, 1)))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: x.__setitem__((7, 1), -1), "image 7 of 80 has negative"),
        (lambda x: x.__setitem__((7, 1), np.nan), "image 7 of 80 has negative or non-finite"),
        (lambda x: x.__setitem__((9,), 0), "image 9 of 80 is empty"),
    ],
)
def test_bad_counts_are_named(counts, spoil, message):
    encoder = PolyaVector().fit(counts)
    spoil(counts)
    for call in (encoder.transform, PolyaVector().fit):
        with pytest.raises(ValueError, match=message):
            call(counts)


def test_other_bad_input_gives_a_clear_error(counts):
    with pytest.raises(ValueError, match=r"fitted on .* \(1, 5\), got \(1, 4\)"):
        PolyaVector().fit(counts).transform(counts[:, :4])
    with pytest.raises(ValueError, match="'count_scale' parameter of PolyaVector must be"):
        PolyaVector(count_scale=0).fit(counts)
    with pytest.raises(ValueError, match=r"\(images, words\)"):
        PolyaVector().fit(counts[0])
    with pytest.raises(ValueError, match="expected numbers"):
        PolyaVector().fit(np.array([["a", "b"]]))


def test_clone_keeps_the_parameters():
    assert clone(PolyaVector(count_scale=0.1, per_cell=False)).get_params()["count_scale"] == 0.1
