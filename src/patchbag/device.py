# SPDX-License-Identifier: BSD-3-Clause
"""Where arrays live: in NumPy's memory or on a GPU, as the context's ``device`` says.

A step that may run on a GPU brings its input there by :func:`to_device`; with ``device="cpu"`` nothing happens.  The
steps behind it are written for the Array API and follow their input.  What a fitted model keeps, and similarities of
images, come back by :func:`to_host`: a model trained on one device predicts on the other, and no file knows of devices.

Names of devices: ``"cpu"`` (NumPy), ``"cuda"`` or ``"cuda:1"``, and ``"torch"``, PyTorch on the CPU, which runs the
lines of a GPU where there is none (the tests do).

Descriptors travel as they are stored, bytes as bytes, through page-locked memory; :func:`prefetch` reads the next chunk
of a memory-mapped file while the GPU computes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_numpy_array

from patchbag.records import Records
from patchbag.runtime import current_runtime, tensor_cores

J = TypeVar("J")
R = TypeVar("R")

AHEAD = 2  # chunks that are read while one is computed
LOCKED_BYTES = 1 << 28  # to lock more memory takes longer than to copy it
SPLIT_WIDTH = 1024  # of rows; below, the parts of numbers take longer to make than they save
PART_WIDTH = 8192  # of a row that tensor cores add up


def lies_elsewhere(a: Any) -> bool:
    """Whether it is an array of another library than NumPy: a tensor, on a GPU or not."""
    return is_array_api_obj(a) and not is_numpy_array(a)


def on_device(a: Any) -> bool:
    """Whether the context computes elsewhere than in NumPy, or the array already lies elsewhere."""
    return current_runtime().device != "cpu" or lies_elsewhere(a)


def to_device(a: Any) -> Any:
    """The array on the device of the context; None, and what lies on a device already, as it is."""
    name = current_runtime().device
    if a is None or name == "cpu" or not is_numpy_array(a):
        return a
    import torch

    a = a if a.dtype.kind in "fi" or a.dtype == np.uint8 else a.astype(np.float32)
    return _send(a, getattr(torch, a.dtype.name), "cpu" if name == "torch" else name)


def _send(a: np.ndarray, dtype: Any, where: Any) -> Any:
    """A tensor; sent to a GPU from page-locked memory, so that the copy does not wait for earlier work of the GPU."""
    import torch

    locked = str(where) != "cpu" and a.nbytes <= LOCKED_BYTES
    staged = torch.empty(a.shape, dtype=dtype, pin_memory=locked)
    np.copyto(staged.numpy(), a, casting="same_kind")
    return staged.to(where, non_blocking=locked)


def like(a: Any, other: Any) -> Any:
    """The array with the dtype and on the device of another."""
    xp = array_namespace(other)
    if getattr(other, "is_cuda", False) and is_numpy_array(a):
        return _send(a, other.dtype, other.device)
    return xp.asarray(a, dtype=other.dtype, device=device(other))


def floating(values: Any) -> Any:
    """float32 and float64 as they are, all else (bytes, half precision) as float32."""
    xp = array_namespace(values)
    return values if values.dtype in (xp.float32, xp.float64) else xp.astype(values, xp.float32)


def to_host(a: Any) -> Any:
    """An array as NumPy's, and those of :class:`~patchbag.records.Records`; all else as it is."""
    if isinstance(a, Records):
        return replace(a, **{name: to_host(part) for name, part in a.arrays().items()})
    if not lies_elsewhere(a):
        return a
    return a.cpu().numpy() if hasattr(a, "cpu") else np.asarray(a)


def product(a: Any, b: Any) -> Any:
    """a @ b; large float32 matrices of a CUDA GPU by its tensor cores (:func:`add_products`), never in TF32 alone."""
    if str(a.dtype) != "torch.float32":
        return a @ b
    import torch

    if not a.is_cuda or a.ndim > 2 or a.shape[1] < SPLIT_WIDTH:
        with tensor_cores(False):
            return a @ b
    return add_products(torch.zeros((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device), split(a), split(b))


def add_products(out: Any, a: tuple[Any, Any], b: tuple[Any, Any]) -> Any:
    """``out += (a₁ + a₂)(b₁ + b₂)`` of numbers in two parts of TF32, in three products of a CUDA GPU's tensor cores.

    TF32 keeps 11 bits of each number; what it drops is given to it as well, and a₁b₁ + a₁b₂ + a₂b₁ is near to ab.
    Tensor cores cut their sums off instead of rounding them, which adds up over a long row: parts of ``PART_WIDTH``
    numbers are multiplied apart and added in float32.
    """
    import torch

    with tensor_cores(True):
        for left, right in ((a[0], b[1]), (a[1], b[0]), (a[0], b[0])):
            for start in range(0, left.shape[1], PART_WIDTH):
                part = slice(start, start + PART_WIDTH)
                torch.addmm(out, left[:, part], right[part], out=out)
    return out


def split(m: Any) -> tuple[Any, Any]:
    """A float32 tensor as a sum of two that TF32 keeps: the first without the last 13 bits of its mantissa."""
    import torch

    if m.ndim == 2 and m.T.is_contiguous():  # stays so: it is faster to multiply than to transpose
        high, low = split(m.T)
        return high.T, low.T
    high = (m.contiguous().view(torch.int32) & -8192).view(torch.float32)
    return high, m - high


def from_device(a: Any) -> Any:
    """The array on the host where the context computes elsewhere, else as it is: for results of similarities."""
    return a if current_runtime().device == "cpu" else to_host(a)


def follow(records: Any, a: Any) -> Any:
    """Records with their arrays on the device of another array."""
    if is_numpy_array(a):
        return records
    xp, where = array_namespace(a), device(a)
    return replace(records, **{name: xp.asarray(part, device=where) for name, part in records.arrays().items()})


def prefetch(function: Callable[[J], R], jobs: Iterable[J]) -> Iterator[R]:
    """``function`` of every job, in order, made by another thread while the results before it are used."""
    context = copy_context()
    with ThreadPoolExecutor(1) as pool:
        waiting: deque[Future[R]] = deque()
        for job in jobs:
            waiting.append(pool.submit(context.run, function, job))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
