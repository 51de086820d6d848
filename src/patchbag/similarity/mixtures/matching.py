# SPDX-License-Identifier: BSD-3-Clause
r"""How the components of one mixture answer to those of another, and the kernels that follow from it.

Let :math:`p = \sum_i \alpha_i p_i` and :math:`q = \sum_j \beta_j q_j`.  Everything in liu2010, chapters 4 to 6, needs
of a pair of mixtures only how well each component i of p is answered by q::

    a_i(p, q) = Σ_j β_j κ(p_i, q_j),   κ = exp(-H) (cross-entropy), K^ρ (product kernel) or (K^½)² (its square)

with the sum over all j (``"all"``), only its largest term (``"best"``, the mapping π of eq. 4.20) or only j = i
(``"one-to-one"``, for mixtures adapted from one universal model).  ``log_affinities`` computes ln a_i in blocks of
images; from it follow, per pair,

======================  =============================================  ========================
Goldberger/Vasconcelos  KL ≈ Σ αi (ln αi - H(pi, pi) - ln a_i)         best, (4.20-4.21)
Hershey-Olsen           KL ≈ Σ αi (ln a_i(p, p) - ln a_i(p, q))        all, (4.22-4.23)
one-to-many PPK         Σ αi a_i                                       all, K^ρ, (4.11)
Bhattacharyya bound     (Σ αi a_i)^½                                   all, (K^½)², (4.12)
matched PPK             Σ αi β_π(i) K^ρ(pi, q_π(i))                    π of (4.20), §4.3.2.1
======================  =============================================  ========================

and the mixtures of references (5.15-5.25) and contextual similarities (6.13-6.17) of the neighbouring modules.  Two
more estimates of KL(p‖q), from points, are in ``point_estimates``.

Cost a pair with K components in D dimensions: 4·K²·D flops in BLAS for cross-entropies (K·D one-to-one), about 8·K²·D
for product kernels.

Slips in the text.  For ρ ≤ 1, (4.11) is a *lower* bound of the kernel (Jensen; the thesis says upper), and upper for ρ
≥ 1.  A component of weight zero counts with weight ``WEIGHT_FLOOR`` where its logarithm is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from patchbag.mixture.adaptation import Mixtures
from patchbag.runtime import parallel_map
from patchbag.similarity.mixtures.checks import check_pair, check_range
from patchbag.similarity.mixtures.components import by_component, component_frame, pack_components
from patchbag.similarity.mixtures.gaussians import (
    check_rho,
    entropy,
    fits_single,
    frame,
    left_features,
    log_product_tiles,
    product_left,
    product_precision,
    product_right,
    right_features,
)

WEIGHT_FLOOR = 1e-10
MEASURES = ("cross-entropy", "product", "squared-product")
MATCHINGS = ("one-to-one", "best", "all")
# numbers in a yielded block, and in the component-by-component matrix of a job
BLOCK_NUMBERS = 1 << 24
JOB_NUMBERS = 1 << 19


def log_weights(weights: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(np.asarray(weights, np.float64), WEIGHT_FLOOR))


def log_affinities(
    P: Mixtures,
    Q: Mixtures,
    measure: str = "cross-entropy",
    matching: str = "one-to-one",
    rho: float = 0.5,
    dtype: Any = np.float32,
) -> Iterator[tuple[slice, np.ndarray]]:
    """ln a_i of every component of every mixture of P with every mixture of Q, in blocks of P.

    Yields
    ------
    rows : slice of P
    logs : (K, rows, len(Q)) in ``dtype``
    """
    if measure not in MEASURES:
        raise ValueError(f"measure must be one of {MEASURES}, got {measure!r}")
    if matching not in MATCHINGS:
        raise ValueError(f"matching must be one of {MATCHINGS}, got {matching!r}")
    rho, power = (0.5, 2) if measure == "squared-product" else (check_rho(rho), 1)
    k, m = Q.n_components, len(Q)
    dtype = np.dtype(dtype)
    if measure == "cross-entropy":
        compute = _one_to_one_entropies(Q, dtype) if matching == "one-to-one" else _all_entropies(Q, matching, dtype)
    elif matching == "one-to-one":
        compute = _one_to_one_products(P, Q, rho, power, dtype)
    else:
        compute = _all_products(P, Q, rho, power, matching, dtype)
    step = max(1, min(BLOCK_NUMBERS // max(1, k * m), len(P)))
    for start in range(0, len(P), step):
        rows = slice(start, min(start + step, len(P)))
        yield rows, compute(P[rows])


Compute = Callable[[Mixtures], np.ndarray]
# logarithms of what the kernels of each p and of each q are divided by, (n,) and (m,)
LogNorms = tuple[np.ndarray, np.ndarray] | None


def _flat(mixtures: Mixtures) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances ``(n·K, D)``."""
    return mixtures.means.reshape(-1, mixtures.dimension), mixtures.variances.reshape(-1, mixtures.dimension)


def _one_to_one_entropies(Q: Mixtures, dtype: np.dtype) -> Compute:
    means, variances = by_component(Q)
    k, m, d = means.shape
    centre, scale = component_frame(Q)
    logs = log_weights(Q.weights)
    right = np.empty((k, 2 * d + 2, m), dtype)

    def prepare(i: int) -> None:
        right[i] = right_features(means[i], variances[i], (centre[i], scale[i])).T
        right[i, -1] -= logs[:, i]

    list(parallel_map(prepare, range(k), shared=True))

    def compute(P: Mixtures) -> np.ndarray:
        p_means, p_variances = by_component(P)
        out = np.empty((k, len(P), m), dtype)

        def job(i: int) -> None:
            left = left_features(p_means[i], p_variances[i], (centre[i], scale[i]))
            np.matmul((-left).astype(dtype), right[i], out=out[i])

        list(parallel_map(job, range(k), shared=True))
        return out

    return compute


def _one_to_one_products(P: Mixtures, Q: Mixtures, rho: float, power: int, dtype: np.dtype) -> Compute:
    coordinates = tuple(a[:, None] for a in component_frame(Q))
    precision, period = product_precision(by_component(P)[1], by_component(Q)[1], coordinates, dtype)
    tiles, right = pack_components(product_right, Q, rho, coordinates, precision)
    # ln β goes into the columns' factor; the power must not touch it
    right += log_weights(Q.weights).T / power

    def compute(P: Mixtures) -> np.ndarray:
        means, variances, left = pack_components(product_left, P, rho, coordinates, precision)
        out = np.empty((len(means), len(P), len(Q)), dtype)
        log_product_tiles(means, variances, left, tiles, right, rho, period, out)
        if power != 1:
            out *= power
        return out

    return compute


def _reduce(logs: np.ndarray, matching: str) -> np.ndarray:
    """Largest, or logarithm of the sum of exponentials, over the last axis; overwrites its argument."""
    best = logs.max(axis=-1, keepdims=True)
    if matching == "best":
        return best[..., 0]
    logs -= best
    return np.log(np.exp(logs, out=logs).sum(axis=-1)) + best[..., 0]


def _right_side(Q: Mixtures, coordinates: tuple[Any, Any], dtype: np.dtype) -> np.ndarray:
    """What all components of the q's bring to H(p_i, q_j) - ln β_j: ``(2D + 2, m·K)``, float64 where that is needed."""
    right = right_features(*_flat(Q), coordinates)
    right[:, -1] -= log_weights(Q.weights).ravel()
    return np.ascontiguousarray(right.T, dtype if fits_single(right) else np.float64)


def _left_side(P: Mixtures, i: int, coordinates: tuple[Any, Any], dtype: np.dtype) -> np.ndarray:
    """What the components of p bring to it: ``(K, 2D + 2)``."""
    left = left_features(P.means[i], P.variances[i], coordinates)
    return left.astype(dtype if fits_single(left) else np.float64, copy=False)


def _all_entropies(Q: Mixtures, matching: str, dtype: np.dtype) -> Compute:
    k, m = Q.n_components, len(Q)
    coordinates = frame(*(a.astype(np.float64) for a in _flat(Q)))
    right = _right_side(Q, coordinates, dtype)
    step = max(1, JOB_NUMBERS // (k * k))

    def compute(P: Mixtures) -> np.ndarray:
        out = np.empty((k, len(P), m), dtype)

        def job(i: int) -> None:
            left = _left_side(P, i, coordinates, right.dtype)
            for start in range(0, m, step):
                stop = min(start + step, m)
                logs = -(left @ right[:, start * k : stop * k])
                out[:, i, start:stop] = _reduce(logs.reshape(k, stop - start, k), matching)

        list(parallel_map(job, range(len(P)), shared=True))
        return out

    return compute


def _all_products(P: Mixtures, Q: Mixtures, rho: float, power: int, matching: str, dtype: np.dtype) -> Compute:
    k, m, d = Q.n_components, len(Q), Q.dimension
    means, variances = (a[None] for a in _flat(Q))
    coordinates = frame(means.astype(np.float64), variances.astype(np.float64))
    precision, period = product_precision(P.variances.reshape(1, -1, d), variances, coordinates, dtype)
    logs = log_weights(Q.weights).astype(dtype)
    step = max(1, 4 * JOB_NUMBERS // (k * k))
    parts = [slice(start, min(start + step, m)) for start in range(0, m, step)]
    packed = []
    for part in parts:
        rows = slice(part.start * k, part.stop * k)
        packed.append(product_right(means[:, rows], variances[:, rows], rho, coordinates, precision))

    def compute(P: Mixtures) -> np.ndarray:
        out = np.empty((k, len(P), m), dtype)
        for i in range(len(P)):
            left = product_left(P.means[i : i + 1], P.variances[i : i + 1], rho, coordinates, precision)
            for part, columns in zip(parts, packed):
                block = np.empty((1, k, (part.stop - part.start) * k), dtype)
                log_product_tiles(*left, *columns, rho, period, block)
                terms = power * block.reshape(k, -1, k) + logs[part]
                out[:, i, part] = _reduce(terms, matching)
        return out

    return compute


# --- kernels and divergences between mixtures ------------------------------------------------------------------------


def kl_matched(P: Mixtures, Q: Mixtures, dtype: Any = np.float32, check: bool = True) -> np.ndarray:
    """KL(p‖q) by matching each component with its best answer (4.20-4.21): ``(n, m)``.

    It can be negative where components of a mixture overlap: the answer of one leaves out what the others add.
    """
    if check:
        check_pair(P, Q)
    alpha = np.asarray(P.weights, np.float64)
    own = np.sum(alpha * (log_weights(alpha) - entropy(np.asarray(P.variances, np.float64))), axis=1)
    out = np.empty((len(P), len(Q)), dtype)
    for rows, logs in log_affinities(P, Q, matching="best", dtype=dtype):
        out[rows] = own[rows, None] - np.einsum("nk,knm->nm", alpha[rows], logs)
    return out


def kl_variational(P: Mixtures, Q: Mixtures, dtype: Any = np.float32, check: bool = True) -> np.ndarray:
    """KL(p‖q) as a difference of variational bounds on cross-entropies (4.22-4.23): ``(n, m)``; can be negative."""
    if check:
        check_pair(P, Q)
    alpha = np.asarray(P.weights, np.float64)
    own = np.empty(len(P))
    for i in range(len(P)):
        ((_, logs),) = log_affinities(P[i], P[i], matching="all", dtype=np.float64)
        own[i] = alpha[i] @ logs[:, 0, 0]
    out = np.empty((len(P), len(Q)), dtype)
    for rows, logs in log_affinities(P, Q, matching="all", dtype=dtype):
        out[rows] = own[rows, None] - np.einsum("nk,knm->nm", alpha[rows], logs)
    return out


def product_one_to_many(
    P: Mixtures,
    Q: Mixtures,
    rho: float = 0.5,
    dtype: Any = np.float32,
    log_norms: LogNorms = None,
    check: bool = True,
) -> np.ndarray:
    """Σ_i Σ_j α_i β_j K^ρ(p_i, q_j) (4.11): ``(n, m)``."""
    if check:
        check_pair(P, Q)
    out = np.empty((len(P), len(Q)), dtype)
    for rows, logs in log_affinities(P, Q, "product", "all", rho, dtype):
        out[rows] = _exponential_sum(P, rows, logs, log_norms)
    return out if log_norms is not None else check_range(out, P, Q, rho)


def bhattacharyya_bound(
    P: Mixtures, Q: Mixtures, dtype: Any = np.float32, log_norms: LogNorms = None, check: bool = True
) -> np.ndarray:
    """Hershey and Olsen's lower bound on the Bhattacharyya kernel (4.12): ``(n, m)``."""
    if check:
        check_pair(P, Q)
    doubled = None if log_norms is None else (2 * log_norms[0], 2 * log_norms[1])
    out = np.empty((len(P), len(Q)), dtype)
    for rows, logs in log_affinities(P, Q, "squared-product", "all", dtype=dtype):
        out[rows] = np.sqrt(_exponential_sum(P, rows, logs, doubled))
    return out


def _exponential_sum(P: Mixtures, rows: slice, logs: np.ndarray, log_norms: LogNorms) -> np.ndarray:
    """Σ_i α_i a_i of a block of pairs in float64, divided by the norms whose logarithms are given."""
    if log_norms is not None:
        logs = logs - (log_norms[0][rows, None] + log_norms[1])
    return np.einsum("nk,knm->nm", np.asarray(P.weights[rows], np.float64), np.exp(logs, dtype=np.float64))


def product_matched(
    P: Mixtures,
    Q: Mixtures,
    rho: float = 0.5,
    dtype: Any = np.float32,
    log_norms: LogNorms = None,
    check: bool = True,
) -> np.ndarray:
    """Σ_i α_i β_π(i) K^ρ(p_i, q_π(i)) with the mapping π of (4.20): ``(n, m)``, not symmetric."""
    rho = check_rho(rho)
    if check:
        check_pair(P, Q)
    norms = (np.zeros(len(P)), np.zeros(len(Q))) if log_norms is None else log_norms
    k, m = Q.n_components, len(Q)
    means, variances = _flat(Q)
    coordinates = frame(means.astype(np.float64), variances.astype(np.float64))
    right = _right_side(Q, coordinates, np.dtype(dtype))
    beta = np.asarray(Q.weights, np.float64).ravel()
    step = max(1, JOB_NUMBERS // (k * k))
    out = np.empty((len(P), m), dtype)

    def job(i: int) -> None:
        mu, sigma2 = (np.asarray(a[i], np.float64)[:, None] for a in (P.means, P.variances))
        left = _left_side(P, i, coordinates, right.dtype)
        for start in range(0, m, step):
            stop = min(start + step, m)
            costs = (left @ right[:, start * k : stop * k]).reshape(k, stop - start, k)
            chosen = np.argmin(costs, axis=-1) + np.arange(start, stop) * k
            v = sigma2 + variances[chosen]
            logs = 0.5 * (1 - rho) * np.log(sigma2 * variances[chosen]) - 0.5 * np.log(v * rho)
            logs -= 0.5 * rho * (mu - means[chosen]) ** 2 / v - 0.5 * (1 - 2 * rho) * np.log(2 * np.pi)
            terms = np.exp(logs.sum(axis=-1) - norms[0][i] - norms[1][start:stop])
            out[i, start:stop] = np.asarray(P.weights[i], np.float64) @ (beta[chosen] * terms)

    list(parallel_map(job, range(len(P)), shared=True))
    return out if log_norms is not None else check_range(out, P, Q, rho)
