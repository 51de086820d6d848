# SPDX-License-Identifier: BSD-3-Clause
"""Networks that describe images: what :class:`~patchbag.features.deep.DeepPatches` runs.

A network has a ``size`` (the side of the square images it was trained on, None if unknown), a ``normalization`` (mean
and standard deviation of the channels on the scale 0..1, None if unknown), a ``digest`` of its weights, an ``engine``,
which two networks have in common if they are the same, and ``run(images)``: images (n, 3, h, w) -> outputs by name,
each (n, channels, h, w), (n, tokens, channels) or (n, channels).
"""

import os
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from patchbag.features.networks.efficientnet_lite import VARIANTS, efficientnet_lite_file, graph_digest
from patchbag.features.networks.onnx_network import OnnxNetwork
from patchbag.features.networks.torch_network import TorchNetwork
from patchbag.runtime import current_runtime

Normalization = tuple[tuple[float, ...], tuple[float, ...]]


class Network(Protocol):
    """What describes images."""

    size: int | None
    normalization: Normalization | None

    @property
    def digest(self) -> str: ...

    @property
    def engine(self) -> Any: ...

    def run(self, images: np.ndarray) -> dict[str, np.ndarray]: ...


def open_network(model: Any, output: str) -> Network:
    """The network that ``model`` stands for: a name, an ONNX file or a module of torch, opened once in a process.

    ``output`` is one of its outputs, "map" or "pooled", or any tensor inside of an ONNX file.
    """
    inner = None if output in ("map", "pooled") else output
    if isinstance(model, str) and model in VARIANTS:
        return _open_named(model, inner, current_runtime().device)
    if isinstance(model, str | os.PathLike):
        path = os.path.abspath(model)
        if not os.path.isfile(path):
            raise ValueError(
                f"there is no file {os.fspath(model)}: model is one of {', '.join(VARIANTS)}, the path of an ONNX file "
                "or a module of torch"
            )
        return _open_file(path, os.stat(path).st_mtime_ns, inner, current_runtime().device)
    if callable(model) and hasattr(model, "state_dict"):
        return TorchNetwork(model)
    raise ValueError(
        f"model must be one of {', '.join(VARIANTS)}, the path of an ONNX file or a module of torch, got {model!r}"
    )


@lru_cache(maxsize=4)
def _open_named(name: str, inner: str | None, device: str) -> OnnxNetwork:
    try:
        network = OnnxNetwork(efficientnet_lite_file(name), inner, device)
    except ValueError:  # the file in the cache may be damaged
        network = OnnxNetwork(efficientnet_lite_file(name, anew=True), inner, device)
    network.digest = graph_digest(name)
    return network


@lru_cache(maxsize=4)
def _open_file(path: str, changed: int, inner: str | None, device: str) -> OnnxNetwork:
    return OnnxNetwork(path, inner, device)
