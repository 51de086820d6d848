# SPDX-License-Identifier: BSD-3-Clause
"""What active learning asks of a pool: one kernel that is symmetric and positive semidefinite, and labels or none.

Where a kernel has negative eigenvalues the variance of the posterior can fall below zero, and probabilities near 0 and
1 come out that mean nothing; so the kernel is checked as that of a Gaussian process classifier is.
Cost: one Cholesky factorisation, N³/3, and an eigendecomposition where it fails.
"""

from typing import Any

import numpy as np

from patchbag.classifiers.gaussian_process.kernel_stack import check_kernel, stack_kernels
from patchbag.records import is_label


def check_pool_kernel(X: Any, repair: bool = False) -> np.ndarray:
    """The kernel (N, N) of a pool, exactly symmetric; negative eigenvalues are clipped with ``repair``, else an
    error.
    """
    stack = stack_kernels(X)
    if len(stack) != 1:
        raise ValueError(f"active learning takes one kernel of the pool, got {len(stack)}; combine them first")
    return check_kernel(stack[0], repair=repair)[0]


def is_missing(labels: Any, missing_label: Any = np.nan) -> np.ndarray:
    """(N,) which labels are ``missing_label``; NaN and None both match NaN or None."""
    empty = missing_label is None or (isinstance(missing_label, float) and np.isnan(missing_label))

    def missing(label: Any) -> bool:
        if empty:
            return not is_label(label)
        return bool(label == missing_label)

    return np.array([missing(label) for label in labels], dtype=bool)
