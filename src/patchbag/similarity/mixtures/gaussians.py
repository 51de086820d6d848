# SPDX-License-Identifier: BSD-3-Clause
r"""Closed forms between diagonal Gaussians: probability product kernel, cross-entropy, Kullback-Leibler divergence.

For :math:`p = N(\mu_p, \sigma_p^2)`, :math:`q = N(\mu_q, \sigma_q^2)` in D dimensions (liu2010, eq. 4.10 and 4.15)

.. math::

    K^\rho(p, q) &= \int p^\rho q^\rho = \prod_d (2\pi)^{(1-2\rho)/2} \rho^{-1/2} (\sigma_p\sigma_q)^{1-\rho}
        s^{-1/2} \exp\left(-\frac{\rho (\mu_p-\mu_q)^2}{2 s}\right), \quad s = \sigma_p^2 + \sigma_q^2 \\
    H(p, q) &= -\int p \ln q = \frac12 \sum_d \ln 2\pi\sigma_q^2 + \frac{\sigma_p^2 + (\mu_p-\mu_q)^2}{\sigma_q^2} \\
    KL(p\|q) &= H(p, q) - H(p, p), \qquad SKL = KL(p\|q) + KL(q\|p)

:math:`\rho = 1/2` is the Bhattacharyya kernel (1 when p = q), :math:`\rho = 1` the expected likelihood kernel.

What is computed.  The cross-entropy is a sum of products of functions of p and functions of q, hence one matrix
product.  Everything is first taken to coordinates in which the q's are centred and have unit mean variance (in raw
coordinates the expanded square would lose its float32 digits), and written in the deviations :math:`t = \sigma_p^2 +
\mu_p^2 - 1`, :math:`r = 1/\sigma_q^2 - 1`::

    2 H = D (1 + ln 2π) + Σ t + Σ (r + ln σq² + μq²/σq²) + t·r - 2 μp·(μq/σq²)

so that little cancels and float32 keeps its digits; where Gaussians lie so far apart that it would not (features above
``LARGE``), float64 is used.  The product kernel is not a matrix product: ``log_product_kernel`` broadcasts, on any
device, and ``log_product_tiles`` is a Numba kernel over tiles of columns.  Four dimensions share one division (a/b +
c/d = (ad + cb)/(bd)), whose denominator is also the determinant, and one logarithm serves as many dimensions as float64
can multiply without overflow.

Cost for R × C pairs: 4·R·C·D flops in BLAS for the cross-entropy, about 8·R·C·D for the product kernel.

Axes: ``(..., R, D)`` with ``(..., C, D)`` gives ``(..., R, C)``; leading axes are batches (the components of a mixture,
say).
"""

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numba import njit

# Columns that a row of Gaussians meets at a time: 2·D·TILE numbers stay in the first-level cache.
TILE = 64
TILE_ROWS = 32
# exp(±LOG_RANGE) is what a running product of float64 may reach before its logarithm is taken
LOG_RANGE = 600.0
# features of a cross-entropy up to which float32 is right to about a thousandth
LARGE = 1e4
# temporaries of the Array API path, in numbers
BLOCK_NUMBERS = 1 << 26


# --- cross-entropy and Kullback-Leibler ------------------------------------------------------------------------------


def frame(means: Any, variances: Any) -> tuple[Any, Any]:
    """Coordinates in which the given Gaussians are centred with unit mean variance: centre, scale ``(..., 1, D)``."""
    xp = array_namespace(means, variances)
    return xp.mean(means, axis=-2, keepdims=True), xp.sqrt(xp.mean(variances, axis=-2, keepdims=True))


def left_features(means: Any, variances: Any, coordinates: tuple[Any, Any]) -> Any:
    """What p brings to H(p, q) = left(p) · right(q): ``(..., R, 2D + 2)``."""
    xp = array_namespace(means, variances)
    centre, scale = coordinates
    mu = (means - centre) / scale
    t = variances / scale**2 - 1 + mu * mu
    constant = xp.sum(t, axis=-1, keepdims=True)
    return xp.concat([t, mu, constant, xp.ones_like(constant)], axis=-1)


def right_features(means: Any, variances: Any, coordinates: tuple[Any, Any]) -> Any:
    """What q brings to H(p, q) = left(p) · right(q): ``(..., C, 2D + 2)``."""
    xp = array_namespace(means, variances)
    centre, scale = coordinates
    mu, inverse = (means - centre) / scale, scale**2 / variances
    r = inverse - 1
    volume = xp.log(2 * np.pi * variances) + 1 + r + mu * mu * inverse
    constant = 0.5 * xp.sum(volume, axis=-1, keepdims=True)
    half = xp.full_like(constant, 0.5)
    return xp.concat([0.5 * r, -mu * inverse, half, constant], axis=-1)


def entropy(variances: Any) -> Any:
    """Differential entropy H(p, p) of each Gaussian: ``(...)`` from ``(..., D)``."""
    xp = array_namespace(variances)
    return 0.5 * xp.sum(xp.log(2 * np.pi * variances) + 1, axis=-1)


def fits_single(*features: Any) -> bool:
    """Whether sums of products of these features keep their digits in float32."""
    return all(float(array_namespace(f).max(array_namespace(f).abs(f))) <= LARGE for f in features)


def cross_entropy(p_means: Any, p_variances: Any, q_means: Any, q_variances: Any) -> Any:
    """H(p, q) of every pair: ``(..., R, C)``."""
    arrays = (p_means, p_variances, q_means, q_variances)
    xp = array_namespace(*arrays)
    coordinates = frame(q_means, q_variances)
    left, right = left_features(p_means, p_variances, coordinates), right_features(q_means, q_variances, coordinates)
    if left.dtype != xp.float64 and not fits_single(left, right):
        return xp.astype(cross_entropy(*(xp.astype(a, xp.float64) for a in arrays)), left.dtype)
    return left @ xp.matrix_transpose(right)


def kl_divergence(p_means: Any, p_variances: Any, q_means: Any, q_variances: Any) -> Any:
    """KL(p‖q) of every pair (4.15): ``(..., R, C)``."""
    return cross_entropy(p_means, p_variances, q_means, q_variances) - entropy(p_variances)[..., :, None]


# --- probability product kernel --------------------------------------------------------------------------------------


def _log_volume(variances: Any, rho: float) -> Any:
    """The part of ln K^ρ that depends on one of the two Gaussians alone."""
    xp = array_namespace(variances)
    half_constant = 0.25 * (1 - 2 * rho) * math.log(2 * math.pi) - 0.25 * math.log(rho)
    return xp.sum(0.5 * (1 - rho) * xp.log(variances) + half_constant, axis=-1)


def log_product_kernel(p_means: Any, p_variances: Any, q_means: Any, q_variances: Any, rho: float = 0.5) -> Any:
    """ln K^ρ(p, q) of every pair (4.10): ``(..., R, C)``, by broadcasting, in blocks of rows."""
    xp = array_namespace(p_means, p_variances, q_means, q_variances)
    numbers_a_row = int(np.prod(p_means.shape[:-2])) * int(np.prod(q_means.shape[-2:]))
    step = max(1, BLOCK_NUMBERS // max(1, numbers_a_row))
    right, rows, blocks = _log_volume(q_variances, rho)[..., None, :], p_means.shape[-2], []
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        m, v = p_means[..., part, :], p_variances[..., part, :]
        s = v[..., :, None, :] + q_variances[..., None, :, :]
        gap = m[..., :, None, :] - q_means[..., None, :, :]
        logs = -0.5 * xp.sum(xp.log(s) + rho * gap * gap / s, axis=-1)
        blocks.append(logs + _log_volume(v, rho)[..., :, None] + right)
    return xp.concat(blocks, axis=-2)


def product_left(
    means: np.ndarray, variances: np.ndarray, rho: float, coordinates: tuple[np.ndarray, np.ndarray], dtype: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardised means and variances ``(B, R, D')``, D' a multiple of four, and ln-factors ``(B, R)``."""
    centre, scale = coordinates
    v = np.asarray(variances, np.float64) / scale**2
    factor = _log_volume(v, rho) + (1 - 2 * rho) * np.log(scale).sum(axis=-1)
    padding = [(0, 0), (0, 0), (0, -means.shape[-1] % 4)]
    # variances of 1/2 on both sides add up to 1: a padded dimension multiplies by 1 and adds 0
    return (
        np.pad(((means - centre) / scale).astype(dtype), padding),
        np.pad(v.astype(dtype), padding, constant_values=0.5),
        factor,
    )


def product_right(
    means: np.ndarray, variances: np.ndarray, rho: float, coordinates: tuple[np.ndarray, np.ndarray], dtype: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The columns in tiles ``(B, n_tiles, D'/4 · 8 · TILE)``, and ln-factors ``(B, C)``.

    Within a tile lie, for each group of four dimensions, four rows of means and four rows of variances, each of TILE
    columns: one pointer and constant distances are what lets the compiler vectorise over the columns.
    """
    batch, columns, _ = means.shape
    m, v, _ = product_left(means, variances, rho, coordinates, dtype)
    factor = _log_volume(np.asarray(variances, np.float64) / coordinates[1] ** 2, rho)
    n_tiles, d = -(-columns // TILE), m.shape[-1]
    packed = np.empty((batch, n_tiles * TILE, d // 4, 2, 4), dtype)
    packed[:, columns:, :, 0], packed[:, columns:, :, 1] = 0, 0.5
    packed[:, :columns, :, 0] = m.reshape(batch, columns, d // 4, 4)
    packed[:, :columns, :, 1] = v.reshape(batch, columns, d // 4, 4)
    packed = packed.reshape(batch, n_tiles, TILE, d * 2).swapaxes(2, 3)
    return np.ascontiguousarray(packed).reshape(batch, n_tiles, d * 2 * TILE), factor


def product_precision(
    p_variances: np.ndarray, q_variances: np.ndarray, coordinates: tuple[np.ndarray, np.ndarray], dtype: Any
) -> tuple[np.dtype, int]:
    """The dtype that can multiply four sums of variances, and how many such groups float64 can multiply in turn."""
    low, high = 1.0, 1.0  # the padding
    for v in (p_variances, q_variances):
        for lowest, highest, scale in zip(v.min(axis=-2), v.max(axis=-2), coordinates[1][..., 0, :]):
            low, high = min(low, (lowest / scale**2).min()), max(high, (highest / scale**2).max())
    spread = 4 * max(abs(np.log(2 * low)), np.log(2 * high))
    # float32 ends near exp(±87); the numerators carry a squared distance on top of three variances
    precision = np.dtype(np.float64 if spread > 60 else dtype)
    return precision, max(1, int(LOG_RANGE / spread))


# error_model: Python's test for a division by zero would keep the loop from being vectorised; variances are positive.
# Contraction to fused multiply-adds is the one liberty taken: sums keep their order whatever the number of threads.
@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def log_product_row(mp, vp, tile, rho, period, quadratic, product, out):  # pragma: no cover - compiled
    """ln of the pair-dependent part of K^ρ of one Gaussian with the columns of a tile, into ``out[:TILE]``."""
    for j in range(TILE):
        quadratic[j] = 0
        product[j] = 1
        out[j] = 0
    groups = mp.shape[0] // 4
    for g in range(groups):
        d = 4 * g
        m0, m1, m2, m3 = mp[d], mp[d + 1], mp[d + 2], mp[d + 3]
        v0, v1, v2, v3 = vp[d], vp[d + 1], vp[d + 2], vp[d + 3]
        q = tile[g * 8 * TILE : (g + 1) * 8 * TILE]
        for j in range(TILE):
            e0, e1, e2, e3 = m0 - q[j], m1 - q[TILE + j], m2 - q[2 * TILE + j], m3 - q[3 * TILE + j]
            s0, s1, s2, s3 = v0 + q[4 * TILE + j], v1 + q[5 * TILE + j], v2 + q[6 * TILE + j], v3 + q[7 * TILE + j]
            n01, n23 = e0 * e0 * s1 + e1 * e1 * s0, e2 * e2 * s3 + e3 * e3 * s2
            s01, s23 = s0 * s1, s2 * s3
            s = s01 * s23
            quadratic[j] += (n01 * s23 + n23 * s01) / s
            product[j] *= s
        if (g + 1) % period == 0 or g + 1 == groups:
            for j in range(TILE):
                out[j] -= 0.5 * np.log(product[j])
                product[j] = 1
    for j in range(TILE):
        out[j] -= 0.5 * rho * quadratic[j]


@njit(cache=True, nogil=True)
def log_product_tiles(mp, vp, fp, tiles, fq, rho, period, out):  # pragma: no cover - compiled
    """ln K^ρ of every row with every column of each batch, from ``product_left`` and ``product_right``."""
    batch, rows, columns = out.shape
    quadratic, product, logs = np.empty(TILE, mp.dtype), np.empty(TILE), np.empty(TILE)
    for b in range(batch):
        for first in range(0, rows, TILE_ROWS):
            for t in range(tiles.shape[1]):
                start = t * TILE
                for r in range(first, min(first + TILE_ROWS, rows)):
                    log_product_row(mp[b, r], vp[b, r], tiles[b, t], rho, period, quadratic, product, logs)
                    for j in range(min(TILE, columns - start)):
                        out[b, r, start + j] = logs[j] + fp[b, r] + fq[b, start + j]
