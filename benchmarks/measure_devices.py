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
from contextlib import nullcontext
from typing import Any

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
    options = parser.parse_args()
    photos = open_collection(options.folder).labelled()
    split = PerClassSplit(options.train, options.test, n_splits=options.splits)
    for name in options.recipes:
        recipe = make_recipe(name)
        with runtime_context(n_jobs=options.jobs):
            bags, kept, _ = photos.describe(recipe[0])
        few, labels = sample(bags, options.descriptors), np.asarray(photos.labels)[kept]

        def accuracies(device: str, tf32: bool = False) -> tuple[np.ndarray, float]:
            imitated = imitation() if tf32 and device == "torch" else nullcontext()
            with runtime_context(device=device, tf32=tf32, n_jobs=options.jobs), imitated:
                found = evaluate(recipe, few, labels, cv=split)  # noqa: B023
            return np.array([100 * s.accuracy for s in found.splits]), found.seconds()["total"] / len(found.splits)

        here, took = accuracies("cpu")
        print(f"{name:14s} cpu {here.mean():.2f} in {took:.1f} s", end="", flush=True)
        for what, tf32 in ((options.device, False), ("TF32", True))[: 1 + options.tf32]:
            there, took = accuracies(options.device, tf32)
            change = there - here
            error = change.std(ddof=1) / len(change) ** 0.5 if len(change) > 1 else float("nan")
            found = f"{what} {there.mean():.2f}, {change.mean():+.2f} ± {error:.2f} in {took:.1f} s"
            print(f"   {found}", end="", flush=True)
        print(f"   ({len(here)} splits, ± standard error; seconds per split)")


if __name__ == "__main__":
    main()
