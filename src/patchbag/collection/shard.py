# SPDX-License-Identifier: BSD-3-Clause
"""A shard of the store: two files to which the descriptors of images are appended, image after image.

Rows that were written once are never changed, so a map of them stays good, even of files that are deleted (where the
system allows that).
"""

import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from patchbag.collection.files import file_status

POSITIONS = np.dtype(np.float32)
DTYPES = tuple(np.dtype(code).name for code in "?efdbhiqBHIQ")

Images = Mapping[bytes, Sequence[np.ndarray]]  # values and positions by digest


class Entry(NamedTuple):
    """Which rows of a shard describe an image."""

    first: int
    size: int
    crc: int

    def inside(self, rows: int) -> bool:
        """Whether the entry lies within so many rows; in a forged index it may not."""
        return self.first >= 0 and self.size >= 0 and self.first + self.size <= rows

    def rows(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [array[self.first : self.first + self.size] for array in arrays]


def checksum(key: str, digest: bytes, arrays: Iterable[np.ndarray]) -> int:
    """CRC-32 of the key (feature and image) and of the arrays stored under it."""
    start = zlib.crc32(key.encode() + digest)
    return reduce(lambda crc, array: zlib.crc32(np.ascontiguousarray(array).data, crc), arrays, start)


class Shard(NamedTuple):
    """What the index knows of a shard: the rows that count, and what its files were like when it was last written."""

    store: Path
    id: int
    signature: str
    dtype: str
    dimension: int
    rows: int
    stamp: str

    @property
    def sound(self) -> bool:
        """Whether type, dimension and rows are possible; in a forged index they may not be."""
        return self.dtype in DTYPES and self.dimension >= 1 and self.rows >= 0

    @property
    def place(self) -> Path:
        return self.store / f"shard-{self.id}"

    @property
    def row_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * self.dimension + 2 * POSITIONS.itemsize

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes

    def _files(self) -> list[tuple[Path, np.dtype[Any], int]]:
        values = (self.place / "values.bin", np.dtype(self.dtype), self.dimension)
        return [values, (self.place / "positions.bin", POSITIONS, 2)]

    def create(self) -> Self:
        self.place.mkdir(exist_ok=True)
        for path, _, _ in self._files():
            path.touch()
        return self

    def look(self) -> str:
        """What its files are like now."""
        return repr([file_status(path) for path, _, _ in self._files()])

    def map(self) -> list[np.ndarray]:
        """Values and positions, as many rows as there are."""
        arrays = []
        for path, dtype, width in self._files():
            size, _ = file_status(path) or (0, 0)
            shape = (size // (dtype.itemsize * width), width)
            arrays.append(np.memmap(path, dtype, "r", shape=shape) if shape[0] else np.empty(shape, dtype))
        return arrays

    def append(self, images: Images) -> dict[bytes, Entry]:
        """Write images behind the rows that count, over what may be there, and flush them to the disk."""
        for column, (path, dtype, width) in enumerate(self._files()):
            with path.open("r+b") as file:
                end = self.rows * dtype.itemsize * width
                if file.seek(0, os.SEEK_END) < end:
                    raise OSError(f"{path} is shorter than it was")
                file.seek(end)
                for arrays in images.values():
                    file.write(np.ascontiguousarray(arrays[column]).data)
                file.flush()
                os.fsync(file.fileno())
        sizes = [len(values) for values, _ in images.values()]
        firsts = self.rows + np.cumsum([0, *sizes])
        return {
            digest: Entry(int(first), len(images[digest][0]), checksum(self.signature, digest, images[digest]))
            for digest, first in zip(images, firsts)
        }
