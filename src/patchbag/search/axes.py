# SPDX-License-Identifier: BSD-3-Clause
r"""From encodings to vectors that are compared by their angle: what all images have in common is taken away.

An encoding x (the pooled vector of a network, a Fisher vector) of unit length becomes

.. math:: v = \frac{P^\top (x - m)}{\|P^\top (x - m)\|},\qquad m = \frac{n}{n + n_0}\,\bar x

Subtracting the mean of the collection is what matters most: encodings of photographs all lie in one corner, where
angles are small and a few images are everybody's neighbours (Jégou & Chum 2012).  Of few images the mean says little,
of one it is the image itself: n\ :sub:`0` = 20 images at the origin shrink it.

P holds the leading principal axes, where an encoding has more dimensions than a search can afford (a Fisher vector has
thousands); with ``power`` p each axis is divided by its deviation to that power, 0 leaves lengths alone, 1 whitens.
The axes come from the n × n Gram matrix of at most ``SAMPLE`` images: O(n² D), never D × D.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SHRINK = 20.0
SAMPLE = 3000


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of unit length, float32; zero rows stay zero."""
    x = np.asarray(x, np.float32)
    norm = np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.float64)).astype(np.float32)[:, None]
    return x / np.where(norm > 0, norm, 1)


@dataclass(frozen=True)
class Axes:
    """The mean ``(D,)`` that is subtracted, and the axes ``(D, d)`` that are kept, or none where all are."""

    mean: np.ndarray
    matrix: np.ndarray | None = None

    @classmethod
    def fit(cls, x: np.ndarray, dimension: int | None = None, power: float = 0.0) -> Axes:
        """Axes of encodings ``x (n, D)``; ``dimension`` of them, None for a change of origin alone."""
        x = unit(x)
        mean = x.mean(axis=0, dtype=np.float64) * (len(x) / (len(x) + SHRINK))
        mean = mean.astype(np.float32)
        if dimension is None or min(len(x) - 1, x.shape[1]) < 2:
            return cls(mean)
        chosen = np.linspace(0, len(x) - 1, min(len(x), SAMPLE)).astype(int)
        rest = x[chosen] - mean
        values, vectors = np.linalg.eigh((rest @ rest.T).astype(np.float64))
        order = np.argsort(-values)[: min(dimension, len(x) - 1)]
        order = order[values[order] > 1e-7 * values[order[0]]]
        lengths = np.sqrt(values[order])
        axes = rest.T @ (vectors[:, order] / lengths).astype(np.float32)
        return cls(mean, (axes / (lengths / lengths[0]) ** power).astype(np.float32))

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Vectors ``(n, d)`` of unit length, float32."""
        rest = unit(x) - self.mean
        return unit(rest if self.matrix is None else rest @ self.matrix)
