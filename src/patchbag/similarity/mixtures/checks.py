# SPDX-License-Identifier: BSD-3-Clause
"""What every function of two datasets of mixtures asks of its input, and of the range of its result.

A NaN, another number of components or a variance of zero would not stop the kernels: matrix products and ``max`` turn
them into numbers that look like similarities.  So the functions check both datasets once, at the price of a few passes
over them; the estimators, which checked their references in ``fit``, pass ``check=False``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from patchbag.mixture.adaptation import Mixtures

# rows of a kernel looked at together, so that what is found of each entry takes little memory
RANGE_ROWS = 1024


def check_mixtures(
    X: Any, references: Mixtures | None = None, one_to_one: bool = False, what: str = "mixtures"
) -> Mixtures:
    """X if it is a sound Mixtures; else an error that says what was given, or which image is at fault.

    Parameters
    ----------
    references : mixtures, already checked, that X is to be compared with
    one_to_one : components of X and of the references are to correspond: both must have one universal model
    """
    if not isinstance(X, Mixtures):
        raise TypeError(f"expected Mixtures (from MAPAdaptation), got {type(X).__name__}")
    X.check(like=references, what=what)
    if one_to_one and not (X.corresponding and (references is None or references.corresponding)):
        raise ValueError(
            f"{what}: mixtures that were trained on each image alone have no components that correspond one to one; "
            "match them (matching='matched', 'one-to-many' or 'all'), or adapt them from one universal model"
        )
    if references is not None and one_to_one:
        references.check_shared(X)
    return X


def check_iterations(iterations: int | None, what: str) -> None:
    """Raise unless it is a whole number from 1 on, or None, which means ``what``."""
    if iterations is not None and (not isinstance(iterations, int | np.integer) or iterations < 1):
        raise ValueError(f"iterations must be a whole number from 1 on, or None for {what}, got {iterations!r}")


def check_precision(precision: Any) -> np.dtype:
    """float32 or float64 as a dtype."""
    if precision not in ("float32", "float64", np.float32, np.float64, np.dtype("float32"), np.dtype("float64")):
        raise ValueError(f"precision must be 'float32' or 'float64', got {precision!r}")
    return np.dtype(precision)


def check_pair(P: Any, Q: Any, one_to_one: bool = False) -> None:
    """Raise unless P and the references Q are sound mixtures that can be compared."""
    check_mixtures(Q, one_to_one=one_to_one, what="the references")
    if P is not Q:
        check_mixtures(P, Q, one_to_one)


def log_self_products(X: Mixtures, rho: float = 0.5) -> Any:
    """ln Σ_i α_i² K^ρ(p_i, p_i) of every mixture, the diagonal of the one-to-one PPK: ``(n,)``, float64."""
    xp = array_namespace(X.weights, X.variances)
    # ∫ N^{2ρ} = (2π σ²)^{½ - ρ} (2ρ)^{-½} a dimension
    logs = (0.5 - rho) * xp.log(2 * np.pi * xp.astype(X.variances, xp.float64)) - 0.5 * float(np.log(2 * rho))
    with np.errstate(divide="ignore"):  # a component of weight zero adds nothing
        terms = 2 * xp.log(xp.astype(X.weights, xp.float64)) + xp.sum(logs, axis=-1)
    best = xp.max(terms, axis=1, keepdims=True)
    return xp.log(xp.sum(xp.exp(terms - best), axis=1)) + best[:, 0]


def check_range(K: Any, P: Mixtures, Q: Mixtures, rho: float) -> Any:
    """K if its dtype can hold it; for ρ ≠ ½ a product kernel scales with the variances' product over D dimensions."""
    xp = array_namespace(K)
    low = float(np.log(np.finfo(str(K.dtype).rpartition(".")[2]).smallest_subnormal))
    n = K.shape[0]
    parts = [K[start : min(start + RANGE_ROWS, n), ...] for start in range(0, n, RANGE_ROWS)]
    # K(p, q)² ≤ K(p, p) K(q, q): zeros of mixtures that are merely far apart are no fault of the scale
    largest = (float(xp.max(log_self_products(X, rho))) for X in (P, Q))
    if not all(bool(xp.all(xp.isfinite(part))) for part in parts):
        fault = "overflows"
    elif not any(bool(xp.any(part != 0)) for part in parts) and 0.5 * sum(largest) < low:
        fault = "is below the smallest number"
    else:
        return K
    raise ValueError(
        f"the product kernel with rho = {rho} {fault} in {K.dtype} at the scale of these variances: "
        f"use normalize=True or precision='float64' (dtype=np.float64), or rho = 0.5, which is free of scale"
    )
