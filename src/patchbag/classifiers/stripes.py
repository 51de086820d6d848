# SPDX-License-Identifier: BSD-3-Clause
"""Rows of more vectors than memory, in random order and yet read in long pieces.

A stripe is a run of neighbouring rows that is read at once: ``STRIPE`` rows of an array or a file, a chunk of vectors
in a Zarr array.  ``bounds (s + 1,)`` says where each begins.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from patchbag.encodings.stored import StoredVectors

STRIPE = 64  # neighbouring rows that are read together
CHUNK = 32  # stripes
FEW = 100  # stripes of which single rows may be drawn


def stripes(bounds: np.ndarray, random: Any) -> Iterator[np.ndarray]:
    """All rows once, in chunks of stripes of neighbouring rows from all over the data; each in random order."""
    order = random.permutation(len(bounds) - 1)
    for first in range(0, len(order), CHUNK):
        yield rows_of(bounds, np.sort(order[first : first + CHUNK]))


def rows_of(bounds: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Rows of the stripes ``chosen``; stripe i goes from ``bounds[i]`` up to the next."""
    return np.concatenate([np.arange(bounds[i], bounds[i + 1]) for i in chosen])


def bounds_of(X: Any) -> np.ndarray:
    """Those of X: the chunks of stored vectors, else ``STRIPE`` rows."""
    n = X.shape[0]
    return X.bounds() if isinstance(X, StoredVectors) else np.append(np.arange(0, n, STRIPE), n)


def sample_rows(X: Any, size: int, random: Any) -> np.ndarray:
    """About ``size`` random rows, rising; of many stored vectors whole stripes, or nearly all would be read."""
    bounds = bounds_of(X)
    if not isinstance(X, StoredVectors) or len(bounds) <= FEW:
        return np.sort(random.permutation(X.shape[0])[:size])
    order = random.permutation(len(bounds) - 1)
    enough = int(np.searchsorted(np.cumsum(np.diff(bounds)[order]), size)) + 1
    return rows_of(bounds, np.sort(order[:enough]))
