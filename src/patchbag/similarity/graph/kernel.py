# SPDX-License-Identifier: BSD-3-Clause
r"""The diffusion kernel of a pool as an estimator, mixed with the plain one: (1 - w) k + w cos.

k is the kernel of ``diffusion``, in which all images of the pool take part, with labels or without; cos the cosine of
the vectors.  Where classes cut through clusters the graph misleads and the plain kernel does not: the strength α and
the weight w are chosen by the labels given to ``fit`` (see ``choice``).  Without labels they are 0.95 and 0.
"""

from dataclasses import KW_ONLY
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from patchbag.parameters import ONE_OR_MORE, POSITIVE, SHARE, estimator, parameter
from patchbag.similarity.base import Kernel
from patchbag.similarity.graph.choice import ALPHAS, MIXES, choose_diffusion, known_labels
from patchbag.similarity.graph.diffusion import DiffusionBasis
from patchbag.similarity.graph.image_graph import ImageGraph, check_vectors
from patchbag.storage.declared import Declared, Part, real


@estimator
class DiffusionKernel(Kernel):
    """Similarities to the images of a pool by diffusion on their neighbour graph, mixed with the plain cosine.

    Parameters
    ----------
    alpha : strength of the diffusion; "auto" chooses it by the labels given to ``fit``
    mix : weight of the plain kernel; "auto" likewise
    n_neighbors, n_eigenvectors : neighbours of an image; eigenvectors of the graph that are kept
    power : 2 for the cluster kernel
    entry_power : of the entries of the vectors before anything else, signed

    Attributes
    ----------
    references_ : the graph of the pool
    alpha_, mix_ : as chosen

    >>> X = np.random.default_rng(0).random((30, 5))
    >>> DiffusionKernel().fit(X).transform(X[:3]).shape
    (3, 30)
    """

    alpha: float | str = parameter(Interval(Real, 0, 1, closed="left"), StrOptions({"auto"}), default="auto")
    mix: float | str = parameter(SHARE, StrOptions({"auto"}), default="auto")
    _: KW_ONLY
    n_neighbors: int = parameter(ONE_OR_MORE, default=20)
    n_eigenvectors: int = parameter(ONE_OR_MORE, default=300)
    power: int = parameter(Interval(Integral, 1, 2, closed="both"), default=1)
    entry_power: float = parameter(POSITIVE, default=0.5)
    n_jobs: int | None = parameter(Integral, None, default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "references_": Part("ImageGraph", n="n", m="m"),
        "alpha_": real(low=0, below=1),
        "mix_": real(low=0, high=1),
        "basis_": Part("DiffusionBasis", n="n", m="m"),
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Build the graph of images with vectors ``X (n, d)``.

        Labels ``y (n,)``, None or NaN where there is none, choose what is "auto".
        """
        self.references_ = ImageGraph.from_vectors(
            X,
            n_neighbors=self.n_neighbors,
            n_eigenvectors=self.n_eigenvectors,
            power=self.entry_power,
            n_jobs=self.n_jobs,
        )
        alphas = ALPHAS if isinstance(self.alpha, str) else (self.alpha,)
        mixes = MIXES if isinstance(self.mix, str) else (self.mix,)
        labels = known_labels(y, len(self.references_))
        self.alpha_, self.mix_ = choose_diffusion(self.references_, *labels, alphas, mixes, power=self.power)
        self.basis_ = DiffusionBasis.from_graph(self.references_, self.alpha_, self.power)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Kernel (n, n) of the pool."""
        self.fit(X, y)
        gram = (1.0 - self.mix_) * self.basis_.columns(np.arange(len(self.references_)))
        gram += self.mix_ * (self.references_.vectors @ self.references_.vectors.T)
        return (gram + gram.T) / 2

    def _check(self, X: Any, fitted: bool = False) -> np.ndarray:
        return self.references_.prepare(X) if fitted else check_vectors(X)

    def _compare(self, X: Any) -> np.ndarray:
        rows = self.basis_.place(self.references_.place(X, self.n_jobs)) @ self.basis_.features.T
        return np.asarray((1.0 - self.mix_) * rows + self.mix_ * (X @ self.references_.vectors.T))
