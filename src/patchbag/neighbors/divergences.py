# SPDX-License-Identifier: BSD-3-Clause
r"""Bregman divergences: generators, their Legendre duals, sides, mixtures, Jensen's gap, and what to do about zeros.

A strictly convex, differentiable generator F defines (piro2010 eq. 3.3)

.. math:: D_F(p \| q) = F(p) - F(q) - \langle p - q, \nabla F(q) \rangle .

Its conjugate :math:`F^*(y) = \sup_x \langle x, y \rangle - F(x)` has :math:`\nabla F^* = (\nabla F)^{-1}` and exchanges
the sides, :math:`D_F(p \| q) = D_{F^*}(\nabla F(q) \| \nabla F(p))` (3.6).  With both, a divergence is an inner product
and two numbers, which makes the search a matrix product:

.. math:: D_F(p \| q) = F(p) + F^*(\nabla F(q)) - \langle p, \nabla F(q) \rangle .

====================  =====================  ==========================================
name                  F                      divergence
====================  =====================  ==========================================
``squared_euclidean`` Σ x²                   ‖p − q‖²
``kl``                Σ x ln x − x           Kullback–Leibler, rows scaled to sum 1
``generalized_kl``    Σ x ln x − x           Σ p ln(p/q) − p + q
``itakura_saito``     −Σ ln x                Σ p/q − ln(p/q) − 1
``exponential``       Σ exp x                the dual of the generalised KL
``logistic``          Σ ln(1 + exp x)        the dual of the binary relative entropy
``mahalanobis(A)``    xᵀA x                  (p − q)ᵀ A (p − q)
====================  =====================  ==========================================

Any other convex function is a :class:`Generator` made of three functions.  Two are made of one F beside: the
*mixed* divergence (3.20), :math:`(1-\alpha) D_F(l \| x) + \alpha D_F(x \| r)`, with the *symmetrised* one (3.4) as
:math:`\alpha = \frac12, l = r`; and Jensen's gap (Burbea–Rao, 3.19), :math:`\frac12 (F(p) + F(q)) - F(\frac{p+q}2)`,
which is the Jensen–Shannon divergence (3.18) for ``kl`` and is no inner product.

**Zeros.**  KL and Itakura–Saito need positive entries.  :func:`smooth` adds to each entry of a row of d numbers the
fraction s of the row's mean, as though the histogram had been drawn with s·Σx additional counts spread evenly; for
``kl`` the row is then divided by its sum.  It is applied to points and queries alike.

Slips of the paper: the text calls the symmetrised KL (the half-sum of both sides, eq. 3.4) and the Jensen–Shannon
divergence (3.18) the same; they are not, the latter is bounded.  The generator of quadratic distances is printed as
:math:`F(x) = \Sigma^{-1} x`; it is :math:`x^T \Sigma^{-1} x`.  Burbea–Rao divergences are not "always bounded": the
COSH distance is not.  The cut of a geodesic by Hessians (3.15–3.17) takes a point of it as a mean of p and q; it is a
mean of their *gradients*, and the ratio of the Hessians is then the inverse one: :func:`hessian_cut`.

Sides: "right" here is the x with the smallest D(query ‖ x), "left" that with the smallest D(x ‖ query), i.e. the side
of the *point*; the paper's eq. 3.4 names them after the side of the query, the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from scipy.special import expit, xlogy

from patchbag.neighbors import coordinates as co

RowFunction = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Generator:
    """A convex function and what belongs to it; all functions take arrays (..., d).

    Parameters
    ----------
    name : for messages
    value : (..., d) → (...)
    gradient, inverse_gradient : (..., d) → (..., d)
    hessian : (..., d) → (..., d), its diagonal; needed by no search
    lower, upper : entries lie strictly between them
    code : of the compiled version (``coordinates``), None if there is none; such a generator is searched by matrix
        products only
    simplex : rows are divided by their sum
    root : (d, d) where the divergence is ‖(p − q) root‖², so that rows times ``root`` are compared instead
    """

    name: str
    value: RowFunction
    gradient: RowFunction
    inverse_gradient: RowFunction
    hessian: RowFunction | None = None
    lower: float = -np.inf
    upper: float = np.inf
    code: int | None = None
    simplex: bool = False
    root: np.ndarray | None = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        """The named ones travel to other processes by their names, as their functions cannot."""
        if GENERATORS.get(self.name) is self:
            return find_generator, (self.name,)
        if self.root is not None:
            return mahalanobis, (self.root @ self.root.T,)
        return super().__reduce_ex__(protocol)

    def conjugate(self, y: np.ndarray) -> np.ndarray:
        """F*(y) = ⟨x, y⟩ − F(x) at x = (∇F)⁻¹(y)."""
        x = self.inverse_gradient(y)
        return (x * y).sum(axis=-1) - self.value(x)

    def divergence(self, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        """D_F(p ‖ q) of rows, (..., d) each, by definition (3.3)."""
        return self.value(p) - self.value(q) - ((p - q) * self.gradient(q)).sum(axis=-1)

    def mixed(self, left: np.ndarray, x: np.ndarray, right: np.ndarray, mixing: float) -> np.ndarray:
        """(1 − α) D_F(l ‖ x) + α D_F(x ‖ r), eq. 3.20."""
        return (1 - mixing) * self.divergence(left, x) + mixing * self.divergence(x, right)

    def jensen(self, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        """½ (F(p) + F(q)) − F((p + q) / 2), eq. 3.19."""
        return (self.value(p) + self.value(q)) / 2 - self.value((p + q) / 2)

    def dual(self) -> Generator:
        """The generator of the conjugate; the simplex is not kept."""
        hessian = self.hessian
        return Generator(
            f"dual of {self.name}",
            self.conjugate,
            self.inverse_gradient,
            self.gradient,
            None if hessian is None else lambda y: 1 / hessian(self.inverse_gradient(y)),
            *_range(self),
            None if self.code is None else co.CONJUGATE[self.code],
        )


def _range(generator: Generator) -> tuple[float, float]:
    """The interval that f' takes its values from."""
    known: dict[int | None, tuple[float, float]] = {
        co.EXPONENTIAL: (0.0, np.inf),
        co.BURG: (-np.inf, 0.0),
        co.LOGISTIC: (0.0, 1.0),
        co.BURG_DUAL: (0.0, np.inf),
    }
    return known.get(generator.code, (-np.inf, np.inf))


def _separable(
    name: str, code: int, f: RowFunction, slope: RowFunction, inverse: RowFunction, second: RowFunction, **more: Any
) -> Generator:
    return Generator(name, lambda x: f(x).sum(axis=-1), slope, inverse, second, code=code, **more)


def _shannon(name: str, simplex: bool) -> Generator:
    return _separable(
        name,
        co.ENTROPY,
        lambda x: xlogy(x, x) - x,
        np.log,
        np.exp,
        lambda x: 1 / x,
        lower=0.0,
        simplex=simplex,
    )


GENERATORS: dict[str, Generator] = {
    g.name: g
    for g in (
        _separable(
            "squared_euclidean", co.SQUARE, np.square, lambda x: 2 * x, lambda y: y / 2, lambda x: np.full_like(x, 2.0)
        ),
        _shannon("kl", True),
        _shannon("generalized_kl", False),
        _separable(
            "itakura_saito",
            co.BURG,
            lambda x: -np.log(x),
            lambda x: -1 / x,
            lambda y: -1 / y,
            lambda x: x**-2,
            lower=0.0,
        ),
        _separable("exponential", co.EXPONENTIAL, np.exp, np.exp, np.log, np.exp),
        _separable(
            "logistic",
            co.LOGISTIC,
            lambda x: np.logaddexp(0, x),
            expit,
            lambda y: np.log(y) - np.log1p(-y),
            lambda x: expit(x) * expit(-x),
        ),
    )
}


def mahalanobis(precision: np.ndarray) -> Generator:
    """xᵀA x for a symmetric positive definite ``precision`` A (d, d); its Hessian is the matrix 2A, not a diagonal."""
    precision = np.asarray(precision, float)
    if not np.allclose(precision, precision.T):
        raise ValueError("the precision of a Mahalanobis distance must be a symmetric matrix")
    try:
        root = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError as error:
        raise ValueError("the precision of a Mahalanobis distance must be positive definite") from error
    covariance = np.linalg.inv(precision)
    return Generator(
        "mahalanobis",
        lambda x: ((x @ precision) * x).sum(axis=-1),
        lambda x: 2 * (x @ precision),
        lambda y: y @ covariance / 2,
        root=root,
    )


def find_generator(divergence: str | Generator) -> Generator:
    """The generator of that name, or as given."""
    return GENERATORS[divergence] if isinstance(divergence, str) else divergence


def smooth(X: np.ndarray, generator: Generator, smoothing: float) -> np.ndarray:
    """Rows (n, d) in the generator's domain: see *Zeros* in the module's text.

    Raises ValueError, with the first row and entry, where an entry is outside of the domain nevertheless.
    """
    given, low, high = X, generator.lower, generator.upper
    positive = low == 0 and high == np.inf
    total = X.sum(axis=-1, keepdims=True)
    if positive and smoothing and X.size and X.min() >= 0:
        X = X + smoothing * total / X.shape[-1]
        total = total * (1 + smoothing)
    good = (low < X) & (high > X)
    if positive and generator.simplex:
        with np.errstate(divide="ignore", invalid="ignore"):
            X = X / total
        good &= X > 0  # a share may be too small for a number
    if not good.all():
        place = tuple(int(i) for i in np.argwhere(~good)[0])
        raise ValueError(
            f"the {generator.name} divergence needs entries between {low:g} and {high:g}: entry "
            f"{place[-1]} of row {place[0]} is {given[place]:g}"
            + ("; smoothing > 0 takes care of zeros, not of empty or negative rows" if generator.lower == 0 else "")
        )
    return X


@njit(cache=True, nogil=True)
def smooth_rows(X: Any, smoothing: float, low: float, high: float, simplex: bool, out: Any) -> bool:
    """``smooth``, compiled; False where an entry is outside of the domain."""
    n, d = X.shape
    positive = low == 0 and high == np.inf
    least = 0.0
    if positive and smoothing > 0:
        for i in range(n):
            for j in range(d):
                least = min(least, X[i, j])
    for i in range(n):
        total = 0.0
        for j in range(d):
            total += X[i, j]
        lift = smoothing * total / d if positive and least >= 0 else 0.0
        scale = total + lift * d if positive and simplex else 1.0
        if not scale > 0:
            return False
        for j in range(d):
            lifted = X[i, j] + lift
            out[i, j] = lifted / scale
            # a row of negative entries has positive shares
            if not (low < lifted < high and low < out[i, j] < high):
                return False
    return True


def hessian_cut(generator: Generator, p: np.ndarray, q: np.ndarray) -> float:
    """λ at which the geodesic (∇F)⁻¹((1 − λ) ∇F(p) + λ ∇F(q)) is cut into parts of about equal length (3.10, 3.17)."""
    if generator.hessian is None:
        return 0.5
    c = np.sqrt(np.linalg.norm(generator.hessian(p)) / np.linalg.norm(generator.hessian(q)))
    return float(c / (1 + c))
