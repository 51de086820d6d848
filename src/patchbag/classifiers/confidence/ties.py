# SPDX-License-Identifier: BSD-3-Clause
r"""How much an image looks like a class, by least squares on inner products, for classifiers whose scores say little.

The votes of a few neighbours add up to much the same however far they are.  A linear discriminant adds up what all
training images say, and all its scores are low for an image that is like none of the classes.  With a kernel K of the
training images and their targets :math:`T \in \{-1, 1\}^{n \times C}`,

.. math:: s(x) = \bar t + k(x)^\top (K + \lambda I)^{-1} (T - \bar t) / r,\qquad
          r = 1 - \tfrac{\lambda}{n} \mathrm{tr}(K + \lambda I)^{-1},

:math:`\lambda` a share ``NOISE`` of the mean of K's diagonal, and the statistic is the energy
:math:`-\ln \sum_c \exp(a\, s_c(x))`, a = ``SHARPNESS``.  r makes scores of models of fewer images comparable with those
of the model of all.  Cost: n³/3, so that at most ``MOST`` images have a say.
"""

import numpy as np

from patchbag.classifiers.confidence.left_out import energy

NOISE = 0.05
SHARPNESS = 5.0
MOST = 2000


def tie_weights(gram: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """(n + 1, C) what the training images add to the scores, and the constant.

    Parameters
    ----------
    gram : (n, n) their kernel
    codes : (n,) numbers of their classes
    """
    targets = np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)
    weights, mean = np.zeros_like(targets), targets.mean(axis=0)
    heard = slice(None, None, -(-len(codes) // MOST))
    part = np.array(gram[heard, heard], dtype=float)
    noise = NOISE * (float(np.trace(part)) / len(part) or 1.0)
    part[np.diag_indices_from(part)] += noise
    inverse = np.linalg.inv(part)  # similarities need not be definite
    response = 1.0 - noise * np.trace(inverse) / len(part)
    weights[heard] = inverse @ (targets[heard] - mean) / max(response, 0.01)
    return np.vstack([weights, mean])


def looseness(cross: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(m,) energies of images with the kernel ``cross (m, n)``: larger where no class has a large score."""
    return energy(SHARPNESS * (cross @ weights[:-1] + weights[-1]))
