# SPDX-License-Identifier: BSD-3-Clause
"""From images to bags: what every feature shares.

A feature is a :class:`FeatureExtractor`: it says in :attr:`~FeatureExtractor.mode` whether it wants grey or RGB, and
:meth:`~FeatureExtractor.describe` turns one decoded image into descriptors and their positions.  The base class does
the rest: decoding (:mod:`patchbag.images`), workers, the cache on disk (:mod:`patchbag.features.cache`), failures and
the packing into :class:`~patchbag.bags.Bags`.

What it promises:

* The bags are the same, bit for bit, whatever ``n_jobs`` and whether they come from the cache.
* Images keep their order.  A broken one stops the run with an error that names it, or (``on_error="skip"``) is left
  out, and ``kept`` says which images the bags belong to: ``labels[kept]`` are their labels.
* An image is described in one process by one thread, several at a time with ``n_jobs`` > 1.  A feature that spends its
  time in code that lets go of Python's lock says so (``parallel = "threads"``) and gets threads, which cost nothing to
  start and nothing to bring results back; other features get processes.  These take seconds to start, so the first
  images are timed here, and processes are used only if the rest would take longer than :data:`PATIENCE` seconds.  All
  reading and writing of the cache is done by the calling thread.
* Beyond the result, memory holds one block of images (:data:`BLOCK` per worker) at a time.

Extractors learn nothing: ``fit`` checks the parameters, so that they stand first in a scikit-learn ``Pipeline``.
"""

from __future__ import annotations

import os
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from PIL import Image
from sklearn.base import BaseEstimator, TransformerMixin

from patchbag.bags import Bags
from patchbag.features.cache import FeatureCache, content_digest, open_cache
from patchbag.images import ImageError, LoadedImage, Mode, load_image, source_name

BLOCK = 32
FIRST = 8
PATIENCE = 3.0
BLOCK_BYTES = 64 * 2**20

Described = tuple[np.ndarray, np.ndarray]
Progress = Callable[[int, int], None]


class Failure(NamedTuple):
    """An image that gave no descriptors."""

    index: int  # type: ignore[assignment]
    name: str
    message: str


class Extraction(NamedTuple):
    """Bags, the indices of the images they come from, and the images that failed."""

    bags: Bags
    kept: np.ndarray
    failures: list[Failure]


class _Clock:
    """How long an image takes in this process."""

    def __init__(self) -> None:
        self.counted = -1  # the first image pays for compilation and does not count
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.counted += 1
        if self.counted > 0:
            self.seconds += time.perf_counter() - self._start

    def forecast(self, images: int) -> float:
        return self.seconds / self.counted * images if self.counted > 0 else 0.0


class FeatureExtractor(TransformerMixin, BaseEstimator):
    """Base of the features: a transformer from a sequence of images to :class:`~patchbag.bags.Bags`.

    A subclass defines :meth:`describe`, and its constructor stores, besides its own parameters, ``n_jobs``, ``cache``,
    ``max_side`` and ``max_pixels``.  Raise :attr:`version` when the same parameters begin to give other numbers: it is
    part of the cache's key.
    """

    mode: ClassVar[Mode] = "grey"
    version: ClassVar[int] = 1
    parallel: ClassVar[Literal["threads", "processes"]] = "processes"

    n_jobs: int | None
    cache: bool | str | os.PathLike[str] | FeatureCache | None
    max_side: int | None
    max_pixels: int | None

    @abstractmethod
    def describe(self, image: np.ndarray) -> Described:
        """Descriptors (n, d) and positions (n, 2) of one image, (h, w) or (h, w, 3) on the scale 0..255.

        Raises ``ImageError`` if there can be none; its message follows the name of the image.
        """

    def check_parameters(self) -> None:
        """Raise ValueError for parameters that cannot work; called once per extraction."""

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the parameters; there is nothing to learn."""
        self.check_parameters()
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def transform(self, X: Sequence[Any]) -> Bags:
        """One bag per image; an image that cannot be described raises ImageError with its index and name."""
        return self.extract(X).bags

    def extract(
        self,
        images: Sequence[Any],
        *,
        on_error: Literal["raise", "skip"] = "raise",
        progress: Progress | None = None,
    ) -> Extraction:
        """Describe images, and say which could not be.

        Parameters
        ----------
        images : whatever :func:`patchbag.images.load_image` takes, in a list, tuple, array or any other iterable
        on_error : "raise" stops at the first image that fails, "skip" leaves it out and lists it
        progress : called as ``progress(done, total)`` after every image

        Returns
        -------
        bags : one bag per image that could be described, in order; none at all if every image failed
        kept : (len(bags),) index of each bag's image in ``images``
        failures : [(index, name, message)]
        """
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
        sources = _as_sequence(images)
        kept: list[int] = []
        packer = _Packer()
        failures: list[Failure] = []
        with closing(self.stream(sources)) as stream:
            for index, result in enumerate(stream):
                if isinstance(result, Failure):
                    if on_error == "raise":
                        raise ImageError(f"image {index} of {len(sources)}, {result.name}: {result.message}")
                    failures.append(result)
                else:
                    kept.append(index)
                    packer.add(*result)
                if progress is not None:
                    progress(index + 1, len(sources))
        return Extraction(packer.bags(), np.array(kept, dtype=np.int64), failures)

    def stream(self, images: Sequence[Any]) -> Generator[Described | Failure]:
        """The same one image at a time, in order, for what does not fit into memory: (values, positions) or Failure."""
        sources = _as_sequence(images)
        self.check_parameters()
        cache = open_cache(self.cache)
        signature = self._signature()
        jobs = effective_n_jobs(self.n_jobs)
        clock = _Clock()
        stop = 0
        while stop < len(sources):
            size = BLOCK * jobs if self.parallel == "threads" or jobs == 1 or clock.counted > 0 else FIRST
            block = range(stop, min(stop + size, len(sources)))
            stop = block.stop
            found: dict[int, Described | Failure] = {}
            keys: dict[int, str] = {}
            missing: list[tuple[int, str, Any]] = []
            for index in block:
                source, name = sources[index], source_name(sources[index])
                try:
                    if isinstance(source, Image.Image):
                        # decoded here: its content is what a cache and another process need
                        source = self._load(source, name)
                    if cache is not None:
                        keys[index] = cache.key(_digest(source, name), signature)
                        if (entry := cache.get(keys[index])) is not None:
                            found[index] = entry
                            continue
                    missing.append((index, name, source))
                except ImageError as error:
                    found[index] = _failure(index, name, error)
            worthwhile = self.parallel == "threads" or clock.forecast(len(sources) - block.start) > PATIENCE
            with closing(self._described(missing, jobs if worthwhile else 1, clock)) as results:
                for index in block:
                    if index not in found:
                        result = next(results)
                        if cache is not None and not isinstance(result, Failure):
                            cache.put(keys[index], *result)
                        yield result
                    else:
                        yield found.pop(index)

    def _described(
        self, missing: list[tuple[int, str, Any]], jobs: int, clock: _Clock
    ) -> Generator[Described | Failure]:
        if jobs == 1 or len(missing) < 2:
            for image in missing:
                with clock:
                    result = self._describe_one(*image)
                yield result
        elif self.parallel == "threads":
            threads = ThreadPoolExecutor(min(jobs, len(missing)))
            try:
                yield from threads.map(self._describe_one, *zip(*missing))
            finally:
                threads.shutdown(cancel_futures=True)
        else:
            pool = Parallel(n_jobs=jobs, prefer="processes", return_as="generator")
            outputs = pool(delayed(_describe_elsewhere)(self, os.getpid(), *image) for image in missing)
            try:
                for result in outputs:  # not "yield from", which would close it before the warning is silenced
                    yield result
            finally:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # joblib warns of tasks dropped after an image failed
                    outputs.close()

    def _describe_one(self, index: int, name: str, source: Any) -> Described | Failure:
        try:
            image = source if isinstance(source, LoadedImage) else self._load(source, name)
            values, positions = self.describe(image.array)
            if len(values) == 0:
                raise ImageError("has no descriptors left")
        except ImageError as error:
            return _failure(index, name, error)
        return values, positions

    def _load(self, source: Any, name: str) -> LoadedImage:
        return load_image(source, mode=self.mode, max_pixels=self.max_pixels, max_side=self.max_side, name=name)

    def _signature(self) -> dict[str, Any]:
        kind = type(self)
        parameters = {k: v for k, v in self.get_params(deep=False).items() if k not in ("n_jobs", "cache")}
        return {
            "feature": f"{kind.__module__}.{kind.__qualname__}",
            "version": self.version,
            "mode": self.mode,
            "parameters": parameters,
        }


def _describe_elsewhere(
    extractor: FeatureExtractor, caller: int, index: int, name: str, source: Any
) -> Described | Failure:
    if os.getpid() != caller:  # not under a threading backend: the setting is global to a process
        import cv2

        cv2.setNumThreads(1)
    return extractor._describe_one(index, name, source)


def _failure(index: int, name: str, error: ImageError) -> Failure:
    return Failure(index, name, str(error).removeprefix(f"{name}: "))


def _digest(source: Any, name: str) -> bytes:
    if isinstance(source, str | os.PathLike) and not os.path.isfile(source):
        # pipes would hang and folders fail obscurely; the loader words the error
        load_image(source, name=name)
    if isinstance(source, LoadedImage):
        # decoded levels 0..255 as floats are another image than an array of the same numbers, which must lie in 0..1
        levels = b"levels" if source.array.dtype.kind == "f" else b""
        return content_digest(source.array) + levels
    try:
        return content_digest(source)
    except (OSError, ValueError, TypeError) as error:
        raise ImageError(f"{name}: cannot be read ({error})") from error


def _as_sequence(images: Any) -> Any:
    one = isinstance(images, str | os.PathLike | bytes | bytearray | memoryview | Image.Image)
    if one or (isinstance(images, np.ndarray) and images.ndim < 3 and images.dtype.kind in "buif"):
        raise ValueError(f"expected a sequence of images, got one: {source_name(images)}; for one image pass [image]")
    if isinstance(images, Bags):
        raise TypeError("expected images, got Bags: these are described already; leave the features step out")
    # what else has __getitem__ may be indexed by label (a column of a data frame) and is put in a list
    return images if isinstance(images, Sequence | np.ndarray) else list(images)


class _Packer:
    """Collects descriptors in large blocks and moves these into one array, letting go of each as it is copied.

    Held image by image, the pieces would fragment the heap: freeing them gives nothing back to the system, and the bags
    would be in memory twice.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.blocks: list[list[np.ndarray]] = []  # [values, positions], filled up to self.used
        self.used: list[int] = []

    def add(self, values: np.ndarray, positions: np.ndarray) -> None:
        if not self.blocks or self.used[-1] + len(values) > len(self.blocks[-1][0]):
            height = max(len(values), BLOCK_BYTES // max(1, values[:1].nbytes))
            self.blocks.append([np.empty((height, a.shape[1]), a.dtype) for a in (values, positions)])
            self.used.append(0)
        start, stop = self.used[-1], self.used[-1] + len(values)
        for block, part in zip(self.blocks[-1], (values, positions)):
            block[start:stop] = part
        self.used[-1] = stop
        self.sizes.append(len(values))

    def bags(self) -> Bags:
        if not self.blocks:
            return Bags(np.empty((0, 0), np.float32), [0], np.empty((0, 2), np.float32))
        total = sum(self.sizes)
        packed = [np.empty((total, a.shape[1]), a.dtype) for a in self.blocks[0]]
        start = 0
        for used in self.used:
            for whole, part in zip(packed, self.blocks.pop(0)):
                whole[start : start + used] = part[:used]
            start += used
        return Bags(packed[0], np.concatenate([[0], np.cumsum(self.sizes)]), packed[1])
