# SPDX-License-Identifier: BSD-3-Clause
"""Deep descriptors: the patch vectors of a network, and its pooled vector.

A network trained on millions of photographs turns an image into a map of vectors, one per patch, and averages these
into one vector per image.  Both are bags here::

    output="map"     one descriptor per cell of the map (or per patch token of a transformer), with its position
    output="pooled"  one descriptor, at (0.5, 0.5): its own pooling, the class token, or the mean of the map

so that everything that works on dense SIFT (mixtures, Fisher vectors, set kernels) works on the map, and a linear
kernel on the pooled vector is what people call transfer learning.

**Networks.**  The default is EfficientNet-Lite2 with weights of ImageNet that are installed with this package; any
ONNX file and any module of torch can take its place (:mod:`patchbag.features.networks`).  An output is found by its
name (any tensor of an ONNX file has one), else by its shape: a map is (n, channels, h, w), or (n, tokens, channels)
where the tokens but the first few (class, registers) make a square.

**Images** are squashed to the square that the network asks for (Pillow's bicubic), or to several, one after
the other: ``size=(224, 320)`` gives the patches of both in one bag, and the mean of the pooled vectors.  ``mirror``
runs the mirror image, too, and averages each patch with its counterpart.

**Cost.**  EfficientNet-Lite2 takes 12 ms per image of 320 × 320 on one quiet core.  Extractors of the same network
share its runs of the last ``RECENT`` images: the pooled vector is free where the map was asked for.  A batch of several
images is no faster on a CPU (the cache of the processor holds one); ``describe_many`` is for GPUs.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils._param_validation import HasMethods, StrOptions

from patchbag.features import grid
from patchbag.features.extraction import LENGTH, MOST_PIXELS, Described, FeatureExtractor
from patchbag.features.networks import Network, Normalization, open_network
from patchbag.features.networks.preparation import DEFAULT_MODEL, prepare
from patchbag.images.loading import Mode
from patchbag.parameters import ONE_OR_MORE, estimator, parameter

NORMALIZATIONS: dict[str, Normalization] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "symmetric": ((0.5,) * 3, (0.5,) * 3),
    "unit": ((0.0,) * 3, (1.0,) * 3),
}
RECENT = 128  # images whose outputs are kept, at 0.2 MB each
LEADING_TOKENS = (0, 1, 2, 5)  # none; class; class and distillation; class and four registers

Outputs = list[dict[str, np.ndarray]]


def as_map(output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cells of an output (n, c, h, w) or (n, t, c) as (n, h, w, c), and its leading tokens (n, k, c), k >= 0."""
    if output.ndim == 4:
        return output.transpose(0, 2, 3, 1), output[:, :0, 0]
    count = output.shape[1]
    for leading in LEADING_TOKENS:
        side = round(max(count - leading, 0) ** 0.5)
        if side * side == count - leading:
            return output[:, leading:].reshape(len(output), side, side, -1), output[:, :leading]
    raise ValueError(
        f"the network gives {count} tokens per image, which are no square even without a class token, a distillation "
        'token or registers; name another output, or use output="pooled"'
    )


def find_output(outputs: dict[str, np.ndarray], output: str) -> np.ndarray:
    """The output of a network that ``output`` asks for: cells (n, h, w, c), one of them if "pooled"."""
    if output in outputs:
        found = outputs[output]
        return found[:, None, None, :] if found.ndim == 2 else as_map(found)[0]
    maps = [array for array in outputs.values() if array.ndim in (3, 4)]
    rows = [array for array in outputs.values() if array.ndim == 2]
    shapes = ", ".join(f"{name} {array.shape}" for name, array in outputs.items())
    if output not in ("map", "pooled"):
        raise ValueError(f"the network has no output {output!r}; it has {shapes}")
    if maps:
        cells, leading = as_map(maps[0])
        if output == "map":
            return cells
        return leading[:, None, :1] if leading.shape[1] else cells.mean(axis=(1, 2), keepdims=True)
    if output == "pooled" and rows:
        return rows[0][:, None, None, :]
    raise ValueError(
        f"the network has no output with positions, (n, channels, h, w) or (n, tokens, channels); it has {shapes}: "
        'name a tensor inside of it, or use output="pooled"'
    )


@estimator
class DeepPatches(FeatureExtractor):
    """Descriptors from a network: its map of patch vectors, or its pooled vector.

    Parameters
    ----------
    model : "efficientnet-lite2" (or 0 or 1, if their weights are installed), path of an ONNX file, or a module of torch
    output : "map", "pooled", or the name of an output of the network
    size : side of the square that images are squashed to, or several; None for the network's own
    normalization : "imagenet", "symmetric" (-1..1), "unit" (0..1) or (mean, std) of the channels on the scale 0..1;
        None for the network's own
    mirror : average with the mirror image
    batch_size : images that go through the network at a time in :meth:`describe_many`
    dtype : "float32" or "float16"
    max_side, max_pixels : see :func:`patchbag.images.loading.load_image`
    n_jobs : workers (threads), None for those of the context, -1 for all cores

    >>> DeepPatches(output="pooled").transform([np.zeros((64, 48), np.uint8)]).values.shape
    (1, 1280)
    """

    mode: ClassVar[Mode] = "rgb"
    parallel = "threads"

    model: Any = parameter(str, HasMethods("__fspath__"), HasMethods("state_dict"), default=DEFAULT_MODEL)
    _: KW_ONLY
    output: str = parameter(str, default="map")
    size: int | Sequence[int] | None = parameter(None, ONE_OR_MORE, "array-like", default=None)
    normalization: str | Normalization | None = parameter(
        None, StrOptions(set(NORMALIZATIONS)), "array-like", default=None
    )
    mirror: bool = parameter("boolean", default=False)
    batch_size: int = parameter(LENGTH, default=1)
    dtype: Literal["float32", "float16"] = parameter(StrOptions({"float16", "float32"}), default="float32")

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params(deep=False))  # a module of torch is shared, not copied

    def _validate_params(self) -> None:
        super()._validate_params()
        network = open_network(self.model, self.output)
        self._sizes(network)
        self._normalization(network)

    def describe(self, image: np.ndarray) -> Described:
        """Descriptors, size after size and row after row, and positions of one RGB image."""
        return self.describe_many([image])[0]

    def describe_many(self, images: Sequence[np.ndarray]) -> list[Described]:
        """The same of several images, ``batch_size`` at a time through the network."""
        described: list[Described] = []
        for start in range(0, len(images), self.batch_size):
            batch = list(images[start : start + self.batch_size])
            maps = [self._cells(*runs) for runs in self._runs(batch)]
            if all(cells.shape[1:3] == (1, 1) for cells in maps):
                maps = [np.mean(maps, axis=0)]
            axes = [(np.arange(cells.shape[2]), np.arange(cells.shape[1])) for cells in maps]
            where = np.concatenate([grid.positions(x, y, len(x), len(y)) for x, y in axes])
            for i in range(len(batch)):
                values = np.concatenate([cells[i].reshape(-1, cells.shape[3]) for cells in maps])
                described.append((values.astype(self.dtype), where))
        return described

    def _cells(self, outputs: dict[str, np.ndarray], mirrored: dict[str, np.ndarray] | None = None) -> np.ndarray:
        cells = find_output(outputs, self.output)
        if mirrored is None:
            return cells
        return (cells + find_output(mirrored, self.output)[:, :, ::-1]) / 2

    def _runs(self, images: list[np.ndarray]) -> list[Outputs]:
        """Outputs of the network for every size: one, and that of the mirror images if asked for."""
        network = open_network(self.model, self.output)
        sizes, normalization = self._sizes(network), self._normalization(network)
        content = tuple((image.shape, hashlib.blake2b(np.ascontiguousarray(image).data).digest()) for image in images)
        asked = (network.engine, sizes, normalization, self.mirror, content)
        if (known := _recent.find(asked)) is not None:
            return known
        runs: list[Outputs] = []
        for size in sizes:
            batch = np.stack([prepare(image, size, normalization) for image in images])
            runs.append([network.run(batch), *([network.run(batch[..., ::-1])] if self.mirror else [])])
        _recent.keep(asked, runs)
        return runs

    def _sizes(self, network: Network) -> tuple[int, ...]:
        size = network.size if self.size is None else self.size
        if size is None:
            raise ValueError(
                "the network takes images of any size and does not say which it was trained on: give it, e.g. size=224"
            )
        sides = np.atleast_1d(size)
        if len(sides) == 0 or sides.dtype.kind not in "iu" or sides.min() < 1:
            raise ValueError(f"size must be one or more positive whole numbers of pixels, got {self.size!r}")
        if len(sides) > 8 or sides.max() > 4 * MOST_PIXELS:
            raise ValueError(f"size must be up to 8 numbers of at most {4 * MOST_PIXELS} pixels, got {self.size!r:.60}")
        return tuple(int(side) for side in sides)

    def _normalization(self, network: Network) -> Normalization:
        given = network.normalization if self.normalization is None else self.normalization
        if given is None:
            raise ValueError(
                'the network does not say what its images are normalized by: give normalization="imagenet" (mean 0.485 '
                '0.456 0.406, std 0.229 0.224 0.225: most networks), "symmetric" (-1..1), "unit" (0..1) or (mean, std)'
            )
        if isinstance(given, str):
            return NORMALIZATIONS[given]
        if np.shape(given) != (2, 3) or not np.all(np.asarray(given[1]) > 0):
            raise ValueError(f"normalization must be (mean, std), three numbers each and std > 0; got {given!r}")
        mean, std = (tuple(float(number) for number in part) for part in given)
        return mean, std

    def shares(self) -> Any:
        """What extractors have in common that share the runs of a network."""
        network = open_network(self.model, self.output)
        return id(network.engine), self._sizes(network), self._normalization(network), self.mirror

    def signature(self) -> str:
        """A short name of everything that the numbers depend on: the network's weights, not its name or place."""
        network = open_network(self.model, self.output)
        kind = [f"{type(self).__module__}.{type(self).__qualname__}", self.version, network.digest, self.output]
        images = [self._sizes(network), self._normalization(network), self.mirror, self.max_side]
        return self._signed(*kind, *images, self.dtype)


class _Recent:
    """The last runs of networks, by what was asked; threads share it."""

    def __init__(self) -> None:
        self._runs: OrderedDict[Any, list[Outputs]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, asked: Any) -> list[Outputs] | None:
        with self._lock:
            return self._runs.get(asked)

    def keep(self, asked: Any, runs: list[Outputs]) -> None:
        with self._lock:
            self._runs[asked] = runs
            while len(self._runs) > RECENT:
                self._runs.popitem(last=False)


_recent = _Recent()
