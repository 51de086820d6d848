# SPDX-License-Identifier: BSD-3-Clause
"""Arrays on disk: a folder of ``.npy`` files that are mapped into memory when opened, and a manifest that names them.

The arrays of a save have names of their own, ``values-3f9c.npy``, and come to count when the manifest that names them
takes the place of the old one: a save that is killed at any moment leaves the old arrays or the new ones, also where
they are saved onto the folder that they are mapped from.  What no manifest names is removed by the next save.
"""

import json
import re
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.storage.replacing import locked, replacing

FILE = re.compile(r"[\w.]+?(-[0-9a-f]{8})?\.npy")


def save_arrays(path: Path, name: str, arrays: Mapping[str, Any], manifest: Mapping[str, Any]) -> Path:
    """Write arrays and the manifest ``name`` to the folder ``path``, which is made, or whose arrays are replaced."""
    path.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    files = {key: f"{key}-{token}.npy" for key in arrays}
    with locked(path):
        try:
            for key, file_name in files.items():
                with replacing(path / file_name) as file:
                    np.save(file, np.asarray(arrays[key]), allow_pickle=False)
            with replacing(path / name, text=True) as file:
                json.dump({**manifest, "files": files}, file)
        except BaseException:
            for file_name in files.values():
                (path / file_name).unlink(missing_ok=True)
            raise
        for old in path.iterdir():
            if FILE.fullmatch(old.name) and old.name not in files.values():
                old.unlink(missing_ok=True)
    return path


def read_manifest(path: Path, name: str, writer: str, form: str, versions: Collection[int]) -> dict[str, Any]:
    """The manifest ``name`` of a folder; ValueError unless ``writer`` wrote it, in one of the versions."""
    try:
        manifest = json.loads((path / name).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a folder written by {writer} (no readable {name})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != form:
        raise ValueError(f"{path} is not a folder written by {writer} ({name} says {manifest!r:.60})")
    if (version := manifest.get("version")) not in versions:
        raise ValueError(f"{path} has format version {version}, this patchbag reads up to {max(versions)}")
    return manifest


def open_arrays(path: Path, files: Any, mode: Any) -> dict[str, np.ndarray]:
    """The arrays that a manifest names, mapped in a mode of ``numpy.load``; ValueError says which one is damaged."""
    if not isinstance(files, dict) or not all(isinstance(f, str) and FILE.fullmatch(f) for f in files.values()):
        raise ValueError(f"{path}: its manifest does not name its arrays")
    arrays = {}
    for key, name in files.items():
        try:
            arrays[key] = np.load(path / name, mmap_mode=mode, allow_pickle=False)
        except (OSError, ValueError, EOFError, SyntaxError, TypeError, OverflowError, MemoryError) as error:
            raise ValueError(f"{path / name} is missing or damaged: {error}") from error
    return arrays
