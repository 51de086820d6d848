# SPDX-License-Identifier: BSD-3-Clause
r"""Mixtures of reference mixtures (MOM): an image as the weights of the best blend of other images.

An image q is approximated by :math:`\sum_k \omega_k p_k` over K reference images; the vector of :math:`\omega`
describes it (liu2010, chapter 5).  Unlike KL or PPK, which compare whole distributions, :math:`\omega_k` counts soft
matches of single Gaussians, with the references competing for each: two images that share an object in different
surroundings match.

Let :math:`\pi_i` be the weights of q and :math:`a_{ik}` how well reference k answers its component i
(``log_affinities``):

* ``"kl"``: minimise KL(q‖Σ ω p), by Hershey and Olsen's bound (5.15).  With :math:`a_{ik} = \sum_j \pi_{kj} e^{-H(q_i,
  p_{kj})}`, the E- and M-step (5.17, 5.18) are together

  .. math:: \omega_k \leftarrow \omega_k \sum_i \pi_i\, a_{ik} / z_i, \qquad z_i = \sum_k \omega_k a_{ik}

* ``"bhattacharyya"``: maximise the Bhattacharyya kernel of q and Σ ω p, by the bound (5.23).  With :math:`a_{ik} =
  \sum_j \pi_{kj} B^2(q_i, p_{kj})`, (5.24) and (5.25) are together

  .. math:: \omega_k \leftarrow c\, \omega_k \Bigl(\sum_i \pi_i\, a_{ik} / \sqrt{z_i}\Bigr)^2

* ``"sampling"``: as "kl" with the image's own descriptors in place of its model (5.9, 5.10): i runs over descriptors,
  :math:`a_{tk} = p_k(x_t)`, :math:`\pi_t = 1/T`.

So every variant is a multiplicative update with one matrix of affinities an image: two matrix-vector products an
iteration.

Early stopping.  Weights start equal.  At convergence only near-perfect matches of components survive, so EM stops after
``iterations = 3`` (the best in the thesis: 3 to 5).  This is also the thesis' answer for an image that is itself among
the references, as all training images are: converged, its own weight would be 1 and all others 0.

Deviation.  Early stopping alone does not undo that: after three steps the own weight of a Scene-15 training image is
still 0.96 on average ("kl"), no test image has such a weight, and a sparse linear classifier trained on such rows fails
(25 % "kl", 36 % "bhattacharyya").  ``fit_transform`` therefore leaves each training image out of its own references
(64 % and 76 % in the same trial, 72 % and 79 % on square roots of the weights); ``leave_out_self=False`` follows the
thesis to the letter, and ``transform`` always uses all references.

Matching is one-to-one by default; ``"all"`` sums over all components of a reference (slower by their number).

Cost for n images, R references, K components in D dimensions: 4·n·R·K·D flops in BLAS ("kl"), then 2·n·R·K a
half-iteration.  Memory: blocks of images, 64 MB of affinities at a time.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numba import njit, prange
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags
from patchbag.mixture.adaptation import Mixtures
from patchbag.similarity.gaussians import frame
from patchbag.similarity.matching import WEIGHT_FLOOR, log_affinities
from patchbag.similarity.mixtures import check_mixtures
from patchbag.threads import map_threads

MEASURES = {"kl": "cross-entropy", "bhattacharyya": "squared-product"}
MATCHINGS = ("one-to-one", "all")
TOLERANCE = 1e-7
MAX_ITERATIONS = 10_000
# density matrices of the sampling variant, in numbers
JOB_NUMBERS = 1 << 22


# reassociation lets the dot products use vector registers; affinities are finite and a row's order is fixed
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _update(affinities, shares, root, omega, factor):  # pragma: no cover - compiled
    """One E- and M-step for one image, affinities (K, R); returns the largest change of a weight."""
    k, r = affinities.shape
    factor[:] = 0
    for i in range(k):
        row = affinities[i]
        z = affinities.dtype.type(0)
        for j in range(r):
            z += omega[j] * row[j]
        if z > 0:
            scale = shares[i] / (np.sqrt(z) if root else z)
            for j in range(r):
                factor[j] += scale * row[j]
    total = 0.0
    for j in range(r):
        factor[j] *= omega[j] * factor[j] if root else omega[j]
        total += factor[j]
    change = 0.0
    for j in range(r):
        value = affinities.dtype.type(factor[j] / total)
        change = max(change, abs(value - omega[j]))
        omega[j] = value
    return change


@njit(cache=True, nogil=True, parallel=True)
def _iterate(affinities, shares, root, iterations, tolerance, out):  # pragma: no cover - compiled
    """Updates of each image's weights out (n, R), which start equal; affinities (K, n, R), at most 1."""
    for image in prange(out.shape[0]):
        factor = np.empty_like(out[image])
        for _ in range(iterations):
            if _update(affinities[:, image], shares[image], root, out[image], factor) < tolerance:
                break


def blend_weights(
    log_affinities: np.ndarray,
    shares: np.ndarray,
    measure: str = "kl",
    iterations: int | None = 3,
    own: np.ndarray | None = None,
) -> np.ndarray:
    """Weights ω of the references for each image, from the logarithms of the affinities.

    Parameters
    ----------
    log_affinities : (K, n, R); overwritten
    shares : (n, K) weights π of the components (or descriptors) of the images
    measure : ``"kl"`` or ``"bhattacharyya"``
    iterations : EM iterations, None until convergence
    own : (n,) number of a reference that each image must do without

    Returns
    -------
    (n, R), rows sum to one
    """
    if own is not None:
        log_affinities[:, np.arange(len(own)), own] = -np.inf
    best = log_affinities.max(axis=2)
    log_affinities -= best[..., None]
    affinities = np.exp(log_affinities, out=log_affinities)
    scaled = np.asarray(shares, np.float64)
    root = measure == "bhattacharyya"
    if root:
        # (5.25) is not free of the scale of a component's affinities as (5.18) is: its root goes to the share
        scaled = scaled * np.exp(0.5 * (best - best.max(axis=0)).astype(np.float64)).T
    out = np.full(affinities.shape[1:], 1 / affinities.shape[2], affinities.dtype)
    limit, tolerance = (MAX_ITERATIONS, TOLERANCE) if iterations is None else (iterations, -1.0)
    _iterate(affinities, scaled.astype(affinities.dtype), root, limit, tolerance, out)
    return out


def reference_weights(
    X: Mixtures,
    references: Mixtures,
    measure: str = "kl",
    matching: str = "one-to-one",
    iterations: int | None = 3,
    dtype: Any = np.float32,
    leave_out_self: bool = False,
) -> np.ndarray:
    """Weights of the references for each image mixture (5.15-5.18, 5.23-5.25): ``(n, R)``.

    With ``leave_out_self``, X are the references themselves and image i does without reference i.
    """
    out = np.empty((len(X), len(references)), dtype)
    for rows, logs in log_affinities(X, references, MEASURES[measure], matching, dtype=dtype):
        own = np.arange(rows.start, rows.stop) if leave_out_self else None
        out[rows] = blend_weights(logs, X.weights[rows], measure, iterations, own)
    return out


def sampled_weights(
    bags: Bags, references: Mixtures, iterations: int | None = 3, dtype: Any = np.float32
) -> np.ndarray:
    """Weights of the references from each image's own descriptors (5.9, 5.10): ``(n, R)``."""
    k, r, d = references.n_components, len(references), references.dimension
    means, variances = references.means.reshape(-1, d), references.variances.reshape(-1, d)
    centre, scale = (a[0] for a in frame(means.astype(np.float64), variances.astype(np.float64)))
    mu, inverse = (means - centre) / scale, scale**2 / variances
    constant = np.log(np.maximum(np.asarray(references.weights, np.float64).ravel(), WEIGHT_FLOOR))
    constant -= 0.5 * (mu * mu * inverse + np.log(2 * np.pi * variances)).sum(axis=1)
    projection = np.ascontiguousarray(np.concatenate([mu * inverse, -0.5 * inverse], axis=1).T, dtype)
    constant = constant.astype(dtype)
    out = np.empty((len(bags), r), dtype)
    for image in range(len(bags)):
        z = (bags[image] - centre) / scale
        rows = np.concatenate([z, z * z], axis=1).astype(dtype)
        logs = np.empty((len(rows), 1, r), dtype)
        step = max(1, JOB_NUMBERS // (k * len(rows)))

        def job(start: int, rows: np.ndarray = rows, logs: np.ndarray = logs, step: int = step) -> None:
            part = slice(start * k, min(start + step, r) * k)
            densities = (rows @ projection[:, part] + constant[part]).reshape(len(rows), -1, k)
            best = densities.max(axis=-1, keepdims=True)
            densities -= best
            logs[:, 0, start : start + step] = np.log(np.exp(densities, out=densities).sum(axis=-1)) + best[..., 0]

        list(map_threads(job, range(0, r, step)))
        out[image] = blend_weights(logs, np.full((1, len(rows)), 1 / len(rows)), "kl", iterations)[0]
    return out


class ReferenceWeights(TransformerMixin, BaseEstimator):
    """Mixtures → weights of the training mixtures in the best blend, (n, number of references), rows sum to one.

    Parameters
    ----------
    measure : ``"kl"`` (5.15-5.18), ``"bhattacharyya"`` (5.23-5.25) or ``"sampling"`` (5.9, 5.10: ``transform`` takes
        Bags in the space of the universal model; ``fit`` takes Mixtures)
    matching : ``"one-to-one"`` or ``"all"`` components of a reference
    iterations : EM iterations; None runs to convergence (and gives an image among the references the weight 1)
    leave_out_self : ``fit_transform`` describes each training image by the other ones ("kl" and "bhattacharyya")
    precision : ``"float32"`` or ``"float64"``

    Attributes
    ----------
    references_ : the training mixtures

    >>> ReferenceWeights("bhattacharyya").fit_transform(mixtures).sum(axis=1)[:3]
    array([1., 1., 1.], dtype=float32)
    """

    def __init__(
        self,
        measure: str = "kl",
        *,
        matching: str = "one-to-one",
        iterations: int | None = 3,
        leave_out_self: bool = True,
        precision: str = "float32",
    ) -> None:
        self.measure = measure
        self.matching = matching
        self.iterations = iterations
        self.leave_out_self = leave_out_self
        self.precision = precision

    def fit(self, X: Mixtures, y: Any = None) -> Self:
        if self.measure not in (*MEASURES, "sampling"):
            raise ValueError(f"measure must be one of {(*MEASURES, 'sampling')}, got {self.measure!r}")
        if self.matching not in MATCHINGS:
            raise ValueError(f"matching must be one of {MATCHINGS}, got {self.matching!r}")
        if self.iterations is not None and self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, or None for convergence, got {self.iterations!r}")
        if self.precision not in ("float32", "float64"):
            raise ValueError(f"precision must be 'float32' or 'float64', got {self.precision!r}")
        self.references_ = check_mixtures(X)
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Weights of the training mixtures themselves ``(n, n)``; with ``leave_out_self``, zero on the diagonal."""
        self.fit(X, y)
        if not self.leave_out_self or self.measure == "sampling":
            return self.transform(X)
        if len(X) < 2:
            raise ValueError(
                "one training mixture cannot be described by the others; need two, or leave_out_self=False"
            )
        dtype = np.dtype(self.precision)
        return reference_weights(X, X, self.measure, self.matching, self.iterations, dtype, leave_out_self=True)

    def transform(self, X: Any) -> np.ndarray:
        """Weights ``(n, number of references)``."""
        check_is_fitted(self, "references_")
        dtype = np.dtype(self.precision)
        if self.measure == "sampling":
            if isinstance(X, Mixtures):
                raise TypeError("measure='sampling' describes an image by its own descriptors: transform takes Bags")
            bags = as_bags(X).check_not_empty()
            if bags.dimension != self.references_.dimension:
                raise ValueError(
                    f"descriptors have {bags.dimension} dimensions, the reference mixtures {self.references_.dimension}"
                )
            if not np.isfinite(bags.values).all():
                wrong = next(i for i, values in enumerate(bags) if not np.isfinite(values).all())
                raise ValueError(f"bag {wrong} of {len(bags)} has descriptors that are NaN or infinite")
            return sampled_weights(bags, self.references_, self.iterations, dtype)
        check_mixtures(X).check(like=self.references_)
        return reference_weights(X, self.references_, self.measure, self.matching, self.iterations, dtype)
