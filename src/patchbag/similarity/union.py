# SPDX-License-Identifier: BSD-3-Clause
"""Several kernels on several kinds of features, side by side: what a learned combination starts from.

kapoor2010 (§6, §8) adds kernels that look at different things: pyramid matches of dense SIFT descriptors, and
correspondences of geometric blur at edge points, ``K = sum_i alpha_i K_i`` (eq. 8).  All but the sum is here::

    images ──FeatureChannels──▶ Channels(sift=Bags, gb=Bags) ──KernelUnion──▶ (n, n_ref, k)

* ``FeatureChannels`` describes images in several ways; an image is described once by each, however many kernels use it.
* ``KernelUnion`` holds named branches, each a pipeline that ends in a kernel.  ``Channel("gb")`` as a branch's first
  step picks what the branch works on; a branch may also start with a feature extractor of its own and take images.
* The result is an (n, n_ref, k) array, one layer per kernel, as ``GaussianProcessClassifier`` and
  :func:`~patchbag.classifiers.gaussian_process.kernel_stack.stack_kernels` take it.

``use`` names the kernels that take part; the others are neither fitted nor computed.  So a union can list every kernel
there is, and a person chooses by name.

Branches that differ in their kernel alone share the steps before it and, where the class of kernel can, its work: "GB"
and "GBdist" are made in one pass over the distances of descriptors.

Cost: that of the branches, one after the other; 8 n n_ref k bytes.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY
from typing import Any, ClassVar, Self

import numpy as np
from joblib import hash as content_hash
from sklearn.base import _fit_context, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from patchbag.parameters import Composition, estimator, parameter
from patchbag.similarity.base import Kernel, is_kernel
from patchbag.storage.declared import Choice, Declared, Many, steps


@estimator
class KernelUnion(Kernel, Composition):
    """Several kernels of the same images, stacked.

    Parameters
    ----------
    branches : list of (name, transformer or pipeline that ends in a kernel)
    use : names of the branches that take part, in this order; None for all of them

    Attributes
    ----------
    branches_ : list of (name, fitted branch) of those in use
    groups_ : names of branches that share all steps but the kernel

    >>> union = KernelUnion([
    ...     ("pmk", make_pipeline(Channel("sift"), BagPCA(10), PyramidMatchKernel())),
    ...     ("gb", make_pipeline(Channel("gb"), MinimumDistanceKernel())),
    ... ])                                                                              # doctest: +SKIP
    >>> union.fit_transform(channels).shape                                             # doctest: +SKIP
    (120, 120, 2)
    """

    _parts = "branches"
    branches: list[tuple[str, Any]] = parameter(list)
    _: KW_ONLY
    use: Sequence[str] | None = parameter("array-like", str, None, default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "branches_": steps("transform"),
        "groups_": Many(Many(Choice(), low=1), optional=True),
    }
    groups_: list[list[str]] | None = None  # models of earlier versions do not have them

    def chosen(self) -> list[tuple[str, Any]]:
        """(name, branch) of those in use."""
        known = dict(self.branches)
        if not known:
            raise ValueError("KernelUnion needs at least one branch")
        self._validate_names([name for name, _ in self.branches])
        names = list(known) if self.use is None else [self.use] if isinstance(self.use, str) else list(self.use)
        unknown = [name for name in names if name not in known]
        if unknown or not names or len(set(names)) < len(names):
            raise ValueError(f"use must name some of the kernels {', '.join(known)}, each once; got {self.use!r}")
        vectors = next((name for name in names if not is_kernel(known[name])), None)
        if vectors is not None:
            raise ValueError(
                f"branch {vectors!r} does not end in a kernel, which gives one value per reference image; end it in "
                "one such as InnerProductKernel()"
            )
        return [(name, known[name]) for name in names]

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the branches; the images of X are the references of every kernel."""
        self._fit_gram(X, y)
        return self

    @_fit_context(prefer_skip_nested_validation=False)
    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """(n, n, k) kernels of the reference images."""
        return self._fit_gram(X, y)

    def _fit_gram(self, X: Any, y: Any = None) -> np.ndarray:
        branches = {name: clone(branch) for name, branch in self.chosen()}
        groups: dict[str, list[str]] = {}
        for name, branch in branches.items():
            groups.setdefault(content_hash(_parts(branch)[0]), []).append(name)
        grams: dict[str, Any] = {}
        for names in groups.values():
            steps, _ = _parts(branches[names[0]])
            data = Pipeline(steps).fit_transform(X, y) if steps else X
            for name in names[1:] if steps else []:
                branches[name].steps[:-1] = steps
            grams |= _of_each_class("fit_transform_all", {name: branches[name] for name in names}, data)
        self.branches_, self.groups_ = list(branches.items()), list(groups.values())
        return _layers([grams.pop(name) for name in branches])

    def transform(self, X: Any) -> np.ndarray:
        """(m, n_ref, k) kernels between m images and the references."""
        check_is_fitted(self, "branches_")
        branches, rows = dict(self.branches_), dict[str, Any]()
        for names in self.groups_ or [[name] for name in branches]:
            steps, _ = _parts(branches[names[0]])
            data = Pipeline(steps).transform(X) if steps else X
            rows |= _of_each_class("transform_all", {name: branches[name] for name in names}, data)
        return _layers([rows.pop(name) for name in branches])

    def with_sums(self, weights: Sequence[np.ndarray]) -> Self | None:
        kernels = {name: _parts(branch)[1].with_sums([own]) for (name, branch), own in zip(self.branches_, weights)}
        if any(kernel is None for kernel in kernels.values()):
            return None
        made = copy(self)
        made.branches_ = [
            (name, Pipeline([*_parts(branch)[0], ("kernel", kernels[name])])) for name, branch in self.branches_
        ]
        return made

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        names = [name for name, _ in values["branches_"]]
        grouped = [name for group in values.get("groups_") or [names] for name in group]
        kernels = all(is_kernel(step) for _, step in values["branches_"])
        sound = names and kernels and sorted(grouped) == sorted(set(names))
        return None if sound else f"its branches are {names} and its groups {grouped}"


def _layers(kernels: list[Any]) -> np.ndarray:
    """Kernels (m, n) as (m, n, k), a view of (k, m, n): a classifier takes one after the other."""
    stack = np.empty((len(kernels), *kernels[0].shape))
    for i in range(len(kernels)):
        stack[i], kernels[i] = kernels[i], None
    return np.moveaxis(stack, 0, 2)


def _parts(branch: Any) -> tuple[list[tuple[str, Any]], Kernel]:
    """The steps before the kernel, and the kernel."""
    return (branch.steps[:-1], branch.steps[-1][1]) if isinstance(branch, Pipeline) else ([], branch)


def _of_each_class(method: str, branches: dict[str, Any], data: Any) -> dict[str, Any]:
    """``fit_transform_all`` or ``transform_all`` of the kernels of each class."""
    kernels: dict[type[Kernel], dict[str, Kernel]] = {}
    for name, branch in branches.items():
        kernel = _parts(branch)[1]
        kernels.setdefault(type(kernel), {})[name] = kernel
    found: dict[str, Any] = {}
    for kind, own in kernels.items():
        found |= zip(own, getattr(kind, method)(list(own.values()), data))
    return found
