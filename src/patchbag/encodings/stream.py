# SPDX-License-Identifier: BSD-3-Clause
"""Encodings of more images than fit into memory, written to a file as they are made.

Statistics and encodings are made for ``chunk`` images at a time from bags that may be memory-mapped, and written as
float16 (a Fisher vector of unit length keeps three digits of its entries, at half the space) to one ``.npy`` file,
which is mapped in its turn: :class:`~patchbag.classifiers.stochastic.StochasticLinearClassifier` reads it in stripes.
The file has its name only when it is complete.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 256


def stream_vectors(
    encoder: Any, samples: Any, path: str | os.PathLike[str], *, dtype: Any = np.float16, chunk: int = CHUNK
) -> np.ndarray:
    """``encoder.transform`` of all samples, chunk by chunk, as a read-only mapped array (n, width).

    Parameters
    ----------
    encoder : fitted; a pipeline of statistics, encoding and normalisation
    samples : anything that can be sliced: bags, statistics, rows
    path : of the ``.npy`` file
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    n = len(samples)
    out: np.memmap[Any, Any] | None = None
    try:
        for start in range(0, n, chunk):
            vectors = np.asarray(encoder.transform(samples[start : start + chunk]))
            vectors = vectors.reshape(len(vectors), -1)
            if np.abs(vectors).max(initial=0) > np.finfo(dtype).max:
                raise ValueError(f"vectors have entries that {np.dtype(dtype)} cannot hold; normalise them")
            if out is None:
                out = np.lib.format.open_memmap(partial, "w+", dtype, (n, vectors.shape[1]))
            out[start : start + len(vectors)] = vectors
        if out is None:
            raise ValueError("there is nothing to encode")
        out.flush()
        del out
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return np.load(path, mmap_mode="r")
