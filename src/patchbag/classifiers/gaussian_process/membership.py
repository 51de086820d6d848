# SPDX-License-Identifier: BSD-3-Clause
r"""From Gaussian soft labels to probabilities of classes.

A one-versus-all Gaussian process gives the label :math:`t_c` of class c a normal distribution with mean
:math:`\bar y_c` and standard deviation :math:`s_c = \sqrt{\Sigma_c + \sigma^2}`.

* **membership**, one class against the rest (kapoor2010, §7): :math:`p(t_c \ge 0) = \Phi(z_c)`, :math:`z_c = \bar
  y_c / s_c`;
* **winning probability**, all classes together: the probability that :math:`t_c / s_c` is the largest,

  .. math:: p(c) = \int \varphi(v - z_c) \prod_{c' \ne c} \Phi(v - z_{c'})\,dv .

The paper takes the class with the largest soft label and stops there; the winning probability is what that decision
rule implies under the paper's own model (classes independent given the image, with a common s), and ranks the classes
as the soft labels do.  All C integrals share the product over classes, so they cost O(C · nodes) per image, by the
trapezoidal rule, which converges geometrically for an analytic integrand that vanishes at both ends.
"""

import numpy as np
from scipy.special import log_ndtr, ndtr

NODES = np.linspace(-6.5, 6.5, 96)
TINY = 1e-100


def membership(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Probability that each one-versus-all label is positive: Φ(mean / deviation), elementwise."""
    with np.errstate(over="ignore"):  # Φ(±inf) is as right as Φ of what is too large for a float
        return ndtr(mean / deviation)


def winning_probabilities(mean: np.ndarray, deviation: np.ndarray, max_values: int = 1 << 18) -> np.ndarray:
    """Probability that each of C independent normal labels is the largest in units of its deviation.

    Parameters
    ----------
    mean : (m, C)
    deviation : (m, 1) or (m, C), not negative; a deviation of 0 is a label that is certain
    max_values : bound on the size of the temporaries; the default stays in the processor's cache

    Returns
    -------
    (m, C), rows summing to one
    """
    z = np.asarray(mean, dtype=float) / np.maximum(deviation, TINY)
    result = np.empty(z.shape)
    step = max(1, max_values // (z.shape[1] * len(NODES)))
    for start in range(0, len(z), step):
        block = z[start : start + step]
        # a class many deviations below the largest is never that
        distance = NODES - np.maximum(block - block.max(axis=1, keepdims=True), -1e3)[:, :, None]
        below = log_ndtr(distance)
        # -d²/2 - log Φ(d) + Σ log Φ, in place, which spares the memory passes
        distance *= distance
        distance *= -0.5
        distance -= below
        distance += below.sum(axis=1, keepdims=True)
        result[start : start + step] = np.exp(distance, out=distance).sum(axis=2)
    return result / result.sum(axis=1, keepdims=True)
