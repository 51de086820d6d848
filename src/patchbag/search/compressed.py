# SPDX-License-Identifier: BSD-3-Clause
r"""Vectors of a large collection in a few bytes each: four bits per axis, all of them read for every query.

**Axes.**  y = Rᵀx.  The d columns of R span the leading principal axes of a sample (block power iteration), at most
``2 · BYTES``, and are turned at random within their span: every coordinate of y then has about the same variance, and
is close to Gaussian, whatever the spectrum was.

**Codes.**  With r² the mean square of y and Δ = 0.335, the step of the best uniform quantiser of a Gaussian with 16
levels (Max 1960)

.. math:: c_j = \mathrm{clip}\big(\lfloor y_j / (r \Delta) \rfloor + 8,\ 0,\ 15\big),\qquad
          s = \frac{y \cdot y}{\sum_j (c_j - 7.5)\, y_j},\qquad
          x \cdot q \approx s \sum_j (c_j - 7.5)\,(R^\top q)_j

The factor s makes the estimate right in the direction of y itself (Gao & Long 2024): quantisation shortens vectors, and
not all of them alike.  What lies outside of the span is left out.

**Search.**  The estimate of all vectors, with the query rounded to a signed byte per axis, then the products of the
``CANDIDATES`` best with the vectors themselves, which stay on the disk.  No list of the collection is passed over, so
that nothing is lost but what the codes cannot tell apart.

**Layout.**  Codes of ``LANES`` images lie side by side, axis after axis, two axes to a byte: a compiled loop adds
products of 16 bits, 16 images per instruction, and widens them before they could overflow (16 · 15 · 127 < 2¹⁵).

**Cost.**  d/2 + 4 bytes per image (188 for vectors of 368 and more dimensions) and one R; a query reads all codes once,
20 ms for a million images and one core.  Deviation from product quantisation (Jégou et al. 2011), which looks numbers
up in tables: gathers are what a compiled loop without intrinsics does worst.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from patchbag.runtime import parallel_njit

BYTES = 184
STEP = 0.335
LANES = 256
GROUP = 8  # bytes whose products fit into 16 bits
SAMPLE = 16_384
ROUNDS = 4
CHUNK = 4096
CANDIDATES = 200
NAMES = ("rotation", "codes", "scales")


@parallel_njit()
def _scan(codes: Any, low: Any, high: Any, out: Any) -> None:
    """Σ_j c_j q_j of all ``codes (blocks, bytes, LANES)``; ``low``, ``high (bytes,)`` int16 of even and odd axes."""
    blocks, width, lanes = codes.shape
    for block in numba.prange(blocks):
        total = np.zeros(lanes, np.int32)
        part = np.empty(lanes, np.int16)
        for start in range(0, width, GROUP):
            part[:] = 0
            for j in range(start, min(start + GROUP, width)):
                column, a, b = codes[block, j], low[j], high[j]
                for i in range(lanes):
                    first = np.int16(np.int16(column[i] & np.uint8(15)) * a)
                    second = np.int16(np.int16(column[i] >> np.uint8(4)) * b)
                    part[i] = np.int16(part[i] + first + second)
            for i in range(lanes):
                total[i] += part[i]
        for i in range(lanes):
            out[block, i] = total[i]


def _announce(vectors: np.ndarray, rows: np.ndarray) -> None:
    """Tell the system which rows of a mapped file will be read, so that it reads them all at once."""
    if not isinstance(vectors, np.memmap) or not isinstance(vectors.base, mmap.mmap):
        return
    if not hasattr(mmap, "MADV_WILLNEED"):
        return
    ahead = vectors.offset % mmap.ALLOCATIONGRANULARITY  # where the array begins in what is mapped
    for row in rows.tolist():
        start = ahead + row * vectors.strides[0]
        aligned = start - start % mmap.PAGESIZE
        vectors.base.madvise(mmap.MADV_WILLNEED, aligned, start + vectors.strides[0] - aligned)


def leading_span(x: np.ndarray, d: int) -> np.ndarray:
    """Orthonormal columns (D, d) that span the leading principal axes of ``x (n, D)``, about the origin, turned."""
    rng = np.random.default_rng(0)
    if d >= x.shape[1]:  # nothing to leave out: x R Rᵀ = x
        return np.linalg.qr(rng.normal(size=(d, d)))[0][: x.shape[1]].astype(np.float32)
    basis = rng.normal(size=(x.shape[1], d)).astype(np.float32)
    for _ in range(ROUNDS):
        basis = np.linalg.qr(x.T @ (x @ basis))[0]
    return basis @ np.linalg.qr(rng.normal(size=(d, d)))[0].astype(np.float32)


@dataclass(frozen=True)
class CompressedVectors:
    """Codes of n vectors.

    ``rotation (D, d)``, ``codes (blocks, d / 2, LANES)`` bytes, filled up with zeros, and ``scales (n,)``.

    >>> x = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    >>> CompressedVectors.fit(x).search(x[7], x, 1)[0]
    array([7])
    """

    rotation: np.ndarray
    codes: np.ndarray
    scales: np.ndarray

    @classmethod
    def fit(cls, vectors: np.ndarray) -> CompressedVectors:
        """Codes of ``vectors (n, D)``, which may be mapped from a file."""
        n, width = vectors.shape
        sample = np.asarray(vectors[np.linspace(0, n - 1, min(n, SAMPLE)).astype(int)], np.float32)
        rotation = leading_span(sample, min(2 * BYTES, width + width % 2))
        nothing = cls(rotation, np.empty((0, rotation.shape[1] // 2, LANES), np.uint8), np.empty(0, np.float32))
        return nothing.renewed(np.full(n, -1), vectors)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> CompressedVectors | None:
        """Codes from the arrays of an index file; None where it has none."""
        return cls(*(arrays[name] for name in NAMES)) if all(name in arrays for name in NAMES) else None

    def arrays(self) -> dict[str, np.ndarray]:
        return dict(zip(NAMES, (self.rotation, self.codes, self.scales)))

    def __len__(self) -> int:
        return len(self.scales)

    @property
    def nbytes(self) -> int:
        return self.rotation.nbytes + self.codes.nbytes + self.scales.nbytes

    def renewed(self, rows: np.ndarray, vectors: np.ndarray) -> CompressedVectors:
        """Codes of other ``vectors (n, D)`` under the same axes: those at ``rows (n,)``, made anew where it is -1."""
        n, half = len(rows), self.codes.shape[1]
        codes, scales = np.zeros((-(-n // LANES) * LANES, half), np.uint8), np.empty(n, np.float32)
        known, new = np.flatnonzero(rows >= 0), np.flatnonzero(rows < 0)
        codes[known] = self.codes[rows[known] // LANES, :, rows[known] % LANES]
        scales[known] = self.scales[rows[known]]
        for start in range(0, len(new), CHUNK):
            chunk = new[start : start + CHUNK]
            codes[chunk], scales[chunk] = self._encode(np.asarray(vectors[chunk], np.float32))
        blocks = np.ascontiguousarray(codes.reshape(-1, LANES, half).swapaxes(1, 2))
        return CompressedVectors(self.rotation, blocks, scales)

    def _encode(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = x @ self.rotation
        squares = np.einsum("ij,ij->i", y, y)
        step = STEP * np.sqrt(np.maximum(squares, 1e-30) / y.shape[1])[:, None]
        levels = np.clip(np.floor(y / step) + 8, 0, 15)
        along = np.einsum("ij,ij->i", levels - np.float32(7.5), y)
        codes = levels.astype(np.uint8)
        return codes[:, ::2] | codes[:, 1::2] << 4, np.where(squares > 0, squares / np.where(along > 0, along, 1), 0)

    def estimate(self, query: np.ndarray) -> np.ndarray:
        """Approximate inner products (n,) of all vectors with ``query (D,)``, float32."""
        y = np.asarray(query, np.float32) @ self.rotation
        unit = max(float(np.abs(y).max()), 1e-30) / 127
        rounded = np.rint(y / unit).astype(np.int16)
        sums = np.empty(self.codes.shape[::2], np.int32)
        _scan(self.codes, np.ascontiguousarray(rounded[::2]), np.ascontiguousarray(rounded[1::2]), sums)
        centre = 7.5 * float(rounded.sum(dtype=np.int64))
        return (sums.reshape(-1)[: len(self)] - np.float32(centre)) * (self.scales * np.float32(unit))

    def search(self, query: np.ndarray, vectors: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the n vectors with the largest products, and the products, largest first; few ``vectors`` are read.

        >>> x = np.eye(4, dtype=np.float32)
        >>> CompressedVectors.fit(x).search(x[2], x, 1)
        (array([2]), array([1.], dtype=float32))
        """
        estimates = self.estimate(query)
        wanted = min(max(CANDIDATES, 2 * n), len(self))
        rows = np.sort(np.argpartition(-estimates, wanted - 1)[:wanted])  # in the order of the file
        _announce(vectors, rows)
        products = np.asarray(vectors[rows], np.float32) @ np.asarray(query, np.float32)
        best = np.argsort(-products, kind="stable")[:n]
        return rows[best], products[best]
