# SPDX-License-Identifier: BSD-3-Clause
"""What every function of two datasets of mixtures asks of its input, and of the range of its result.

A NaN, another number of components or a variance of zero would not stop the kernels: matrix products and ``max`` turn
them into numbers that look like similarities.  So the functions check both datasets once, at the price of a few passes
over them; the estimators, which checked their references in ``fit``, pass ``check=False``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from patchbag.mixture.adaptation import Mixtures


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
    if references is not None and one_to_one:
        references.check_shared(X)
    return X


def check_pair(P: Any, Q: Any, one_to_one: bool = False) -> None:
    """Raise unless P and the references Q are sound mixtures that can be compared."""
    check_mixtures(Q, what="the references")
    if P is not Q:
        check_mixtures(P, Q, one_to_one)


def log_self_products(X: Mixtures, rho: float = 0.5) -> np.ndarray:
    """ln Σ_i α_i² K^ρ(p_i, p_i) of every mixture, the diagonal of the one-to-one PPK: ``(n,)``, float64."""
    # ∫ N^{2ρ} = (2π σ²)^{½ - ρ} (2ρ)^{-½} a dimension
    logs = (0.5 - rho) * np.log(2 * np.pi * np.asarray(X.variances, np.float64)) - 0.5 * np.log(2 * rho)
    with np.errstate(divide="ignore"):  # a component of weight zero adds nothing
        terms = 2 * np.log(np.asarray(X.weights, np.float64)) + logs.sum(axis=-1)
    return np.asarray(np.logaddexp.reduce(terms, axis=1))


def check_range(K: np.ndarray, P: Mixtures, Q: Mixtures, rho: float) -> np.ndarray:
    """K if its dtype can hold it; for ρ ≠ ½ a product kernel scales with the variances' product over D dimensions."""
    low = np.log(np.finfo(K.dtype).smallest_subnormal)
    # K(p, q)² ≤ K(p, p) K(q, q): zeros of mixtures that are merely far apart are no fault of the scale
    if not np.isfinite(K).all():
        fault = "overflows"
    elif not K.any() and 0.5 * (log_self_products(P, rho).max() + log_self_products(Q, rho).max()) < low:
        fault = "is below the smallest number"
    else:
        return K
    raise ValueError(
        f"the product kernel with rho = {rho} {fault} in {K.dtype} at the scale of these variances: "
        f"use normalize=True or precision='float64' (dtype=np.float64), or rho = 0.5, which is free of scale"
    )
