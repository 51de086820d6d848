# SPDX-License-Identifier: BSD-3-Clause
"""Bags on disk: a folder of ``.npy`` files that are mapped into memory when opened, and a manifest."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "patchbag-bags"
FORMAT_VERSION = 1


def save_bags(path: str | Path, values: Any, offsets: np.ndarray, positions: Any) -> Path:
    """Write the arrays of bags to the folder ``path`` (created; an existing bag folder is replaced).

    Everything is written under other names first and then renamed: bags may be saved onto the folder that they are
    mapped from, and a save that is interrupted while it writes leaves the old bags as they were.
    """
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    manifest = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "n": len(offsets) - 1,
        "positions": positions is not None,
    }
    arrays = {"values.npy": values, "offsets.npy": offsets, "positions.npy": positions}
    parts = {name: path / f".{name}.{os.getpid()}.partial" for name in (*arrays, "bags.json")}
    try:
        for name, array in arrays.items():
            if array is not None:
                with parts[name].open("wb") as file:
                    np.save(file, np.asarray(array), allow_pickle=False)
        parts["bags.json"].write_text(json.dumps(manifest))
        # absent during the renames and put back last: old and new arrays are never opened together
        (path / "bags.json").unlink(missing_ok=True)
        for name, part in parts.items():
            if arrays.get(name, part) is None:
                (path / name).unlink(missing_ok=True)
            else:
                part.replace(path / name)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return path


def open_bags(path: str | Path, memory_map: bool = True) -> tuple[Any, np.ndarray, Any]:
    """Values, offsets and positions of saved bags; descriptors stay on disk unless ``memory_map=False``."""
    path = Path(path)
    try:
        manifest = json.loads((path / "bags.json").read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a folder written by Bags.save (no readable bags.json)") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{path} is not a folder written by Bags.save (bags.json says {manifest!r:.60})")
    if manifest.get("version") != FORMAT_VERSION:
        raise ValueError(
            f"{path} has bag format version {manifest.get('version')}, this patchbag reads {FORMAT_VERSION}"
        )

    def load(name: str) -> Any:
        try:
            return np.load(path / name, mmap_mode="r" if memory_map else None, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path / name} is missing or damaged: {error}") from error

    positions = load("positions.npy") if manifest["positions"] else None
    return load("values.npy"), np.array(load("offsets.npy")), positions
