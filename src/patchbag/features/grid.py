# SPDX-License-Identifier: BSD-3-Clause
"""Regular grids of patches: where dense features look.

A patch is known by its centre c (pixel coordinates, the first pixel's centre is 0) and its *reach* r: it needs the
samples from c - r to c + r, so on an axis of L pixels it fits when r <= c <= L - 1 - r.  One axis of the grid is::

    c_i = r + s + i * step,   i = 0 .. n - 1,   n = floor((L - 1 - 2 r) / step) + 1

where s = floor(left over / 2) puts the grid in the middle of the image instead of against its top left corner.

Several patch sizes share one lattice: the largest reach that fits decides where the lattice lies, and a smaller patch
takes every point of that lattice, extended outwards, at which it fits.  So small patches reach closer to the border,
and wherever a large patch stands, the small ones stand on the same centre.

Positions are centres as fractions of the image, (c + 1/2) / L, x before y: 0 and 1 are the outer edges of the first
and last pixel, so that a spatial cell is found by ``floor(position * cells)`` at any image size.
"""

from collections.abc import Sequence

import numpy as np

from patchbag.images.loading import ImageError


def axis_centres(length: int, step: int, reach: float) -> np.ndarray:
    """Centres of the patches on one axis of ``length`` pixels: (n,) float64, empty if not one patch fits."""
    room = length - 1 - 2 * reach
    if room < 0:
        return np.empty(0)
    count = int(room // step) + 1
    return reach + (room - (count - 1) * step) // 2 + step * np.arange(count)


def lattice(length: int, step: int, reaches: Sequence[float]) -> list[np.ndarray]:
    """Centres on one axis for several patch sizes that share one lattice.

    Returns
    -------
    one (n_i,) float64 array per reach, empty where the patch is larger than the image
    """
    fitting = [reach for reach in reaches if length - 1 - 2 * reach >= 0]
    if not fitting:
        return [np.empty(0) for _ in reaches]
    phase = axis_centres(length, step, max(fitting))[0]
    axes = []
    for reach in reaches:
        first = int(np.ceil((reach - phase) / step))
        last = int(np.floor((length - 1 - reach - phase) / step))
        axes.append(phase + step * np.arange(first, last + 1))
    return axes


def lattices(
    width: int, height: int, step: int, reaches: Sequence[float], option: str
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """:func:`lattice` of both axes, x before y; ImageError, which names the option of the sizes, if not one fits."""
    xs, ys = lattice(width, step, reaches), lattice(height, step, reaches)
    if not any(len(x) * len(y) for x, y in zip(xs, ys)):
        need = int(2 * min(reaches)) + 1
        raise ImageError(
            f"is {width}×{height} pixels, smaller than the smallest patch of {need}×{need} ({option}); "
            "enlarge it or leave it out"
        )
    return xs, ys


def positions(x: np.ndarray, y: np.ndarray, width: int, height: int) -> np.ndarray:
    """Centres of the grid ``y`` × ``x`` as fractions of the image, row after row: (len(y) * len(x), 2) float32."""
    grid = np.empty((len(y), len(x), 2), np.float32)
    grid[..., 0] = (x + 0.5) / width
    grid[..., 1] = ((y + 0.5) / height)[:, None]
    return grid.reshape(-1, 2)
