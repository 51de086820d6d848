# SPDX-License-Identifier: BSD-3-Clause
r"""The nearest neighbours of every image by the cosine of their vectors, exactly, without an n × n matrix.

Rows are taken in blocks of ``ROWS`` and columns in tiles of ``COLUMNS``; each tile of cosines is one float32 matrix
product, from which a compiled loop keeps the k largest of every row before the next tile overwrites it.  A value that
is no larger than the smallest one kept costs one comparison, so that the products take most of the time: 2 n² d
operations, 4 · ROWS · COLUMNS bytes per worker.

**Hubs.**  In many dimensions a few images are among the nearest neighbours of very many others, whatever these show,
and a graph built on them joins classes.  Half of an image's own mean cosine to its ``HUB`` nearest neighbours is
therefore taken off before neighbours are chosen (cross-domain similarity local scaling, Conneau et al. 2018)::

    rank_i(j) = cos(i, j) - r_j / 2,      r_j = mean of the HUB largest cosines of j

(the term r_i of the published form is the same for all j).  Neighbours are chosen so among the ``WIDER`` · k nearest by
cosine; a second pass over all pairs finds almost the same.
"""

from functools import partial
from typing import Any

import numba
import numpy as np

from patchbag.runtime import parallel_map

ROWS = 512
COLUMNS = 4096
HUB = 10
WIDER = 3


@numba.njit(cache=True, nogil=True)
def _keep_largest(tile: Any, first_row: int, first_column: int, values: Any, indices: Any) -> None:
    """Insert a tile of cosines (r, c) into the k largest of each row, ``values`` and ``indices (r, k)``, descending.

    An image is not its own neighbour; ``first_row`` is -1 where the rows are no images of the pool.
    """
    k = values.shape[1]
    for i in range(tile.shape[0]):
        own = first_row + i - first_column if first_row >= 0 else -1
        least = values[i, k - 1]
        for j in range(tile.shape[1]):
            value = tile[i, j]
            if value > least and j != own:
                at = k - 1
                while at > 0 and values[i, at - 1] < value:
                    values[i, at] = values[i, at - 1]
                    indices[i, at] = indices[i, at - 1]
                    at -= 1
                values[i, at] = value
                indices[i, at] = first_column + j
                least = values[i, k - 1]


def _nearest_of_block(
    vectors: np.ndarray, n: int, within: bool, job: tuple[int, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    start, rows = job
    values = np.full((len(rows), n), -np.inf, np.float32)
    indices = np.full((len(rows), n), -1, np.int64)
    for first in range(0, len(vectors), COLUMNS):
        tile = rows @ vectors[first : first + COLUMNS].T
        _keep_largest(tile, start if within else -1, first, values, indices)
    return indices, values


def nearest(
    vectors: np.ndarray, n: int, queries: np.ndarray | None = None, n_jobs: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The n nearest images of each by cosine, itself left out.

    Parameters
    ----------
    vectors : (N, d) float32, of unit length
    n : at most N - 1, or N with ``queries``
    queries : (M, d), vectors of other images whose neighbours are wanted (default: the images themselves)

    Returns
    -------
    indices (M, n) and cosines (M, n), largest first; of equal cosines the image that comes first in the pool
    """
    within = queries is None
    rows = vectors if queries is None else queries
    jobs = [(start, rows[start : start + ROWS]) for start in range(0, len(rows), ROWS)]
    parts = list(parallel_map(partial(_nearest_of_block, vectors, n, within), jobs, n_jobs))
    return np.vstack([indices for indices, _ in parts]), np.vstack([cosines for _, cosines in parts])


def hubness(cosines: np.ndarray) -> np.ndarray:
    """(N,) mean cosine of each image to its ``HUB`` nearest neighbours, from ``cosines (N, k)``, largest first."""
    return np.asarray(cosines[:, :HUB].mean(axis=1), dtype=np.float32)


def without_hubs(indices: np.ndarray, cosines: np.ndarray, hub: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n of the neighbours ``indices (M, k)`` with the largest cosine after half the ``hub (N,)`` of each is taken
    off, and their cosines.
    """
    order = np.argsort(-(cosines - hub[indices] / 2), axis=1, kind="stable")[:, :n]
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(cosines, order, axis=1)
