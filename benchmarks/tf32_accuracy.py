# SPDX-License-Identifier: BSD-3-Clause
"""What TF32 does to accuracies, on a machine without a GPU: its rounding is imitated on PyTorch's CPU tensors.

``runtime_context(tf32=True)`` lets a GPU round both sides of a matrix product of float32 to 10 bits of mantissa; sums
stay in float32.  Here every such product rounds its input in the same way, where the context asks for it, and the
recipes run on ``device="torch"``, which is the lines of a GPU.  Same splits, same seeds, with and without::

    python benchmarks/tf32_accuracy.py DIR/scene15 --recipes fisher words gmm-ppk --splits 4
"""

from __future__ import annotations

import argparse
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


def sample(bags: Bags, count: int) -> Bags:
    """Bags of ``count`` random descriptors of each."""
    random = np.random.default_rng(0)
    rows = [np.sort(random.choice(s, min(s, count), replace=False)) + o for s, o in zip(bags.sizes, bags.offsets)]
    index = np.concatenate(rows)
    offsets = np.cumsum([0, *map(len, rows)])
    return Bags(np.asarray(bags.values)[index], offsets, np.asarray(bags.positions)[index])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--recipes", nargs="+", default=["fisher", "words", "gmm-ppk", "gmm-klk", "gp-fisher"])
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--descriptors", type=int, default=100, help="of each image")
    options = parser.parse_args()
    photos = open_collection(options.folder).labelled()
    for name in options.recipes:
        recipe = make_recipe(name)
        bags, kept, _ = photos.describe(recipe[0])
        few, labels = sample(bags, options.descriptors), np.asarray(photos.labels)[kept]
        found = {}
        for tf32 in (False, True):
            with runtime_context(device="torch", tf32=tf32, n_jobs=1), imitation():
                split = PerClassSplit(100, n_splits=options.splits)
                found[tf32] = [100 * s.accuracy for s in evaluate(recipe, few, labels, cv=split).splits]
        change = np.subtract(found[True], found[False])
        error = change.std(ddof=1) / len(change) ** 0.5 if len(change) > 1 else float("nan")
        print(
            f"{name:14s} FP32 {np.mean(found[False]):.2f}   TF32 {np.mean(found[True]):.2f}   "
            f"difference {change.mean():+.2f} ± {error:.2f} (standard error, {len(change)} splits)",
            flush=True,
        )


if __name__ == "__main__":
    main()
