# SPDX-License-Identifier: BSD-3-Clause
"""The latent mixture's sums and gradients as operations on whole arrays: what a GPU runs.

The numbers are those of the compiled loops (``latent_mixture._expectations``, ``latent_fisher._gradients``), in float64
too; images are taken as many at a time as ``VALUES`` statistics.  PyTorch has the digamma function, the Array API has
not.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device

from patchbag.device import to_host

VALUES = 1 << 25


class Posterior(NamedTuple):
    """Equations 22-25 of some images, (n, C, K, D) each."""

    count: Any  # (n, C, K, 1), scaled
    inverse: Any  # 1/beta*
    shift: Any  # m* - m
    shape: Any  # a*
    rate: Any  # b*


def _posteriors(s0: Any, s1: Any, s2: Any, scale: float, prior: Sequence[Any]) -> Iterator[tuple[slice, Posterior]]:
    """Of slices of the images; ``prior`` is m, beta, a, b (P, K, D) on the device."""
    xp = array_namespace(s1)
    m, beta, a, b = prior
    step = max(1, VALUES // prod(s1.shape[1:]))
    for start in range(0, s1.shape[0], step):
        part = slice(start, min(start + step, s1.shape[0]))
        count, first, second = (scale * xp.astype(s[part, ...], xp.float64) for s in (s0[..., None], s1, s2))
        centred = first - count * m
        spread = second - m * (first + centred)
        inverse = 1 / (beta + count)
        shift = centred * inverse
        yield (
            part,
            Posterior(count, inverse, shift, a + 0.5 * count, b + 0.5 * xp.clip(spread - centred * shift, min=0.0)),
        )


def _there(arrays: Sequence[np.ndarray], s1: Any) -> list[Any]:
    xp = array_namespace(s1)
    return [xp.asarray(a, dtype=xp.float64, device=device(s1)) for a in arrays]


def expectations(s0: Any, s1: Any, s2: Any, scale: float, prior: Sequence[np.ndarray]) -> np.ndarray:
    """Sums (6, P, K, D) over images and cells, on the host; their order is that of the compiled loop."""
    xp = array_namespace(s1)
    sums: Any = 0.0
    axes = 0 if len(prior[0]) > 1 else (0, 1)
    for _, q in _posteriors(s0, s1, s2, scale, _there(prior, s1)):
        log_rate, precision = xp.log(q.rate), q.shape / q.rate
        weighed = precision * q.shift
        terms = (
            precision,
            xp.digamma(q.shape) - log_rate,
            weighed,
            weighed * q.shift,
            q.inverse,
            xp.lgamma(q.shape) - q.shape * log_rate + 0.5 * xp.log(q.inverse),
        )
        sums = sums + xp.stack([xp.sum(term, axis=axes) for term in terms])
    return to_host(sums).reshape(6, *prior[0].shape)


def gradients(
    s0: Any, s1: Any, s2: Any, scale: float, alpha: np.ndarray, prior: Sequence[np.ndarray], blocks: Sequence[str]
) -> Any:
    """Equations 10-14 of every image and cell: (n, C, width), blocks in the order alpha, m, beta, a, b."""
    xp = array_namespace(s1)
    n, C, K, D = s1.shape
    there = _there(prior, s1)
    (alpha,), (_, beta, a, b) = _there([alpha], s1), there
    width = ("alpha" in blocks) * K + len(set(blocks) - {"alpha"}) * K * D
    out = xp.empty((n, C, width), dtype=s1.dtype, device=device(s1))
    at_prior, total = xp.digamma(a) - xp.log(b), xp.sum(alpha, axis=-1, keepdims=True)
    for part, q in _posteriors(s0, s1, s2, scale, there):
        counts, precision = q.count[..., 0], q.shape / q.rate
        common = xp.digamma(total) - xp.digamma(total + xp.sum(counts, axis=-1, keepdims=True))
        found = {
            "alpha": xp.digamma(alpha + counts) - xp.digamma(alpha) + common,
            "m": beta * precision * q.shift,
            "beta": 0.5 * (q.count * q.inverse / beta - precision * q.shift * q.shift),
            "a": xp.digamma(q.shape) - xp.log(q.rate) - at_prior,
            "b": a / b - precision,
        }
        kept = [xp.reshape(block, (*counts.shape[:2], -1)) for name, block in found.items() if name in blocks]
        out[part, ...] = xp.astype(xp.concat(kept, axis=-1), s1.dtype)
    return out
