# SPDX-License-Identifier: BSD-3-Clause
r"""The one-to-one product kernel as one kernel of a CUDA GPU (Triton); its plain twin is ``one_to_one._dense_rows``.

The twin writes an array of images × references × dimensions for every component; here a tile of 16 × 64 pairs stays in
registers through all components and dimensions, which is more than ten times faster.  Four dimensions share a division
and a logarithm, as on the CPU (``gaussians.log_product_row``)::

    Σ_d e_d²/s_d = (n01 s23 + n23 s01) / (s01 s23),   n01 = e_0² s_1 + e_1² s_0,   s01 = s_0 s_1

Everything is float32, in coordinates in which the references of a component are centred with unit mean variance; sums
of variances whose products of four leave its range (``SPREAD``) are left to the twin.
"""

import math
from typing import Any

import numpy as np

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

ROWS, COLUMNS = 16, 64  # the fastest of ten sizes on an H200
SPREAD = 60.0  # float32 ends near exp(±87); the numerators carry a squared distance on top of three variances


def usable(P: Any, Q: Any, coordinates: tuple[Any, Any], dtype: Any) -> bool:
    """Whether these mixtures are float32 tensors of a CUDA GPU, near enough to each other, and Triton is there."""
    if triton is None or not getattr(P.means, "is_cuda", False) or np.dtype(dtype) != np.float32:
        return False
    inverse = 1 / coordinates[1].squeeze(1) ** 2
    ends = [(m.variances.amin(0) * inverse).min() for m in (P, Q)] + [
        (m.variances.amax(0) * inverse).max() for m in (P, Q)
    ]
    return all(4 * abs(math.log(2 * max(float(end), 1e-30))) <= SPREAD for end in ends)


if triton is not None:

    @triton.jit
    def _sum_products(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
        mp, vp, fp, mq, vq, fq, out, n, m, components, rho, D: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr
    ):
        r, c = tl.program_id(0) * BR + tl.arange(0, BR), tl.program_id(1) * BC + tl.arange(0, BC)
        in_r, in_c = r < n, c < m
        total = tl.zeros((BR, BC), tl.float32)
        for k in range(components):
            quadratic = tl.zeros((BR, BC), tl.float32)
            logs = tl.zeros((BR, BC), tl.float32)
            i, j = k * D * n + r, k * D * m + c
            for _ in range(0, D, 4):
                e0 = tl.load(mp + i, in_r, 0.0)[:, None] - tl.load(mq + j, in_c, 0.0)[None, :]
                s0 = tl.load(vp + i, in_r, 0.5)[:, None] + tl.load(vq + j, in_c, 0.5)[None, :]
                e1 = tl.load(mp + i + n, in_r, 0.0)[:, None] - tl.load(mq + j + m, in_c, 0.0)[None, :]
                s1 = tl.load(vp + i + n, in_r, 0.5)[:, None] + tl.load(vq + j + m, in_c, 0.5)[None, :]
                e2 = tl.load(mp + i + 2 * n, in_r, 0.0)[:, None] - tl.load(mq + j + 2 * m, in_c, 0.0)[None, :]
                s2 = tl.load(vp + i + 2 * n, in_r, 0.5)[:, None] + tl.load(vq + j + 2 * m, in_c, 0.5)[None, :]
                e3 = tl.load(mp + i + 3 * n, in_r, 0.0)[:, None] - tl.load(mq + j + 3 * m, in_c, 0.0)[None, :]
                s3 = tl.load(vp + i + 3 * n, in_r, 0.5)[:, None] + tl.load(vq + j + 3 * m, in_c, 0.5)[None, :]
                s01, s23 = s0 * s1, s2 * s3
                s = s01 * s23
                n01, n23 = e0 * e0 * s1 + e1 * e1 * s0, e2 * e2 * s3 + e3 * e3 * s2
                quadratic += (n01 * s23 + n23 * s01) / s
                logs += tl.log2(s)
                i += 4 * n
                j += 4 * m
            factor = tl.load(fp + k * n + r, in_r, 0.0)[:, None] + tl.load(fq + k * m + c, in_c, 0.0)[None, :]
            total += tl.exp2(1.4426950408889634 * (factor - 0.5 * rho * quadratic) - 0.5 * logs)
        tl.store(out + r[:, None] * m + c[None, :], total, in_r[:, None] & in_c[None, :])


def _packed(mixtures: Any, norms: Any, rho: float, coordinates: tuple[Any, Any]) -> tuple[Any, Any, Any]:
    """Standardised means and variances (K, D', n), D' a multiple of four, and logarithms of the factors (K, n)."""
    import torch

    centre, scale = coordinates  # (K, 1, D)
    m = (mixtures.means.permute(1, 0, 2) - centre) / scale
    v = mixtures.variances.permute(1, 0, 2) / scale**2
    constant = 0.25 * (1 - 2 * rho) * math.log(2 * math.pi) - 0.25 * math.log(rho)
    volumes = (0.5 * (1 - rho) * torch.log(v.double()) + constant).sum(-1)
    factor = volumes + torch.log(mixtures.weights.double()).T + (0.5 - rho) * torch.log(scale.double()).sum(-1) - norms
    padding = (0, 0, 0, -m.shape[-1] % 4)
    m, v = m.transpose(1, 2), v.transpose(1, 2)
    pad = torch.nn.functional.pad
    # variances of 1/2 on both sides add up to 1: a padded dimension multiplies by 1 and adds 0
    m, v = pad(m.float(), padding), pad(v.float(), padding, value=0.5)
    return m.contiguous(), v.contiguous(), factor.float().contiguous()


def product_sums(P: Any, Q: Any, norms: tuple[Any, Any], rho: float, coordinates: tuple[Any, Any]) -> Any:
    """Σ_i α_i β_i K^ρ(p_i, q_i) / exp(norms) of every pair, (n, m), float32, on the GPU."""
    import torch

    left, right = (_packed(x, norm, rho, coordinates) for x, norm in zip((P, Q), norms))
    (components, width, n), m = left[0].shape, right[0].shape[2]
    out = torch.empty((n, m), dtype=torch.float32, device=left[0].device)
    grid = (triton.cdiv(n, ROWS), triton.cdiv(m, COLUMNS))
    _sum_products[grid](*left, *right, out, n, m, components, float(rho), D=width, BR=ROWS, BC=COLUMNS)
    return out
