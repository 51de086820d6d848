# SPDX-License-Identifier: BSD-3-Clause
"""Arrays from a weight file of torch, without torch and without running what the file says.

Until 2020 ``torch.save`` wrote a stream: three pickles (a magic number, the protocol, the machine's type sizes), the
pickle of the dictionary of tensors, the pickle of the list of storages' keys, and then for every key the number of its
elements (8 bytes) and their bytes.  A pickle is a program; here it may name three things only: ``OrderedDict``,
``torch._utils._rebuild_tensor_v2``, which becomes a view of a storage, and the types of storages in :data:`STORAGES`.
"""

import os
import pickle
from collections import OrderedDict
from typing import IO, Any

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
STORAGES = {
    "FloatStorage": np.dtype("<f4"),
    "DoubleStorage": np.dtype("<f8"),
    "HalfStorage": np.dtype("<f2"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.storages: dict[str, np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _view
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        raise pickle.UnpicklingError(f"names {module}.{name}, which weights have no need of")

    def persistent_load(self, pid: Any) -> np.ndarray:
        match pid:
            case ("storage", np.dtype() as dtype, str(key), str(_), int(size), None):
                return self.storages.setdefault(key, np.zeros(size, dtype))
        raise pickle.UnpicklingError("refers to something that is not a whole storage")


def _view(storage: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> np.ndarray:
    reach = offset + sum((length - 1) * step for length, step in zip(shape, strides)) + 1
    if offset < 0 or any(step < 0 for step in strides) or reach > len(storage):
        raise pickle.UnpicklingError("has a tensor that reaches beyond its storage")
    in_bytes = [step * storage.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, in_bytes, writeable=False)


def read_torch_weights(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a file written by ``torch.save(model.state_dict(), path)`` in the stream format.

    Raises ValueError where the file is something else or holds more than tensors.
    """
    with open(path, "rb") as file:
        try:
            if [_Unpickler(file).load() for _ in range(2)] != [MAGIC, PROTOCOL]:
                raise pickle.UnpicklingError("has no magic number of torch's stream format")
            _Unpickler(file).load()
            unpickler = _Unpickler(file)
            tensors = unpickler.load()
            for key in _Unpickler(file).load():
                storage = unpickler.storages[key]
                size = int.from_bytes(file.read(8), "little")
                if size != len(storage) or file.readinto(storage.data) != storage.nbytes:
                    raise pickle.UnpicklingError("ends before its last tensor")
        except (pickle.UnpicklingError, EOFError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"{os.fspath(path)} is not a file of weights in torch's stream format: {error}") from error
    if not isinstance(tensors, dict) or not all(isinstance(tensor, np.ndarray) for tensor in tensors.values()):
        raise ValueError(f"{os.fspath(path)} holds more than a dictionary of tensors")
    return dict(tensors)
