# SPDX-License-Identifier: BSD-3-Clause
"""Several kernels on several kinds of features, side by side: what a learned combination starts from.

kapoor2010 (§6, §8) adds kernels that look at different things: pyramid matches of dense SIFT descriptors, and
correspondences of geometric blur at edge points, ``K = sum_i alpha_i K_i`` (eq. 8).  All but the sum is here::

    images ──FeatureChannels──▶ Channels(sift=Bags, gb=Bags) ──KernelUnion──▶ (n, n_ref, k)

* ``FeatureChannels`` describes images in several ways; an image is described once by each, however many kernels use it.
* ``KernelUnion`` holds named branches, each a pipeline that ends in a kernel.  ``Channel("gb")`` as a branch's first
  step picks what the branch works on; a branch may also start with a feature extractor of its own and take images.
* The result is an (n, n_ref, k) array, one layer a kernel, as ``GaussianProcessCategorizer`` and
  :func:`~patchbag.classifiers.gaussian_process.kernel_stack.stack_kernels` take it.

``use`` names the kernels that take part; the others are neither fitted nor computed.  So a union can list every kernel
there is, and a person chooses by name.

Cost: that of the branches, one after the other; 8 n n_ref k bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import TransformerMixin, clone
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.validation import check_is_fitted


class KernelUnion(TransformerMixin, _BaseComposition):
    """Several kernels of the same images, stacked.

    Parameters
    ----------
    branches : list of (name, transformer or pipeline that ends in a kernel)
    use : names of the branches that take part, in this order; None for all of them

    Attributes
    ----------
    branches_ : list of (name, fitted branch) of those in use

    >>> union = KernelUnion([
    ...     ("pmk", make_pipeline(Channel("sift"), BagPCA(10), PyramidMatchKernel())),
    ...     ("gb", make_pipeline(Channel("gb"), MinimumDistanceKernel())),
    ... ])                                                                              # doctest: +SKIP
    >>> union.fit_transform(channels).shape                                             # doctest: +SKIP
    (120, 120, 2)
    """

    def __init__(self, branches: list[tuple[str, Any]], *, use: Sequence[str] | None = None) -> None:
        self.branches = branches
        self.use = use

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return self._get_params("branches", deep=deep)

    def set_params(self, **params: Any) -> Self:
        self._set_params("branches", **params)
        return self

    @property
    def names_(self) -> list[str]:
        """Names of the kernels, in the order of the last axis."""
        check_is_fitted(self, "branches_")
        return [name for name, _ in self.branches_]

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
        return [(name, known[name]) for name in names]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the branches; the images of X are the references of every kernel."""
        self.branches_ = [(name, clone(branch).fit(X, y)) for name, branch in self.chosen()]
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """(n, n, k) kernels of the reference images."""
        fitted, kernels = [], []
        for name, branch in self.chosen():
            branch = clone(branch)
            kernels.append((name, branch.fit_transform(X, y)))
            fitted.append((name, branch))
        stack = _stack(kernels, len(X), len(X))
        self.branches_ = fitted
        return stack

    def transform(self, X: Any) -> np.ndarray:
        """(m, n_ref, k) kernels between m images and the references."""
        check_is_fitted(self, "branches_")
        return _stack([(name, branch.transform(X)) for name, branch in self.branches_], len(X))


def _stack(kernels: list[tuple[str, Any]], n: int, n_reference: int | None = None) -> np.ndarray:
    width = n_reference
    for name, kernel in kernels:
        shape = np.shape(kernel)
        width = shape[1] if width is None and len(shape) == 2 else width
        if shape != (n, width):
            raise ValueError(
                f"branch {name!r} gave an array of shape {shape} for {n} images, expected ({n}, {width}): "
                "one kernel value a reference image; end the branch in a kernel such as InnerProductKernel()"
            )
    return np.stack([np.asarray(kernel, dtype=np.float64) for _, kernel in kernels], axis=2)
