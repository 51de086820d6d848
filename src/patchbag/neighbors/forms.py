# SPDX-License-Identifier: BSD-3-Clause
r"""Every side of a Bregman divergence as an inner product of what a query is and what a point is.

With the conjugate, :math:`D_F(p \| q) = F(p) + F^*(\nabla F(q)) - \langle p, \nabla F(q) \rangle`.  So for each side
there are vectors φ of the query and ψ of the point, and a convex function h with conjugate h*, such that

.. math:: D = h(\varphi) + h^*(\psi) - \langle \varphi, \psi \rangle :

=============  ==============  ==============  ===========================
side           φ(query)        ψ(point)        h
=============  ==============  ==============  ===========================
right          q               ∇F(x)           F
left           ∇F(q)           x               F*
mixed          [l, ∇F(r)]      [∇F(x), x]      (1 − α) F and α F*
=============  ==============  ==============  ===========================

with the weights 1 − α and α on the two halves of ψ; symmetric is mixed with α = ½.  Matrix products, trees and samples
see φ, ψ, h*(ψ) (the *bias*) and h alone, so that they need not know the side: mixed balls with two centres (piro2010,
after 3.20) are ordinary balls of twice the dimension.

**Precision.**  Scores :math:`s = b - \langle \varphi - \nu, \psi - \mu \rangle`, with :math:`b = h^*(\psi) -
\langle \nu, \psi - \mu \rangle`, differ from D by a number that depends on the query alone, and are computed in
float32.  μ and ν are means, taken off in float64, because rounding errors grow with the magnitude of what is
multiplied.  For any order of summation (Higham 2002, §3.1)

.. math:: |\hat s - s| \le \varepsilon = 1.01 \, u \, \big[ (D + 4) \textstyle\sum_j |\varphi_j - \nu_j| \max_x
          |\psi_j - \mu_j| + 3 \max |b| \big] + \text{the same of float64, not centred},

u = 2⁻²⁴.  A point that is among the k nearest has a score of at most the k-th smallest score + 2ε; those points are the
*candidates*, whose divergences are computed again in float64 by definition.  So the neighbours are those of float64,
and equal divergences come in the order of the points.  Where float32 overflows or underflows (its squares are needed
too), float64 takes its place, u = 2⁻⁵³; numbers that are too large or too small for that are an error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from patchbag.neighbors import coordinates as co
from patchbag.neighbors.divergences import GENERATORS, Generator, smooth, smooth_rows

# float64's share of the bound: generous, as the direct formulas lose a few digits more than a product does
FINE = 2.0**-49
# products of two numbers between 1 and these, or one over these, are far from the ends of float32 and of float64
LARGE, LARGEST = 1e15, 1e150


@dataclass(frozen=True)
class Form:
    """A divergence and a side.

    Parameters
    ----------
    generator : of the divergence
    mixing : α of eq. 3.20: 0 is the right side, 1 the left, ½ the symmetrised divergence
    smoothing : of zeros, see ``divergences``
    """

    generator: Generator
    mixing: float = 0.0
    smoothing: float = 0.0

    @cached_property
    def inner(self) -> Generator:
        """The generator that cleaned rows are compared by."""
        return self.generator if self.generator.root is None else GENERATORS["squared_euclidean"]

    @cached_property
    def parts(self) -> list[tuple[bool, float]]:
        """(whether it is the right side, weight) of each half."""
        return [(right, w) for right, w in ((True, 1 - self.mixing), (False, self.mixing)) if w > 0]

    def codes(self) -> tuple[int, int]:
        """Codes of h of the two halves, for compiled loops; twice the same where there is one half."""
        code = self.inner.code
        assert code is not None
        left = co.LOG_SUM if self.inner.simplex else co.CONJUGATE[code]
        found = [code if right else left for right, _ in self.parts]
        return found[0], found[-1]

    def weights(self) -> np.ndarray:
        """(2,) weights of the two halves; the second is 0 where there is one half."""
        return np.array([*(w for _, w in self.parts), 0.0][:2])

    @property
    def excess(self) -> float:
        """Σ exp φ − ln Σ exp φ of normalised φ, weighted: h(φ) as written here minus that of the codes."""
        return self.mixing if self.inner.simplex else 0.0

    def clean(self, X: np.ndarray) -> np.ndarray:
        """Rows (..., d) as they are compared, float64: smoothed, and times the root of a precision."""
        X = np.ascontiguousarray(X, dtype=np.float64)
        g, out = self.generator, np.empty_like(X)
        if X.ndim == 2 and smooth_rows(X, self.smoothing, g.lower, g.upper, g.simplex, out):
            X = out
        else:
            X = smooth(X, g, self.smoothing)  # which tells what is wrong
        return X if self.generator.root is None else X @ self.generator.root

    def queries(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """φ (m, D) and h(φ) (m,) of cleaned queries."""
        g = self.inner
        vectors, constant = [], np.zeros(len(left))
        for is_right, weight in self.parts:
            if is_right:
                vectors.append(left)
                constant += weight * g.value(left)
            else:
                slope = g.gradient(right)
                vectors.append(slope)
                constant += weight * ((right * slope).sum(axis=-1) - g.value(right))
        return vectors[0] if len(vectors) == 1 else np.hstack(vectors), constant

    def points(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """ψ (n, D), weighted, and h*(ψ) (n,) of cleaned points."""
        g = self.inner
        slope = g.gradient(X)
        vectors, bias = [], np.zeros(len(X))
        for is_right, weight in self.parts:
            value = (X * slope).sum(axis=-1) - g.value(X) if is_right else g.value(X)
            bias += weight * value
            vectors.append(weight * (slope if is_right else X))
        return vectors[0] if len(vectors) == 1 else np.hstack(vectors), bias


@dataclass(frozen=True)
class Points:
    """Points ready to be searched.

    Attributes
    ----------
    form : divergence and side
    rows : (n, d) float64, cleaned
    vectors : (n, D) ψ − μ, float32 where it can be
    bias : (n,) of the scores, infinite for points that were taken out
    mu, nu : (D,) what was taken off ψ and φ
    largest : (D,) max |ψ − μ|
    scale : max |b|, max |h*(ψ)|
    """

    form: Form
    rows: np.ndarray
    vectors: np.ndarray
    bias: np.ndarray
    mu: np.ndarray
    nu: np.ndarray
    largest: np.ndarray
    scale: tuple[float, float]

    @classmethod
    def prepare(cls, form: Form, rows: np.ndarray, like: Points | None = None, dtype: Any = np.float32) -> Points:
        """Points from cleaned rows; those that are added to others are centred ``like`` them."""
        with np.errstate(over="ignore", invalid="ignore"):
            psi, conjugate = form.points(rows)
            phi, _ = form.queries(rows, rows)  # points stand in for the queries to come
        fits = np.abs(conjugate) < LARGEST
        for vectors in (psi, phi):
            fits &= (vectors.max(axis=1) < LARGEST) & (vectors.min(axis=1) > -LARGEST)
        if not fits.all():
            raise ValueError(
                f"row {np.argmin(fits)} is too large for the {form.generator.name} divergence: its entries, generator "
                f"or gradient exceed {LARGEST:g}; divide all rows by the same number"
            )
        mu, nu = (psi.mean(axis=0), phi.mean(axis=0)) if like is None else (like.mu, like.nu)
        psi -= mu
        bias = conjugate - psi @ nu
        largest = np.abs(psi).max(axis=0, initial=0.0)
        scale = float(np.abs(bias).max(initial=0.0)), float(np.abs(conjugate).max(initial=0.0))
        roomy = max(scale[0], largest.max(initial=0.0)) < LARGE
        if like is None:
            widths = np.maximum(phi.max(axis=0) - nu, nu - phi.min(axis=0)), largest
            halves = np.reshape(widths, (2 * len(form.parts), -1)).max(axis=1)  # of a half all may be equal
            least = halves[halves > 0].min(initial=1.0)
            if least < 1 / LARGEST:
                raise ValueError(f"the rows differ by less than {1 / LARGEST:g}: multiply all of them by a number")
            dtype = np.dtype(dtype if roomy and least > 1 / LARGE else np.float64)
        else:
            dtype = like.vectors.dtype
            if not roomy and dtype == np.float32:
                raise ValueError("the rows are far larger than the points of the index: fit all of them together")
        return cls(form, rows, np.ascontiguousarray(psi, dtype), bias.astype(dtype), mu, nu, largest, scale)

    def __len__(self) -> int:
        return len(self.bias)

    def part(self, which: np.ndarray) -> Points:
        """Some of the points."""
        return replace(self, rows=self.rows[which], vectors=self.vectors[which], bias=self.bias[which])

    def joined(self, more: Points) -> Points:
        """These points and then those, which were prepared ``like`` these."""
        return replace(
            self,
            rows=np.concatenate([self.rows, more.rows]),
            vectors=np.concatenate([self.vectors, more.vectors]),
            bias=np.concatenate([self.bias, more.bias]),
            largest=np.maximum(self.largest, more.largest),
            scale=(max(self.scale[0], more.scale[0]), max(self.scale[1], more.scale[1])),
        )

    def errors(self, phi: np.ndarray, constant: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(m,) bounds of the error of scores of φ (m, D), h(φ) (m,), and of what is computed in float64."""
        width = phi.shape[1]
        unit = np.finfo(self.vectors.dtype).eps / 2
        magnitude = np.abs(constant) + self.scale[1] + np.abs(phi) @ (self.largest + np.abs(self.mu))
        fine = FINE * (width + 8) * magnitude
        coarse = (width + 4) * (np.abs(phi - self.nu) @ self.largest) + 3 * self.scale[0]
        return 1.01 * unit * coarse + fine, fine

    @cached_property
    def space(self) -> tuple[np.ndarray, np.ndarray, int, np.ndarray, np.ndarray]:
        """What compiled loops have to know: codes of h and of h* of both halves, weights, split, μ and ν."""
        width, codes = self.vectors.shape[1], self.form.codes()
        dual = [co.ENTROPY if code == co.LOG_SUM else co.CONJUGATE[code] for code in codes]
        split = width if len(self.form.parts) == 1 else width // 2
        return np.array([*codes, *dual]), self.form.weights(), split, self.mu, self.nu

    def ask(self, left: np.ndarray, right: np.ndarray) -> Queries:
        """What has to be known of cleaned queries (m, d), which are the same twice unless the form is mixed."""
        code, m, width = self.form.inner.code, len(left), self.vectors.shape[1]
        if code is None:
            phi, constant = self.form.queries(left, right)
            error, fine = self.errors(phi, constant)
            centred = (phi - self.nu).astype(self.vectors.dtype)
            return Queries(left, right, phi, constant, centred, constant - phi @ self.mu, error, fine)
        phi, centred, numbers = np.empty((m, width)), np.empty((m, width), self.vectors.dtype), np.empty((4, m))
        ask_rows(self.lens, left, right, phi, centred, numbers)
        constant, offset, error, fine = numbers
        return Queries(left, right, phi, constant, centred, offset, error, fine)

    @cached_property
    def lens(self) -> Lens:
        """What compiled loops have to know to make queries of rows."""
        form, g, unit = self.form, self.form.generator, 1.01 * float(np.finfo(self.vectors.dtype).eps) / 2
        assert form.inner.code is not None
        domain = form.smoothing, g.lower, g.upper, g.simplex
        return Lens(form.inner.code, form.mixing, *domain, self.mu, self.nu, self.largest, *self.scale, unit)


class Lens(NamedTuple):
    """What makes queries of rows: the divergence (``Form``), and how points are centred and scaled (``Points``)."""

    code: int
    mixing: float
    smoothing: float
    lower: float
    upper: float
    simplex: bool
    mu: np.ndarray
    nu: np.ndarray
    largest: np.ndarray
    largest_bias: float
    largest_conjugate: float
    unit: float


@njit(cache=True, nogil=True)
def ask_rows(lens: Any, left: Any, right: Any, phi: Any, centred: Any, numbers: Any) -> None:
    """φ, φ − ν and (h(φ), offset, error, fine error) of each query; single queries have no time for twenty arrays."""
    code, mixing, mu, nu, largest = lens.code, lens.mixing, lens.mu, lens.nu, lens.largest
    m, d = left.shape
    width = phi.shape[1]
    for i in range(m):
        at = 0
        constant = 0.0
        for half in range(2):
            weight = 1 - mixing if half == 0 else mixing
            if weight > 0:
                for j in range(d):
                    if half == 0:
                        phi[i, at] = left[i, j]
                        constant += weight * co.value_and_slope(code, left[i, j])[0]
                    else:
                        value, slope = co.value_and_slope(code, right[i, j])
                        phi[i, at] = slope
                        constant += weight * (right[i, j] * slope - value)
                    at += 1
        offset, coarse, magnitude = constant, 0.0, abs(constant) + lens.largest_conjugate
        for j in range(width):
            step = phi[i, j] - nu[j]
            centred[i, j] = step
            offset -= phi[i, j] * mu[j]
            coarse += abs(step) * largest[j]
            magnitude += abs(phi[i, j]) * (largest[j] + abs(mu[j]))
        fine = FINE * (width + 8) * magnitude
        numbers[0, i] = constant
        numbers[1, i] = offset
        numbers[2, i] = lens.unit * ((width + 4) * coarse + 3 * lens.largest_bias) + fine
        numbers[3, i] = fine


class Queries(NamedTuple):
    """Queries ready to be asked.

    Attributes
    ----------
    left, right : (m, d) cleaned
    phi : (m, D), constant : (m,) h(φ)
    centred : (m, D) φ − ν in the precision of the points
    offset : (m,) divergence minus score
    error : (m,) bound ε of the error of scores
    fine : (m,) bound of the error of numbers that are computed in float64
    """

    left: np.ndarray
    right: np.ndarray
    phi: np.ndarray
    constant: np.ndarray
    centred: np.ndarray
    offset: np.ndarray
    error: np.ndarray
    fine: np.ndarray

    @property
    def size(self) -> int:
        return len(self.constant)

    def part(self, which: slice | np.ndarray) -> Queries:
        """Some of the queries."""
        return Queries(*(array[which] for array in self))
