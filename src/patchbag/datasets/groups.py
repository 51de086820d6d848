# SPDX-License-Identifier: BSD-3-Clause
"""Collections of groups of images of the same thing: UKBench and Holidays, whose file names say the group.

* ``"ukbench"`` (Nistér & Stewénius 2006, piro2010's "Nister"): ``ukbench00000.jpg`` and on, four in a row are of the
  same object; every image is a query.
* ``"holidays"`` (Jégou et al. 2008): ``100000.jpg``, ``100001.jpg``, …; the last two digits count the images of a
  group, of which the first (00) is the query; for the other queries it is an image as any other.

``patchbag.metrics`` has their figures: ``top_four_score`` and ``mean_average_precision(..., rule="holidays")``.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from patchbag.collection.folder import CollectionError, scan

LAYOUTS = {"ukbench": (re.compile(r"ukbench(\d{5})\.\w+$"), 4, 0), "holidays": (re.compile(r"(\d{6})\.\w+$"), 100, 1)}


@dataclass(frozen=True)
class GroupedImages:
    """Paths of n images, the group ``(n,)`` of each, and the rows that are queries."""

    paths: list[str]
    groups: np.ndarray
    queries: np.ndarray


def open_groups(folder: str | os.PathLike[str], layout: str) -> GroupedImages:
    """The images of a folder in that layout, by their numbers; CollectionError where names are others."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    pattern, size, only_first = LAYOUTS[layout]
    names, _ = scan(Path(folder))
    numbered = sorted((int(found[1]), name) for name in names if (found := pattern.search(os.path.basename(name))))
    if not numbered:
        example = "ukbench00000.jpg" if layout == "ukbench" else "100000.jpg"
        raise CollectionError(f"{folder} holds no images in the layout of {layout}, such as {example}")
    numbers = np.array([number for number, _ in numbered])
    groups = numbers // size
    _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
    asked = counts[inverse] > 1  # a group of one has nothing to find
    if only_first:
        asked &= numbers % size == 0
    return GroupedImages([str(Path(folder) / name) for _, name in numbered], groups, np.flatnonzero(asked))
