# SPDX-License-Identifier: BSD-3-Clause
r"""Mixtures of reference mixtures (MOM): an image as the weights of the best blend of other images.

An image q is approximated by :math:`\sum_k \omega_k p_k` over K reference images; the vector of :math:`\omega`
describes it (liu2010, chapter 5).  Unlike KL or PPK, which compare whole distributions, :math:`\omega_k` counts soft
matches of single Gaussians, with the references competing for each: two images that share an object in different
surroundings match.

Let :math:`\pi_i` be the weights of q and :math:`a_{ik}` how well reference k answers its component i
(``answers_of``):

* ``"kl"``: minimise KL(q‖Σ ω p), by Hershey and Olsen's bound (5.15).  With :math:`a_{ik} = \sum_j \pi_{kj} e^{-H(q_i,
  p_{kj})}`, the E- and M-step (5.17, 5.18) are together

  .. math:: \omega_k \leftarrow \omega_k \sum_i \pi_i\, a_{ik} / z_i, \qquad z_i = \sum_k \omega_k a_{ik}

* ``"bhattacharyya"``: maximise the Bhattacharyya kernel of q and Σ ω p, by the bound (5.23).  With :math:`a_{ik} =
  \sum_j \pi_{kj} B^2(q_i, p_{kj})`, (5.24) and (5.25) are together

  .. math:: \omega_k \leftarrow c\, \omega_k \Bigl(\sum_i \pi_i\, a_{ik} / \sqrt{z_i}\Bigr)^2

* ``"sampling"``: as "kl" with the image's own descriptors in place of its model (5.9, 5.10): i runs over descriptors,
  :math:`a_{tk} = p_k(x_t)`, :math:`\pi_t = 1/T`.

So every variant is a multiplicative update with one matrix of affinities per image: two matrix-vector products per
iteration.

Early stopping.  Weights start equal.  At convergence only near-perfect matches of components survive, so EM stops after
``iterations`` steps (3 by default; the thesis finds 3 to 5 best).  This is also the thesis' answer for an image that is
itself among the references, as all training images are: converged, its own weight would be 1 and all others 0.

Deviation.  After three steps a training image's own weight is still near one where components are many, and no test
image has such a weight; ``fit_transform`` therefore leaves each training image out of its own references by default.
``leave_out_self=False`` follows the thesis to the letter; ``transform`` always uses all references.  With one iteration
nothing need be left out, if the square roots of the weights are standardised for a classifier.

On a GPU the same runs through the Array API (``dense``), one to one.

Matching is one-to-one by default; ``"all"`` sums over all components of a reference (slower by their number).

Cost for n images, R references, K components in D dimensions: 4·n·R·K·D flops in BLAS ("kl"), then 2·n·R·K per
half-iteration.  Memory: blocks of images, 64 MB of affinities at a time.
"""

from dataclasses import KW_ONLY
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numba import njit
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from patchbag.bags import Bags
from patchbag.channels import Channels
from patchbag.device import follow, from_device, lies_elsewhere
from patchbag.mixture.adaptation import Mixtures
from patchbag.parameters import estimator, parameter
from patchbag.similarity.base import MixtureSimilarity, check_bags, check_mixtures, map_rows
from patchbag.similarity.mixtures.dense import dense_weights
from patchbag.similarity.mixtures.gaussians import fits_single, frame
from patchbag.similarity.mixtures.matching import Answers, answers_of, log_sum, log_weights, row_blocks

MEASURES = {"kl": "cross-entropy", "bhattacharyya": "squared-product"}
TOLERANCE = 1e-7
MAX_ITERATIONS = 10_000
# density matrices of the sampling variant, in numbers
PART_NUMBERS = 1 << 22


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
    if not total > 0:  # no reference answers at all: nothing to learn, the weights stay as they are
        return 0.0
    change = 0.0
    for j in range(r):
        value = affinities.dtype.type(factor[j] / total)
        change = max(change, abs(value - omega[j]))
        omega[j] = value
    return change


@njit(cache=True, nogil=True)
def _iterate(affinities, shares, root, iterations, tolerance, out):  # pragma: no cover - compiled
    """Updates of each image's weights out (n, R), which start equal; affinities (K, n, R), at most 1."""
    for image in range(out.shape[0]):
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
    best[~np.isfinite(best)] = 0  # answered by none, or only by the one left out
    log_affinities -= best[..., None]
    affinities = np.exp(log_affinities, out=log_affinities)
    scaled = np.asarray(shares, np.float64)
    root = measure == "bhattacharyya"
    if root:
        # (5.25) is not free of the scale of a component's affinities as (5.18) is: its root goes to the share.  The
        # largest product becomes one, so that the rest and not the whole may underflow (a share of zero counts nothing)
        with np.errstate(divide="ignore"):
            logs = np.log(scaled) + 0.5 * best.T.astype(np.float64)
        scaled = np.exp(logs - logs.max(axis=1, keepdims=True))
    out = np.full(affinities.shape[1:], 1 / affinities.shape[2], affinities.dtype)
    _iterate(affinities, scaled.astype(affinities.dtype), root, *_limit(iterations), out)
    return out


def _limit(iterations: int | None) -> tuple[int, float]:
    """How many iterations at most, and the change of a weight that ends them before."""
    return (MAX_ITERATIONS, TOLERANCE) if iterations is None else (iterations, -1.0)


def _weight_rows(job: tuple[int, Mixtures], answers: Answers, own: bool, **options: Any) -> np.ndarray:
    start, X = job
    left_out = np.arange(start, start + len(X)) if own else None
    return blend_weights(answers(X), X.weights, own=left_out, **options)


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
    if lies_elsewhere(X.means):
        limit = _limit(iterations)
        return dense_weights(X, follow(references, X.means), MEASURES[measure], *limit, leave_out_self)
    answers = answers_of(references, X, MEASURES[measure], matching, dtype=dtype)
    rows = partial(_weight_rows, answers=answers, own=leave_out_self, measure=measure, iterations=iterations)
    return map_rows(rows, [(part.start, X[part]) for part in row_blocks(X, references, matching)], len(X))


def sampled_weights(
    bags: Bags,
    references: Mixtures,
    iterations: int | None = 3,
    dtype: Any = np.float32,
    leave_out_self: bool = False,
) -> np.ndarray:
    """Weights of the references from each image's own descriptors (5.9, 5.10): ``(n, R)``.

    With ``leave_out_self``, bag i is what reference i was made of, and does without it.
    """
    d = references.dimension
    means, variances = references.means.reshape(-1, d), references.variances.reshape(-1, d)
    centre, scale = (a[0] for a in frame(means.astype(np.float64), variances.astype(np.float64)))
    mu, inverse = (means - centre) / scale, scale**2 / variances
    constant = log_weights(references.weights).ravel()
    constant -= 0.5 * (mu * mu * inverse + np.log(2 * np.pi * variances)).sum(axis=1)
    projection = np.concatenate([mu * inverse, -0.5 * inverse], axis=1).T
    precision = dtype if fits_single(projection, constant) else np.float64
    densities = (centre, scale, *(np.ascontiguousarray(a, precision) for a in (projection, constant)))
    options = {"k": references.n_components, "iterations": iterations, "dtype": dtype}
    jobs = [(i if leave_out_self else None, bags[i]) for i in range(len(bags))]
    return map_rows(partial(_sampled_row, densities=densities, **options), jobs, len(bags))


def _sampled_row(job: tuple[Any, Any], densities: Any, k: int, iterations: int | None, dtype: Any) -> np.ndarray:
    own, values = job
    centre, scale, projection, constant = densities
    z = (values - centre) / scale
    rows = np.concatenate([z, z * z], axis=1).astype(projection.dtype)
    logs = np.empty((len(rows), 1, len(constant) // k), dtype)
    step = max(1, PART_NUMBERS // (k * len(rows)))
    for start in range(0, logs.shape[2], step):
        part = slice(start * k, (start + step) * k)
        found = (rows @ projection[:, part] + constant[part]).reshape(len(rows), -1, k)
        logs[:, 0, start : start + step] = log_sum(found)
    shares = np.full((1, len(rows)), 1 / len(rows))
    return blend_weights(logs, shares, "kl", iterations, None if own is None else np.array([own]))


@estimator
class ReferenceWeights(MixtureSimilarity):
    """Mixtures → weights of the training mixtures in the best blend, (n, number of references), rows sum to one.

    Parameters
    ----------
    measure : ``"kl"`` (5.15-5.18), ``"bhattacharyya"`` (5.23-5.25) or ``"sampling"`` (5.9, 5.10: ``fit`` takes
        Mixtures, ``transform`` Bags in the space of the universal model; both, and ``fit_transform``, take
        ``Channels(mixtures=..., bags=...)``, which pipelines and grid searches can hand on)
    matching : ``"one-to-one"`` or ``"all"`` components of a reference; "sampling" has no such choice
    iterations : EM iterations; None runs to convergence (and gives an image among the references the weight 1)
    leave_out_self : ``fit_transform`` describes each training image by the other ones
    precision : ``"float32"`` or ``"float64"``

    Attributes
    ----------
    references_ : the training mixtures

    >>> ReferenceWeights("bhattacharyya").fit_transform(mixtures).sum(axis=1)[:3]
    array([1., 1., 1.], dtype=float32)
    """

    symmetric = False
    measure: str = parameter(StrOptions({*MEASURES, "sampling"}), default="kl")
    _: KW_ONLY
    matching: str = parameter(StrOptions({"one-to-one", "all"}), default="one-to-one")
    iterations: int | None = parameter(Interval(Integral, 1, MAX_ITERATIONS, closed="both"), None, default=3)
    leave_out_self: bool = parameter("boolean", default=True)
    precision: str = parameter(StrOptions({"float32", "float64"}), default="float32")

    @property
    def follows(self) -> bool:
        return self.measure != "sampling" and self.matching == "one-to-one" and self.precision == "float32"

    def _check(self, X: Any, fitted: bool = False) -> Any:
        if self.measure != "sampling":
            if isinstance(X, Channels):
                raise TypeError(f"measure={self.measure!r} takes Mixtures; only 'sampling' takes Channels")
            return super()._check(X, fitted)
        if self.matching != "one-to-one":
            raise ValueError(f"matching={self.matching!r} does not apply to measure='sampling': no components to match")
        if isinstance(X, Channels):
            name = "bags" if fitted else "mixtures"
            if name not in X.names:
                raise ValueError(f"measure='sampling' needs a channel {name!r}; there are {', '.join(X.names)}")
            X = X[name]
        if not fitted:
            return check_mixtures(X)
        if isinstance(X, Mixtures):
            raise TypeError("measure='sampling' describes an image by its own descriptors: transform takes Bags")
        return check_bags(X, self.references_.dimension)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Weights of the training mixtures themselves ``(n, n)``; with ``leave_out_self``, zero on the diagonal."""
        self.fit(X)
        if self.measure == "sampling" and not isinstance(X, Channels):
            raise TypeError(
                "measure='sampling' needs the training images' mixtures and descriptors: fit_transform takes "
                f"Channels(mixtures=..., bags=...), got {type(X).__name__}"
            )
        if self.leave_out_self and len(X) < 2:
            raise ValueError("one training mixture cannot be described by others; need two, or leave_out_self=False")
        return from_device(self._compare(self._check(X, fitted=True), self.leave_out_self))

    def _compare(self, images: Any, leave_out_self: bool = False) -> np.ndarray:
        how = self.iterations, np.dtype(self.precision), leave_out_self
        if self.measure == "sampling":
            return sampled_weights(images, self.references_, *how)
        return reference_weights(images, self.references_, self.measure, self.matching, *how)
