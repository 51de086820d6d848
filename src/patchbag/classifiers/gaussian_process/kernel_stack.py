# SPDX-License-Identifier: BSD-3-Clause
"""The forms in which one or several kernel matrices can be handed to a classifier, and the checks they must pass.

All of these become one array ``(k, m, n)``: k kernels between m images and n training images.

* an (m, n) array: one kernel;
* a list or tuple of k arrays (m, n);
* an (m, n, k) array, which ``GridSearchCV`` can cut by rows and columns;
* an (m, k·n) array: kernels side by side, as ``FeatureUnion`` of kernel transformers makes them.

A training kernel must be finite, symmetric and positive semidefinite.  The last is tested by a Cholesky factorisation
of K + ε I (n³/3), with ε a 1e-8th of the mean self-kernel: far below the jitter that a posterior may add, whatever n
is.  Eigenvalues are computed only when it fails, to say how far the matrix is from being a kernel; negative ones that
are rounding by the measure of :func:`~patchbag.similarity.definite.definiteness` are clipped without asking.  Repair
clips the negative eigenvalues and maps rows of new images by the same projection, K P with P = U₊U₊': the
repaired kernel of new images is then the inner product in the space of the repaired training kernel (see
:mod:`patchbag.similarity.definite`).
"""

from typing import Any

import numpy as np

from patchbag.classifiers.gaussian_process.evidence import cholesky_factor
from patchbag.similarity.definite import clip_eigenvalues, definiteness

TOLERANCE = 1e-8  # share of the mean self-kernel
TILE = 512  # rows and columns compared at a time
SAMPLE_TOLERANCE = 5e-7  # the same where only a sample is tested: what the jitter of a posterior absorbs


def stack_kernels(X: Any, n_reference: int | None = None) -> np.ndarray:
    """One or several kernels as a float64 array (k, m, n); ``n_reference`` is n (default: square kernels, n = m)."""
    if isinstance(X, list | tuple) and len(X) and all(getattr(a, "ndim", 0) == 2 for a in X):
        shapes = [tuple(a.shape) for a in X]
        different = next((i for i, s in enumerate(shapes) if s != shapes[0]), None)
        if different is not None:
            raise ValueError(
                f"kernels have different sizes: kernel 0 is {shapes[0]}, kernel {different} is {shapes[different]}; "
                "compute all of them on the same images in the same order"
            )
        stack = np.stack([np.asarray(a, dtype=float) for a in X])
    else:
        array = np.asarray(X, dtype=float)
        if array.ndim == 3:
            if n_reference is None and array.shape[0] != array.shape[1] == array.shape[2]:
                raise ValueError(
                    f"several kernels in one array lie along the last axis, (n, n, k), got {array.shape}; pass a list "
                    "of matrices, or np.moveaxis(array, 0, 2)"
                )
            stack = np.ascontiguousarray(np.moveaxis(array, 2, 0))
        elif array.ndim == 2:
            m, columns = array.shape
            n = n_reference or m
            if n == 0 or columns % n or columns == 0:
                raise ValueError(
                    f"the kernel has {m} rows and {columns} columns; expected {n} columns (one per training image), "
                    f"or a multiple of {n} for several kernels side by side"
                )
            stack = np.ascontiguousarray(array.reshape(m, columns // n, n).swapaxes(0, 1))
        else:
            raise ValueError(f"expected a kernel matrix or several of one size, got an array of shape {array.shape}")
    _, m, n = stack.shape
    if n_reference is None and m != n:
        raise ValueError(f"a training kernel must be square, got {m} rows and {n} columns")
    if n_reference is not None and n != n_reference:
        raise ValueError(f"the kernel has {n} columns, expected {n_reference}: one for each training image")
    bad = np.argwhere(~np.isfinite(stack).all(axis=2))
    if len(bad):
        raise ValueError(f"kernel {bad[0][0]} has a value that is not finite in row {bad[0][1]}")
    return stack


def is_definite(kernel: np.ndarray, tolerance: float = TOLERANCE) -> bool:
    """Whether the symmetric ``kernel (n, n)`` plus ``tolerance`` times its mean diagonal has a Cholesky factor."""
    shift = tolerance * max(float(np.trace(kernel)) / max(len(kernel), 1), 1e-300)
    try:
        cholesky_factor(kernel, shift)
    except np.linalg.LinAlgError:
        return False
    return True


def _asymmetry(kernel: np.ndarray) -> float:
    """The largest |K_ij - K_ji|, tile by tile: the transpose of a large matrix is slow to read."""
    n, largest = len(kernel), 0.0
    for i in range(0, n, TILE):
        for j in range(i, n, TILE):
            gap = kernel[i : i + TILE, j : j + TILE] - kernel[j : j + TILE, i : i + TILE].T
            largest = max(largest, float(np.abs(gap, out=gap).max()))
    return largest


def check_kernel(
    kernel: np.ndarray, index: int = 0, repair: bool = False, sample: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Validate one (n, n) training kernel.

    Returns the exactly symmetric kernel (the one given where it is that) and, if it had to be repaired, the (n, n)
    projection for the rows of new images. Raises ValueError if the kernel is not symmetric, or not positive
    semidefinite and ``repair`` is False.
    With ``sample``, indices of m images, the kernel passes when it is definite among them, which costs m³/3.
    """
    size = float(np.abs(kernel).max()) if kernel.size else 0.0
    asymmetry = _asymmetry(kernel)
    if asymmetry > 1e-4 * size:
        raise ValueError(
            f"kernel {index} is not symmetric: entries differ by up to {asymmetry:.3g} (largest {size:.3g})"
        )
    if asymmetry > 0:
        kernel = (kernel + kernel.T) / 2
    if sample is not None and is_definite(kernel[np.ix_(sample, sample)], SAMPLE_TOLERANCE):
        return kernel, None
    if is_definite(kernel):
        return kernel, None
    verdict = definiteness(kernel)
    # what is negative by rounding alone is clipped without asking: new rows then see the same kernel
    if not (verdict.definite or repair):
        raise ValueError(f"kernel {index}: {verdict}; use a Mercer kernel, or pass repair=True to clip them to zero")
    return clip_eigenvalues(kernel)
