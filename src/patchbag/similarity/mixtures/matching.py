# SPDX-License-Identifier: BSD-3-Clause
r"""How the components of one mixture answer to those of another, and the kernels that follow from it.

Let :math:`p = \sum_i \alpha_i p_i` and :math:`q = \sum_j \beta_j q_j`.  Everything in liu2010, chapters 4 to 6, needs
of a pair of mixtures only how well each component i of p is answered by q::

    a_i(p, q) = Σ_j β_j κ(p_i, q_j),   κ = exp(-H) (cross-entropy), K^ρ (product kernel) or (K^½)² (its square)

with the sum over all j (``"all"``), only its largest term (``"best"``, the mapping π of eq. 4.20) or only j = i
(``"one-to-one"``, for mixtures adapted from one universal model).  ``answers_of`` prepares the q's for ln a_i with
blocks of p's; from it follow, per pair,

======================  =============================================  ========================
Goldberger/Vasconcelos  KL ≈ Σ αi (ln αi - H(pi, pi) - ln a_i)         best, (4.20-4.21)
Hershey-Olsen           KL ≈ Σ αi (ln a_i(p, p) - ln a_i(p, q))        all, (4.22-4.23)
one-to-many PPK         Σ αi a_i                                       all, K^ρ, (4.11)
Bhattacharyya bound     (Σ αi a_i)^½                                   all, (K^½)², (4.12)
matched PPK             Σ αi β_π(i) K^ρ(pi, q_π(i))                    π of (4.20), §4.3.2.1
======================  =============================================  ========================

and the mixtures of references (5.15-5.25) and contextual similarities (6.13-6.17) of the neighbouring modules.  Two
more estimates of KL(p‖q), from points, are in ``point_estimates``.

Cost per pair with K components in D dimensions: 4·K²·D flops in BLAS for cross-entropies (K·D one-to-one), about 8·K²·D
for product kernels.

Slips in the text.  For ρ ≤ 1, (4.11) is a *lower* bound of the kernel (Jensen; the thesis says upper), and upper for ρ
≥ 1.  A component of weight zero counts with weight ``WEIGHT_FLOOR`` where its logarithm is needed.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from patchbag.mixture.adaptation import Mixtures
from patchbag.runtime import parallel_map
from patchbag.similarity.base import map_rows
from patchbag.similarity.mixtures.gaussians import (
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
# numbers in the affinities of a block of images, and in the component-by-component matrix of a pair of blocks
BLOCK_NUMBERS = 1 << 23
PAIR_NUMBERS = 1 << 19

Answers = Callable[[Mixtures], np.ndarray]
# logarithms of what the kernels of each p and of each q are divided by, (n,) and (m,)
LogNorms = tuple[np.ndarray, np.ndarray] | None


def log_weights(weights: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(np.asarray(weights, np.float64), WEIGHT_FLOOR))


def row_blocks(P: Mixtures, Q: Mixtures, matching: str) -> list[slice]:
    """Blocks of the mixtures of P, of about the same size, that are compared with all of Q at a time."""
    numbers = Q.n_components * len(Q) * (1 if matching == "one-to-one" else Q.n_components)
    edges = np.linspace(0, len(P), min(len(P), -(-len(P) * numbers // BLOCK_NUMBERS)) + 1).astype(int)
    return [slice(start, stop) for start, stop in pairwise(edges)]


class Products(NamedTuple):
    """How logarithms of product kernels are computed: what ``product_left`` and ``log_product_tiles`` ask for."""

    rho: float
    coordinates: Any
    precision: Any
    period: int
    power: int
    dtype: Any


def answers_of(
    Q: Mixtures,
    P: Mixtures,
    measure: str = "cross-entropy",
    matching: str = "one-to-one",
    rho: float = 0.5,
    dtype: Any = np.float32,
) -> Answers:
    """A function of some mixtures of P that gives ln a_i of their components with all of Q: ``(K, rows, len(Q))``.

    ``measure`` is "cross-entropy", "product" or "squared-product"; ``matching`` "one-to-one", "best" or "all".
    """
    dtype, one_to_one = np.dtype(dtype), matching == "one-to-one"
    means, variances = by_component(Q) if one_to_one else (a[None] for a in _flat(Q))
    coordinates = component_frame(Q) if one_to_one else frame(means.astype(np.float64), variances.astype(np.float64))
    if measure == "cross-entropy" and one_to_one:
        right = reference_features(Q, right_features, coordinates, dtype)
        return partial(one_to_one_entropies, coordinates=coordinates, others=right)
    if measure == "cross-entropy":
        coordinates = coordinates[0][0], coordinates[1][0]
        right = _right_side(Q, coordinates, dtype)
        return partial(_all_entropies, coordinates=coordinates, right=right, matching=matching, dtype=dtype)
    rho, power = (0.5, 2) if measure == "squared-product" else (rho, 1)
    own = by_component(P)[1] if one_to_one else _flat(P)[1][None]
    how = Products(rho, coordinates, *product_precision(own, variances, coordinates, dtype), power, dtype)
    if one_to_one:
        tiles, right = pack_components(product_right, Q, rho, coordinates, how.precision)
        # ln β goes into the columns' factor; the power must not touch it
        return partial(_one_to_one_products, how=how, packed=(tiles, right + log_weights(Q.weights).T / power))
    step, k = max(1, 4 * PAIR_NUMBERS // Q.n_components**2), Q.n_components
    packed = []
    for start in range(0, len(Q), step):
        rows = slice(start * k, (start + step) * k)
        part = product_right(means[:, rows], variances[:, rows], rho, coordinates, how.precision)
        packed.append((part, log_weights(Q.weights[start : start + step]).astype(dtype)))
    return partial(_all_products, how=how, packed=packed, matching=matching)


# --- one to one: component i of all images side by side, in coordinates that keep its digits --------------------------


def by_component(mixtures: Mixtures) -> tuple[Any, Any]:
    """Means and variances ``(K, n, D)``."""
    xp = array_namespace(mixtures.means)
    return xp.permute_dims(mixtures.means, (1, 0, 2)), xp.permute_dims(mixtures.variances, (1, 0, 2))


def component_frame(mixtures: Mixtures) -> tuple[Any, Any]:
    """Coordinates that centre each component over the images: centre, scale ``(K, 1, D)``, in float64."""
    xp = array_namespace(mixtures.means)
    centre, variance = (xp.mean(a, axis=0)[:, None, :] for a in (mixtures.means, mixtures.variances))
    return xp.astype(centre, xp.float64), xp.sqrt(xp.astype(variance, xp.float64))


def pack_components(
    function: Callable[..., tuple[Any, ...]], m: Mixtures, rho: float, coordinates: tuple[Any, Any], dtype: Any
) -> list[np.ndarray]:
    """``product_left`` or ``product_right`` of all components, one at a time to keep temporaries small."""
    parts = zip(*(a[:, None] for a in (*by_component(m), *coordinates)))
    return [np.concatenate(a) for a in zip(*(function(mu, v, rho, (c, s), dtype) for mu, v, c, s in parts))]


def _flat(mixtures: Mixtures) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances ``(n·K, D)``."""
    return mixtures.means.reshape(-1, mixtures.dimension), mixtures.variances.reshape(-1, mixtures.dimension)


def _features(job: tuple[Any, ...], function: Callable[..., Any]) -> np.ndarray:
    """What component i of all images brings, ``(n, 2D + 2)``; as right features, with the logarithm of its weight."""
    means, variances, weights, centre, scale = job
    features = function(means, variances, (centre, scale))
    if function is right_features:
        features[:, -1] -= log_weights(weights)
    return features


def _jobs(mixtures: Mixtures, coordinates: Any) -> Any:
    return zip(*by_component(mixtures), mixtures.weights.T, *coordinates)


def reference_features(Q: Mixtures, function: Callable[..., Any], coordinates: Any, dtype: Any) -> np.ndarray:
    """Left or right features of all components, ``(K, 2D + 2, m)``."""
    out = np.empty((Q.n_components, 2 * Q.dimension + 2, len(Q)), dtype)
    for i, features in enumerate(parallel_map(partial(_features, function=function), _jobs(Q, coordinates))):
        out[i] = features.T
    return out


def one_to_one_entropies(
    P: Mixtures, coordinates: Any, others: np.ndarray, function: Callable[..., Any] = left_features
) -> np.ndarray:
    """ln a_i(p, q) from the right features of the q's; ln a_i(q, p) from their left and the right ones of the p's."""
    out = np.empty((P.n_components, len(P), others.shape[2]), others.dtype)
    for i, job in enumerate(_jobs(P, coordinates)):
        np.matmul((-_features(job, function)).astype(others.dtype), others[i], out=out[i])
    return out


def _one_to_one_products(P: Mixtures, how: Products, packed: Any) -> np.ndarray:
    left = pack_components(product_left, P, how.rho, how.coordinates, how.precision)
    out = np.empty((P.n_components, len(P), packed[1].shape[1]), how.dtype)
    log_product_tiles(*left, *packed, how.rho, how.period, out)  # type: ignore[call-arg]
    return how.power * out if how.power != 1 else out


# --- all components --------------------------------------------------------------------------------------------------


def log_sum(logs: np.ndarray, matching: str = "all") -> np.ndarray:
    """Logarithm of the sum of exponentials over the last axis, or the "best" of them; overwrites its argument."""
    best = logs.max(axis=-1, keepdims=True)
    if matching == "best":
        return best[..., 0]
    logs -= best
    return np.log(np.exp(logs, out=logs).sum(axis=-1)) + best[..., 0]


def _right_side(Q: Mixtures, coordinates: Any, dtype: Any) -> np.ndarray:
    """What all components of the q's bring to H(p_i, q_j) - ln β_j: ``(2D + 2, m·K)``, float64 where that is needed."""
    right = right_features(*_flat(Q), coordinates)
    right[:, -1] -= log_weights(Q.weights).ravel()
    return np.ascontiguousarray(right.T, dtype if fits_single(right) else np.float64)


def _costs(p: Mixtures, coordinates: Any, right: np.ndarray) -> Any:
    """H(p_i, q_j) - ln β_j of one mixture p, in parts of the q's: slice, ``(K, part, K)``."""
    left, k = left_features(p.means[0], p.variances[0], coordinates), p.n_components
    left = left.astype(right.dtype if fits_single(left) else np.float64, copy=False)
    step, m = max(1, PAIR_NUMBERS // (k * k)), right.shape[1] // k
    for start in range(0, m, step):
        part = slice(start, min(start + step, m))
        yield part, (left @ right[:, part.start * k : part.stop * k]).reshape(k, -1, k)


def _all_entropies(P: Mixtures, coordinates: Any, right: np.ndarray, matching: str, dtype: Any) -> np.ndarray:
    out = np.empty((P.n_components, len(P), right.shape[1] // P.n_components), dtype)
    for i in range(len(P)):
        for part, costs in _costs(P[i], coordinates, right):
            out[:, i, part] = log_sum(np.negative(costs, out=costs), matching)
    return out


def _all_products(P: Mixtures, how: Products, packed: Any, matching: str) -> np.ndarray:
    k, found = P.n_components, []
    for i in range(len(P)):
        left = product_left(P.means[i : i + 1], P.variances[i : i + 1], how.rho, how.coordinates, how.precision)
        parts = []
        for columns, logs in packed:
            block = np.empty((1, k, logs.size), how.dtype)
            log_product_tiles(*left, *columns, how.rho, how.period, block)  # type: ignore[call-arg]
            parts.append(log_sum(how.power * block.reshape(k, -1, k) + logs, matching))
        found.append(np.concatenate(parts, axis=1))
    return np.stack(found, axis=1)


# --- kernels and divergences between mixtures ------------------------------------------------------------------------


def _divergence_rows(P: Mixtures, answers: Answers, own: Callable[[Mixtures], np.ndarray], dtype: Any) -> np.ndarray:
    alpha = np.asarray(P.weights, np.float64)
    return (own(P)[:, None] - np.einsum("nk,knm->nm", alpha, answers(P))).astype(dtype)


def _own_matched(P: Mixtures) -> np.ndarray:
    alpha = np.asarray(P.weights, np.float64)
    return np.sum(alpha * (log_weights(alpha) - entropy(np.asarray(P.variances, np.float64))), axis=1)


def _own_variational(P: Mixtures) -> np.ndarray:
    logs = [answers_of(P[i], P[i], matching="all", dtype=np.float64)(P[i])[:, 0, 0] for i in range(len(P))]
    return np.einsum("nk,nk->n", np.asarray(P.weights, np.float64), np.array(logs))


def _divergences(
    P: Mixtures, Q: Mixtures, matching: str, own: Callable[[Mixtures], np.ndarray], dtype: Any
) -> np.ndarray:
    answers = answers_of(Q, P, matching=matching, dtype=dtype)
    rows = partial(_divergence_rows, answers=answers, own=own, dtype=dtype)
    return map_rows(rows, [P[part] for part in row_blocks(P, Q, matching)], len(P))


def kl_matched(P: Mixtures, Q: Mixtures, dtype: Any = np.float32) -> np.ndarray:
    """KL(p‖q) by matching each component with its best answer (4.20-4.21): ``(n, m)``.

    It can be negative where components of a mixture overlap: the answer of one leaves out what the others add.
    """
    return _divergences(P, Q, "best", _own_matched, dtype)


def kl_variational(P: Mixtures, Q: Mixtures, dtype: Any = np.float32) -> np.ndarray:
    """KL(p‖q) as a difference of variational bounds on cross-entropies (4.22-4.23): ``(n, m)``; can be negative."""
    return _divergences(P, Q, "all", _own_variational, dtype)


def map_normed(rows: Callable[..., np.ndarray], P: Mixtures, Q: Mixtures, matching: str, norms: LogNorms) -> np.ndarray:
    """``rows`` of blocks of P with the logarithms of their norms, and of those of Q; zeros where there are none."""
    norms = norms or (np.zeros(len(P)), np.zeros(len(Q)))
    jobs = [(P[part], norms[0][part]) for part in row_blocks(P, Q, matching)]
    return map_rows(partial(rows, q_norms=norms[1]), jobs, len(P))


def _product_rows(
    job: tuple[Mixtures, np.ndarray], q_norms: np.ndarray, answers: Answers, dtype: Any, root: bool
) -> np.ndarray:
    """Σ_i α_i a_i in float64 over the norms, or its root."""
    P, norms = job
    logs = answers(P) - (2 if root else 1) * (norms[:, None] + q_norms)
    found = np.einsum("nk,knm->nm", np.asarray(P.weights, np.float64), np.exp(logs, dtype=np.float64))
    return (np.sqrt(found) if root else found).astype(dtype)


def product_one_to_many(
    P: Mixtures, Q: Mixtures, rho: float = 0.5, dtype: Any = np.float32, log_norms: LogNorms = None
) -> np.ndarray:
    """Σ_i Σ_j α_i β_j K^ρ(p_i, q_j) (4.11): ``(n, m)``."""
    answers = answers_of(Q, P, "product", "all", rho, dtype)
    return map_normed(partial(_product_rows, answers=answers, dtype=dtype, root=False), P, Q, "all", log_norms)


def bhattacharyya_bound(P: Mixtures, Q: Mixtures, dtype: Any = np.float32, log_norms: LogNorms = None) -> np.ndarray:
    """Hershey and Olsen's lower bound on the Bhattacharyya kernel (4.12): ``(n, m)``."""
    answers = answers_of(Q, P, "squared-product", "all", dtype=dtype)
    return map_normed(partial(_product_rows, answers=answers, dtype=dtype, root=True), P, Q, "all", log_norms)


def product_matched(
    P: Mixtures, Q: Mixtures, rho: float = 0.5, dtype: Any = np.float32, log_norms: LogNorms = None
) -> np.ndarray:
    """Σ_i α_i β_π(i) K^ρ(p_i, q_π(i)) with the mapping π of (4.20): ``(n, m)``, not symmetric."""
    coordinates = frame(*(a.astype(np.float64) for a in _flat(Q)))
    right = _right_side(Q, coordinates, dtype)
    rows = partial(_matched_rows, Q=Q, coordinates=coordinates, right=right, rho=rho, dtype=dtype)
    return map_normed(rows, P, Q, "best", log_norms)


def _matched_rows(
    job: tuple[Mixtures, np.ndarray],
    q_norms: np.ndarray,
    Q: Mixtures,
    coordinates: Any,
    right: Any,
    rho: float,
    dtype: Any,
) -> np.ndarray:
    P, norms = job
    means, variances = _flat(Q)
    beta = np.asarray(Q.weights, np.float64).ravel()
    out = np.empty((len(P), len(Q)), dtype)
    for i in range(len(P)):
        mu, sigma2 = (np.asarray(a[i], np.float64)[:, None] for a in (P.means, P.variances))
        for part, costs in _costs(P[i], coordinates, right):
            chosen = np.argmin(costs, axis=-1) + np.arange(part.start, part.stop) * Q.n_components
            v = sigma2 + variances[chosen]
            logs = 0.5 * (1 - rho) * np.log(sigma2 * variances[chosen]) - 0.5 * np.log(v * rho)
            logs -= 0.5 * rho * (mu - means[chosen]) ** 2 / v - 0.5 * (1 - 2 * rho) * np.log(2 * np.pi)
            terms = np.exp(logs.sum(axis=-1) - norms[i] - q_norms[part])
            out[i, part] = np.asarray(P.weights[i], np.float64) @ (beta[chosen] * terms)
    return out
