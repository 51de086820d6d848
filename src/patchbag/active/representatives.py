# SPDX-License-Identifier: BSD-3-Clause
r"""Which image next: the one that stands for the most doubt that no label covers yet.

Labels are few and classes unknown, so the first must fall into different classes; the last must fall where the model
is in doubt.  One rule does both:

1. The pool is cut into one cluster more than there are labels, by k-means in the leading eigenvectors of its graph,
   rows of unit length (spectral clustering, Ng, Jordan & Weiss 2002): as many eigenvectors as clusters.
2. Clusters that hold a label are covered.  Since there are more clusters than labels, some are not.
3. Of these, the one with the largest sum of doubt is asked for, by the image that is the most central in it:
   :math:`\sum_j \mathrm{doubt}_j\, k(i, j)` over its images j is largest.

Before the first labels doubt is one everywhere: the rule asks for the centre of the largest cluster without a label.
With every label the clusters get smaller, so that rare classes come up, and doubt decides more and more among them:
where the model is sure, no cluster is worth a question.  Nobody chooses when to pass from one to the other.

**Growing clusters.**  From q to q + 1 clusters one centre is added, of ``TRIED`` images the one that would reduce the
distances of all images to their centres the most, and a few steps of k-means follow from there: the clusters of one
question are much like those of the last, and a question costs a few products of (N, q) with (q, q).  In large pools
``SAMPLE`` images place the centres.
"""

import numpy as np
from scipy.sparse import csr_matrix

from patchbag.similarity.graph.image_graph import unit_rows

TRIED = 64
STEPS = 3
SAMPLE = 10_000


class GrowingClusters:
    """Clusters of N images, as many as are asked for; ``of (N,)`` is the number of the cluster of every image.

    Parameters
    ----------
    eigenvectors : (N, m), leading ones first; there are at most m clusters
    random : draws the images that are tried as new centres
    """

    def __init__(self, eigenvectors: np.ndarray, random: np.random.RandomState) -> None:
        self._eigenvectors = np.asarray(eigenvectors, dtype=np.float32)
        self._random = random
        self._sample = np.sort(random.permutation(len(eigenvectors))[:SAMPLE])
        self._n = 1
        self.of = np.zeros(len(eigenvectors), int)

    def grow(self, n: int) -> None:
        """Cut the pool into n clusters, if there are fewer; some can be empty where images are alike."""
        n = min(n, self._eigenvectors.shape[1], len(self._sample))
        if n <= self._n:
            return
        rows = unit_rows(self._eigenvectors[self._sample, :n])
        of = self.of[self._sample]
        centres = group_sums(rows, of, self._n) / np.maximum(np.bincount(of, minlength=self._n), 1)[:, None]
        distance = _squared_distances(rows, centres)[np.arange(len(rows)), of]
        while len(centres) < n:
            tried = rows[self._random.permutation(len(rows))[:TRIED]]
            to_tried = _squared_distances(rows, tried)
            best = int(np.maximum(distance[:, None] - to_tried, 0.0).sum(axis=0).argmax())
            distance = np.minimum(distance, to_tried[:, best])
            centres = np.vstack([centres, tried[best]])
        for _ in range(STEPS):
            of = _squared_distances(rows, centres).argmin(axis=1)
            counts = np.bincount(of, minlength=n)[:, None]
            centres = np.where(counts > 0, group_sums(rows, of, n) / np.maximum(counts, 1), centres).astype(np.float32)
        everywhere = rows if len(rows) == len(self.of) else unit_rows(self._eigenvectors[:, :n])
        self.of = _squared_distances(everywhere, centres).argmin(axis=1)
        self._n = n


def group_sums(rows: np.ndarray, of: np.ndarray, n: int) -> np.ndarray:
    """(n, q) sums of the ``rows (N, q)`` of each of n groups, ``of (N,)``."""
    member = csr_matrix((np.ones(len(of), rows.dtype), of, np.arange(len(of) + 1)), shape=(len(of), n))
    return np.asarray(member.T @ rows)


def _squared_distances(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    product = rows @ centres.T.astype(np.float32)
    product *= -2.0
    product += np.einsum("ij,ij->i", centres, centres)
    product += np.einsum("ij,ij->i", rows, rows)[:, None]
    return product


def representative_utilities(
    features: np.ndarray, clusters: np.ndarray, doubt: np.ndarray, labelled: np.ndarray, free: np.ndarray
) -> np.ndarray:
    """(N,) doubt in the cluster of each image, times how central the image is: 1 for the most central free one.

    Parameters
    ----------
    features : (N, m) φ, with k(i, j) = φ_i·φ_j
    clusters : (N,) number of the cluster of each image
    doubt : (N,)
    labelled : images with a label, whose clusters are covered: NaN, unless every cluster with a free image is
    free : (N,) which images can be asked for; the others are NaN
    """
    n = int(clusters.max()) + 1
    covered = np.zeros(n, bool)
    covered[clusters[labelled]] = True
    if np.any(free & ~covered[clusters]):
        free = free & ~covered[clusters]
    around = group_sums(features * doubt[:, None].astype(features.dtype), clusters, n)
    central = np.maximum(np.einsum("ij,ij->i", features, around[clusters]).astype(float), 1e-300)
    most = np.zeros(n)
    np.maximum.at(most, clusters[free], central[free])
    share = central / np.where(most > 0, most, 1.0)[clusters]
    return np.where(free, np.bincount(clusters, weights=doubt, minlength=n)[clusters] * share, np.nan)
