# SPDX-License-Identifier: BSD-3-Clause
"""Encodings of more images than fit into memory, written to a file as they are made.

Vectors are float16 (a Fisher vector of unit length keeps three digits of its entries, at half the space) in one
``.npy`` file, which is then mapped: :class:`~patchbag.classifiers.stochastic.StochasticLinearClassifier` reads it in
stripes.  The file has its name only when it is complete.

* :func:`stream_vectors` encodes bags that were described before, and may be memory-mapped, a chunk at a time.
* :func:`encode_images` begins with the image files.  One job describes and encodes a chunk of images, so that
  descriptors stay where they are made and vectors come back: per image 33 kB in place of 450 kB (SIFT, 128 Gaussians
  of 64 dimensions).  On a cluster this is what the caller's network card carries, beside the encoder, which goes out
  with every job; nothing goes to the store.

Either way the vectors are the same bits whatever the number and kind of the workers: chunks are cut by the data alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from patchbag.features.extraction import Failure, FeatureExtractor, Progress, check_on_error
from patchbag.replacing import replacing
from patchbag.runtime import one_worker, parallel_map

CHUNK = 256
JOB = 64  # images of a job that describes and encodes


class Encoder(Protocol):
    """Fitted; a pipeline of statistics, encoding and normalisation."""

    def transform(self, X: Any) -> Any: ...


class Encoded(NamedTuple):
    """Vectors (n, width), mapped; the index of the image of each, and the images that failed."""

    vectors: np.ndarray
    kept: np.ndarray
    failures: list[Failure]


def stream_vectors(
    encoder: Encoder, samples: Any, path: str | os.PathLike[str], *, dtype: Any = np.float16, chunk: int = CHUNK
) -> np.ndarray:
    """``encoder.transform`` of all samples, chunk by chunk, as a read-only mapped array (n, width).

    Parameters
    ----------
    encoder : fitted; a pipeline of statistics, encoding and normalisation
    samples : anything that can be sliced: bags, statistics, rows
    path : of the ``.npy`` file
    """
    starts = range(0, len(samples), chunk)
    return _write(path, (_encode(encoder, samples[start : start + chunk], dtype) for start in starts), dtype)


def encode_images(
    features: FeatureExtractor,
    encoder: Encoder,
    images: Sequence[Any],
    path: str | os.PathLike[str],
    *,
    on_error: Literal["raise", "skip"] = "raise",
    dtype: Any = np.float16,
    chunk: int = JOB,
    progress: Progress | None = None,
) -> Encoded:
    """Describe and encode images on the workers of the context; only vectors come back.

    Parameters
    ----------
    features, encoder : the first step of a pipeline, and the fitted steps up to the vectors
    images : paths that mean the same on every worker, or whatever else the features take
    path : of the ``.npy`` file
    on_error : "raise" stops at the first image that fails, "skip" leaves it out and lists it
    chunk : images of a job
    progress : called as ``progress(done, total)`` for every image

    >>> pipeline = Categorizer("fisher").pipeline()                         # doctest: +SKIP
    >>> features, encoder = pipeline[0], pipeline[1:-1]                     # doctest: +SKIP
    >>> encoder.fit(features.transform(some_images), some_labels)           # doctest: +SKIP
    >>> with cluster_context("tcp://10.0.0.5:8786"):                        # doctest: +SKIP
    ...     vectors, kept, _ = encode_images(features, encoder, images, "vectors.npy", on_error="skip")
    >>> StochasticLinearClassifier().fit(vectors, labels[kept])             # doctest: +SKIP
    """
    check_on_error(on_error)
    images = images if hasattr(images, "__getitem__") else list(images)
    kept: list[int] = []
    failures: list[Failure] = []

    def parts() -> Iterator[np.ndarray]:
        starts = range(0, len(images), chunk)
        jobs = [images[start : start + chunk] for start in starts]
        work = partial(_describe_and_encode, features, encoder, dtype)
        for start, (vectors, good, bad) in zip(starts, parallel_map(work, jobs, prefer=features.parallel)):
            failures.extend(failure._replace(index=start + failure.index) for failure in bad)
            if bad and on_error == "raise":
                raise failures[0].error(len(images))
            kept.extend(start + i for i in good)
            if len(vectors):
                yield vectors
            if progress is not None:
                for done in range(start, min(start + chunk, len(images))):
                    progress(done + 1, len(images))

    vectors = _write(path, parts(), dtype)
    return Encoded(vectors, np.array(kept, dtype=np.int64), failures)


def _describe_and_encode(
    features: FeatureExtractor, encoder: Encoder, dtype: Any, images: Sequence[Any]
) -> tuple[np.ndarray, list[int], list[Failure]]:
    """A job; it is one of many, and asks for no workers of its own."""
    with one_worker():
        bags, kept, failures = features.extract(images, on_error="skip")
        vectors = _encode(encoder, bags, dtype) if len(bags) else np.empty((0, 0), dtype)
    return vectors, kept.tolist(), failures


def _encode(encoder: Encoder, samples: Any, dtype: Any) -> np.ndarray:
    vectors = np.asarray(encoder.transform(samples))
    vectors = vectors.reshape(len(vectors), -1)
    if np.abs(vectors).max(initial=0) > np.finfo(dtype).max:
        raise ValueError(f"vectors have entries that {np.dtype(dtype)} cannot hold; normalise them")
    return vectors.astype(dtype, copy=False)


def _write(path: str | os.PathLike[str], parts: Iterator[np.ndarray], dtype: Any) -> np.ndarray:
    """One ``.npy`` file of all rows; how many there are is known, and written, at the end."""
    header: dict[str, Any] = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
    rows = width = 0
    with replacing(path) as file:
        for vectors in parts:
            if not rows:
                width = vectors.shape[1]
                np.lib.format.write_array_header_1_0(file, header | {"shape": (0, width)})
            file.write(np.ascontiguousarray(vectors).data)
            rows += len(vectors)
        if not rows:
            raise ValueError("there is nothing to encode")
        file.seek(0)  # NumPy leaves room for the number of rows to grow
        np.lib.format.write_array_header_1_0(file, header | {"shape": (rows, width)})
    return np.load(Path(path), mmap_mode="r")
