# SPDX-License-Identifier: BSD-3-Clause
"""Distances to k-th nearest points as one kernel of a CUDA GPU (Triton); the plain twin is ``kth_distances_to_many``.

The twin writes every product and reads it again to find the smallest.  Here the products of some points with all those
of one sample stay in registers.  The k-th smallest of the minima of groups of a row is no smaller than the k-th of all;
from there the largest is taken away, with its equals, until k are left.
"""

from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

NUMBERS = 1 << 14  # products in the registers of a program of ``WARPS`` warps
WARPS = 8
GROUP = 16  # products of a row of which the smallest is looked at first
WIDEST = 64  # dimensions, and the longest sample: above, products on tensor cores and their detour gain
LONGEST = 1 << 12


def usable(x: Any, y: Any) -> bool:
    """Whether these are float32 tensors of a CUDA GPU, ``y (r, m, d)`` not too large, and Triton is there."""
    here = triton is not None and all(getattr(a, "is_cuda", False) for a in (x, y))
    return here and str(x.dtype) == str(y.dtype) == "torch.float32" and y.shape[1] <= LONGEST and y.shape[2] <= WIDEST


if triton is not None:

    @triton.jit
    def _kth(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        points, others, half, out, blocks, n, m, k, D, M: tl.constexpr, ROWS: tl.constexpr, GROUP: tl.constexpr
    ):
        """Of ``points (d, n)`` to those of one of ``others (r, d, m)``, ``half (r, m)`` of whose squares are given."""
        i, j = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS), tl.arange(0, M)
        sample, inside, there = (tl.program_id(0) // blocks).to(tl.int64), i < n, j < m
        base = others + sample * D * m
        # half |y|² - x·y orders as the distances do
        score = tl.zeros((ROWS, M), tl.float32) + tl.load(half + sample * m + j, there, float("inf"))[None, :]
        for d in range(D):  # a number that the compiler does not know: unrolled, it would not fit into the registers
            x, y = tl.load(points + d * n + i, inside, 0.0), tl.load(base + d * m + j, there, 0.0)
            score -= x[:, None] * y[None, :]
        minima = tl.min(tl.reshape(score, (ROWS, GROUP, M // GROUP)), 1)
        bound = tl.full((ROWS,), float("-inf"), tl.float32)
        count = tl.zeros((ROWS,), tl.int32)
        for _ in range(k):
            least = tl.min(tl.where(minima > bound[:, None], minima, float("inf")), 1)
            bound = tl.where(count < k, least, bound)
            count = tl.where(count < k, count + tl.sum((minima == bound[:, None]).to(tl.int32), 1), count)
        count = tl.sum((score <= bound[:, None]).to(tl.int32), 1)
        equal = tl.sum((score == bound[:, None]).to(tl.int32), 1)
        while tl.max((count - equal >= k).to(tl.int32), 0) > 0:
            more = count - equal >= k
            below = tl.max(tl.where(score < bound[:, None], score, float("-inf")), 1)
            bound = tl.where(more, below, bound)
            count = tl.where(more, count - equal, count)
            equal = tl.sum((score == bound[:, None]).to(tl.int32), 1)
        # of rows with NaN no column is found: any will do, but it must be there
        chosen = tl.minimum(tl.max(tl.where(score == bound[:, None], j[None, :], 0), 1), m - 1)
        total = tl.zeros((ROWS,), tl.float32)
        for d in range(D):
            e = tl.load(points + d * n + i, inside, 0.0) - tl.load(base + d * m + chosen, inside, 0.0)
            total += e * e
        tl.store(out + sample * n + i, tl.sqrt(total), inside)


def kth_distances(x: Any, y: Any, k: int) -> Any:
    """Distance (r, n) of every row of ``x (n, d)`` to its k-th nearest row of each of ``y (r, m, d)``."""
    import torch

    (n, d), (r, m, _) = x.shape, y.shape
    mean = x.mean(dim=0)
    points, others = (x - mean).T.contiguous(), (y - mean).mT.contiguous()
    half = (others * others).sum(dim=1) / 2
    out = torch.empty((r, n), dtype=x.dtype, device=x.device)
    width = max(16, triton.next_power_of_2(m))
    rows = max(1, NUMBERS // width)
    blocks = triton.cdiv(n, rows)
    if r and n:
        shape = {"M": width, "ROWS": rows, "GROUP": GROUP}
        _kth[(blocks * r,)](points, others, half, out, blocks, n, m, k, d, **shape, num_warps=WARPS)
    return out
