# SPDX-License-Identifier: BSD-3-Clause
"""Encodings of more images than fit into memory, written to a file as they are made.

Vectors are float16 (a Fisher vector of unit length keeps three digits of its entries, at half the space) in one
``.npy`` file, which is then mapped: :class:`~patchbag.classifiers.stochastic.StochasticLinearClassifier` reads it in
stripes.  The file has its name only when it is complete.

* :func:`stream_vectors` encodes bags that were described before, and may be memory-mapped, a chunk at a time.
* :func:`encode_images` begins with the image files.  One job describes and encodes a chunk of images, so that
  descriptors stay where they are made and vectors come back: per image 33 kB in place of 450 kB (SIFT, 128 Gaussians
  of 64 dimensions).  On a cluster this is what the caller's network card carries, beside the encoder, which goes out
  with every job; nothing goes to the store.  To an address that ends in ``.zarr`` the workers write the vectors
  themselves (:mod:`~patchbag.encodings.stored`), in a random order of the images, so that every chunk is a sample of
  all of them.

Either way the vectors are the same bits whatever the number and kind of the workers: chunks are cut by the data alone.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from patchbag.encodings.stored import ENDING, StoredVectors, create_array, open_array
from patchbag.features.extraction import Failure, FeatureExtractor, Progress, check_on_error
from patchbag.runtime import one_worker, parallel_map
from patchbag.storage.replacing import replacing

CHUNK = 256
JOB = 64  # images of a job that describes and encodes
NOTHING = "there is nothing to encode"

Job = tuple[int, Sequence[Any]]  # number of its first image, and images
Described = tuple[np.ndarray, list[int], list[Failure]]  # vectors, which of the images they are of, and what failed


class Encoder(Protocol):
    """Fitted; a pipeline of statistics, encoding and normalisation."""

    def transform(self, X: Any) -> Any: ...


class Encoded(NamedTuple):
    """Vectors (n, width), mapped or at an address; the index of the image of each, and the images that failed."""

    vectors: Any
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
    path : of the ``.npy`` file, or address of a Zarr array, which ends in ``.zarr``
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
    n = len(images)
    stored = str(path).endswith(ENDING)
    order = np.random.default_rng(0).permutation(n) if stored else np.arange(n)
    work: Callable[[Job], Described] = partial(_describe_and_encode, features, encoder, dtype)
    if stored:
        create_array(str(path), n, _width(work, images, order), chunk, dtype)
        work = partial(_describe_and_store, work, str(path))
    rows: list[int] = []
    failures: list[Failure] = []

    def parts() -> Iterator[np.ndarray]:
        jobs = [(start, [images[i] for i in order[start : start + chunk]]) for start in range(0, n, chunk)]
        for (start, part), (vectors, good, bad) in zip(jobs, parallel_map(work, jobs, prefer=features.parallel)):
            failures.extend(failure._replace(index=int(order[start + failure.index])) for failure in bad)
            if bad and on_error == "raise":
                raise failures[0].error(n)
            rows.extend(start + i for i in good)
            if len(vectors):
                yield vectors
            if progress is not None:
                for done in range(start, start + len(part)):
                    progress(done + 1, n)

    if stored:
        for _ in parts():
            pass
        found: Any = StoredVectors(str(path), np.array(rows, dtype=np.int64))
    else:
        found = _write(path, parts(), dtype)
    return Encoded(found, order[rows], sorted(failures))


def _describe_and_encode(features: FeatureExtractor, encoder: Encoder, dtype: Any, job: Job) -> Described:
    """A job; it is one of many, and asks for no workers of its own."""
    with one_worker():
        bags, kept, failures = features.extract(job[1], on_error="skip")
        vectors = _encode(encoder, bags, dtype) if len(bags) else np.empty((0, 0), dtype)
    return vectors, kept.tolist(), failures


def _describe_and_store(encode: Callable[[Job], Described], address: str, job: Job) -> Described:
    """The same job, which writes its vectors as one chunk; there are none to bring back."""
    vectors, kept, failures = encode(job)
    if len(vectors):
        start, images = job
        part = np.full((len(images), vectors.shape[1]), np.nan, vectors.dtype)
        part[kept] = vectors
        open_array(address, "r+")[start : start + len(images)] = part
    return vectors[:0], kept, failures


def _width(work: Callable[[Job], Described], images: Sequence[Any], order: np.ndarray) -> int:
    """Of the vectors, by the first image that has one."""
    for i in order:
        vectors, _, _ = work((0, [images[i]]))
        if len(vectors):
            return vectors.shape[1]
    raise ValueError(NOTHING)


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
            raise ValueError(NOTHING)
        file.seek(0)  # NumPy leaves room for the number of rows to grow
        np.lib.format.write_array_header_1_0(file, header | {"shape": (rows, width)})
    return np.load(Path(path), mmap_mode="r")
