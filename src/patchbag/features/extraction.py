# SPDX-License-Identifier: BSD-3-Clause
"""From images to bags: what every feature shares.

A feature is a :class:`FeatureExtractor`: it says in :attr:`~FeatureExtractor.mode` whether it wants grey or RGB, and
:meth:`~FeatureExtractor.describe` turns one decoded image into descriptors and their positions.  The base class does
the rest: decoding (:mod:`patchbag.images.loading`), workers, failures and the packing into
:class:`~patchbag.bags.Bags`.

What it promises:

* The bags are the same, bit for bit, whatever ``n_jobs``.
* Images keep their order.  A broken one stops the run with an error that names it, or (``on_error="skip"``) is left
  out, and ``kept`` says which images the bags belong to: ``labels[kept]`` are their labels.
* An image is described by one thread, several images at a time with ``n_jobs`` > 1.  A feature that spends its time in
  code that lets go of Python's lock says so (``parallel = "threads"``); others get processes, which take seconds to
  start, so that fewer than :data:`FEW` images are described here.
* ``stream`` holds one block of images (:data:`BLOCK` per worker) in memory at a time; what is larger than the memory
  goes from there to a store.

Extractors learn nothing of images: ``fit`` checks the parameters and remembers which page and which channels of files
the context names, so that a model reads of new images what it was trained on.  ``Bags`` that were described before pass
through, so that extractors stand first in a scikit-learn ``Pipeline``.
"""

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import KW_ONLY, replace
from numbers import Integral
from typing import Any, ClassVar, Literal, NamedTuple, Self

import cv2
import numpy as np
from PIL import Image
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context
from sklearn.utils._param_validation import Interval

from patchbag.bags import Bags
from patchbag.channels import Channels
from patchbag.images.loading import MAX_PIXELS, MAX_SIDE, ImageError, LoadedImage, Mode, load_image, source_name
from patchbag.parameters import ONE_OR_MORE, estimator, parameter
from patchbag.runtime import SharedContext, count_workers, current_runtime, parallel_map
from patchbag.storage.declared import Declared, Many, integer
from patchbag.storage.registry import Storable

BLOCK = 32
FEW = 64

Described = tuple[np.ndarray, np.ndarray]
Progress = Callable[[int, int], None]


class Failure(NamedTuple):
    """An image that gave no descriptors."""

    index: int  # type: ignore[assignment]
    name: str
    message: str

    def error(self, total: int) -> ImageError:
        """What to raise where no image may fail."""
        return ImageError(f"image {self.index} of {total}, {self.name}: {self.message}")


class Extraction(NamedTuple):
    """Bags, the indices of the images they come from, and the images that failed."""

    bags: Any
    kept: np.ndarray
    failures: list[Failure]


MOST_VALUES = 64
MOST_PIXELS = 1024  # of patches, steps and the like: beyond, a model file that was forged would take all memory


class Several(Interval):
    """The constraint of a parameter with one or more values, each in an interval."""

    def is_satisfied_by(self, val: Any) -> bool:
        listed = isinstance(val, Sequence | np.ndarray) and not isinstance(val, str) and len(val) > 0
        fits = listed and len(val) <= MOST_VALUES and not any(isinstance(value, bool) for value in val)
        return fits and all(Interval.is_satisfied_by(self, value) for value in val)

    def __str__(self) -> str:
        return f"one or more values, each {super().__str__()}"


ALL_POSITIVE = Several(Integral, 1, None, closed="left")
LENGTH = Interval(Integral, 1, MOST_PIXELS, closed="both")
COUNT = Interval(Integral, 1, MOST_VALUES, closed="both")
LENGTHS = Several(Integral, 1, MOST_PIXELS, closed="both")


@contextmanager
def _one_thread() -> Iterator[None]:
    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before)


single_threaded_opencv = SharedContext(_one_thread)


@estimator
class FeatureExtractor(Storable, TransformerMixin, BaseEstimator):
    """Base of the features: a transformer from a sequence of images to :class:`~patchbag.bags.Bags`.

    A subclass defines :meth:`describe`.  A constructor of its own stores, besides its own parameters, ``n_jobs``,
    ``max_side`` and ``max_pixels``.  Raise :attr:`version` when the same parameters begin to give other numbers: stored
    features are known by it.
    """

    mode: ClassVar[Mode] = "grey"
    version: ClassVar[int] = 1
    parallel: ClassVar[Literal["threads", "processes"]] = "processes"
    _: KW_ONLY
    max_side: int | None = parameter(ONE_OR_MORE, None, default=MAX_SIDE)
    max_pixels: int | None = parameter(ONE_OR_MORE, None, default=MAX_PIXELS)
    n_jobs: int | None = parameter(Integral, None, default=None)
    min_side: int | None = None  # a parameter of those that enlarge small pictures

    _stored: ClassVar[dict[str, Declared]] = {
        "frame_": integer(low=0, optional=True),
        "channels_": Many(integer(low=0), optional=True),
    }

    @abstractmethod
    def describe(self, image: np.ndarray) -> Described:
        """Descriptors (n, d) and positions (n, 2) of one image, (h, w) or (h, w, 3) on the scale 0..255.

        Raises ``ImageError`` if there can be none; its message follows the name of the image.
        """

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the parameters, and remember the page and the channels that are read here."""
        now = current_runtime()
        self.frame_, self.channels_ = now.frame or 0, now.channels
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def reads(self) -> tuple[int, tuple[int, ...] | None]:
        """Page and channels of image files that are read: those of the context, else those of ``fit``."""
        now = current_runtime()
        frame = getattr(self, "frame_", None) if now.frame is None else now.frame
        return frame or 0, getattr(self, "channels_", None) if now.channels is None else now.channels

    def signature(self) -> str:
        """A short name of everything that the numbers depend on, besides the image: which part of it is read, too."""
        kind = type(self)
        origin = [f"{kind.__module__}.{kind.__qualname__}", self.version, self.mode]
        machine = ("n_jobs", "max_pixels")
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in machine}
        return self._signed(*origin, parameters)

    def _signed(self, *parts: Any) -> str:
        """A digest of the parts, and of the page and channels that are read where they are not the usual ones."""
        chosen = [] if self.reads() == (0, None) else self.reads()
        text = json.dumps([*parts, *chosen], sort_keys=True, default=lambda value: value.tolist())
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def shares(self) -> Any:
        """What this feature has in common with others that cost little where it was computed; None for nothing."""
        return None

    def transform(self, X: Any) -> Any:
        """One bag per image; an image that cannot be described raises ImageError with its index and name.

        ``Bags`` and ``Channels``, described before, are returned as they are.
        """
        return X if isinstance(X, Bags | Channels) else self.extract(X).bags

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
        images : whatever :func:`~patchbag.images.loading.load_image` takes, in a list, tuple or any other iterable
        on_error : "raise" stops at the first image that fails, "skip" leaves it out and lists it
        progress : called as ``progress(done, total)`` after every image

        Returns
        -------
        bags : one bag per image that could be described, in order; none at all if every image failed
        kept : (len(bags),) index of each bag's image in ``images``
        failures : [(index, name, message)]
        """
        check_on_error(on_error)
        sources = as_images(images)
        found: list[Described] = []
        kept: list[int] = []
        failures: list[Failure] = []
        with closing(self.stream(sources)) as stream:
            for index, result in enumerate(stream):
                if not isinstance(result, Failure):
                    found.append(result)
                    kept.append(index)
                elif on_error == "raise":
                    raise result.error(len(sources))
                else:
                    failures.append(result)
                if progress is not None:
                    progress(index + 1, len(sources))
        bags = Bags.from_list([values for values, _ in found], [positions for _, positions in found])
        return Extraction(bags, np.array(kept, dtype=np.int64), failures)

    def stream(self, images: Sequence[Any]) -> Generator[Described | Failure]:
        """The same one image at a time, in order, for what does not fit into memory: (values, positions) or Failure."""
        sources = as_images(images)
        self._validate_params()
        few = self.parallel == "processes" and len(sources) < FEW
        workers = 1 if few else count_workers(self.n_jobs)
        for start in range(0, len(sources), BLOCK * workers):
            block = range(start, min(start + BLOCK * workers, len(sources)))
            jobs = [self._job(index, sources[index]) for index in block]
            yield from parallel_map(self._describe_one, jobs, workers, prefer=self.parallel)

    def _job(self, index: int, source: Any) -> tuple[int, str, Any]:
        name = source_name(source)
        if isinstance(source, Image.Image):  # decoded here: threads must not share it, processes cannot
            try:
                source = self._load(source, name)
            except ImageError as error:
                source = error
        return index, name, source

    def _describe_one(self, job: tuple[int, str, Any]) -> Described | Failure:
        index, name, source = job
        try:
            if isinstance(source, ImageError):
                raise source
            image = source if isinstance(source, LoadedImage) else self._load(source, name)
            with single_threaded_opencv:
                values, positions = self.describe(image.array)
            if len(values) == 0:
                raise ImageError("has no descriptors left")
        except ImageError as error:
            return Failure(index, name, str(error).removeprefix(f"{name}: "))
        return values, np.asarray(positions, np.float32).reshape(len(values), 2)

    def _load(self, source: Any, name: str) -> LoadedImage:
        frame, channels = self.reads()
        limits = {"max_pixels": self.max_pixels, "max_side": self.max_side}
        image = load_image(source, mode=self.mode, frame=frame, channels=channels, name=name, **limits)
        return image if self.min_side is None else enlarged(image, self.min_side, self.max_side)


def enlarged(image: LoadedImage, min_side: int, max_side: int | None = None) -> LoadedImage:
    """The picture with a shorter side of at least ``min_side`` pixels, as far as ``max_side`` allows."""
    height, width = image.array.shape[:2]
    factor = min_side / min(width, height)
    if max_side is not None:
        factor = min(factor, max_side / max(width, height))
    if factor <= 1:
        return image
    size = round(width * factor), round(height * factor)
    # splines reach beyond the scale where a float picture has edges
    array = np.clip(cv2.resize(image.array, size, interpolation=cv2.INTER_CUBIC), 0, 255)
    return replace(image, array=array, scale=image.scale * factor)


def check_on_error(on_error: str) -> None:
    """Raise ValueError unless it is one of the two words."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')


def as_images(images: Any) -> Any:
    """Images, or what is known of them already (bags), as a sequence; ValueError where they are one, or a folder."""
    if isinstance(images, Bags | Channels):
        return images
    if hasattr(images, "paths"):
        raise ValueError(f"expected a sequence of images, got {images!r}; pass its paths")
    if hasattr(images, "columns"):
        raise ValueError(f"expected a sequence of images, got a {type(images).__name__}; pass its column of images")
    one = isinstance(images, str | os.PathLike | bytes | bytearray | memoryview | Image.Image)
    if isinstance(images, np.ndarray) and images.dtype.kind in "buif":  # colours of a picture, not images 3 wide
        one = images.ndim < 3 or (images.ndim == 3 and images.shape[2] in (3, 4))
    if one:
        folder = ", for a folder open_collection(folder).paths" if isinstance(images, str | os.PathLike) else ""
        raise ValueError(
            f"expected a sequence of images, got one: {source_name(images)}; for one image pass [image]{folder}"
        )
    # what else has __getitem__ may be indexed by label (a column of a data frame) and is put in a list
    return images if isinstance(images, Sequence | np.ndarray) else list(images)
