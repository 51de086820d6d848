# SPDX-License-Identifier: BSD-3-Clause
r"""Weights of an encoding pulled back to the patches that it is a sum over.

Forward, for one image, in double precision: the pooled :math:`\phi`, and the chain of steps behind it as one affine map
:math:`z = s \circ \phi + m` that holds for this image (see :mod:`patchbag.explain.patches`).  Backward: weights w on z
become :math:`v = s \circ w` on :math:`\phi`, and since words, Fisher vectors and VLAD are linear in the statistics
(given the counts of the cells), coefficients a, b, c of :math:`\gamma_{nk}`, :math:`\gamma_{nk} x_n`,
:math:`\gamma_{nk} x_n^2`, and a constant e per patch.  Patch n, in cells :math:`\mathcal C(n)`, then says

.. math:: \sum_{\mathcal C(n)} e + \sum_k \gamma_{nk} (a_k + b_k^\top x_n + c_k^\top x_n^2) .
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.preprocessing import StandardScaler

from patchbag.bags import Bags
from patchbag.encodings.fisher import FisherVector
from patchbag.encodings.normalize import Normalizer
from patchbag.encodings.vlad import VLAD
from patchbag.encodings.words import BagOfWords
from patchbag.features.projection import project
from patchbag.mixture.accumulate import CUTOFF, log_densities
from patchbag.mixture.parameters import GaussianParameters
from patchbag.mixture.statistics import Statistics
from patchbag.mixture.universal import UniversalStatistics
from patchbag.similarity.inner_product import InnerProductKernel

# (x of one image, any shape) → s, m of s ∘ x + m
Affine = Callable[[np.ndarray], tuple[Any, Any]]


def _power(x: np.ndarray, exponent: float) -> np.ndarray:
    return np.where(x != 0, np.abs(np.where(x != 0, x, 1.0)) ** (exponent - 1.0), 0.0)


def _unit(x: np.ndarray, n_blocks: int = 1) -> np.ndarray:
    blocks = x.reshape(*x.shape[:-1], n_blocks, -1)
    norm = np.sqrt(np.einsum("...i,...i->...", blocks, blocks))[..., None]
    return np.broadcast_to(1.0 / np.where(norm > 0, norm, 1.0), blocks.shape).reshape(x.shape)


def centred(power: float, mean: np.ndarray) -> list[Affine]:
    """The steps of a pool of images: power, mean taken away, unit length."""
    return [lambda x: (_power(x, power), 0.0), lambda x: (1.0, -mean), lambda x: (_unit(x), 0.0)]


def affine_steps(step: Any) -> list[Affine] | None:
    """What a step does to the vector of an image; None if it is no such step."""
    if isinstance(step, Normalizer):
        known: dict[str, Affine] = {
            "whiten": lambda x: (step.scale_, -step.mean_ * step.scale_),
            "power": lambda x: (_power(x, step.exponent), 0.0),
            "l2": lambda x: (_unit(x), 0.0),
            "idf": lambda x: (step.idf_, 0.0),
            "intra": lambda x: (_unit(x, step.n_blocks or 1), 0.0),
        }
        joined: Affine = lambda x: (len(x) ** -0.5 if x.ndim == 2 else 1.0, 0.0)  # noqa: E731
        return [*(known[name] for name in step.steps), joined]
    if isinstance(step, StandardScaler):
        scale = 1.0 if step.scale_ is None else 1.0 / step.scale_
        shift = 0.0 if step.mean_ is None else -step.mean_ * scale
        return [lambda x: (scale, shift)]
    if isinstance(step, InnerProductKernel):
        return [lambda x: (_unit(x.ravel()).reshape(x.shape), 0.0)] if step.normalize else []
    return None


def follow(x: np.ndarray, chain: Sequence[Affine]) -> tuple[np.ndarray, np.ndarray]:
    """s and m, in the shape of x, of the whole chain at x."""
    factor, shift, y = np.ones_like(x), np.zeros_like(x), x
    for step in chain:
        s, m = step(y)
        factor, shift = factor * s, shift * s + m
        y = factor * x + shift
    return factor, shift


def mean_shares(bags: Bags, chain: Sequence[Affine], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Patches (N, C) and rest (C,) of the scores ``weights (d, C)`` give to the mean of one bag behind the chain."""
    values = np.asarray(bags.values, dtype=np.float64)
    factor, shift = follow(values.mean(axis=0), chain)
    return values @ (factor[:, None] * weights) / len(values), shift @ weights


def statistics_shares(
    bags: Bags, pool: UniversalStatistics, encoding: Any, chain: Sequence[Affine], weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same for an encoding of the statistics of one bag."""
    projected = project(bags, pool.projection_)
    parameters = pool.mixture_.parameters_
    # differences from the centre of the mixture: their squares do not lose digits where it lies far from the origin
    x = np.asarray(projected.values, dtype=np.float64)
    share = posteriors(x, parameters, pool.assignment)
    x, near = x - parameters.center, replace(parameters, means=parameters.means - parameters.center)
    member, atoms = np.ones((1, 1)), np.zeros(len(x), int)
    if pool.pyramid_ is not None:
        member, atoms = pool.pyramid_.membership, pool.pyramid_.assign(np.asarray(bags.positions))
    rows = np.hstack([np.ones((len(x), 1)), x, x * x])
    sums = np.stack([share[atoms == a].T @ rows[atoms == a] for a in range(member.shape[1])])
    sums = np.tensordot(member, sums, 1)
    d = x.shape[1]
    s0, s1, s2 = sums[..., 0], sums[..., 1 : d + 1], sums[..., d + 1 :]
    phi = _encode(encoding, s0, s1, s2, near)
    factor, shift = follow(phi if pool.pyramid_ is not None else phi[0], chain)
    factor, shift = factor.reshape(phi.shape), shift.reshape(-1)
    pulled = weights.T.reshape(-1, *phi.shape) * factor
    coefficients, constant = _pull(encoding, pulled, s0, near)
    # a patch speaks in all cells of which its atom is a part
    of_atom = np.einsum("zckj,ca->azkj", coefficients, member)
    values = np.einsum("zc,ca->az", constant, member)[atoms]
    for a in range(member.shape[1]):
        here = atoms == a
        for z in range(len(weights.T)):
            values[here, z] += np.einsum("nk,nk->n", share[here], rows[here] @ of_atom[a, z].T)
    return values, shift @ weights


def posteriors(x: np.ndarray, parameters: GaussianParameters, assignment: str) -> np.ndarray:
    """(N, K) shares of the components in each descriptor, as the statistics have them."""
    if assignment == "nearest":
        parameters = parameters.by_distance()
    logs = log_densities(x, parameters)
    lowest = logs.max(axis=1, keepdims=True) + (np.log(CUTOFF) if assignment == "soft" else 0.0)
    return np.asarray(softmax(np.where(logs >= lowest, logs, -np.inf), axis=1))


def _encode(encoding: Any, s0: np.ndarray, s1: np.ndarray, s2: np.ndarray, near: GaussianParameters) -> np.ndarray:
    """(cells, width) the encoding of the statistics of one image under the mixture ``near``."""
    other = type(encoding)(**encoding.get_params())
    other.universal_ = near
    return np.asarray(other._encode(Statistics(s0[None], s1[None], s2[None], near))[0])


def _pull(encoding: Any, v: np.ndarray, s0: np.ndarray, near: GaussianParameters) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (Z, cells, K, 1 + 2D) of γ, γx, γx² and constants (Z, cells), from weights ``v (Z, cells, width)``
    of the encoding; ``s0 (cells, K)``.
    """
    k, d = near.means.shape
    total = s0.sum(axis=1, keepdims=True)
    per_patch = np.where(total > 0, 1.0 / np.where(total > 0, total, 1.0), 0.0)  # (cells, 1)
    found, constant = np.zeros((*v.shape[:2], k, 1 + 2 * d)), np.zeros(v.shape[:2])
    if isinstance(encoding, BagOfWords):
        found[..., 0] = v * (per_patch if encoding.normalize else 1.0)
    elif isinstance(encoding, VLAD):
        by_count = 1.0 / np.where(s0 > 0, s0, 1.0) if encoding.mass else np.ones_like(s0)
        residual = v.reshape(*v.shape[:2], k, d) * by_count[..., None]
        found[..., 0] = -np.einsum("zckd,kd->zck", residual, near.means)
        found[..., 1 : d + 1] = residual
    else:
        w, mu, sigma = near.weights, near.means, np.sqrt(near.variances)
        gain = per_patch * np.where(w > 0, 1.0 / np.sqrt(np.where(w > 0, w, 1.0)), 0.0)  # (cells, K)
        start = 0
        for block in (b for b in ("weights", "means", "variances") if b in encoding.blocks):
            width = k if block == "weights" else k * d
            part = v[..., start : start + width]
            start += width
            if block == "weights":
                found[..., 0] += part * gain
                constant -= np.einsum("zck,ck,k->zc", part, gain, w)
                continue
            part = part.reshape(*v.shape[:2], k, d) * gain[..., None]
            if block == "means":
                part = part / sigma
                found[..., 0] -= (part * mu).sum(axis=-1)
                found[..., 1 : d + 1] += part
            else:
                part = part * 0.5**0.5
                found[..., 0] += (part * (mu * mu / sigma**2 - 1.0)).sum(axis=-1)
                part = part / sigma**2
                found[..., 1 : d + 1] -= 2.0 * part * mu
                found[..., d + 1 :] += part
    return found, constant


SUMS = (BagOfWords, FisherVector, VLAD)
