# SPDX-License-Identifier: BSD-3-Clause
"""The file of an index: what is known of a folder's images, and their vectors, mapped into memory.

**Layout** is that of safetensors (8 bytes for the length of the header, a JSON header, arrays), so that any reader of
that format opens it; the ``__metadata__`` of the header has one entry, a JSON object with its CRC-32::

    {"folder": …, "by": …, "signature": …, "names": […], "failures": {name: [size, time, message]}, …}

Arrays: ``status (n, 2)`` size and time of each file, ``digests (n, 20)`` of their bytes, ``vectors (n, d)`` float32,
and what turns a new image's encoding into a vector (see :mod:`patchbag.search.axes`).

**Safe.**  A file is written beside the one it replaces, brought to the disk, and put in its place by one rename:
whoever is killed at any moment leaves the old index or the new one.  Of two that write at a time the last one stays.  A
file that is cut off or whose header is damaged counts as none, and the index is built again from the stored features.

An index is 4 d bytes per image, 50 MB for 10,000 images of 1,280 numbers, and is written whole.
"""

import json
import os
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.storage.replacing import replacing

FORMAT = "patchbag-index"
VERSION = 1
DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "U8": np.uint8}
ALIGNMENT = 64  # bytes, so that mapped arrays are as fast as others
FORGOTTEN = 3600.0  # seconds after which a file that was never finished is removed


def write_index(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Replace the file by another one with these facts and arrays, in one step."""
    text = json.dumps({"format": FORMAT, "version": VERSION, **facts})
    header: dict[str, Any] = {"__metadata__": {FORMAT: text, "crc": str(zlib.crc32(text.encode()))}}
    kinds = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    end = 0
    for name, array in arrays.items():
        header[name] = {"dtype": kinds[array.dtype], "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-(8 + len(head)) % ALIGNMENT)
    with replacing(path) as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data)
    for left in path.parent.glob(".*.partial"):
        try:
            if left.stat().st_mtime < time.time() - FORGOTTEN:
                left.unlink()
        except OSError:  # another process was faster
            continue


def read_index(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Facts and arrays of a file, the arrays mapped; None where there is none, or none that is whole."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            size = os.fstat(file.fileno()).st_size
            if length > size - 8:
                return None
            header = json.loads(file.read(length))
        metadata = header.pop("__metadata__")
        text = metadata[FORMAT]
        facts = json.loads(text)
        if str(zlib.crc32(text.encode())) != metadata["crc"] or facts["version"] != VERSION:
            return None
        if max((entry["data_offsets"][1] for entry in header.values()), default=0) != size - 8 - length:
            return None
        return facts, {name: _map(path, 8 + length, entry) for name, entry in header.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        return None


def _map(path: Path, base: int, entry: dict[str, Any]) -> np.ndarray:
    shape = tuple(entry["shape"])
    if not np.prod(shape):
        return np.empty(shape, DTYPES[entry["dtype"]])
    return np.memmap(path, DTYPES[entry["dtype"]], "r", offset=base + entry["data_offsets"][0], shape=shape)
