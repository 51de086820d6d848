# SPDX-License-Identifier: BSD-3-Clause
"""What patches say as a picture: a grid over the image that holds the same sum.

Each patch is shared between the four cells around its centre (bilinear) and blurred by a Gaussian whose tails are
reflected at the borders, so that nothing is lost: the cells add up to what the patches say together.
"""

import numpy as np
from scipy.ndimage import gaussian_filter

BLUR = 0.03  # deviation of the Gaussian, as a part of the longer side


def heat_map(positions: np.ndarray | None, values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Shares of patches on a grid over the image.

    Parameters
    ----------
    positions : (N, 2) centres (x, y) in [0, 1]; None where patches have no place, which then speak for the whole image
    values : (N,) what they say
    shape : (rows, columns)

    Returns
    -------
    (rows, columns) float64, whose sum is that of ``values``
    """
    rows, columns = shape
    values = np.asarray(values, dtype=np.float64)
    if positions is None or len(values) == 1:
        return np.full(shape, values.sum() / (rows * columns))
    grid = np.zeros(shape)
    x = np.clip(np.asarray(positions)[:, 0] * columns - 0.5, 0, columns - 1)
    y = np.clip(np.asarray(positions)[:, 1] * rows - 0.5, 0, rows - 1)
    left, top = np.minimum(x.astype(int), max(columns - 2, 0)), np.minimum(y.astype(int), max(rows - 2, 0))
    right, bottom = np.minimum(left + 1, columns - 1), np.minimum(top + 1, rows - 1)
    across, down = x - left, y - top
    np.add.at(grid, (top, left), values * (1 - across) * (1 - down))
    np.add.at(grid, (top, right), values * across * (1 - down))
    np.add.at(grid, (bottom, left), values * (1 - across) * down)
    np.add.at(grid, (bottom, right), values * across * down)
    return np.asarray(gaussian_filter(grid, BLUR * max(shape), mode="reflect"))
