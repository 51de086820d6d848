# SPDX-License-Identifier: BSD-3-Clause
r"""Support vector machines of all classes at once, by matrix products: what a GPU runs in place of libsvm.

With :math:`a_i = s_i \alpha_i` for targets :math:`s_i = \pm 1`, the dual of the hinge loss is

.. math:: \min_a \tfrac12 a^T G a - s^T a \quad\text{with}\quad 0 \le s_i a_i \le C, \quad \textstyle\sum_i a_i = 0 .

Because of the last condition a constant may be taken from every row and column of G: centring it removes what all
images have in common, which is most of its largest eigenvalue L and all that makes gradients slow.  Then accelerated
projected gradients (Beck & Teboulle 2009, restarted where they turn back, O'Donoghue & Candès 2015): one product of G
with one column per machine per iteration.  The projection onto box and plane shifts a column until it sums to zero; the
shift is found by bisection, for all columns together.

The end is libsvm's: the largest violation of the conditions of optimality is below ``TOLERANCE``, and the intercept the
middle of what they leave open.  Cost: 2·n²·M operations per iteration, some hundreds of them.
"""

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from sklearn.exceptions import ConvergenceWarning

from patchbag.device import like, to_host
from patchbag.runtime import tensor_cores

TOLERANCE = 1e-3
MAX_ITER = 5_000
CHECK_EVERY = 25
BISECTIONS = 30
POWER_ITERATIONS = 30


def hinge_machines(gram: Any, signs: np.ndarray, C: float) -> tuple[Any, np.ndarray]:
    """Dual coefficients (n, M), where the Gram matrix (n, n) lies, and intercepts (M,) for ``signs (n, M)`` of ±1."""
    with tensor_cores(False) if getattr(gram, "is_cuda", False) else nullcontext():  # TF32 has too few digits
        return _solve(gram, signs, C)


def _solve(gram: Any, signs: np.ndarray, C: float) -> tuple[Any, np.ndarray]:
    xp = array_namespace(gram)
    mean = xp.mean(gram, axis=0, keepdims=True)
    centred = gram - mean - xp.matrix_transpose(mean) + xp.mean(mean)
    s = like(signs, gram)
    zero = xp.zeros_like(s)
    low, high = xp.minimum(C * s, zero), xp.maximum(C * s, zero)
    step = 1 / (1.05 * _largest_eigenvalue(centred))
    a = point = zero
    momentum = 1.0
    for iteration in range(1, MAX_ITER + 1):
        new = _project(point - step * (centred @ point - s), low, high)
        # moving against the step just taken: momentum has gone too far
        if float(xp.sum((point - new) * (new - a))) > 0:
            momentum = 1.0
        following = (1 + (1 + 4 * momentum * momentum) ** 0.5) / 2
        point = new + ((momentum - 1) / following) * (new - a)
        a, momentum = new, following
        if iteration % CHECK_EVERY == 0:
            above, below = _violation(s - centred @ a, a, low, high)
            if float(xp.max(above - below)) <= TOLERANCE:
                break
    else:
        warnings.warn(
            f"{signs.shape[1]} support vector machines had not converged after {MAX_ITER} iterations; a smaller C is "
            "easier",
            ConvergenceWarning,
            stacklevel=3,
        )
    above, below = _violation(s - gram @ a, a, low, high)
    return a, to_host((above + below) / 2).astype(np.float64)


def _largest_eigenvalue(matrix: Any) -> float:
    xp = array_namespace(matrix)
    start = np.random.default_rng(0).normal(size=(matrix.shape[0], 1))
    vector = like(start / np.linalg.norm(start), matrix)
    length = 1.0
    for _ in range(POWER_ITERATIONS):
        vector = matrix @ vector
        length = float(xp.linalg.vector_norm(vector)) or 1e-30
        vector = vector / length
    return length


def _project(v: Any, low: Any, high: Any) -> Any:
    """The nearest columns within the bounds that sum to zero."""
    xp = array_namespace(v)
    left, right = xp.min(v - high, axis=0, keepdims=True), xp.max(v - low, axis=0, keepdims=True)
    for _ in range(BISECTIONS):
        middle = (left + right) / 2
        much = xp.sum(xp.minimum(xp.maximum(v - middle, low), high), axis=0, keepdims=True) > 0
        left, right = xp.where(much, middle, left), xp.where(much, right, middle)
    return xp.minimum(xp.maximum(v - (left + right) / 2, low), high)


def _violation(slope: Any, a: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """The steepest way up (M,) of coefficients that may grow, and the least steep of those that may shrink."""
    xp = array_namespace(a)
    far = xp.full_like(a, xp.inf)
    return xp.max(xp.where(a < high, slope, -far), axis=0), xp.min(xp.where(a > low, slope, far), axis=0)
