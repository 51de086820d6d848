# SPDX-License-Identifier: BSD-3-Clause
"""Model files that say what a test wants."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.numpy import save_file

from patchbag.storage import models as storage


def write_tree(path: Path, tree, tensors=None, version: int = 2) -> Path:
    """A file of this tree and these arrays, with the checksum that belongs to them."""
    tensors = tensors or {}
    checksum = storage._checksum(tree, tensors)
    manifest = {"format": storage.FORMAT, "version": version, "model": tree, "checksum": checksum}
    save_file(tensors, path, metadata={storage.FORMAT: json.dumps(manifest)})
    return path
