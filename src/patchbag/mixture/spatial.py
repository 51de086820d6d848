# SPDX-License-Identifier: BSD-3-Clause
"""Spatial pyramids: the same statistics, kept apart by where in the image they come from.

A pyramid is a list of grids, rows × columns: ``["1x1", "2x2", "3x1"]`` is the whole image, its quarters and three
horizontal bands, eight cells in all (cinbis2012, section 5; Lazebnik et al. 2006 use 1x1, 2x2, 4x4).

Statistics add, so they are collected once, in *atoms*: the pieces into which all grids together cut the image.  Every
cell of every grid is a union of atoms.  A descriptor on a border belongs to the cell right of it or below it.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, device

from patchbag.storage.declared import Choice, Declared, Many

MOST_CELLS = 4096  # of all grids together, and of the pieces that they cut an image into


def parse_grid(grid: str) -> tuple[int, int]:
    """``"3x1"`` → (3, 1): rows, columns."""
    match = re.fullmatch(r"\s*(\d+)\s*[x×]\s*(\d+)\s*", str(grid))
    if match is None or "0" in match.groups():
        raise ValueError(f"a pyramid level is written rows x columns, such as '2x2' or '3x1', got {grid!r}")
    return int(match[1]), int(match[2])


def _cuts(counts: Sequence[int]) -> list[Fraction]:
    return sorted({Fraction(i, n) for n in counts for i in range(1, n)})


class SpatialPyramid:
    """Cells of a list of grids.

    >>> pyramid = SpatialPyramid(["1x1", "2x2", "3x1"])
    >>> pyramid.n_cells, pyramid.n_atoms, pyramid.membership.sum(axis=1).astype(int).tolist()
    (8, 8, [8, 2, 2, 2, 2, 2, 4, 2])
    """

    _stored: ClassVar[dict[str, Declared]] = {
        "grids": Many(Choice(), low=1),
    }

    def __init__(self, grids: Sequence[str]) -> None:
        if isinstance(grids, str) or not len(grids):
            raise ValueError(f"a pyramid is a list of grids such as ['1x1', '2x2'], got {grids!r}")
        self.grids = [parse_grid(g) for g in grids]
        lines = sum(rows for rows, _ in self.grids) * sum(columns for _, columns in self.grids)
        if max(lines, sum(rows * columns for rows, columns in self.grids)) > MOST_CELLS:
            shown = ", ".join(map(str, grids[:4])) + (", …" if len(grids) > 4 else "")
            raise ValueError(f"the grids {shown} cut an image into more than {MOST_CELLS} pieces")
        self._row_cuts = _cuts([rows for rows, _ in self.grids])
        self._column_cuts = _cuts([columns for _, columns in self.grids])
        self.n_columns = len(self._column_cuts) + 1
        self.n_atoms = (len(self._row_cuts) + 1) * self.n_columns
        self.n_cells = sum(rows * columns for rows, columns in self.grids)
        self.membership = self._membership()

    def _membership(self) -> np.ndarray:
        """(n_cells, n_atoms): which atoms make up a cell, grids in order and cells row by row."""
        row_middles, column_middles = _middles(self._row_cuts), _middles(self._column_cuts)
        table = []
        for rows, columns in self.grids:
            for r in range(rows):
                in_row = [Fraction(r, rows) < y < Fraction(r + 1, rows) for y in row_middles]
                for c in range(columns):
                    in_column = [Fraction(c, columns) < x < Fraction(c + 1, columns) for x in column_middles]
                    table.append(np.outer(in_row, in_column).ravel())
        return np.array(table, dtype=np.float64)

    def stored_parameters(self) -> dict[str, list[str]]:
        """What a model file stores of a pyramid (see storage)."""
        return {"grids": [f"{rows}x{columns}" for rows, columns in self.grids]}

    def assign(self, positions: Any) -> Any:
        """(total,) atom of each patch centre (x, y) in [0, 1]²."""
        xp = array_namespace(positions)
        if not bool(xp.all((positions >= 0) & (positions <= 1))):  # NaN is neither
            raise ValueError(
                "patch positions must lie in [0, 1]: divide pixel coordinates by the image's width and height"
            )
        double = xp.astype(positions, xp.float64)
        found = []
        for i, cuts in enumerate((self._column_cuts, self._row_cuts)):
            edges = xp.asarray(np.array(cuts, float), device=device(double))
            found.append(xp.searchsorted(edges, xp.asarray(double[:, i], copy=True), side="right"))
        column, row = found
        return row * self.n_columns + column


def _middles(cuts: list[Fraction]) -> list[Fraction]:
    edges = [Fraction(0), *cuts, Fraction(1)]
    return [(a + b) / 2 for a, b in pairwise(edges)]
