# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
import os
import pickle
import sys
import types
from collections import OrderedDict

import numpy as np
import pytest

from patchbag.features.networks.torch_weights import MAGIC, PROTOCOL, read_torch_weights


class View:
    """A tensor: part of a storage."""

    def __init__(self, key, offset, shape, strides):
        self.parts = (key, offset, shape, strides)

    def __reduce__(self):
        key, offset, shape, strides = self.parts
        return sys.modules["torch._utils"]._rebuild_tensor_v2, (Key(key), offset, shape, strides, False, OrderedDict())


class Key(str):
    """Stands for a storage in the pickle of tensors."""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file in torch's stream format: tensors by name, storages by key."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ("FloatStorage", "LongStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2():
        """Only its name is written."""

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)

    def write(tensors, storages, magic=MAGIC):
        class Pickler(pickle.Pickler):
            def persistent_id(self, obj):
                if isinstance(obj, Key):
                    storage = storages[str(obj)]
                    kind = torch.FloatStorage if storage.dtype == np.float32 else torch.LongStorage
                    return ("storage", kind, str(obj), "cpu", len(storage), None)
                return None

        file = io.BytesIO()
        for header in (magic, PROTOCOL, {"little_endian": True}):
            pickle.dump(header, file, protocol=2)
        Pickler(file, protocol=2).dump(tensors)
        pickle.dump(list(storages), file, protocol=2)
        for storage in storages.values():
            file.write(len(storage).to_bytes(8, "little") + storage.tobytes())
        path = tmp_path / "weights.pth"
        path.write_bytes(file.getvalue())
        return path

    return write


def test_tensors_come_back_with_their_offsets_and_strides(write):
    numbers, counts = np.arange(20, dtype=np.float32), np.array([7, 8, 9], np.int64)
    tensors = OrderedDict(
        whole=View("a", 0, (4, 5), (5, 1)),
        transposed=View("a", 0, (5, 4), (1, 5)),
        later=View("a", 6, (3,), (2,)),
        scalar=View("b", 2, (), ()),
        none=View("b", 0, (0, 3), (3, 1)),
    )
    found = read_torch_weights(write(tensors, {"a": numbers, "b": counts}))
    assert list(found) == list(tensors)
    np.testing.assert_array_equal(found["whole"], numbers.reshape(4, 5))
    np.testing.assert_array_equal(found["transposed"], numbers.reshape(4, 5).T)
    np.testing.assert_array_equal(found["later"], [6, 8, 10])
    assert found["scalar"] == 9 and found["scalar"].dtype == np.int64
    assert found["none"].shape == (0, 3)


class Evil:
    def __reduce__(self):
        return os.system, ("touch was-here",)


class Hidden:
    def __reduce__(self):
        return getattr, (Key("a"), "tofile")


@pytest.mark.parametrize("payload", [Evil(), Hidden(), np.zeros(2), io.StringIO])
def test_a_pickle_that_names_anything_else_is_refused_and_not_run(write, payload, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(OrderedDict(x=payload), {"a": np.zeros(3, np.float32)})
    with pytest.raises(ValueError, match=r"not a file of weights .* names .*, which weights have no need of"):
        read_torch_weights(path)
    assert not os.path.exists("was-here")


@pytest.mark.parametrize(
    ("offset", "shape", "strides"), [(0, (4,), (1,)), (2, (2,), (1,)), (0, (2, 2), (2, 1)), (-1, (2,), (1,))]
)
def test_a_tensor_cannot_reach_beyond_its_storage(write, offset, shape, strides):
    path = write(OrderedDict(x=View("a", offset, shape, strides)), {"a": np.zeros(3, np.float32)})
    with pytest.raises(ValueError, match="reaches beyond its storage"):
        read_torch_weights(path)


def test_what_is_no_complete_file_of_weights_is_an_error_that_names_it(write, tmp_path):
    path = write(OrderedDict(x=View("a", 0, (3,), (1,))), {"a": np.zeros(3, np.float32)})
    content = path.read_bytes()
    for damaged in (content[:-1], content[:-20], content[:60], b"", b"PK\x03\x04 a newer file", b"\xff" * 100):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"weights\.pth is not a file of weights"):
            read_torch_weights(path)
    with pytest.raises(ValueError, match="magic number"):
        read_torch_weights(write(OrderedDict(), {}, magic=1))
    with pytest.raises(ValueError, match="more than a dictionary of tensors"):
        read_torch_weights(write(OrderedDict(x="text"), {}))
