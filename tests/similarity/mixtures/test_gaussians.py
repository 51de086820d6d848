import numpy as np
import pytest

from oracles.gaussians import cross_entropy_integral, density, grid, kl_integral, product_integral
from oracles.mixtures import gaussian_kl, gaussian_product
from patchbag.similarity.mixtures import gaussians


def gaussians_of(seed, rows, dimension, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, dimension)).astype(dtype), rng.uniform(0.3, 2.0, (rows, dimension)).astype(dtype)


def densities(means, variances):
    return [lambda x, m=m, v=v: density(x, m, v) for m, v in zip(means, variances)]


def tiled(mp, vp, mq, vq, rho=0.5):
    """ln K^ρ by the compiled loop over tiles."""
    arrays = [a[None] for a in (mp, vp, mq, vq)]
    dtype = np.result_type(*arrays, np.float32)
    coordinates = gaussians.frame(*arrays[2:])
    precision, period = gaussians.product_precision(arrays[1], arrays[3], coordinates, dtype)
    left = gaussians.product_left(*arrays[:2], rho, coordinates, precision)
    right = gaussians.product_right(*arrays[2:], rho, coordinates, precision)
    out = np.empty((1, len(mp), len(mq)), dtype)
    gaussians.log_product_tiles(*left, *right, rho, period, out)
    return out[0]


LOG_PRODUCTS = [gaussians.log_product_kernel, tiled]


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("rho", [0.5, 0.8, 1.0, 1.7])
@pytest.mark.parametrize("log_product", LOG_PRODUCTS)
def test_product_kernel_equals_the_integral(dimension, rho, log_product):
    mp, vp = gaussians_of(0, 2, dimension)
    mq, vq = gaussians_of(1, 3, dimension)
    points, volume = grid(dimension)
    expected = [[product_integral(p, q, rho, points, volume) for q in densities(mq, vq)] for p in densities(mp, vp)]
    np.testing.assert_allclose(np.exp(log_product(mp, vp, mq, vq, rho)), expected, rtol=1e-6)


@pytest.mark.parametrize("dimension", [1, 2])
def test_divergences_equal_the_integrals(dimension):
    mp, vp = gaussians_of(0, 2, dimension)
    mq, vq = gaussians_of(1, 3, dimension)
    points, volume = grid(dimension, -9, 9, 301 if dimension == 2 else None)
    pairs = [(p, q) for p in densities(mp, vp) for q in densities(mq, vq)]
    h = np.array([cross_entropy_integral(p, q, points, volume) for p, q in pairs]).reshape(2, 3)
    forward = np.array([kl_integral(p, q, points, volume) for p, q in pairs]).reshape(2, 3)
    np.testing.assert_allclose(gaussians.cross_entropy(mp, vp, mq, vq), h, rtol=1e-6)
    np.testing.assert_allclose(gaussians.kl_divergence(mp, vp, mq, vq), forward, rtol=1e-6)


def test_closed_forms_agree_with_monte_carlo_in_16_dimensions():
    mp, vp = gaussians_of(0, 1, 16)
    mq, vq = mp + 0.1, vp * 1.3
    rng = np.random.default_rng(3)
    x = mp + np.sqrt(vp) * rng.standard_normal((200_000, 16))
    ratio = density(x, mq[0], vq[0]) / density(x, mp[0], vp[0])
    assert gaussians.kl_divergence(mp, vp, mq, vq)[0, 0] == pytest.approx(-np.log(ratio).mean(), rel=0.02)
    # ∫ √(p q) = E_p √(q / p)
    assert np.exp(gaussians.log_product_kernel(mp, vp, mq, vq))[0, 0] == pytest.approx(np.sqrt(ratio).mean(), rel=0.005)


@pytest.mark.parametrize("dimension", [1, 3, 4, 7, 50])
def test_any_dimension_and_number_of_columns_agrees_with_the_printed_formula(dimension):
    mp, vp = gaussians_of(0, 3, dimension)
    mq, vq = gaussians_of(1, 70, dimension)
    expected = [[gaussian_product(m, v, n, w, 0.7) for n, w in zip(mq, vq)] for m, v in zip(mp, vp)]
    np.testing.assert_allclose(np.exp(tiled(mp, vp, mq, vq, 0.7)), expected, rtol=1e-10)
    expected = [[gaussian_kl(m, v, n, w) for n, w in zip(mq, vq)] for m, v in zip(mp, vp)]
    np.testing.assert_allclose(gaussians.kl_divergence(mp, vp, mq, vq), expected, rtol=1e-10)


def test_a_gaussian_has_bhattacharyya_similarity_one_and_divergence_zero_to_itself():
    m, v = gaussians_of(0, 40, 50)
    np.testing.assert_allclose(tiled(m, v, m, v).diagonal(), 0, atol=1e-12)
    np.testing.assert_allclose(gaussians.kl_divergence(m, v, m, v).diagonal(), 0, atol=1e-11)


def test_leading_axes_are_batches():
    mp, vp = gaussians_of(0, 12, 5)
    mq, vq = gaussians_of(1, 8, 5)
    batch = [a.reshape(2, -1, 5) for a in (mp, vp, mq, vq)]
    for function in (gaussians.log_product_kernel, gaussians.cross_entropy):
        whole = function(*batch)
        assert whole.shape == (2, 6, 4)
        np.testing.assert_allclose(whole[1], function(mp[6:], vp[6:], mq[4:], vq[4:]), rtol=1e-12)


def test_float32_agrees_with_float64_far_from_the_origin():
    mp, vp = gaussians_of(0, 20, 50)
    mq, vq = gaussians_of(1, 30, 50)
    # raw descriptors: means in the hundreds, variances far from one
    raw = (300 + 20 * mp, 400 * vp, 300 + 20 * mq, 400 * vq)
    single = [a.astype(np.float32) for a in raw]
    np.testing.assert_allclose(gaussians.kl_divergence(*single), gaussians.kl_divergence(*raw), rtol=2e-4)
    np.testing.assert_allclose(tiled(*single), tiled(*raw), rtol=1e-4)


def test_extreme_variances_neither_overflow_nor_underflow():
    d = 120
    m, v = np.zeros((2, d), np.float32), np.full((2, d), 1e-12, np.float32)
    v[1] = 1e12
    found = tiled(m, v, m, v, 0.5)
    # ½ ln(2σpσq / (σp² + σq²)) a dimension
    expected = d * 0.5 * np.log(2 / (1e12 + 1e-12))
    np.testing.assert_allclose(found, [[0, expected], [expected, 0]], rtol=1e-5, atol=1e-3)


def test_broadcasting_and_tiles_give_the_same_numbers_in_blocks(monkeypatch):
    arrays = *gaussians_of(0, 9, 6), *gaussians_of(1, 11, 6)
    monkeypatch.setattr(gaussians, "BLOCK_NUMBERS", 200)
    np.testing.assert_allclose(gaussians.log_product_kernel(*arrays, 0.6), tiled(*arrays, 0.6), rtol=1e-12)
