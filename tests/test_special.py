# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from numba import njit

from patchbag import special


def apply(function, x):
    @njit(error_model="numpy")
    def loop(x, out):
        for i in range(len(x)):
            out[i] = function(x[i])

    out = np.empty_like(x)
    loop(x, out)
    return out


@pytest.mark.parametrize(
    ("function", "scipys"),
    [
        (special.digamma, scipy.special.digamma),
        (special.trigamma, lambda x: scipy.special.polygamma(1, x)),
        (special.log_gamma, scipy.special.gammaln),
        (special.log_positive, np.log),
    ],
    ids=["digamma", "trigamma", "log_gamma", "log"],
)
def test_special_functions_agree_with_scipy_from_1e_minus_8_to_1e8(function, scipys):
    x = np.concatenate([np.logspace(-8, 8, 3001), np.linspace(0.5, 3, 501)])
    np.testing.assert_allclose(apply(function, x), scipys(x), rtol=1e-12, atol=1e-12)


def test_exponential_agrees_with_numpy_and_stays_finite_far_below():
    x = -np.concatenate([[0.0], np.logspace(-10, np.log10(690), 2000)])
    np.testing.assert_allclose(apply(special.exp_nonpositive, x), np.exp(x), rtol=1e-14)
    assert 0 < apply(special.exp_nonpositive, np.array([-1e9]))[0] < 1e-300


def test_exp_digamma_is_accurate_to_single_precision_over_the_whole_range():
    for x in np.logspace(-4, 6, 200).astype(np.float32):
        factor, power = special.split_exp_digamma(x)
        assert factor == pytest.approx(np.exp(scipy.special.digamma(float(x) + 6)), rel=1e-6)
        assert power == pytest.approx(sum(1 / (float(x) + j) for j in range(6)), rel=1e-6)
    for x in -np.logspace(-6, np.log10(79), 200).astype(np.float32):
        assert special.exp_single(x) == pytest.approx(np.exp(float(x)), rel=1e-6)


def find_zero(slope, curvature, x, low, high, steps=60):
    points = [x]
    for _ in range(steps):
        x, low, high = special.newton_step(x, slope(x), curvature(x), low, high)
        assert low <= x <= high
        points.append(x)
    return np.array(points)


@pytest.mark.parametrize("share", [1e-6, 0.3, 0.5, 1 - 1e-6])
def test_newton_in_a_bracket_finds_the_zero_where_plain_newton_runs_away(share):
    # d/dw of share ln w + (1 - share) ln(1 - w), whose poles send plain steps out of (0, 1)
    points = find_zero(
        lambda w: share / w - (1 - share) / (1 - w), lambda w: share / w**2 + (1 - share) / (1 - w) ** 2, 0.9, 0.0, 1.0
    )
    assert points[-1] == pytest.approx(share, rel=1e-9)


def test_newton_in_a_bracket_converges_quadratically_near_the_zero_and_halves_where_the_slope_is_flat():
    near = np.abs(find_zero(lambda x: 2 - np.exp(x), np.exp, 1.0, 0.0, 2.0, 5) - np.log(2))
    assert near[3] < near[2] ** 1.8 < 1e-3
    flat = find_zero(lambda x: 1.0 if x < 0.75 else -1.0, lambda x: 0.0, 0.5, 0.0, 1.0, 3)
    np.testing.assert_array_equal(flat, [0.5, 0.75, 0.625, 0.6875])
