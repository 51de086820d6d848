# SPDX-License-Identifier: BSD-3-Clause
r"""From labels to one-versus-all targets, and from Gaussian soft labels back to probabilities of classes.

Each of C classes is a problem with targets +1 for its images and -1 for the others; two classes are one problem, in
which the second is +1.  A one-versus-all Gaussian process gives the label :math:`t_c` of class c a normal distribution
with mean :math:`\bar y_c` and standard deviation :math:`s_c = \sqrt{\Sigma_c + \sigma^2}`.

* **membership**, one class against the rest (kapoor2010, §7): :math:`p(t_c \ge 0) = \Phi(\bar y_c / s_c)`;
* **winning probability**, all classes together: the probability that :math:`t_c` is the largest,

  .. math:: p(c) = \int \tfrac{1}{s_c}\varphi\Big(\tfrac{v - \bar y_c}{s_c}\Big)
            \prod_{c' \ne c} \Phi\Big(\tfrac{v - \bar y_{c'}}{s_{c'}}\Big)\,dv .

The paper takes the class with the largest soft label and stops there; the winning probability is what that decision
rule implies under the paper's own model (classes independent given the image), and with a common s it ranks the classes
as the soft labels do.  All C integrals share the product over classes, so they cost O(C · nodes) per image.  Two rules
place the nodes:

* deviations of an image within a factor of 4, which includes a common one: one grid over the widest class, by the
  trapezoidal rule, which converges geometrically for an analytic integrand that vanishes at both ends;
* deviations of very different size (``classwise=True``): on such a grid a narrow class falls between two nodes, and
  to a wide one it is a step.  The interval is halved until no piece is longer than twice the deviation of any class
  that varies on it, and every piece has eight Gauss-Legendre nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr
from sklearn.utils.multiclass import check_classification_targets

GRID = 96
REACH = 6.5
SIMILAR = 4.0  # the largest ratio of deviations that one grid of 96 nodes resolves, with hundreds of classes too
NARROWEST = 1e-9  # share of the widest deviation below which a class is as good as certain
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)


def encode_labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes (C,) of labels ``y (n,)``, and ±1 targets (n, C), or (n, 1) for two classes."""
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"y must hold one label for each image, a sequence; got an array of shape {y.shape}")
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"all {len(y)} labels are {classes.tolist()}; a classifier needs at least two classes")
    return classes, np.where(codes[:, None] == _positive(classes), 1.0, -1.0)


def encode_label(y: Any, classes: np.ndarray) -> np.ndarray:
    """±1 targets (C,), or (1,) for two classes, of one more label; ``y`` may be a sequence with that label."""
    labels = np.ravel(np.asarray(y))
    if len(labels) != 1:
        raise ValueError(f"update takes one image and its label at a time, got {len(labels)} labels")
    code = np.flatnonzero(classes == labels[0])
    if not len(code):
        raise ValueError(f"label {y!r} is not one of the classes {classes.tolist()}; call fit to add a class")
    return np.where(_positive(classes) == code[0], 1.0, -1.0)


def _positive(classes: np.ndarray) -> np.ndarray:
    return np.array([1]) if len(classes) == 2 else np.arange(len(classes))


def membership(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Probability that each one-versus-all label is positive: Φ(mean / deviation), elementwise."""
    with np.errstate(over="ignore"):  # Φ(±inf) is as right as Φ of what is too large for a float
        return ndtr(mean / deviation)


def winning_probabilities(mean: np.ndarray, deviation: np.ndarray, max_values: int = 1 << 18) -> np.ndarray:
    """Probability that each of C independent normal labels is the largest.

    Parameters
    ----------
    mean : (m, C)
    deviation : (m, C) or (m, 1), not negative; a deviation of 0 is a label that is certain
    max_values : bound on the size of the temporaries; the default stays in the processor's cache

    Returns
    -------
    (m, C), rows summing to one
    """
    mean = np.asarray(mean, dtype=float)
    deviation = np.asarray(deviation, dtype=float)
    if mean.size == 0:
        return np.empty(mean.shape)
    # only differences between the labels count, and they keep more digits near the largest
    mean = mean - mean.max(axis=1, keepdims=True)
    widest = np.maximum(deviation.max(axis=1, keepdims=True), 1e-150)
    deviation = np.broadcast_to(np.maximum(deviation, NARROWEST * widest), mean.shape)
    similar = widest[:, 0] <= SIMILAR * deviation.min(axis=1)
    result = np.empty(mean.shape)
    # labels many deviations apart overflow when squared: their density is then zero, as it should be
    with np.errstate(over="ignore"):
        for integrate, rows in ((_on_one_grid, similar), (_on_pieces, ~similar)):
            which = np.flatnonzero(rows)
            step = max(1, max_values // (mean.shape[1] * GRID))
            for start in range(0, len(which), step):
                block = which[start : start + step]
                result[block] = integrate(mean[block], deviation[block])
    return result / result.sum(axis=1, keepdims=True)


def _densities(nodes: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Density that label c is the largest and has the value of a node: (m, C, q) at ``nodes (m, q)``, up to 1/√2π."""
    s = deviation[:, :, None]
    z = (nodes[:, None] - mean[:, :, None]) / s
    below = log_ndtr(z)
    # -z²/2 - log s - log Φ(z) + Σ log Φ, in place, which spares the memory five passes
    z *= z
    z *= -0.5
    z -= below
    z += below.sum(axis=1, keepdims=True)
    z -= np.log(s)
    return np.exp(z, out=z)


def _interval(mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends (m,) of where the largest label is: below the first, some class is certain to be larger."""
    return np.max(mean - REACH * deviation, axis=1), np.max(mean + REACH * deviation, axis=1)


def _on_one_grid(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    low, high = _interval(mean, deviation)
    nodes = low[:, None] + np.linspace(0.0, 1.0, GRID) * (high - low)[:, None]
    return _densities(nodes, mean, deviation).sum(axis=2)


def _on_pieces(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    result = np.zeros(mean.shape)
    row = np.arange(len(mean))
    low, high = _interval(mean, deviation)
    while len(row):
        y, s = mean[row], deviation[row]
        varies = (low[:, None] < y + REACH * s) & (high[:, None] > y - REACH * s)
        long = np.any(varies & ((high - low)[:, None] > 2.0 * s), axis=1)
        half = (high - low)[~long, None] / 2.0
        nodes = low[~long, None] + half * (1.0 + NODES)
        np.add.at(result, row[~long], _densities(nodes, y[~long], s[~long]) @ NODE_WEIGHTS * half)
        row, low, high = row[long], low[long], high[long]
        middle = (low + high) / 2.0
        row, low, high = np.tile(row, 2), np.append(low, middle), np.append(middle, high)
    return result
