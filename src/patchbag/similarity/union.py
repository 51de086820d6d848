# SPDX-License-Identifier: BSD-3-Clause
"""Several kernels on several kinds of features, side by side: what a learned combination starts from.

kapoor2010 (§6, §8) adds kernels that look at different things: pyramid matches of dense SIFT descriptors, and
correspondences of geometric blur at edge points, ``K = sum_i alpha_i K_i`` (eq. 8).  All but the sum is here::

    images ──FeatureChannels──▶ Channels(sift=Bags, gb=Bags) ──KernelUnion──▶ (n, n_ref, k)

* ``FeatureChannels`` describes images in several ways; an image is described once by each, however many kernels use it.
* ``KernelUnion`` holds named branches, each a pipeline that ends in a kernel.  ``Channel("gb")`` as a branch's first
  step picks what the branch works on; a branch may also start with a feature extractor of its own and take images.
* The result is an (n, n_ref, k) array, one layer a kernel, as ``GaussianProcessCategorizer`` and
  :func:`~patchbag.classifiers.kernel_stack.stack_kernels` take it.

``use`` names the kernels that take part; the others are neither fitted nor computed.  So a union can list every kernel
there is, and a person chooses by name.

``InnerProductKernel`` turns vectors (Fisher vectors, word counts) into a kernel, so that they can join.

Cost: that of the branches, one after the other; 8 n n_ref k bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.validation import check_is_fitted

from patchbag.channels import Channels


class FeatureChannels(TransformerMixin, _BaseComposition):
    """Describe images by several features at once.

    Parameters
    ----------
    channels : list of (name, feature extractor); the extractor "drop" leaves a channel out
    use : names of the channels to describe images by; None for all of them

    >>> FeatureChannels([("sift", DenseSIFT()), ("gb", GeometricBlur())]).transform(paths)["gb"]  # doctest: +SKIP
    """

    def __init__(self, channels: list[tuple[str, Any]], *, use: Sequence[str] | None = None) -> None:
        self.channels = channels
        self.use = use

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return self._get_params("channels", deep=deep)

    def set_params(self, **params: Any) -> Self:
        self._set_params("channels", **params)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _active(self) -> list[tuple[str, Any]]:
        names = [name for name, _ in self.channels]
        use = names if self.use is None else [self.use] if isinstance(self.use, str) else list(self.use)
        unknown = [name for name in use if name not in names]
        if unknown:
            raise ValueError(f"use must name some of the channels {', '.join(names)}; got {self.use!r}")
        active = [(name, feature) for name, feature in self.channels if feature != "drop" and name in use]
        if not active:
            raise ValueError("FeatureChannels needs at least one channel that is not 'drop'")
        return active

    def idle_features(self) -> list[Any]:
        """Feature extractors that are listed and not used."""
        used = [feature for _, feature in self._active()]
        return [feature for _, feature in self.channels if not any(feature is one for one in used)]

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the parameters; features learn nothing."""
        self._validate_names([name for name, _ in self.channels])
        for _, feature in self._active():
            feature.fit(X, y)
        return self

    def transform(self, X: Any) -> Channels:
        """``Channels`` with one ``Bags`` a feature; channels that were made before are returned as they are."""
        if isinstance(X, Channels):
            return X
        return Channels({name: feature.transform(X) for name, feature in self._active()})


class Channel(TransformerMixin, BaseEstimator):
    """One dataset out of ``Channels``: the first step of a branch.

    Parameters
    ----------
    name : of the channel
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Nothing to learn."""
        return self

    def transform(self, X: Any) -> Any:
        if not isinstance(X, Channels):
            raise ValueError(
                f"expected Channels with a dataset named {self.name!r}, got a {type(X).__name__}; "
                "give images to the whole recipe, or Channels(name=dataset, ...)"
            )
        if self.name not in X.names:
            raise ValueError(
                f"there is no channel {self.name!r} among {', '.join(X.names)}; "
                "describe images by it too (features.use), or leave the kernels on it out (kernels.use)"
            )
        return X[self.name]


class InnerProductKernel(TransformerMixin, BaseEstimator):
    """Inner products of vectors with those of the reference images.

    Parameters
    ----------
    normalize : divide by the lengths, so that every image has kernel one with itself; a vector of zeros stays zero

    >>> InnerProductKernel().fit_transform(np.array([[3.0, 4.0], [4.0, 3.0]])).round(2).tolist()
    [[1.0, 0.96], [0.96, 1.0]]
    """

    def __init__(self, normalize: bool = True) -> None:
        self.normalize = normalize

    def fit(self, X: Any, y: Any = None) -> Self:
        """Keep the vectors of the reference images."""
        self.reference_ = self._vectors(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Gram matrix (n, n)."""
        gram = self.fit(X).transform(X)
        return (gram + gram.T) / 2

    def transform(self, X: Any) -> np.ndarray:
        """Kernel (m, n) between m vectors and the n reference vectors."""
        check_is_fitted(self, "reference_")
        vectors = self._vectors(X)
        if vectors.shape[1] != self.reference_.shape[1]:
            raise ValueError(f"fitted on vectors of {self.reference_.shape[1]} numbers, got {vectors.shape[1]}")
        return np.asarray(vectors @ self.reference_.T, dtype=np.float64)

    def _vectors(self, X: Any) -> np.ndarray:
        vectors = np.asarray(X)
        if vectors.ndim != 2 or vectors.dtype.kind not in "biuf":
            raise ValueError(f"expected one vector an image, (n, width), got shape {vectors.shape} of {vectors.dtype}")
        vectors = vectors if vectors.dtype.kind == "f" else vectors.astype(np.float64)
        if not np.isfinite(vectors).all():
            bad = int(np.argmin(np.isfinite(vectors).all(axis=1)))
            raise ValueError(f"the vector of image {bad} of {len(vectors)} has a value that is not finite")
        if not self.normalize:
            return vectors
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
        return vectors / np.where(lengths > 0, lengths, 1.0).astype(vectors.dtype)


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
