# SPDX-License-Identifier: BSD-3-Clause
"""Mixtures by component: component i of all images side by side, in coordinates of its own.

One-to-one comparisons take component i of every image at a time.  Its Gaussians lie close together, so coordinates that
centre them keep the digits that coordinates of the whole mixture would lose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from patchbag.mixture.adaptation import Mixtures


def by_component(mixtures: Mixtures) -> tuple[Any, Any]:
    """Means and variances ``(K, n, D)``."""
    xp = array_namespace(mixtures.means)
    return xp.permute_dims(mixtures.means, (1, 0, 2)), xp.permute_dims(mixtures.variances, (1, 0, 2))


def component_frame(mixtures: Mixtures) -> tuple[Any, Any]:
    """Coordinates that centre each component over the images: centre, scale ``(K, D)``, in float64."""
    xp = array_namespace(mixtures.means)
    centre, variance = xp.mean(mixtures.means, axis=0), xp.mean(mixtures.variances, axis=0)
    return xp.astype(centre, xp.float64), xp.sqrt(xp.astype(variance, xp.float64))


def pack_components(
    function: Callable[..., tuple[Any, ...]], m: Mixtures, rho: float, coordinates: tuple[Any, Any], dtype: Any
) -> list[np.ndarray]:
    """``product_left`` or ``product_right`` of all components, one at a time to keep temporaries small."""
    means, variances = by_component(m)
    centre, scale = coordinates
    packed: list[np.ndarray] = []
    for k in range(m.n_components):
        found = function(means[k : k + 1], variances[k : k + 1], rho, (centre[k : k + 1], scale[k : k + 1]), dtype)
        packed = packed or [np.empty((m.n_components, *a.shape[1:]), a.dtype) for a in found]
        for a, b in zip(packed, found):
            a[k] = b[0]
    return packed
