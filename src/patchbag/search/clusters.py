# SPDX-License-Identifier: BSD-3-Clause
r"""Images without labels, sorted into groups that are alike, each with its most typical image.

Spectral clustering (Ng, Jordan & Weiss 2002) on the neighbour graph that diffusion and active learning stand on
(:mod:`patchbag.similarity.graph.image_graph`): k-means of the rows of the k leading eigenvectors of S = D^-1/2 W
D^-1/2, rows of unit length.  Images are given by vectors or by any positive semidefinite kernel of ours (adapted
mixtures, contextual similarity, pyramid matches): liu2010 names clustering by such similarities as future work.

**How many.**  Where no number is given, the largest gap between eigenvalues: k well separated clusters have k
eigenvalues near 1, and the next is smaller (von Luxburg 2007, §8.3).  At most ``MOST``, and for n images at most √n.

**Typical.**  The image with the largest sum of similarities to the others of its cluster, under the diffusion kernel
(:mod:`patchbag.similarity.graph.diffusion`): the medoid, but one that outliers hardly move.

Cost: the graph's neighbour search, 2 n² d, and n k² for each of the steps of k-means.
"""

from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin, _fit_context
from sklearn.cluster import KMeans
from sklearn.utils._param_validation import StrOptions

from patchbag.active.representatives import representative_utilities
from patchbag.parameters import ONE_OR_MORE, POSITIVE, estimator, parameter
from patchbag.runtime import check_random_state, quiet
from patchbag.similarity.graph.diffusion import DiffusionBasis
from patchbag.similarity.graph.image_graph import ImageGraph, check_vectors, unit_rows

MOST = 50
ALPHA = 0.95
STARTS = 10


def count_clusters(eigenvalues: np.ndarray, n: int) -> int:
    """The number of clusters that falling ``eigenvalues`` of a graph of n images speak for: at least two.

    >>> count_clusters(np.array([1.0, 0.98, 0.97, 0.6, 0.5]), 100)
    3
    """
    most = min(MOST, int(n**0.5), len(eigenvalues) - 1)
    return 2 if most < 2 else int(np.argmax(eigenvalues[1:most] - eigenvalues[2 : most + 1])) + 2


def by_size(of: np.ndarray) -> np.ndarray:
    """The same groups numbered from the largest on, without gaps."""
    _, of, counts = np.unique(of, return_inverse=True, return_counts=True)
    place = np.empty(len(counts), int)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return place[of]


@estimator
class ImageClusters(ClusterMixin, BaseEstimator):
    """Groups of images that are alike.

    Parameters
    ----------
    n_clusters : their number; "auto" by the gaps of the graph's eigenvalues
    given : what X holds: ``"vectors"``, or ``"kernel"``, similarities (n, n) between the images
    n_neighbors : that an image is joined to in the graph
    entry_power : of the entries of vectors before anything else, signed; 0.5 for counts and activations
    random_state : seed of k-means

    Attributes
    ----------
    labels_ : (n,) number of each image's cluster, the largest cluster first
    typical_ : (k,) the most typical image of each
    central_ : (n,) how typical each image is of its cluster: 1 for the most typical one

    >>> X = np.vstack([np.eye(2)[i % 2] + 0.01 * np.arange(2) * i for i in range(12)])
    >>> ImageClusters(2, random_state=0).fit_predict(X)
    array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    """

    n_clusters: int | str = parameter(ONE_OR_MORE, StrOptions({"auto"}), default="auto")
    _: KW_ONLY
    given: str = parameter(StrOptions({"vectors", "kernel"}), default="vectors")
    n_neighbors: int = parameter(ONE_OR_MORE, default=20)
    entry_power: float = parameter(POSITIVE, default=1.0)
    random_state: Any = parameter("random_state", default=None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.given == "kernel"
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        graph = self._graph(check_vectors(X))
        n = len(graph)
        wanted = count_clusters(graph.eigenvalues, n) if isinstance(self.n_clusters, str) else self.n_clusters
        if wanted > n:
            raise ValueError(f"{n} images cannot make {wanted} clusters")
        rows = unit_rows(graph.eigenvectors[:, :wanted])
        machine = KMeans(wanted, n_init=STARTS, random_state=check_random_state(self.random_state))
        with quiet:  # images that are the same can leave fewer clusters than asked for
            self.labels_ = by_size(machine.fit_predict(rows))
        features = DiffusionBasis.from_graph(graph, ALPHA).features
        everyone = np.ones(n, bool)
        worth = representative_utilities(features, self.labels_, np.ones(n), np.empty(0, int), everyone)
        self.central_ = worth / np.bincount(self.labels_)[self.labels_]
        order = np.lexsort((-self.central_, self.labels_))
        self.typical_ = order[np.searchsorted(self.labels_[order], np.arange(self.labels_.max() + 1))]
        return self

    def _graph(self, X: np.ndarray) -> ImageGraph:
        if self.given == "vectors":
            return ImageGraph.from_vectors(X, n_neighbors=self.n_neighbors, power=float(self.entry_power))
        if X.shape[0] != X.shape[1]:
            raise ValueError(f"similarities between the images make a square matrix, got {X.shape}")
        return ImageGraph.from_kernel(X, n_neighbors=self.n_neighbors)
