# SPDX-License-Identifier: BSD-3-Clause
r"""The E-step and its sums as kernels of a CUDA GPU (Triton); their plain twin is ``dense.dense_sums``.

The twin is bound by memory: standardised rows, their squares, log-densities and posteriors are each written and read
again.  Here the first kernel writes log-densities :math:`\ell_{tk}` and their sums :math:`\ln p(x_t)` as it goes over
the components, the second makes :math:`\gamma_{tk} = \exp(\ell_{tk} - \ln p(x_t))` and :math:`[z, z^2]` on the fly and
sums a segment in registers, whatever the segments' sizes.  Of a mixture that fits into the memory of a program
(``RESIDENT``) a third kernel does both at once, and no log-density is ever written.

Precision: products run on tensor cores.  Each float32 number is given to them in two parts of TF32, which is three
products and float32 but for its last two or three bits; in one part where the context allows TF32
(``runtime_context(tf32=True)``).
"""

from typing import Any

import numpy as np

from patchbag.device import like
from patchbag.mixture.parameters import GaussianParameters

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

# descriptors × components of a program of each kernel, its warps and its loads in flight: the fastest of 16 on an H200
DENSITIES = {"BT": 64, "BK": 64, "num_warps": 4, "num_stages": 2}
SUMS = {"BT": 64, "BK": 128, "num_warps": 8, "num_stages": 1}
WHOLE = {"BT": 64, "num_warps": 8, "num_stages": 1}
RESIDENT = 1 << 14  # numbers of the means of a mixture that stay in a program, parts counted apart
WIDEST = 128  # dimensions that fit into the registers of a program


def usable(values: Any) -> bool:
    """Whether these descriptors are bytes or float32 on a CUDA GPU, not too wide, and Triton is there."""
    here = triton is not None and getattr(values, "is_cuda", False) and values.shape[1] <= WIDEST
    return bool(here and str(values.dtype) in ("torch.float32", "torch.uint8"))


if triton is not None:

    @triton.jit
    def _densities(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        values, center, inverse, projection, bias, logits, totals, n, K,
        D: tl.constexpr, DP: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, HOW: tl.constexpr,
    ):  # fmt: skip
        """Log-densities (K, n) and the logarithms (n,) of their sums, of BT descriptors."""
        t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
        d, inside = tl.arange(0, DP), t < n
        known = d < D
        x = tl.load(values + t[None, :] * D + d[:, None], inside[None, :] & known[:, None], 0).to(tl.float32)
        z = (x - tl.load(center + d, known, 0.0)[:, None]) * tl.load(inverse + d, known, 0.0)[:, None]
        best = tl.full((BT,), float("-inf"), tl.float32)
        total = tl.zeros((BT,), tl.float32)
        for first in range(0, K, BK):
            k = first + tl.arange(0, BK)
            there = (k < K)[:, None] & known[None, :]
            at = projection + k[:, None] * (2 * D) + d[None, :]
            found = tl.dot(tl.load(at + D, there, 0.0), z * z, input_precision=HOW)
            found = tl.dot(tl.load(at, there, 0.0), z, found, input_precision=HOW)
            found += tl.load(bias + k, k < K, float("-inf"))[:, None]
            tl.store(logits + k.to(tl.int64)[:, None] * n + t[None, :], found, (k < K)[:, None] & inside[None, :])
            higher = tl.maximum(best, tl.max(found, 0))
            total = total * tl.exp(best - higher) + tl.sum(tl.exp(found - higher[None, :]), 0)
            best = higher
        tl.store(totals + t, best + tl.log(total), inside)

    @triton.jit
    def _keep(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        s0, s1, s2, segment, k, d, count, linear, square, c, i, K, D: tl.constexpr, RAW: tl.constexpr
    ):
        """Write the sums of some components; those of x instead of z if RAW."""
        known = d < D
        tl.store(s0 + segment * K + k, count, k < K)
        if RAW:
            s, offset = 1 / tl.where(known[None, :], i, 1.0), c * count[:, None]
            linear = s * linear + offset
            square = s * s * square + c * (2 * linear - offset)
        at = (segment.to(tl.int64) * K + k)[:, None] * D + d[None, :]
        there = (k < K)[:, None] & known[None, :]
        tl.store(s1 + at, linear, there)
        tl.store(s2 + at, square, there)

    @triton.jit
    def _segments(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        values, center, inverse, logits, totals, offsets, s0, s1, s2, n, K, RAW: tl.constexpr,
        D: tl.constexpr, DP: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, HOW: tl.constexpr,
    ):  # fmt: skip
        """Counts and sums of z and z² (of x and x² if RAW) of BK components over one segment."""
        segment, k = tl.program_id(0), tl.program_id(1) * BK + tl.arange(0, BK)
        d = tl.arange(0, DP)
        known, row = d < D, k.to(tl.int64)[:, None] * n
        c, i = tl.load(center + d, known, 0.0)[None, :], tl.load(inverse + d, known, 0.0)[None, :]
        first, last = tl.load(offsets + segment), tl.load(offsets + segment + 1)
        count = tl.zeros((BK,), tl.float32)
        linear = tl.zeros((BK, DP), tl.float32)
        square = tl.zeros((BK, DP), tl.float32)
        for start in range(first, last, BT):
            t = start + tl.arange(0, BT)
            inside = t < last
            x = tl.load(values + t[:, None] * D + d[None, :], inside[:, None] & known[None, :], 0).to(tl.float32)
            z = (x - c) * i
            found = tl.load(logits + row + t[None, :], (k < K)[:, None] & inside[None, :], float("-inf"))
            share = tl.exp(found - tl.load(totals + t, inside, 0.0)[None, :])
            count += tl.sum(share, 1)
            linear = tl.dot(share, z, linear, input_precision=HOW)
            square = tl.dot(share, z * z, square, input_precision=HOW)
        _keep(s0, s1, s2, segment, k, d, count, linear, square, c, i, K, D, RAW)

    @triton.jit
    def _whole(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        values, center, inverse, projection, bias, totals, offsets, s0, s1, s2, K, RAW: tl.constexpr,
        D: tl.constexpr, DP: tl.constexpr, KP: tl.constexpr, BT: tl.constexpr, HOW: tl.constexpr,
    ):  # fmt: skip
        """What the other two make, of one segment and all components."""
        segment, k, d = tl.program_id(0), tl.arange(0, KP), tl.arange(0, DP)
        known, there = d < D, (k < K)[:, None] & (d < D)[None, :]
        c, i = tl.load(center + d, known, 0.0)[None, :], tl.load(inverse + d, known, 0.0)[None, :]
        at = projection + k[:, None] * (2 * D) + d[None, :]
        of_z, of_squares = tl.load(at, there, 0.0), tl.load(at + D, there, 0.0)
        constant = tl.load(bias + k, k < K, float("-inf"))[:, None]
        first, last = tl.load(offsets + segment), tl.load(offsets + segment + 1)
        count = tl.zeros((KP,), tl.float32)
        linear = tl.zeros((KP, DP), tl.float32)
        square = tl.zeros((KP, DP), tl.float32)
        for start in range(first, last, BT):
            t = start + tl.arange(0, BT)
            inside = t < last
            x = tl.load(values + t[:, None] * D + d[None, :], inside[:, None] & known[None, :], 0).to(tl.float32)
            z = (x - c) * i
            column = tl.trans(z)
            found = tl.dot(of_squares, column * column, input_precision=HOW)
            found = tl.dot(of_z, column, found, input_precision=HOW) + constant
            best = tl.max(found, 0)
            share = tl.exp(found - best[None, :])
            total = tl.sum(share, 0)
            tl.store(totals + t, best + tl.log(total), inside)
            share = tl.where(inside[None, :], share / total[None, :], 0.0)
            count += tl.sum(share, 1)
            linear = tl.dot(share, z, linear, input_precision=HOW)
            square = tl.dot(share, z * z, square, input_precision=HOW)
        _keep(s0, s1, s2, segment, k, d, count, linear, square, c, i, K, D, RAW)


def segment_sums(
    values: Any, offsets: np.ndarray, parameters: GaussianParameters, raw: bool = False
) -> tuple[Any, Any, Any, Any]:
    """Sums ``s0 (S, K)``, ``s1`` and ``s2 (S, K, D)`` of consecutive segments, and ln p(x) (N,).

    The moments are those of z, or of x itself if ``raw`` (:func:`~patchbag.mixture.accumulate.raw_moments`).
    """
    import torch

    values = values.contiguous()
    (n, d), k, segments = values.shape, parameters.n_components, len(offsets) - 1

    def empty(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.empty(shape, dtype=dtype, device=values.device)

    totals, s0 = empty(n), empty(segments, k)
    s1, s2 = empty(segments, k, d), empty(segments, k, d)
    center, inverse, projection, bias = like(parameters.for_densities, s0).split((d, d, 2 * d * k, k))
    bounds = like(np.asarray(offsets, np.int64), empty(0, dtype=torch.int64))
    exact = torch.get_float32_matmul_precision() == "highest"
    shape = {"D": d, "DP": max(16, triton.next_power_of_2(d)), "HOW": "tf32x3" if exact else "tf32"}
    padded = max(16, triton.next_power_of_2(k))
    mixture, sums = (center, inverse, projection, bias), (bounds, s0, s1, s2)
    if not n or not segments:
        return s0.zero_(), s1.zero_(), s2.zero_(), totals
    if padded * shape["DP"] * (2 if exact else 1) <= RESIDENT:
        _whole[(segments,)](values, *mixture, totals, *sums, k, RAW=raw, KP=padded, **shape, **WHOLE)
    else:
        logits = empty(k, n)
        grid = (segments, triton.cdiv(k, SUMS["BK"]))
        _densities[(triton.cdiv(n, DENSITIES["BT"]),)](values, *mixture, logits, totals, n, k, **shape, **DENSITIES)
        _segments[grid](values, center, inverse, logits, totals, *sums, n, k, RAW=raw, **shape, **SUMS)
    return s0, s1, s2, totals
