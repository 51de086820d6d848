# SPDX-License-Identifier: BSD-3-Clause
r"""Diffusion on the graph of a pool: two images are alike if many short paths of neighbours join them.

A label put on one image and passed on to neighbours, a share α of it in every step, ends up as a column of
(Zhu, Ghahramani & Lafferty 2003; Zhou et al. 2004)

.. math:: (I - \alpha S)^{-1} = I + \alpha S + \alpha^2 S^2 + \dots
          = I + U\,\mathrm{diag}\Big(\frac{\alpha\lambda}{1 - \alpha\lambda}\Big)\,U^\top

with the eigenvectors U and eigenvalues λ of S.  Large λ, the clusters, count up to 1/(1 - α) times, the rest once.
With the m leading eigenvectors this is a matrix of rank m plus the identity, and n × n is never needed: rows cost n m.
The kernel is given a unit diagonal, so that images in dense regions do not outweigh others:

.. math:: k(i, j) = \varphi_i^\top \varphi_j + \nu_i\,[i = j],\qquad
          \varphi_i = \sqrt{\nu_i}\, U_i\,\mathrm{diag}(f)^{1/2},\qquad \nu_i = 1 / (1 + \textstyle\sum_k f_k U_{ik}^2)

with :math:`f = \alpha\lambda/(1-\alpha\lambda)`, 0 where λ is negative, which keeps it positive semidefinite.

**Cluster kernel.**  ``power=2`` has f² in place of f: images are compared by how alike their similarities to all others
are (K K'), which stresses clusters further (Chapelle, Weston & Schölkopf 2003).

A new image has the coordinates that its neighbours give it (see image_graph) and from there on the same formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from patchbag.similarity.graph.image_graph import ImageGraph
from patchbag.storage.declared import floats, stored
from patchbag.storage.registry import storable


@storable
@dataclass(frozen=True)
class DiffusionBasis:
    """A kernel of rank m and a diagonal: k(i, j) = φ_i·φ_j + ν_i [i = j], with unit diagonal.

    ``features (n, m)`` holds φ, ``own (n,)`` ν, ``spectrum (m,)`` f.
    """

    features: np.ndarray = stored(floats("n", "m"))
    own: np.ndarray = stored(floats("n"))
    spectrum: np.ndarray = stored(floats("m", low=0))

    @classmethod
    def from_graph(cls, graph: ImageGraph, alpha: float, power: int = 1, images: Any = slice(None)) -> DiffusionBasis:
        """Diffusion of strength 0 ≤ α < 1, between all images or some."""
        gain = np.maximum(alpha * graph.eigenvalues, 0.0)
        spectrum = (gain / (1.0 - gain)) ** power
        return cls(*_features(graph.eigenvectors[images], spectrum), spectrum)

    def __len__(self) -> int:
        return len(self.features)

    def place(self, coordinates: np.ndarray) -> np.ndarray:
        """φ (M, m) of new images from their coordinates in the eigenvectors."""
        return _features(coordinates, self.spectrum)[0]

    def columns(self, images: np.ndarray) -> np.ndarray:
        """(n, len(images)) kernel of all images with these."""
        columns = self.features @ self.features[images].T
        columns[images, np.arange(len(images))] += self.own[images]
        return np.asarray(columns)


def _features(coordinates: np.ndarray, spectrum: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    own = 1.0 / (1.0 + coordinates**2 @ spectrum)
    return coordinates * np.sqrt(spectrum) * np.sqrt(own)[:, None], own
