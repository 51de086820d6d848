# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.base import clone

from patchbag import DenseSIFT, FeatureChannels, open_collection, runtime_context
from patchbag.features.deep import DeepPatches, as_map, find_output, prepare
from patchbag.features.networks.efficientnet_lite import VARIANTS
from patchbag.features.networks.onnx_network import OnnxNetwork
from patchbag.storage import models as storage

UNIT = ((0.0,) * 3, (1.0,) * 3)


@pytest.fixture
def averages(tmp_path):
    """A network that averages squares of 4 × 4 pixels, and their mean."""
    nodes = [
        helper.make_node("AveragePool", ["images"], ["squares"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("GlobalAveragePool", ["squares"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["pooled"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "averages",
        [info("images", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [info("squares", TensorProto.FLOAT, ["n", 3, "a", "b"]), info("pooled", TensorProto.FLOAT, ["n", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "averages.onnx")
    return tmp_path / "averages.onnx"


@pytest.fixture
def images(rng):
    return [rng.integers(0, 256, (12, 12, 3), dtype=np.uint8) for _ in range(5)]


@pytest.fixture
def runs(monkeypatch):
    """How many images went through a network, call after call."""
    seen = []
    run = OnnxNetwork.run
    monkeypatch.setattr(OnnxNetwork, "run", lambda self, images: seen.append(len(images)) or run(self, images))
    return seen


def squares(image, size=12):
    resized = np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC)) / 255
    return resized.reshape(size // 4, 4, size // 4, 4, 3).mean(axis=(1, 3))


def test_cells_of_the_map_are_descriptors_with_their_positions(averages, images):
    bags = DeepPatches(averages, size=12, normalization="unit").transform(images)
    assert bags.sizes.tolist() == [9] * 5
    for bag, image in zip(bags, images):
        np.testing.assert_allclose(bag.reshape(3, 3, 3), squares(image), atol=1e-6)
    centres = np.array([1, 3, 5]) / 6
    np.testing.assert_allclose(bags[0:1].positions, [(x, y) for y in centres for x in centres], atol=1e-7)


def test_the_pooled_vector_is_a_bag_of_one_in_the_middle(averages, images):
    bags = DeepPatches(averages, output="pooled", size=12, normalization="unit").transform(images)
    np.testing.assert_allclose(bags.values, [squares(image).mean(axis=(0, 1)) for image in images], atol=1e-6)
    assert bags.sizes.tolist() == [1] * 5 and (bags.positions == 0.5).all()


def test_several_sizes_add_patches_and_average_pooled_vectors(averages, images):
    common = {"model": averages, "size": (8, 12), "normalization": "unit"}
    bag = DeepPatches(**common).transform(images[:1])
    expected = [squares(images[0], size).reshape(-1, 3) for size in (8, 12)]
    np.testing.assert_allclose(bag.values, np.concatenate(expected), atol=1e-6)
    np.testing.assert_allclose(bag.positions[:4], [(0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)])
    pooled = DeepPatches(**common, output="pooled").transform(images[:1])
    np.testing.assert_allclose(pooled.values[0], np.mean([part.mean(axis=0) for part in expected], axis=0), atol=1e-6)


def test_the_mirror_image_is_averaged_patch_by_patch(tmp_path, images):
    """With a network that sees left and right differently: the difference of neighbouring pixels."""
    kernel = np.zeros((3, 3, 1, 2), np.float32)
    kernel[range(3), range(3), 0] = [1, 3]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["images", "k"], ["y"])],
        "g",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3, 4, 3])],
        [numpy_helper.from_array(kernel, "k")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "g.onnx")
    found = DeepPatches(tmp_path / "g.onnx", normalization="unit", mirror=True).transform(images[:1])
    x = prepare(images[0], 4, UNIT)
    expected = (x[:, :, :-1] + 3 * x[:, :, 1:] + 3 * x[:, :, :-1] + x[:, :, 1:]) / 2
    np.testing.assert_allclose(found.values.reshape(4, 3, 3), expected.transpose(1, 2, 0), atol=1e-6)


def test_normalization_is_on_the_scale_of_one(images):
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 1.0)
    found = prepare(images[0], 12, (mean, std))
    np.testing.assert_allclose(found.transpose(1, 2, 0), (images[0] / 255 - mean) / std, atol=1e-5)
    np.testing.assert_array_equal(prepare(images[0].astype(np.float32) + 0.2, 12, (mean, std)), found)


@pytest.mark.parametrize("leading", [0, 1, 5])
def test_patch_tokens_of_a_transformer_are_a_map_without_the_leading_ones(rng, leading):
    tokens = rng.random((2, leading + 16, 7))
    cells, first = as_map(tokens)
    np.testing.assert_array_equal(cells, tokens[:, leading:].reshape(2, 4, 4, 7))
    np.testing.assert_array_equal(first, tokens[:, :leading])
    expected = tokens[:, 0] if leading else tokens.mean(axis=1)
    np.testing.assert_allclose(find_output({"tokens": tokens}, "pooled")[:, 0, 0], expected)


def test_an_output_is_found_by_name_and_then_by_shape(rng):
    outputs = {"scores": rng.random((2, 5)), "deep": rng.random((2, 7, 3, 4)), "shallow": rng.random((2, 6, 8, 8))}
    np.testing.assert_array_equal(find_output(outputs, "map"), outputs["deep"].transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(find_output(outputs, "shallow"), outputs["shallow"].transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(find_output(outputs, "scores")[:, 0, 0], outputs["scores"])
    np.testing.assert_allclose(find_output(outputs, "pooled")[:, 0, 0], outputs["deep"].mean(axis=(2, 3)))
    only = {"scores": outputs["scores"]}
    np.testing.assert_array_equal(find_output(only, "pooled")[:, 0, 0], outputs["scores"])
    with pytest.raises(ValueError, match=r"no output with positions.*scores \(2, 5\)"):
        find_output(only, "map")
    with pytest.raises(ValueError, match=r"no output 'other'; it has scores \(2, 5\), deep"):
        find_output(outputs, "other")
    with pytest.raises(ValueError, match="23 tokens per image, which are no square"):
        find_output({"tokens": rng.random((1, 23, 3))}, "map")


def test_map_and_pooled_vector_of_one_image_share_one_run(averages, images, runs):
    patches, pooled = (DeepPatches(averages, output=o, size=12, normalization="unit") for o in ("map", "pooled"))
    for image in images:
        values, _ = patches.describe(image)
        np.testing.assert_allclose(pooled.describe(image)[0][0], values.mean(axis=0), atol=1e-6)
    assert runs == [1] * 5
    DeepPatches(averages, size=8, normalization="unit").describe(images[-1])
    images[-1][0, 0] ^= 255
    changed = patches.describe(images[-1])[0]
    assert runs == [1] * 7 and not np.allclose(changed, values)


def test_batches_workers_and_single_images_give_the_same(averages, images, runs):
    common = {"model": averages, "size": 12, "normalization": "unit"}
    alone = DeepPatches(**common).transform(images)
    threads = DeepPatches(**common, n_jobs=2).transform(images)
    np.testing.assert_array_equal(threads.values, alone.values)
    runs.clear()
    batched = DeepPatches(**common, batch_size=2).describe_many(images)
    assert runs == [2, 2]  # the run of the last image alone is remembered
    for (values, positions), bag in zip(batched, alone):
        np.testing.assert_allclose(values, bag, atol=1e-6)
        np.testing.assert_array_equal(positions, alone[0:1].positions)


def test_half_precision_is_the_same_rounded(averages, images):
    common = {"model": averages, "size": 12, "normalization": "unit"}
    whole, half = (DeepPatches(**common, dtype=dtype).transform(images).values for dtype in ("float32", "float16"))
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, whole.astype(np.float16))


def test_what_the_network_does_not_tell_must_be_given(averages, images):
    with pytest.raises(ValueError, match=r"does not say which it was trained on: give it, e\.g\. size=224"):
        DeepPatches(averages, normalization="unit").transform(images)
    with pytest.raises(ValueError, match=r'give normalization="imagenet" .* or \(mean, std\)'):
        DeepPatches(averages, size=12).transform(images)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"size": 0}, "The 'size' parameter of DeepPatches must be"),
        ({"size": (12, 0)}, "size must be one or more positive whole numbers"),
        ({"size": (12.5,)}, "size must be one or more positive whole numbers"),
        ({"size": ()}, "size must be one or more positive whole numbers"),
        ({"normalization": "unknown"}, "The 'normalization' parameter of DeepPatches must be"),
        ({"normalization": (0.5, 0.5)}, r"normalization must be \(mean, std\), three numbers each"),
        ({"normalization": ((0.5,) * 3, (0.5, 0.5, 0.0))}, "std > 0"),
        ({"dtype": "uint8"}, "The 'dtype' parameter of DeepPatches must be"),
        ({"batch_size": 0}, "The 'batch_size' parameter of DeepPatches must be"),
        ({"output": "nothing"}, "has no tensor 'nothing'"),
        ({"model": 3}, "The 'model' parameter of DeepPatches must be"),
    ],
)
def test_parameters_that_cannot_work_are_refused_before_any_image_is_read(averages, parameters, message):
    wanted = {"model": averages, "size": 12, "normalization": "unit"} | parameters
    with pytest.raises(ValueError, match=message):
        DeepPatches(**wanted).fit()


def test_stored_features_are_those_of_the_network_and_not_of_its_name(averages, tmp_path):
    def signature(path, **parameters):
        return DeepPatches(path, normalization="unit", **parameters).signature()

    first = signature(averages, size=12)
    moved = averages.rename(tmp_path / "moved.onnx")
    assert signature(moved, size=12) == first == signature(str(moved), size=(12,))
    assert signature(moved, size=8) != first
    model = onnx.load(moved)
    model.graph.node[0].attribute[0].ints[0] = 2
    onnx.save(model, moved)
    assert signature(moved, size=12) != first


def test_a_module_of_torch_is_run_as_it_is_and_shared_by_clones(images):
    torch = pytest.importorskip("torch")

    class Halves(torch.nn.Module):
        """Like timm's networks: they know their input, and give features before scores."""

        pretrained_cfg = {"input_size": (3, 12, 12), "mean": (0.0,) * 3, "std": (1.0,) * 3}  # noqa: RUF012

        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm2d(3)
            self.pool = torch.nn.AvgPool2d(4)

        def forward_features(self, x):
            return self.pool(self.norm(x))

    module = Halves()
    extractor = clone(DeepPatches(module))
    assert extractor.model is module
    bags = extractor.transform(images)
    factor = 1 / np.sqrt(1 + module.norm.eps)  # what an untrained batch norm does out of training
    np.testing.assert_allclose(bags.values[:9].reshape(3, 3, 3), squares(images[0]) * factor, atol=1e-6)
    pair = torch.nn.Module()
    pair.forward = lambda x: (x.mean(dim=(2, 3)), x)
    pooled = DeepPatches(pair, output="0", size=12, normalization="unit").transform(images)
    np.testing.assert_allclose(pooled.values[0], squares(images[0]).mean(axis=(0, 1)), atol=1e-6)
    before = extractor.signature()
    with torch.no_grad():
        module.norm.weight.mul_(2)
    assert extractor.signature() != before


def test_the_default_network_gives_the_numbers_of_the_reference_code():
    """Of an image made here; the numbers were computed with torch 2.13 and efficientnet-lite-pytorch 0.1.0."""
    pytest.importorskip(VARIANTS["efficientnet-lite2"].package)
    y, x = np.mgrid[:260, :260]
    image = np.stack([x % 256, y % 256, (x * y // 64) % 256], axis=2).astype(np.uint8)
    patches, pooled = DeepPatches(size=260), DeepPatches(output="pooled", size=260)
    (values,), _ = pooled.describe(image)
    assert values.shape == (1280,) and patches.describe(image)[0].shape == (289, 120)
    np.testing.assert_allclose(values[:5], [0, 0.010594, 0, 0, 0], atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(values), 13.161299, atol=1e-3)


def test_a_model_file_keeps_the_parameters_and_no_weights(averages, images, tmp_path):
    extractor = DeepPatches(averages, output="pooled", size=(8, 12), normalization=UNIT, mirror=True)
    path = storage.save(extractor, tmp_path / "model.patchbag")
    assert path.stat().st_size < 4000
    loaded = storage.load(path)
    assert loaded.signature() == extractor.signature()
    np.testing.assert_array_equal(loaded.transform(images).values, extractor.transform(images).values)


def test_channels_of_one_network_are_described_by_one_run_per_image(averages, picture_folder, runs, tmp_path):
    common = {"model": averages, "size": 12, "normalization": "unit"}
    features = {"map": DeepPatches(**common), "pooled": DeepPatches(**common, output="pooled"), "sift": DenseSIFT()}
    images = open_collection(picture_folder)
    with runtime_context(store=tmp_path / "store"):
        found = images.describe(FeatureChannels(list(features.items())))
    assert len(runs) == len(found.kept) == 36
    pooled = features["pooled"].transform(images.paths)
    np.testing.assert_array_equal(found.bags["pooled"].values, pooled.values)
