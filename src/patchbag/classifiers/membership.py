# SPDX-License-Identifier: BSD-3-Clause
r"""From Gaussian soft labels to probabilities of classes.

A one-versus-all Gaussian process gives the label :math:`t_c` of class c a normal distribution with mean
:math:`\bar y_c` and standard deviation :math:`s_c = \sqrt{\Sigma_c + \sigma^2}`.

* **membership**, one class against the rest (kapoor2010, §7): :math:`p(t_c \ge 0) = \Phi(\bar y_c / s_c)`;
* **winning probability**, all classes together: the probability that :math:`t_c` is the largest,

  .. math:: p(c) = \int \tfrac{1}{s_c}\varphi\Big(\tfrac{v - \bar y_c}{s_c}\Big)
            \prod_{c' \ne c} \Phi\Big(\tfrac{v - \bar y_{c'}}{s_{c'}}\Big)\,dv .

The paper takes the class with the largest soft label and stops there; the winning probability is what that decision
rule implies under the paper's own model (classes independent given the image), and with a common s it ranks the classes
as the soft labels do.  All C integrals share the product over classes, so they cost O(C · grid) per image, by
the trapezoidal rule, which converges geometrically for an analytic integrand that vanishes at both ends.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtr

GRID = 96
REACH = 6.5


def membership(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Probability that each one-versus-all label is positive: Φ(mean / deviation), elementwise."""
    return ndtr(mean / deviation)


def winning_probabilities(mean: np.ndarray, deviation: np.ndarray, max_values: int = 1 << 22) -> np.ndarray:
    """Probability that each of C independent normal labels is the largest.

    Parameters
    ----------
    mean : (m, C)
    deviation : (m, C) or (m, 1), positive
    max_values : bound on the size of the temporaries

    Returns
    -------
    (m, C), rows summing to one
    """
    mean = np.asarray(mean, dtype=float)
    m, n_classes = mean.shape
    deviation = np.broadcast_to(np.asarray(deviation, dtype=float), mean.shape)
    result = np.empty((m, n_classes))
    step = max(1, max_values // (n_classes * GRID))
    fractions = np.linspace(0.0, 1.0, GRID)
    for start in range(0, m, step):
        y, s = mean[start : start + step, :, None], deviation[start : start + step, :, None]
        low = np.max(y - REACH * s, axis=1, keepdims=True)
        high = np.max(y + REACH * s, axis=1, keepdims=True)
        z = (low + fractions * (high - low) - y) / s
        below = log_ndtr(z)
        logs = -0.5 * z * z - np.log(s) - below + below.sum(axis=1, keepdims=True)
        result[start : start + step] = np.exp(logs).sum(axis=2)
    return result / result.sum(axis=1, keepdims=True)
