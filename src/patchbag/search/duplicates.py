# SPDX-License-Identifier: BSD-3-Clause
"""Near-duplicates: copies of a picture that were resized, compressed, recoloured or cropped.

1. **The same bytes** are the same picture; digests of the index tell.
2. **Candidates** are the ``NEIGHBOURS`` nearest images of each by the vectors of the index, no farther than
   ``FARTHEST``: these find copies, but also other pictures of the same thing.
3. **Proof** (:mod:`patchbag.search.geometry`).  Two pictures are copies if they agree as they lie on each other, or
   after local features have aligned them; agreement is the correlation of grey levels, as a whole and in parts, in
   which colours and light count little and places count much.

Copies of copies are copies: what is joined is one group, and pairs inside of a group are not looked at again.

The thresholds were chosen on copies of images of Caltech-101 and Scene-15, and on a few series of shots in COREL.

**Cost.**  One product of all vectors with all, then each image is looked at once and each candidate pair compared.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from patchbag.images.loading import ImageError
from patchbag.runtime import parallel_map
from patchbag.search.folder_index import FolderIndex
from patchbag.search.geometry import Picture, align, lie_as_they_are, look

NEIGHBOURS = 12
FARTHEST = 0.8
AGREE = 0.85
SHARED = 0.8  # of the smaller picture must lie in the overlap
STRETCH = 1.1  # by which the shapes of whole pictures may differ
BLOCK = 512
KEPT = 8192  # pictures that are held, at 60 kB each

Kind = Literal["identical", "whole", "part"]


@dataclass(frozen=True)
class Pair:
    """Two images that are copies: rows of the index, how they are related, and how well they agree (at most 1)."""

    first: int
    second: int
    kind: Kind
    agreement: float


def compare_pictures(a: Picture, b: Picture) -> tuple[Kind, float] | None:
    """Whether two pictures are copies: how, and how well they agree; None where they are not."""
    shapes = (a.grey.shape[0] * b.grey.shape[1]) / (a.grey.shape[1] * b.grey.shape[0])
    if 1 / STRETCH <= shapes <= STRETCH and (whole := lie_as_they_are(a, b)) >= AGREE:
        return "whole", whole
    found = align(a, b)
    return ("part", found.agreement) if found.agreement >= AGREE and found.overlap >= SHARED else None


def candidates(vectors: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of rows i < j that are near each other, nearest first."""
    found: dict[tuple[int, int], float] = {}
    count = min(NEIGHBOURS, len(vectors) - 1)
    if count < 1:
        return []
    vectors = np.asarray(vectors)
    for start in range(0, len(vectors), BLOCK):
        cosines = vectors[start : start + BLOCK] @ vectors.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -np.inf
        best = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        for i, columns in enumerate(best):
            for j in columns.tolist():
                if cosines[i, j] >= 1 - FARTHEST:
                    found[min(start + i, j), max(start + i, j)] = float(cosines[i, j])
    return sorted(found, key=lambda pair: -found[pair])


def find_duplicates(
    index: FolderIndex, progress: Callable[[int, int], None] | None = None
) -> tuple[list[list[int]], list[Pair]]:
    """Groups of rows of an index that are copies of each other, and the pairs that prove it."""
    from scipy.cluster.hierarchy import DisjointSet  # which a page need not wait for when it starts

    joined, pairs = DisjointSet(range(len(index))), []
    first: dict[bytes, int] = {}
    for row, digest in enumerate(index.digests):
        before = first.setdefault(digest, row)
        if before != row:
            joined.merge(before, row)
            pairs.append(Pair(before, row, "identical", 1.0))
    paths = index.paths
    see = lru_cache(maxsize=KEPT)(lambda row: _look(paths[row]))
    possible = candidates(index.vectors)
    for start in range(0, len(possible), BLOCK):
        block = [(i, j) for i, j in possible[start : start + BLOCK] if not joined.connected(i, j)]
        for (i, j), found in zip(block, parallel_map(partial(_judge, see), block, index.n_jobs, near=True)):
            if found is not None:
                joined.merge(i, j)
                pairs.append(Pair(i, j, *found))
        if progress is not None:
            progress(min(start + BLOCK, len(possible)), len(possible))
    return sorted(sorted(group) for group in joined.subsets() if len(group) > 1), pairs


def _judge(see: Callable[[int], Picture | None], pair: tuple[int, int]) -> tuple[Kind, float] | None:
    a, b = (see(row) for row in pair)
    return None if a is None or b is None else compare_pictures(a, b)


def _look(path: Any) -> Picture | None:
    try:
        return look(path)
    except ImageError:  # it was there when the index was made
        return None
