# SPDX-License-Identifier: BSD-3-Clause
"""Any ONNX file of an image network, run by onnxruntime.

What the file does not say has to be given; what is found in it:

* the **size** of images, if the input's is fixed, or in the file's metadata (``size``: "260"),
* the **layout**: channels before or after height and width, by where the 3 stands in the input's shape,
* the **normalization**, in the metadata (``mean`` and ``std``: "0.485 0.456 0.406", on the scale 0..1),
* **outputs**: those of the graph, and where none of these has positions (a classifier's scores) also the map that its
  last global pooling averages.  Any other tensor inside of the graph becomes an output if asked for by name.

Nothing is reported to anyone: onnxruntime gathers from its import on what machine it runs on and which model, and sends
it to its maker, unless the environment says no before that.

A session runs on one thread and may be called from several at a time: images are described in parallel, each in the
same bits whatever the number of workers.
"""

import hashlib
import os
from typing import Any

import numpy as np

DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
POOLING = ("GlobalAveragePool", "GlobalMaxPool", "ReduceMean")


class OnnxNetwork:
    """A network in an ONNX file.

    Parameters
    ----------
    source : path, or the bytes of the file
    inner : name of a tensor inside of the graph that shall be an output
    device : "cuda" runs it on a GPU where onnxruntime can
    """

    def __init__(self, source: str | os.PathLike[str] | bytes, inner: str | None = None, device: str = "cpu") -> None:
        self.name = "the graph" if isinstance(source, bytes) else os.fspath(source)
        self.digest = _digest(source)
        self.session = _start(source, self.name, device)
        outputs = self.session.get_outputs()
        if inner is not None and inner not in [output.name for output in outputs]:
            self.session = _start(_exposed(source, inner, self.name), self.name, device)
        elif inner is None and not any(len(output.shape or ()) in (3, 4) for output in outputs):
            pooled = _pooled_tensor(source)
            if pooled is not None:
                self.session = _start(_exposed(source, pooled, self.name), self.name, device)
        self.outputs = [output.name for output in self.session.get_outputs() if output.type in DTYPES]
        if not self.outputs:
            raise ValueError(f"{self.name} has no output of floating point numbers, so none that describes an image")
        self.engine = self.session
        self._look_at_input()
        facts = self.session.get_modelmeta().custom_metadata_map
        self.size = int(facts["size"]) if self.fixed is None and "size" in facts else self.fixed
        self.normalization: Any = None
        if "mean" in facts and "std" in facts:
            mean, std = (tuple(float(number) for number in facts[key].split()) for key in ("mean", "std"))
            self.normalization = (mean, std)

    def _look_at_input(self) -> None:
        inputs = self.session.get_inputs()
        shape = inputs[0].shape if len(inputs) == 1 else None
        if shape is None or len(shape) != 4 or 3 not in (shape[1], shape[3]) or inputs[0].type not in DTYPES:
            found = ", ".join(f"{one.name} {one.type} {one.shape}" for one in inputs)
            raise ValueError(
                f"{self.name} does not take a batch of RGB images: its input should be one tensor of floating point "
                f"numbers (n, 3, height, width) or (n, height, width, 3), it is {found}"
            )
        self.input, self.dtype = inputs[0].name, DTYPES[inputs[0].type]
        self.channels_last = shape[1] != 3
        height, width = shape[1:3] if self.channels_last else shape[2:]
        self.fixed = height if isinstance(height, int) else None
        if self.fixed is not None and height != width:
            raise ValueError(f"{self.name} takes images of {width}×{height} pixels; they are made square here")
        self.batch = shape[0] if isinstance(shape[0], int) else None
        if self.batch not in (None, 1):
            raise ValueError(f"{self.name} takes {self.batch} images at a time; export it for one or any number")

    def run(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Outputs by name, of images (n, 3, h, w): float32, channels before positions in maps."""
        if self.fixed not in (None, images.shape[2]):
            raise ValueError(
                f"{self.name} takes images of {self.fixed}×{self.fixed} pixels only, not {images.shape[2]}"
            )
        if self.batch == 1 and len(images) > 1:
            parts = [self.run(images[i : i + 1]) for i in range(len(images))]
            return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if self.channels_last:
            images = images.transpose(0, 2, 3, 1)
        images = np.ascontiguousarray(images, dtype=self.dtype)
        found = dict(zip(self.outputs, self.session.run(self.outputs, {self.input: images})))
        if self.channels_last:
            found = {name: array.transpose(0, 3, 1, 2) if array.ndim == 4 else array for name, array in found.items()}
        return {name: array.astype(np.float32, copy=False) for name, array in found.items()}


def _digest(source: Any) -> str:
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    total = hashlib.sha256()
    for path in (os.fspath(source), f"{os.fspath(source)}.data"):  # where torch puts large weights
        if os.path.isfile(path):
            with open(path, "rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def _start(source: Any, name: str, device: str) -> Any:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            "networks are run by onnxruntime, which is not installed: pip install onnxruntime (or onnxruntime-gpu)"
        ) from error
    onnxruntime.disable_telemetry_events()  # where somebody else has imported it before

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # its warnings are about its own optimisations
    wanted = ["CUDAExecutionProvider"] if device == "cuda" else []
    providers = [provider for provider in wanted if provider in onnxruntime.get_available_providers()]
    source = source if isinstance(source, bytes) else os.fspath(source)
    try:
        return onnxruntime.InferenceSession(source, options, providers=[*providers, "CPUExecutionProvider"])
    except Exception as error:  # classes of its own below RuntimeError and Exception, one per status code
        raise ValueError(f"{name} is not an ONNX file that onnxruntime can run: {error}") from error


def _model(source: Any) -> Any:
    import onnx

    return onnx.load_model_from_string(source) if isinstance(source, bytes) else onnx.load(source)


def _pooled_tensor(source: Any) -> str | None:
    """What the last global pooling of a graph averages, if there is one."""
    nodes = [node for node in _model(source).graph.node if node.op_type in POOLING]
    return nodes[-1].input[0] if nodes else None


def _exposed(source: Any, tensor: str, name: str) -> bytes:
    from onnx import TensorProto, helper

    model = _model(source)
    inside = [output for node in model.graph.node for output in node.output]
    if tensor not in inside:
        last = ", ".join(inside[-8:])
        raise ValueError(f"{name} has no tensor {tensor!r}; the last ones are {last}; see all of them with Netron")
    model.graph.output.append(helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None))
    return model.SerializeToString()
