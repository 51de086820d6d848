# SPDX-License-Identifier: BSD-3-Clause
"""Statistics of bags under a universal Gaussian mixture (container; see accumulate for the computation)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from patchbag.records import Records


@dataclass(frozen=True, repr=False)
class Statistics(Records):
    r"""Soft counts and moments of n bags under K components in D dimensions.

    With :math:`\gamma_{tk}` the posterior of component k for descriptor :math:`x_t`,

    * ``s0 (n, K)``: :math:`\sum_t \gamma_{tk}`
    * ``s1 (n, K, D)``: :math:`\sum_t \gamma_{tk} x_t`
    * ``s2 (n, K, D)``: :math:`\sum_t \gamma_{tk} x_t^2`

    With spatial cells there is one more axis behind n: ``s0 (n, C, K)``, ``s1 (n, C, K, D)``, ``s2 (n, C, K, D)``.
    ``+`` adds the statistics of two sets of descriptors of the same images.
    """

    s0: Any
    s1: Any
    s2: Any

    def __add__(self, other: Self) -> Self:
        return type(self)(self.s0 + other.s0, self.s1 + other.s1, self.s2 + other.s2)
