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
how well p and u answer component i of q (``matching.answers_of``), ``blend.best_shares`` maximises it to the end or,
with ``iterations``, by a few EM steps from ω = 1/2 (6.16, 6.17): early stopping, which the thesis tunes between 1 and
5.  Stopped early, cs(q, q) is below 1.

Cost per pair: two cross-entropies of K components (8·K·D flops in BLAS) and 2·K divisions per iteration.  Memory beyond
the result: 4·K·(D + 1) numbers per reference, and blocks of 64 MB.  On a GPU the same runs through the Array API, one
to one (``dense``).  ``histograms.context`` has the same similarity of word histograms.

Slip.  As printed, (6.16) normalises over p_j and u_j for each j apart, so that the γ's of component i sum to more than
one when several j answer; the sums over j belong into the denominator.  One-to-one, there is a single j and no
difference.
"""

from dataclasses import KW_ONLY
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from patchbag.device import follow, lies_elsewhere, to_host
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.parameters import GaussianParameters
from patchbag.parameters import estimator, parameter
from patchbag.similarity.base import MixtureSimilarity, map_rows
from patchbag.similarity.blend import best_shares
from patchbag.similarity.mixtures.dense import dense_context
from patchbag.similarity.mixtures.gaussians import left_features, right_features
from patchbag.similarity.mixtures.matching import (
    Answers,
    answers_of,
    component_frame,
    one_to_one_entropies,
    reference_features,
    row_blocks,
)
from patchbag.storage.declared import Declared, Part

# below this mean distance of the ratios from one, p and u are the same (it goes with the square if q is near u too)
FLAT = {"float32": 1e-4, "float64": 1e-12}
# exp(±60): a component that only one of p and u answers
MAX_LOG_RATIO = 60.0


def _ratios(logs: np.ndarray, relative_to: np.ndarray) -> np.ndarray:
    logs -= relative_to
    np.clip(logs, -MAX_LOG_RATIO, MAX_LOG_RATIO, out=logs)
    return np.exp(logs, out=logs)


def _replies(P: Mixtures, Q: Mixtures) -> np.ndarray:
    """ln a_i(q, p) with all components: ``(K, n, m)``."""
    replies = answers_of(P, Q, matching="all", dtype=np.float64)(Q)
    return np.ascontiguousarray(replies.swapaxes(1, 2))


def _context_rows(
    P: Mixtures,
    Q: Mixtures,
    context: Answers,
    answers: Answers,
    replies: Answers | None,
    q_logs: Any,
    iterations: int | None,
) -> np.ndarray:
    logs = answers(P)
    flat = FLAT[logs.dtype.name]
    forward = _ratios(logs, context(P).astype(logs.dtype))
    same = _mean_distance(forward, np.asarray(P.weights, np.float64).T[..., None]) <= flat
    if replies is None:
        found = best_shares(forward, P.weights, iterations=iterations)
    else:
        backward = _ratios(replies(P).astype(logs.dtype, copy=False), q_logs)
        same |= _mean_distance(backward, np.asarray(Q.weights, np.float64).T[:, None]) <= flat
        found = best_shares(forward, P.weights, backward, Q.weights, iterations)
    found[same] = 0.5
    return found


def _mean_distance(ratios: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(n, m) mean of |r - 1| over components."""
    total = np.zeros(ratios.shape[1:])
    for r, w in zip(ratios, weights):
        total += w * np.abs(r - 1)
    return total / weights.sum(axis=0)


def contextual_similarity(
    P: Mixtures,
    Q: Mixtures,
    context: Mixtures,
    symmetric: bool = True,
    matching: str = "one-to-one",
    iterations: int | None = None,
    dtype: Any = np.float32,
) -> np.ndarray:
    """Contextual KL similarity of every pair in the context of the one mixture given (6.13-6.17): ``(n, m)``."""
    dtype = np.dtype(dtype)
    if lies_elsewhere(P.means):
        Q, context = follow(Q, P.means), follow(context, P.means)
        out = dense_context(P, Q, context, symmetric, iterations, FLAT[dtype.name], MAX_LOG_RATIO)
        return out if iterations is not None else _mark_equal(to_host(out), to_host(P), to_host(Q))
    coordinates = component_frame(Q)
    in_context = answers_of(context, P, matching=matching, dtype=np.float64)
    answers = answers_of(Q, P, matching=matching, dtype=dtype)
    replies: Answers | None = None
    if symmetric and matching == "one-to-one":
        left = reference_features(Q, left_features, coordinates, dtype)
        replies = partial(one_to_one_entropies, coordinates=coordinates, others=left, function=right_features)
    elif symmetric:
        replies = partial(_replies, Q=Q)
    q_logs = in_context(Q)[..., 0].astype(dtype)[:, None] if symmetric else None
    how = partial(_context_rows, Q=Q, context=in_context, answers=answers, replies=replies, q_logs=q_logs)
    jobs = [P[part] for part in row_blocks(P, Q, matching)]
    out = map_rows(partial(how, iterations=iterations), jobs, len(P))
    return out if iterations is not None else _mark_equal(out, P, Q)


def _mark_equal(shares: np.ndarray, P: Mixtures, Q: Mixtures) -> np.ndarray:
    """The shares with 1 where p and q are the same numbers and are not the context too."""

    contents = [
        np.array([hash(tuple(a[i].tobytes() for a in X.arrays().values())) for i in range(len(X))]) for X in (P, Q)
    ]
    shares[(contents[0][:, None] == contents[1]) & (shares != 0.5)] = 1.0
    return shares


def average_mixture(mixtures: Mixtures) -> Mixtures:
    """One mixture whose components have the moments of the pooled components: a context where none is given."""
    weights, means, variances = (np.asarray(a, np.float64) for a in mixtures.arrays().values())
    mass = np.maximum(weights.sum(axis=0), np.finfo(np.float64).tiny)
    share = (weights / mass)[..., None]
    mean = (share * means).sum(axis=0)
    variance = (share * (variances + (means - mean) ** 2)).sum(axis=0)
    return Mixtures((mass / mass.sum())[None], mean[None], variance[None])


@estimator
class ContextualSimilarity(MixtureSimilarity):
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

    _: KW_ONLY
    symmetric: bool = parameter("boolean", default=True)
    matching: str = parameter(StrOptions({"one-to-one", "all"}), default="one-to-one")
    iterations: int | None = parameter(Interval(Integral, 1, 10_000, closed="both"), None, default=None)
    context: Any = parameter(HasMethods("fit"), GaussianParameters, None, default=None)
    precision: str = parameter(StrOptions({"float32", "float64"}), default="float32")

    _stored: ClassVar[dict[str, Declared]] = {
        "context_": Part("Mixtures", K="K", D="D"),
    }

    @property
    def follows(self) -> bool:
        return self.matching == "one-to-one" and self.precision == "float32"

    def _fit(self, X: Mixtures) -> None:
        super()._fit(X)
        given = X.universal if self.context is None else getattr(self.context, "parameters_", self.context)
        if given is None:
            self.context_ = average_mixture(self.references_)
        elif isinstance(given, GaussianParameters):
            self.context_ = Mixtures(given.weights[None], given.means[None], given.variances[None])
        else:
            raise ValueError(f"the context {type(given).__name__} is not fitted: it has no parameters_")
        self.context_.check(like=X, what="the context")

    def _compare(self, X: Mixtures) -> np.ndarray:
        options = self.symmetric, self.matching, self.iterations, np.dtype(self.precision)
        return contextual_similarity(X, self.references_, self.context_, *options)
