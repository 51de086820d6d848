# SPDX-License-Identifier: BSD-3-Clause
"""Indices of neighbours on disk: a folder of arrays, mapped into memory when opened, and a manifest.

Compiled loops index with these arrays, so that what a folder holds is checked against :data:`ARRAYS` when it is opened.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.storage.array_files import open_arrays, read_manifest, save_arrays
from patchbag.storage.declared import Choice, Declared, Many, check_declared, floats, integer, integers, real, size

FORMAT = "patchbag-neighbors"
VERSION = 1
MANIFEST = "neighbors.json"
INDICES = (np.int32, np.int64)
NODE: dict[str, Any] = {"optional": True, "low": 0}
ARRAYS: dict[str, Declared] = {
    "points.rows": floats("n", "d"),
    "points.vectors": floats("n", "D"),
    "points.bias": floats("n", finite=False),
    "points.mu": floats("D"),
    "points.nu": floats("D"),
    "points.largest": floats("D", low=0),
    "precision": floats("d", "d", optional=True),
    "sample": integers("drawn", optional=True, low=0, below="n"),
    "tree.order": integers("held", optional=True, low=0, below="n"),
    "tree.vectors": floats("held", "D", optional=True),
    "tree.bias": floats("held", optional=True, finite=False),
    "tree.start": integers("nodes", high="held", **NODE),
    "tree.stop": integers("nodes", high="held", **NODE),
    "tree.child": integers("nodes", high="nodes", **NODE),
    "tree.n_children": integers("nodes", high="nodes", **NODE),
    "tree.phi": floats("nodes", "D", optional=True),
    "tree.h": floats("nodes", optional=True),
    "tree.psi": floats("nodes", "D", optional=True),
    "tree.center_bias": floats("nodes", optional=True),
    "tree.inner": floats("nodes", optional=True, finite=False),
    "tree.outer": floats("nodes", optional=True, finite=False),
    "leaves.node": integers("leaves", below="nodes", **NODE),
    "leaves.psi": floats("leaves", "D", optional=True),
    "leaves.bias": floats("leaves", optional=True),
    "leaves.near": floats("leaves", "D", optional=True),
    "leaves.metric": floats("leaves", "D", optional=True),
    "leaves.spread": floats("leaves", optional=True),
    "leaves.blur": floats("leaves", optional=True),
    "graph.edges": integers("held", "degree", optional=True, low=-1, below="held"),
    "graph.bias": floats("held", optional=True, finite=False),
}

FACTS: dict[str, Declared] = {
    "n": size("n"),
    "generator": Choice(),
    "mixing": real(low=0, high=1),
    "smoothing": real(low=0),
    "covered": integer(low=0, high="n"),
    "algorithm": Choice(("brute", "ball", "vantage", "graph", "sample")),
    "costs": Many(real(), "six", optional=True),
    "six": size("six"),
    "two": size("two"),
    "scale": Many(real(low=0), "two"),
}

PLAN: dict[str, Declared] = {
    "n_neighbors": integer(low=1),
    "leaf_size": integer(low=1),
    "branching": integer(low=2),
    "n_iter": integer(low=0),
    "max_leaves": integer(low=1, optional=True),
    "sample": real(low=0, high=1),
    "beam": integer(low=1),
}


def save_index(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], manifest: dict[str, Any]) -> Path:
    """Write arrays and a manifest to the folder ``path``."""
    return save_arrays(Path(path), MANIFEST, arrays, {"format": FORMAT, "version": VERSION, **manifest})


def open_index(path: str | os.PathLike[str], memory_map: bool = True) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays, mapped from disk, and manifest of an index; ValueError says what is wrong with any other folder."""
    path = Path(path)
    manifest = read_manifest(path, MANIFEST, "BregmanNeighbors.save", FORMAT, (VERSION,))
    mode = "c" if memory_map else None
    # copy on write: the file is never changed, and compiled loops take the arrays for ordinary ones.  Slices of memmap
    # objects take as long as a search, those of plain arrays over the same memory do not
    arrays = {name: np.asarray(array) for name, array in open_arrays(path, manifest.get("files"), mode).items()}
    try:
        sizes = check_declared(dict, arrays, {}, {}, ARRAYS)
        check_tree(arrays, sizes)
        for name, array in arrays.items():  # compiled loops are made for some types of indices
            if array.dtype.kind in "iu" and array.dtype not in ((np.int32,) if name == "graph.edges" else INDICES):
                raise ValueError(f"{name} is {array.dtype}, not int32")
        form, state, plan = (manifest.get(name) for name in ("form", "state", "plan"))
        if not (isinstance(form, dict) and isinstance(state, dict) and isinstance(plan, dict)):
            raise ValueError("its manifest does not describe an index")
        check_declared(dict, form | state | {"n": sizes["n"], "six": 6, "two": 2}, {}, {}, FACTS)
        check_declared(dict, plan, {}, {}, PLAN)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {str(error).removeprefix('dict.')}") from None
    return arrays, manifest


def check_tree(arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> None:
    """Raise unless the nodes are a tree: ranges of points that are no more than there are, children behind parents."""
    tree = {name.partition(".")[2]: a for name, a in arrays.items() if name.startswith("tree.")}
    if not tree:
        return
    if len(tree) != sum(name.startswith("tree.") for name in ARRAYS):
        raise ValueError("the tree is not complete")
    if np.isnan(tree["inner"]).any() or np.isnan(tree["outer"]).any():
        raise ValueError("its balls have no radius")
    child, count = tree["child"].astype(np.int64), tree["n_children"].astype(np.int64)
    inner = count > 0
    behind = child[inner] > np.flatnonzero(inner)
    if np.any(tree["start"] > tree["stop"]) or not behind.all() or np.any(child[inner] + count[inner] > sizes["nodes"]):
        raise ValueError("its nodes are not a tree")
    if count.sum() != max(sizes["nodes"] - 1, 0):
        raise ValueError("its nodes are not a tree: one has no parent, or two")
