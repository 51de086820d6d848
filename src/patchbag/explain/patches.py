# SPDX-License-Identifier: BSD-3-Clause
r"""Which patches spoke for a class: the score of an image as a sum over its patches.

Words, Fisher vectors, VLAD and pooled descriptors are sums over patches, :math:`\phi_j = \sum_n g_{nj}` (given the
number of patches in each spatial cell).  What follows, up to the score, is linear or scales coordinates: whitening and
centring are affine, a power multiplies coordinate j by :math:`|\phi_j|^{\rho - 1}`, unit length multiplies all by one
number.  So for the image at hand there are numbers s, m with

.. math:: z_j = s_j \phi_j + m_j, \qquad
          \mathrm{score} = b + \sum_j w_j z_j
          = \sum_n \underbrace{\sum_j w_j s_j g_{nj}}_{\text{patch } n} + b + \sum_j w_j m_j .

The sum over patches is exact, the last two terms are ``rest``.  A Gaussian process on inner products is linear as well:
:math:`w = \sum_i \alpha_i z_i` over the training images, and its level :math:`\ell \sum_i \alpha_i` goes to the rest.

**What is approximate** is the meaning "the score without this patch": s would change with it.  A coordinate in which
the patches cancel each other has a small :math:`\phi_j` and a large s; what they say there is large and opposed.

Patches of a spatial pyramid speak in each cell that they lie in.  Where an image is described in several ways, each has
its patches, and the sum runs over all of them.  A pooled vector of a network is one patch, the whole image; with its
map in place of it (the pooled vector is the map's mean) it has as many as the map, see :func:`explain_pool`.

Cost: one E-step over the patches and, per class asked for, three products of N × K × D.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from patchbag.active.pool_learner import PoolLearner
from patchbag.bags import Bags, as_bags
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier
from patchbag.classifiers.pool import PoolClassifier
from patchbag.encodings.mean import MeanDescriptor
from patchbag.explain.images import dual_weights
from patchbag.explain.pooling import SUMS, Affine, affine_steps, centred, mean_shares, statistics_shares
from patchbag.mixture.universal import UniversalStatistics
from patchbag.similarity.union import KernelUnion


@dataclass(frozen=True)
class PatchShares:
    """What the patches of one kind of feature say: ``values (N, C)``, at ``positions (N, 2)`` in [0, 1] or None."""

    kind: str
    positions: np.ndarray | None
    values: np.ndarray


@dataclass(frozen=True)
class Explanation:
    """The scores of one image as sums over its patches.

    ``classes (C,)``; ``parts``: one :class:`PatchShares` per kind of feature; ``rest (C,)``: what no patch says.
    """

    classes: np.ndarray
    parts: list[PatchShares]
    rest: np.ndarray

    @property
    def scores(self) -> np.ndarray:
        """(C,) of the classes: all that the patches say, and the rest."""
        return np.asarray(self.rest + sum(part.values.sum(axis=0) for part in self.parts))


def explain_patches(model: Pipeline, X: Any, classes: Sequence[Any] | None = None) -> Explanation:
    """What each patch of one image says for (positive) and against (negative) classes.

    Parameters
    ----------
    model : fitted pipeline whose encoding is a sum over patches and whose classifier is linear in it
    X : the image as the pipeline takes it: Bags or Channels of one image, or a list of one image
    classes : those of interest, all by default

    Returns
    -------
    Explanation
        its ``scores`` are those of ``decision_function``; two classes, which share one, have -score/2 and score/2
    """
    if len(X) != 1:
        raise ValueError(f"an explanation is of one image, got {len(X)}")
    *steps, classifier = (step for _, step in model.steps)
    known = np.asarray(classifier.classes_)
    parts, rest = [], np.zeros(len(known))
    chosen = np.arange(len(known)) if classes is None else _places(known, classes)
    for kind, path, data, weights, constant in _branches(steps, classifier, X):
        weights, constant = _one_column_each(weights)[:, chosen], _one_column_each(constant[None])[0]
        bags, values, more = _shares(path, classifier, data, weights)
        parts.append(PatchShares(kind, bags.positions, values))
        rest[chosen] += constant[chosen] + more
    return Explanation(known[chosen], parts, rest[chosen])


def explain_pool(learner: PoolLearner, patches: Any) -> Explanation:
    """The same for the linear classifier of a pool of pooled vectors.

    Parameters
    ----------
    learner : with labels of two classes or more
    patches : Bags of one image, whose mean is the vector that the pool knows: the map of a network
    """
    bags, columns = as_bags(patches), learner._columns
    if len(bags) != 1:
        raise ValueError(f"an explanation is of one image, got {len(bags)}")
    if len(columns) < 2:
        raise ValueError("there is nothing to explain before two classes have labels")
    graph = learner.graph_
    weights = np.asarray(learner.beliefs_.classifier(), dtype=np.float64)
    values, rest = mean_shares(bags, centred(graph.power, graph.mean.astype(np.float64)), weights)
    classes = np.array([learner.classes_[c] for c in columns], dtype=object)
    return Explanation(classes, [PatchShares("map", bags.positions, values)], rest)


def _branches(
    steps: list[Any], classifier: Any, X: Any
) -> Iterator[tuple[str, list[Any], Any, np.ndarray, np.ndarray]]:
    """Name, steps, data, weights (d, M) and constant (M,) of each kind of feature that the score is a sum over."""
    if not isinstance(classifier, GaussianProcessClassifier):
        if not hasattr(classifier, "coef_"):
            raise ValueError(f"the scores of {type(classifier).__name__} are not linear: no sum over patches")
        weights = np.asarray(classifier.coef_, dtype=np.float64).T
        constant = np.zeros(weights.shape[1]) + getattr(classifier, "intercept_", 0.0)
        yield "", steps, X, weights, constant
        return
    dual, level = dual_weights(classifier)
    if isinstance(steps[-1] if steps else None, KernelUnion):
        for step in steps[:-1]:
            X = step.transform(X)
        paths = [(name, [step for _, step in branch.steps]) for name, branch in steps[-1].branches_]
    else:
        kernels = classifier.input_.transformers_ or [None]
        paths = [("", [*steps, *([] if kernel is None else [kernel])]) for kernel in kernels]
    for i, (name, path) in enumerate(paths):
        references = np.asarray(getattr(path[-1], "references_", None))
        if affine_steps(path[-1]) is None or references.ndim != 2:
            raise ValueError(f"{type(path[-1]).__name__} is no inner product of vectors: no sum over patches")
        yield name, path, X, references.T.astype(np.float64) @ dual[i], level if i == 0 else np.zeros_like(level)


def _shares(path: list[Any], classifier: Any, data: Any, weights: np.ndarray) -> tuple[Bags, np.ndarray, np.ndarray]:
    """Bags of the image, what its patches say (N, C), and what is left (C,)."""
    bags: Any = data
    place = next((i for i, step in enumerate(path) if isinstance(step, MeanDescriptor | UniversalStatistics)), None)
    if place is None:
        raise ValueError("no step of this pipeline sums over patches (UniversalStatistics or MeanDescriptor)")
    for step in path[:place]:
        bags = step.transform(bags)
    step, rest = path[place], list(path[place + 1 :])
    encoding = rest.pop(0) if isinstance(step, UniversalStatistics) else None
    if encoding is not None and not isinstance(encoding, SUMS):
        raise ValueError(f"{type(encoding).__name__} is no sum over patches")
    chain: list[Affine] = []
    for other in rest:
        found = affine_steps(other)
        if found is None:
            raise ValueError(f"{type(other).__name__} is not a linear map or a scaling: no sum over patches")
        chain += found
    if isinstance(classifier, PoolClassifier):
        chain += centred(classifier.power, np.asarray(classifier.mean_, dtype=np.float64))
    bags = as_bags(bags)
    if encoding is None:
        return bags, *mean_shares(bags, chain, weights)
    return bags, *statistics_shares(bags, step, encoding, chain, weights)


def _one_column_each(columns: np.ndarray) -> np.ndarray:
    """Two classes that share a column have half of it each, with opposite signs."""
    return columns if columns.shape[1] > 1 else np.hstack([-columns, columns]) / 2


def _places(known: np.ndarray, wanted: Sequence[Any]) -> np.ndarray:
    places = [int(p) for name in wanted for p in np.flatnonzero(known == name)]
    if len(places) < len(wanted):
        raise ValueError(f"classes must be some of {known.tolist()}, got {list(wanted)}")
    return np.array(places)
