# SPDX-License-Identifier: BSD-3-Clause
r"""Strength of diffusion and weight of the plain kernel, chosen by the labels there are.

Each pair of α and mix is held against the labels left out one at a time, in closed form: with A = K + σ²I of the n
labelled images and T their 0/1 targets (n, C), the prediction for image i without its own label is
μ_i = t_i - [A⁻¹T]_i / [A⁻¹]_ii (Rasmussen & Williams 2006, eq. 5.12).  What counts is not how near μ_i is to its
target, which the scale of a kernel decides, but whether the right class leads and by how much: the log likelihood of
the true classes under a softmax of the :func:`directions` of μ_i, with the sharpness that serves the pair best.  No
image without a label takes part, so that this costs n³ per pair, whatever the size of the pool.

**Prior.**  A label that is the only one of its class says nothing here: without it nobody knows the class.  So with one
label per class the choice is the prior's, α = 0.95 and no plain kernel; each step from there along ``ALPHAS`` or
``MIXES`` costs ``STEP`` nats, which a handful of labels that the graph gets wrong outweigh.

**Classes of unequal size.**  The targets of a class are divided by its number of labels: which labels there are says
who was asked, not how many images a class has, and a class with ten labels must not drown one with two.

**Sharpness.**  Of a softmax, the inverse temperature.  Maximum likelihood runs to infinity where all are right; the
prior ln sharpness ~ N(``LOG_SHARPNESS``, spread²) keeps it from that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from patchbag.records import is_label, label_list
from patchbag.similarity.graph.diffusion import DiffusionBasis
from patchbag.similarity.graph.image_graph import ImageGraph

ALPHAS = (0.8, 0.9, 0.95, 0.98)
MIXES = (0.0, 0.03, 0.1, 0.3, 1.0)
USUAL = (0.95, 0.0)
STEP = 1.0
NOISE = 0.01
MOST = 400  # labels that choose, drawn evenly from all
LOG_SHARPNESS = float(np.log(10.0))


def one_hot(codes: np.ndarray) -> np.ndarray:
    """Targets (n, C) of classes ``codes (n,)``: 1 for the class of an image, 0 for the others."""
    return (codes[:, None] == np.arange(codes.max() + 1)).astype(float)


def directions(scores: np.ndarray) -> np.ndarray:
    """Scores (n, C) of the classes less their mean, of unit length per image: which classes lead, not by how much."""
    centred = scores - scores.mean(axis=1, keepdims=True)
    lengths = np.sqrt(np.einsum("ij,ij->i", centred, centred))[:, None]
    centred /= np.where(lengths > 0, lengths, 1.0)
    return np.asarray(centred)


def soften(scores: np.ndarray, sharpness: float) -> np.ndarray:
    """exp(sharpness · scores) over the classes, rows summing to one; written over the ``scores (n, C)``."""
    scores -= scores.max(axis=1, keepdims=True)
    scores *= sharpness
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


@dataclass(frozen=True)
class Sharpness:
    """Of a softmax: its natural logarithm, the standard deviation of that, and the log likelihood of what it was fitted
    to, the prior included.
    """

    log: float = LOG_SHARPNESS
    deviation: float = 1.0
    log_likelihood: float = 0.0


def fit_sharpness(scores: np.ndarray, codes: np.ndarray, spread: float = 1.0) -> Sharpness:
    """The sharpness that suits ``scores (n, C)`` of images of classes ``codes (n,)``: the mode of its posterior, and by
    the curvature there its deviation; ``spread`` is the prior's standard deviation.
    """
    rows = np.arange(len(codes))

    def loss(log_sharpness: float) -> float:
        p = soften(scores.copy(), np.exp(log_sharpness))[rows, codes]
        return float(0.5 * ((log_sharpness - LOG_SHARPNESS) / spread) ** 2 - np.log(np.maximum(p, 1e-12)).sum())

    found = minimize_scalar(loss, bounds=(-2.0, 6.0), method="bounded", options={"xatol": 0.02})
    step = 0.2
    curvature = (loss(found.x + step) - 2 * found.fun + loss(found.x - step)) / step**2
    # the labels can only add to the curvature of the prior
    return Sharpness(float(found.x), float(1.0 / np.sqrt(max(curvature, spread**-2))), -float(found.fun))


def known_labels(y: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Images that have a label, and the codes of their classes from 0 on."""
    if y is None:
        return np.empty(0, int), np.empty(0, int)
    labels = label_list(y)
    if len(labels) != n:
        raise ValueError(f"the pool has {n} images but y has {len(labels)} labels")
    images = np.array([i for i, label in enumerate(labels) if is_label(label)], dtype=int)
    return images, np.unique([labels[i] for i in images], return_inverse=True)[1].astype(int)


def left_out_scores(kernel: np.ndarray, codes: np.ndarray, noise: float = NOISE) -> np.ndarray:
    """Scores (n, C) of labelled images with ``kernel (n, n)`` and class ``codes (n,)``, each without its own label.

    -inf for a class whose only label was left out.
    """
    targets = one_hot(codes)
    inverse = np.linalg.inv(kernel + noise * np.eye(len(kernel)))
    mean = targets - (inverse @ targets) / np.diagonal(inverse)[:, None]
    others = targets.sum(axis=0) - targets
    return np.where(others > 0, mean / np.maximum(others, 1.0), -np.inf)


def choose_diffusion(
    graph: ImageGraph,
    images: np.ndarray,
    codes: np.ndarray,
    alphas: Sequence[float] = ALPHAS,
    mixes: Sequence[float] = MIXES,
    *,
    power: int = 1,
) -> tuple[float, float]:
    """α and the weight of the plain kernel.

    Parameters
    ----------
    images, codes : (n,) images with labels and their classes, numbered from 0 on without gaps
    alphas, mixes : what to choose among
    """
    usual = tuple(int(np.argmin(np.abs(np.array(values) - best))) for values, best in zip((alphas, mixes), USUAL))
    if len(images) > MOST:
        chosen = np.linspace(0, len(images) - 1, MOST).astype(int)
        images, codes = images[chosen], np.unique(codes[chosen], return_inverse=True)[1]
    telling = np.flatnonzero(np.bincount(codes)[codes] > 1) if len(codes) else codes
    best, choice = -np.inf, usual
    if len(np.unique(codes)) > 1 and len(telling) and len(alphas) * len(mixes) > 1:
        vectors = graph.vectors[images].astype(float)
        plain = vectors @ vectors.T
        for a, alpha in enumerate(alphas):
            basis = DiffusionBasis.from_graph(graph, alpha, power, images)
            diffused = basis.features @ basis.features.T + np.diag(basis.own)
            for m, mix in enumerate(mixes):
                if mix == 1.0 and a != usual[0]:
                    continue  # α means nothing then
                scores = left_out_scores((1 - mix) * diffused + mix * plain, codes)[telling]
                value = fit_sharpness(directions(scores), codes[telling]).log_likelihood
                value -= STEP * (abs(a - usual[0]) + abs(m - usual[1]))
                if value > best:
                    best, choice = value, (a, m)
    return float(alphas[choice[0]]), float(mixes[choice[1]])
