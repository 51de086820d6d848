# SPDX-License-Identifier: BSD-3-Clause
"""Vectors in a Zarr array that workers write and read themselves, on a folder they share or in an object store.

What goes through the caller's network card is then neither a descriptor nor a vector but the address: a job writes the
vectors of its images as one chunk of the array, and a learner on another worker reads the chunks that it learns from.
Addresses are fsspec's: a folder that is at the same path on every worker, ``s3://bucket/folder``, ``memory://`` within
one process.

A chunk is written by one job, whole, so that a job that is done twice (its worker was lost) leaves the same bytes.
Rows of images that failed are never read; what nobody has written is NaN, and reading it is an error.
"""

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

ENDING = ".zarr"
READERS = 8  # chunks that are read at the same time: an object store answers late


class StoredVectors:
    """Rows (n, width) of an array, read when they are asked for; small to send to a worker.

    Parameters
    ----------
    address : of the array
    rows : (n,) which of its rows, rising

    Attributes
    ----------
    shape, dtype;  chunk : rows of the array that are stored together
    """

    def __init__(self, address: str, rows: np.ndarray) -> None:
        self.address = address
        self.rows = rows
        array = open_array(address)
        self.shape, self.dtype, self.chunk = (len(rows), int(array.shape[1])), array.dtype, int(array.chunks[0])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, chosen: Any) -> np.ndarray:
        """(m, width) the rows of a slice, or of numbers that rise."""
        rows = self.rows[chosen]
        found, array = np.empty((len(rows), self.shape[1]), self.dtype), open_array(self.address)
        starts = np.flatnonzero(np.diff(rows // self.chunk, prepend=-1))

        def read(a: int, b: int) -> None:  # Zarr's own selection of single rows takes three times as long
            found[a:b] = array[rows[a] : rows[b - 1] + 1][rows[a:b] - rows[a]]

        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(read, starts, [*starts[1:], len(rows)]))
        if np.isnan(found[:, :1]).any():
            lost = rows[np.isnan(found[:, 0])]
            raise ValueError(f"{self.address}: {len(lost)} vectors are missing, the first is that of row {lost[0]}")
        return found

    def bounds(self) -> np.ndarray:
        """Where the rows of each chunk begin, and the number of all rows."""
        last = -(-(int(self.rows[-1]) + 1) // self.chunk)
        return np.searchsorted(self.rows, np.arange(last + 1) * self.chunk)


def create_array(address: str, rows: int, width: int, chunk: int, dtype: Any) -> None:
    """An array of NaN (rows, width); vectors hardly shrink when they are compressed, so they are not."""
    import zarr

    zarr.create_array(
        address, shape=(rows, width), chunks=(chunk, width), dtype=dtype, compressors=None, fill_value=np.nan
    )


def open_array(address: str, mode: Any = "r") -> Any:
    """The array at an address; ValueError where it is not there, as on a worker that does not share the folder."""
    filesystem(address)
    import zarr

    with suppress(FileNotFoundError, zarr.errors.BaseZarrError):  # Dask cannot send an error that was caused by these
        return zarr.open_array(address, mode=mode)
    raise ValueError(
        f"this worker finds no array at {address}: vectors must be at an address that means the same on all workers"
    )


def filesystem(address: str) -> tuple[Any, str]:
    """fsspec's file system of an address, and the path in it."""
    try:
        import zarr  # noqa: F401
        from fsspec.core import url_to_fs
    except ImportError:
        raise ValueError("vectors at an address need Zarr and fsspec: pip install 'patchbag[dask]'") from None
    try:
        system, path = url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise ValueError(f"cannot use the address {address}: {error}") from error
    return system, str(path)


@contextmanager
def scratch(address: str) -> Iterator[str]:
    """Address of an array of one's own in a folder, or wherever fsspec has folders; removed at the end.

    Nothing that is there is overwritten.  That one can write there is tried before anything else happens.
    """
    system, path = filesystem(address)
    local = "file" in ([system.protocol] if isinstance(system.protocol, str) else system.protocol)
    if local and not Path(path).is_dir():
        raise ValueError(f"{path} is no folder; name one that is there, at the same path on every worker")
    name = f"patchbag-{uuid.uuid4().hex}{ENDING}"
    made = f"{path.rstrip('/')}/{name}"
    try:
        system.makedirs(made, exist_ok=True)
        system.pipe_file(f"{made}/begun", b"patchbag")
    except Exception as error:  # every store has errors of its own
        raise ValueError(f"cannot write to {address}: {error or type(error).__name__}") from error
    try:
        yield os.path.join(path, name) if local else f"{address.rstrip('/')}/{name}"
    finally:
        system.rm(made, recursive=True)
