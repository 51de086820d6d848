# SPDX-License-Identifier: BSD-3-Clause
"""Recipes on a GPU beside the same recipes on the CPU: accuracy on the same splits, with the same seeds.

::

    python benchmarks/measure_devices.py DIR/scene15 --recipes fisher deep-gp --splits 4 --device cuda
    python benchmarks/measure_devices.py DIR/scene15 --recipes gp-combined --device torch --train 15 --test 20
    python benchmarks/measure_devices.py DIR/scene15 --recipes fisher words gmm-ppk --device torch --tf32

``torch`` runs the lines of a GPU on PyTorch's CPU tensors.  ``--tf32`` adds products in TF32: a GPU rounds both sides
of a product of float32 to 10 bits of mantissa and adds up in float32; on PyTorch's CPU tensors that is imitated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from patchbag import PerClassSplit, evaluate, open_collection, runtime_context
from patchbag.bags import Bags
from patchbag.recipes import make_recipe

DROPPED = 13  # of 23 bits of mantissa
PRODUCTS = ("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm")


def rounded(a: Any) -> Any:
    """A float32 tensor with 10 bits of mantissa, rounded to the nearest."""
    import torch

    if getattr(a, "dtype", None) != torch.float32:
        return a
    bits = a.contiguous().view(torch.int32)
    return ((bits + (1 << (DROPPED - 1))) & -(1 << DROPPED)).view(torch.float32)


def imitation() -> Any:
    """A context in which products of float32 tensors are those of TF32 wherever PyTorch has been asked for these."""
    import torch
    from torch.overrides import TorchFunctionMode

    class RoundedProducts(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(function, "__name__", "")
            if name in PRODUCTS and torch.get_float32_matmul_precision() == "high":
                first = 1 if name in ("addmm", "baddbmm") else 0  # what is added to is not rounded
                args = (*args[:first], *(rounded(a) for a in args[first:]))
            return function(*args, **(kwargs or {}))

    return RoundedProducts()


def sample(bags: Any, count: int | None) -> Any:
    """Bags of ``count`` random descriptors of each; other features, and bags of None, as they are."""
    if count is None or not isinstance(bags, Bags):
        return bags
    random = np.random.default_rng(0)
    rows = [np.sort(random.choice(s, min(s, count), replace=False)) + o for s, o in zip(bags.sizes, bags.offsets)]
    index = np.concatenate(rows)
    offsets = np.cumsum([0, *map(len, rows)])
    positions = None if bags.positions is None else np.asarray(bags.positions)[index]
    return Bags(np.asarray(bags.values)[index], offsets, positions)


class Comparison(NamedTuple):
    """Mean accuracy on one device, change from the CPU with its standard error, in points, and seconds per split."""

    device: str
    accuracy: float
    change: float
    error: float
    seconds: float


def compare(
    photos: Any, name: str, split: PerClassSplit, device: str, tf32: bool, jobs: int, count: int | None = None
) -> Iterator[Comparison]:
    """A recipe on the CPU, then on the device, then there in TF32 if that is asked for."""
    recipe = make_recipe(name)
    with runtime_context(n_jobs=jobs):
        bags, kept, _ = photos.describe(recipe[0])
    few, labels = sample(bags, count), np.asarray(photos.labels)[kept]
    first = None
    for what, where, fast in (("cpu", "cpu", False), (device, device, False), ("TF32", device, True))[: 2 + tf32]:
        imitated = imitation() if fast and device == "torch" else nullcontext()
        with runtime_context(device=where, tf32=fast, n_jobs=jobs), imitated:
            found = evaluate(recipe, few, labels, cv=split)
        there = np.array([100 * s.accuracy for s in found.splits])
        change = there - (first := there if first is None else first)
        error = change.std(ddof=1) / len(change) ** 0.5 if len(change) > 1 else float("nan")
        yield Comparison(what, there.mean(), change.mean(), error, found.seconds()["total"] / len(there))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder")
    parser.add_argument("--recipes", nargs="+", default=["fisher", "words", "gmm-ppk", "gmm-klk", "gp-fisher"])
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--train", type=int, default=100, help="training images per class")
    parser.add_argument("--test", type=int, help="test images per class; all others unless given")
    parser.add_argument("--descriptors", type=int, help="of each image, where it has one bag of them; all unless given")
    parser.add_argument("--device", default="torch")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="workers of the CPU; -1 for all cores")
    given = parser.parse_args()
    photos = open_collection(given.folder).labelled()
    split = PerClassSplit(given.train, given.test, n_splits=given.splits)
    for name in given.recipes:
        print(f"{name:14s}", end="")
        for one in compare(photos, name, split, given.device, given.tf32, given.jobs, given.descriptors):
            print(f"   {one.device} {one.accuracy:.2f}, {one.change:+.2f} ± {one.error:.2f} in {one.seconds:.1f} s",
                  end="", flush=True)  # fmt: skip
        print(f"   ({given.splits} splits, ± standard error; seconds per split)")


if __name__ == "__main__":
    main()
