# SPDX-License-Identifier: BSD-3-Clause
r"""Representative images of a pool: what to choose among while there are many classes and few labels.

The image that the model doubts most is often an outlier, whose label says little about the rest: with few labels per
class choosing by doubt can be worse than choosing at random (Hacohen et al. 2022).  So doubt chooses only among images
that stand for many.  The pool is cut into clusters by k-means in kernel space, and the image nearest to the centre of
each cluster is on the list.  When most of the list is used up, the pool is cut twice as finely.

Kernel space is seen through the leading coordinates of a Nyström approximation: with m landmark images,
:math:`Z = K_{\cdot m} U \Lambda^{-1/2}`, where :math:`K_{mm} = U \Lambda U^T`, so that :math:`Z Z^T \approx K`.

With few or unbalanced classes doubt finds more when it is free to choose among all images: hence ``MANY``.

Cost: N m d + m³ once, with d coordinates; a few passes of N d M for M clusters.
"""

import numpy as np
from sklearn.cluster import KMeans

from patchbag.runtime import quiet
from patchbag.similarity.graph.image_graph import kernel_vectors

LANDMARKS = 1000
COORDINATES = 60
MANY = 5  # classes from which on a list is used
PER_CLASS = 4  # representatives for each of them
USED = 0.75  # share of a list that is labelled before a longer one takes its place


def spectral_coordinates(kernel: np.ndarray, n_coordinates: int = COORDINATES) -> np.ndarray:
    """(N, d) coordinates whose inner products are nearly those of ``kernel`` (N, N), largest directions first."""
    return kernel_vectors(kernel, LANDMARKS, n_coordinates)


def representatives(coordinates: np.ndarray, n: int, allowed: np.ndarray) -> np.ndarray:
    """Indices of at most n of the allowed images, a mask (N,): of each cluster the one nearest to its centre."""
    images = np.flatnonzero(allowed)
    if n >= len(images) or not coordinates.shape[1]:
        return images
    with quiet:  # copies of images leave clusters empty, and the list then is shorter
        clusters = KMeans(n, n_init=1, max_iter=20, random_state=0).fit(coordinates[images])
    return images[np.unique(clusters.transform(coordinates[images]).argmin(axis=0))]


def list_length(n_classes: int, n_labels: int) -> int:
    """Length of the list for so many classes and labels: a power of two, so that few lists are ever made."""
    return int(2 ** np.ceil(np.log2(max(PER_CLASS * n_classes, n_labels))))
