# SPDX-License-Identifier: BSD-3-Clause
"""Bags on disk: a folder of arrays that are mapped into memory when opened, and a manifest (see ``array_files``)."""

from pathlib import Path
from typing import Any

import numpy as np

from patchbag.storage.array_files import open_arrays, read_manifest, save_arrays

FORMAT = "patchbag-bags"
FORMAT_VERSION = 2
MANIFEST = "bags.json"


def save_bags(path: str | Path, values: Any, offsets: np.ndarray, positions: Any) -> Path:
    """Write the arrays of bags to the folder ``path``; bags may be saved onto the folder that they are mapped from."""
    arrays = {"values": values, "offsets": offsets} | ({} if positions is None else {"positions": positions})
    manifest = {"format": FORMAT, "version": FORMAT_VERSION, "n": len(offsets) - 1, "positions": positions is not None}
    return save_arrays(Path(path), MANIFEST, arrays, manifest)


def open_bags(path: str | Path, memory_map: bool = True) -> tuple[Any, np.ndarray, Any]:
    """Values, offsets and positions of saved bags; descriptors stay on disk unless ``memory_map=False``."""
    path = Path(path)
    manifest = read_manifest(path, MANIFEST, "Bags.save", FORMAT, (1, FORMAT_VERSION))
    names = ("values", "offsets", "positions") if manifest.get("positions") else ("values", "offsets")
    files = manifest.get("files", {name: f"{name}.npy" for name in names})
    arrays = open_arrays(path, files, "r" if memory_map else None)
    if not {"values", "offsets"} <= arrays.keys():
        raise ValueError(f"{path}: its manifest does not name values and offsets")
    if arrays["values"].dtype.kind not in "fiub" or arrays["offsets"].dtype.kind not in "iu":
        raise ValueError(f"{path}: its arrays are not numbers")
    return arrays["values"], np.array(arrays["offsets"]), arrays.get("positions")
