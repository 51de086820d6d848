# SPDX-License-Identifier: BSD-3-Clause
"""Indices of neighbours on disk: a folder of ``.npy`` files, mapped into memory when opened, and a manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "patchbag-neighbors"
VERSION = 1
MANIFEST = "neighbors.json"


def save_index(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], manifest: dict[str, Any]) -> Path:
    """Write arrays and a manifest to the folder ``path``; the manifest comes last, so that half a folder is none."""
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    parts = {name: path / f".{name}.npy.{os.getpid()}.partial" for name in arrays}
    try:
        for name, part in parts.items():
            with part.open("wb") as file:
                np.save(file, np.ascontiguousarray(arrays[name]), allow_pickle=False)
        (path / MANIFEST).unlink(missing_ok=True)
        for old in path.glob("*.npy"):
            old.unlink()
        for name, part in parts.items():
            part.replace(path / f"{name}.npy")
        text = json.dumps({"format": FORMAT, "version": VERSION, "arrays": sorted(arrays), **manifest})
        part = path / f".{MANIFEST}.{os.getpid()}.partial"
        part.write_text(text)
        part.replace(path / MANIFEST)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return path


def open_index(path: str | os.PathLike[str], memory_map: bool = True) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays, mapped from disk, and manifest of an index; ValueError says what is wrong with any other folder."""
    path = Path(path)
    try:
        manifest = json.loads((path / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a folder written by BregmanNeighbors.save (no readable {MANIFEST})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{path} is not a folder written by BregmanNeighbors.save ({MANIFEST} is of something else)")
    if manifest.get("version") != VERSION:
        raise ValueError(f"{path} has index format version {manifest.get('version')}, this patchbag reads {VERSION}")
    arrays = {}
    for name in manifest["arrays"]:
        file = path / f"{name}.npy"
        try:
            # copy on write: the file is never changed, and compiled loops take the arrays for ordinary ones
            arrays[name] = np.load(file, mmap_mode="c" if memory_map else None, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"{file} is missing or damaged: {error}") from error
    return arrays, manifest
