# SPDX-License-Identifier: BSD-3-Clause
r"""Contextual similarity (CTXT) of image mixtures: how much of q is explained by p rather than by the context u.

With f a similarity between distributions, the contextual similarity is the share of p in the best blend of p and the
context u, the universal model say (liu2010, eq. 6.3-6.5):

.. math::

    cs_f(q, p | u) = \arg\max_{0 \le \omega \le 1} f(q, \omega p + (1-\omega) u)\ [+ f(p, \omega q + (1-\omega) u)],

symmetric with the second term (the default, as in the thesis).  cs = 1 when q = p.  When p = u the first term does not
depend on ω and the thesis sets cs = 1/2; the symmetric similarity follows that convention where either p = u or q = u
(the other term alone would give 0), and 1/2 goes before 1 where all three are the same.  "The same" means up to the
rounding of the precision: mean ratios within 1e-4 of one in float32, 1e-12 in float64.  With ``matching="all"`` the
bound below does not have its maximum at q = p where components of a mixture overlap; q = p is then recognised by its
numbers, which must be the same to the last digit.

Between mixtures, f = -KL by Hershey and Olsen's bound (6.13).  With :math:`r_i = a_i(q, p) / a_i(q, u)` the ratio of
how well p and u answer component i of q (``matching.log_affinities``), one maximises the concave

.. math:: \sum_i \pi_i \ln(1 + \omega (r_i - 1))\ [+\ \text{the same with q and p exchanged}]

either to the end (``iterations=None``: Newton's method kept inside a bracket, on the sign of the derivative) or by a
few EM steps from ω = 1/2 (6.16, 6.17): early stopping, which the thesis tunes between 1 and 5.  Stopped early, cs(q,
q) is below 1.

Cost a pair: two cross-entropies of K components (8·K·D flops in BLAS) and 2·K divisions an iteration.  Memory beyond
the result: 4·K·(D + 1) numbers a reference, and blocks of 64 MB.  ``context_histograms`` has the same similarity of
word histograms.

Slip.  As printed, (6.16) normalises over p_j and u_j for each j apart, so that the γ's of component i sum to more than
one when several j answer; the sums over j belong into the denominator.  One-to-one, there is a single j and no
difference.
"""

from __future__ import annotations

import hashlib
from typing import Any, Self

import numpy as np
from numba import njit, prange
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.parameters import GaussianParameters
from patchbag.runtime import parallel_njit
from patchbag.similarity.mixtures.checks import check_iterations, check_mixtures, check_pair, check_precision
from patchbag.similarity.mixtures.matching import log_affinities
from patchbag.similarity.mixtures.mutual import mutual_log_affinities

MATCHINGS = ("one-to-one", "all")
TILE = 64
# below this mean distance of the ratios from one, p and u are the same (it goes with the square if q is near u too)
FLAT = {"float32": 1e-4, "float64": 1e-12}
# exp(±60): a component that only one of p and u answers
MAX_LOG_RATIO = 60.0
NEWTON_STEPS = 60
NEWTON_TOLERANCE = 1e-6


@njit(cache=True, nogil=True, error_model="numpy")
def _slope(ratios, weights, omega, slope, curvature):  # pragma: no cover - compiled
    """Add the derivative of Σ w ln(1 + ω (r - 1)) at ω to ``slope``, and minus the second to ``curvature``."""
    for j in range(ratios.shape[0]):
        e = ratios[j] - 1.0
        term = e / (1.0 + omega[j] * e)
        slope[j] += weights[j] * term
        curvature[j] += weights[j] * term * term


@njit(cache=True, nogil=True, error_model="numpy")
def _share_tile(forward, own, backward, theirs, iterations, flat, out):  # pragma: no cover - compiled
    """ω of one image with a tile of others: ratios (K, width), weights own (K,), theirs (K, width)."""
    k, width = forward.shape
    symmetric = backward.shape[0] > 0
    omega, low, high = np.full(width, 0.5), np.zeros(width), np.ones(width)
    slope, curvature, weights = np.empty(width), np.empty(width), np.empty(width)
    total, their_total = np.zeros(width), np.zeros(width)
    distance, their_distance = np.zeros(width), np.zeros(width)
    for i in range(k):
        for j in range(width):
            total[j] += own[i]
            distance[j] += own[i] * abs(forward[i, j] - 1.0)
            if symmetric:
                their_total[j] += theirs[i, j]
                their_distance[j] += theirs[i, j] * abs(backward[i, j] - 1.0)
    # the optimum needs the slopes at both ends first: steps -2 and -1
    for step in range(0 if iterations > 0 else -2, iterations if iterations > 0 else NEWTON_STEPS):
        if step < 0:
            omega[:] = step + 2.0
        elif step == 0:
            omega[:] = 0.5
        slope[:] = 0.0
        curvature[:] = 0.0
        for i in range(k):
            weights[:] = own[i]
            _slope(forward[i], weights, omega, slope, curvature)
            if symmetric:
                _slope(backward[i], theirs[i], omega, slope, curvature)
        moved = 0.0
        for j in range(width):
            if iterations > 0:
                # Σ w ω r / (1 - ω + ω r) = ω Σ w + ω (1 - ω) · slope: the EM step in terms of the slope
                omega[j] += omega[j] * (1.0 - omega[j]) * slope[j] / (total[j] + their_total[j])
            elif step == -2:
                if slope[j] <= 0:
                    high[j] = 0.0
            elif step == -1:
                if slope[j] >= 0:
                    low[j] = 1.0
            elif low[j] < high[j]:
                if slope[j] > 0:
                    low[j] = omega[j]
                else:
                    high[j] = omega[j]
                target = omega[j] + slope[j] / curvature[j] if curvature[j] > 0 else omega[j]
                if not low[j] < target < high[j]:
                    target = 0.5 * (low[j] + high[j])
                moved = max(moved, abs(target - omega[j]))
                omega[j] = target
        if iterations == 0 and step >= 0 and moved < NEWTON_TOLERANCE:
            break
    for j in range(width):
        if distance[j] <= flat * total[j] or (symmetric and their_distance[j] <= flat * their_total[j]):
            out[j] = 0.5
        elif iterations == 0 and high[j] == 0.0:
            out[j] = 0.0
        elif iterations == 0 and low[j] == 1.0:
            out[j] = 1.0
        else:
            out[j] = omega[j]


@parallel_njit()
def _shares(forward, own, backward, theirs, iterations, flat, out):  # pragma: no cover - compiled
    """ω of every pair: ratios (K, n, m), weights own (n, K) and theirs (K, m); iterations = 0 runs to the optimum."""
    n, m = out.shape
    n_tiles = (m + TILE - 1) // TILE
    for job in prange(n * n_tiles):
        image, start = job // n_tiles, (job % n_tiles) * TILE
        stop = min(start + TILE, m)
        _share_tile(
            forward[:, image, start:stop],
            own[image],
            backward[:, image, start:stop] if backward.shape[0] > 0 else forward[:0, image, start:stop],
            theirs[:, start:stop],
            iterations,
            flat,
            out[image, start:stop],
        )


def best_shares(
    forward: np.ndarray,
    own: np.ndarray,
    backward: np.ndarray | None = None,
    theirs: np.ndarray | None = None,
    iterations: int | None = None,
) -> np.ndarray:
    """The ω in [0, 1] that maximises Σ own·ln(1 + ω (forward - 1)) [+ Σ theirs·ln(1 + ω (backward - 1))] of every pair.

    Parameters
    ----------
    forward, backward : (K, n, m) positive ratios r
    own : (n, K) weights of the components of the n; theirs : (m, K) of the m
    iterations : EM steps from 1/2, or None for the optimum

    Returns
    -------
    (n, m); 1/2 where all forward ratios, or all backward ratios, are one
    """
    out = np.empty(forward.shape[1:], forward.dtype)
    if backward is None or theirs is None:
        backward, theirs = forward[:0], np.empty((forward.shape[2], 0))
    columns = np.ascontiguousarray(np.asarray(theirs, np.float64).T)
    _shares(forward, np.asarray(own, np.float64), backward, columns, iterations or 0, FLAT[out.dtype.name], out)
    return out


def _context_logs(X: Mixtures, context: Mixtures, matching: str) -> np.ndarray:
    """ln a_i(x, u): ``(K, n)`` float64."""
    blocks = [logs[..., 0] for _, logs in log_affinities(X, context, matching=matching, dtype=np.float64)]
    return np.concatenate(blocks, axis=1)


def contextual_similarity(
    P: Mixtures,
    Q: Mixtures,
    context: Mixtures,
    symmetric: bool = True,
    matching: str = "one-to-one",
    iterations: int | None = None,
    dtype: Any = np.float32,
    check: bool = True,
) -> np.ndarray:
    """Contextual KL similarity of every pair in the context of the one mixture given (6.13-6.17): ``(n, m)``.

    ``check=False`` takes the mixtures as they are.
    """
    dtype = check_precision(dtype)
    check_iterations(iterations, "the optimum")
    if matching not in MATCHINGS:
        raise ValueError(f"matching must be one of {MATCHINGS}, got {matching!r}")
    if check:
        check_pair(P, Q, one_to_one=matching == "one-to-one")
        check_mixtures(context, Q, matching == "one-to-one", what="the context")
        if len(context) != 1:
            raise ValueError(f"the context must be one mixture, got {len(context)}")
    p_context, q_context = (_context_logs(X, context, matching).astype(dtype) for X in (P, Q))

    def ratios(logs: np.ndarray, relative_to: np.ndarray) -> np.ndarray:
        logs -= relative_to
        np.clip(logs, -MAX_LOG_RATIO, MAX_LOG_RATIO, out=logs)
        return np.exp(logs, out=logs)

    out = np.empty((len(P), len(Q)), dtype)
    if not symmetric:
        for rows, logs in log_affinities(P, Q, matching=matching, dtype=dtype):
            out[rows] = best_shares(ratios(logs, p_context[:, rows, None]), P.weights[rows], iterations=iterations)
        return out if iterations is not None else _mark_equal(out, P, Q)
    for rows, forward, backward in mutual_log_affinities(P, Q, matching, dtype):
        out[rows] = best_shares(
            ratios(forward, p_context[:, rows, None]),
            P.weights[rows],
            ratios(backward, q_context[:, None, :]),
            Q.weights,
            iterations,
        )
    return out if iterations is not None else _mark_equal(out, P, Q)


def _mark_equal(shares: np.ndarray, P: Mixtures, Q: Mixtures) -> np.ndarray:
    """The shares with 1 where p and q are the same numbers and are not the context too."""

    def content(X: Mixtures) -> list[bytes]:
        arrays = [np.ascontiguousarray(a) for a in X.arrays().values()]
        return [hashlib.blake2b(b"".join(a[i].tobytes() for a in arrays)).digest() for i in range(len(X))]

    places: dict[bytes, list[int]] = {}
    for j, key in enumerate(content(Q)):
        places.setdefault(key, []).append(j)
    for i, key in enumerate(content(P)):
        for j in places.get(key, ()):
            if shares[i, j] != 0.5:
                shares[i, j] = 1.0
    return shares


def average_mixture(mixtures: Mixtures) -> Mixtures:
    """One mixture whose components have the moments of the pooled components: a context where none is given."""
    weights, means, variances = (np.asarray(a, np.float64) for a in mixtures.arrays().values())
    mass = np.maximum(weights.sum(axis=0), np.finfo(np.float64).tiny)
    share = (weights / mass)[..., None]
    mean = (share * means).sum(axis=0)
    variance = (share * (variances + (means - mean) ** 2)).sum(axis=0)
    return Mixtures((mass / mass.sum())[None], mean[None], variance[None])


class ContextualSimilarity(TransformerMixin, BaseEstimator):
    """Mixtures → contextual similarities to the training mixtures, (n, number of references), in [0, 1].

    Parameters
    ----------
    symmetric : both directions (6.5), as in the thesis' experiments
    matching : ``"one-to-one"`` or ``"all"`` components
    iterations : EM steps from 1/2 (early stopping), or None for the optimum
    context : the context u: a fitted universal mixture or GaussianParameters; by default the universal model the
        mixtures were adapted from, or where they carry none, the average of the training mixtures
    precision : ``"float32"`` or ``"float64"``

    Attributes
    ----------
    references_ : the training mixtures;  context_ : Mixtures of one

    >>> ContextualSimilarity().fit(mixtures).transform(mixtures).diagonal()[:3]
    array([1., 1., 1.], dtype=float32)
    """

    def __init__(
        self,
        *,
        symmetric: bool = True,
        matching: str = "one-to-one",
        iterations: int | None = None,
        context: Any = None,
        precision: str = "float32",
    ) -> None:
        self.symmetric = symmetric
        self.matching = matching
        self.iterations = iterations
        self.context = context
        self.precision = precision

    def fit(self, X: Mixtures, y: Any = None) -> Self:
        if self.matching not in MATCHINGS:
            raise ValueError(f"matching must be one of {MATCHINGS}, got {self.matching!r}")
        check_iterations(self.iterations, "the optimum")
        check_precision(self.precision)
        self.references_ = check_mixtures(X, one_to_one=self.matching == "one-to-one")
        given = X.universal if self.context is None else getattr(self.context, "parameters_", self.context)
        if given is None:
            self.context_ = average_mixture(X)
        elif isinstance(given, GaussianParameters):
            self.context_ = Mixtures(given.weights[None], given.means[None], given.variances[None])
        else:
            raise TypeError(
                f"context must be a fitted universal mixture or GaussianParameters, got {type(given).__name__}"
            )
        self.context_.check(like=X, what="the context")
        return self

    def transform(self, X: Mixtures) -> np.ndarray:
        """Similarities ``(n, number of references)``."""
        check_is_fitted(self, "references_")
        check_mixtures(X, self.references_, one_to_one=self.matching == "one-to-one")
        options = self.symmetric, self.matching, self.iterations, np.dtype(self.precision)
        return contextual_similarity(X, self.references_, self.context_, *options, check=False)
