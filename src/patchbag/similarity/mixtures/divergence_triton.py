# SPDX-License-Identifier: BSD-3-Clause
r"""One-to-one divergences on a CUDA GPU: the features of ``one_to_one._features`` in one kernel (Triton).

The twin makes them in thirty passes over memory.  Here a program reads the mean and the variance of one component of an
image once and writes what it brings to the matrix product, as two parts of TF32 (:func:`patchbag.device.add_products`).
Differential entropies are taken in the frame of the references, so that float32 keeps their digits.
"""

from typing import Any

import numpy as np

from patchbag.device import add_products, like, split
from patchbag.similarity.mixtures.matching import WEIGHT_FLOOR

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

ALIGN = 8  # products of other widths are slower


def usable(P: Any, dtype: Any) -> bool:
    """Whether these mixtures are float32 tensors of a CUDA GPU, float32 is asked for and Triton is there."""
    here = triton is not None and getattr(P.means, "is_cuda", False) and str(P.means.dtype) == "torch.float32"
    return bool(here and np.dtype(dtype) == np.float32)


if triton is not None:

    @triton.jit
    def _write(high, low, at, number, mask):  # pragma: no cover - compiled
        first = (number.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
        tl.store(high + at, first, mask)
        tl.store(low + at, number - first, mask)

    @triton.jit
    def _features(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        means, variances, weights, centre, scale, high, low, volumes, K, width, base, FLOOR: tl.constexpr,
        D: tl.constexpr, DP: tl.constexpr, LEFT: tl.constexpr,
    ):  # fmt: skip
        image, k, d = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, DP)
        known, at = d < D, (image * K + k) * D + d
        s = tl.load(scale + k * D + d, known, 1.0)
        mu = (tl.load(means + at, known, 0.0) - tl.load(centre + k * D + d, known, 0.0)) / s
        v = tl.load(variances + at, known, 1.0) / (s * s)
        weight = tl.load(weights + image * K + k)
        volume = 0.5 * tl.sum(tl.log(v))
        if LEFT:
            t = v - 1 + mu * mu
            first, second, third, fourth = weight * t, weight * mu, weight * tl.sum(t), weight
        else:
            r = 1 / v - 1
            first, second, third = 0.5 * r, -mu / v, 0.5 + 0 * weight
            fourth = volume + 0.5 * tl.sum(r + mu * mu / v) - tl.log(tl.maximum(weight, FLOOR))
        at = image * width + base + k * (2 * D + 2)
        _write(high, low, at + d, first, known)
        _write(high, low, at + D + d, second, known)
        _write(high, low, at + 2 * D, third, True)
        _write(high, low, at + 2 * D + 1, fourth, True)
        tl.store(volumes + image * K + k, volume)


def features(mixtures: Any, coordinates: tuple[Any, Any], sides: str) -> tuple[Any, Any]:
    """Both parts (n, W) of the features of the sides named, next to each other."""
    import torch

    n, (k, d) = len(mixtures), mixtures.means.shape[1:]
    each = k * (2 * d + 2) + 1
    width = len(sides) * each + -len(sides) * each % ALIGN
    high, low = (torch.empty((n, width), dtype=torch.float32, device=mixtures.means.device) for _ in range(2))
    high[:, len(sides) * each :] = low[:, len(sides) * each :] = 0
    arrays = [a.contiguous() for a in (mixtures.means, mixtures.variances, like(mixtures.weights, high))]
    centre, scale = (like(a, high).reshape(k, d).contiguous() for a in coordinates)
    volumes = torch.empty((n, k), dtype=torch.float32, device=high.device)
    for i, side in enumerate(sides):
        _features[(n, k)](
            *arrays, centre, scale, high, low, volumes, k, width, i * each, FLOOR=WEIGHT_FLOOR,
            D=d, DP=triton.next_power_of_2(d), LEFT=side == "l", num_warps=1,
        )  # fmt: skip
        weights = arrays[2].double()
        own = (weights * (torch.log(weights.clamp_min(WEIGHT_FLOOR)) - volumes)).sum(1).float()
        last = (i + 1) * each - 1
        high[:, last], low[:, last] = split(own) if side == "l" else (1, 0)
    return high, low


def divergences(P: Any, Q: Any, coordinates: tuple[Any, Any], sides: str, step: int) -> Any:
    """KL(p‖q) (sides "l") or SKL ("lr") of every pair ``(n, m)``, ``step`` images and references at a time."""
    import torch

    out = torch.zeros((len(P), len(Q)), dtype=torch.float32, device=P.means.device)
    for j in range(0, len(Q), step):
        right = features(Q[j : j + step], coordinates, "rl" if len(sides) > 1 else "r")
        for i in range(0, len(P), step):
            left = features(P[i : i + step], coordinates, sides)
            add_products(out[i : i + step, j : j + step], left, (right[0].T, right[1].T))
    # a sum of divergences of components and of weights: what is below zero is rounding
    return out.clamp_(min=0)
