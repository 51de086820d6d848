# SPDX-License-Identifier: BSD-3-Clause
"""What a kernel classifier is given, turned into checked kernels: matrices, distances, or transformers of bags.

``KernelInput`` remembers from the training images what new ones need: fitted transformers, the projections of repaired
kernels, the length scale of repaired distances, and the mean kernel of an image with itself, for new images that come
without it.
"""

from typing import Any, ClassVar

import numpy as np
from scipy.linalg import block_diag
from sklearn.base import BaseEstimator, clone

from patchbag.classifiers.gaussian_process.combination import unit_scales
from patchbag.classifiers.gaussian_process.kernel_stack import check_kernel, stack_kernels
from patchbag.storage.declared import Choice, Declared, Either, Many, Part, boolean, floats, size
from patchbag.storage.registry import storable

SMALLEST = 1e-290  # self-kernel whose inverse is still a number
TRANSFORMER = Part(methods=("transform",))
TEMPLATE = Part(methods=("transform",), fitted=False)  # what was given, of which a clone is fitted


def _own(stack: np.ndarray) -> np.ndarray:
    """The stack, or a copy where it is a view of what the caller gave, which must not change."""
    return stack if stack.flags.owndata else stack.copy()


@storable
class KernelInput(BaseEstimator):
    """Kernels of the training images and rows of kernels of new ones.

    Parameters
    ----------
    kernel : "precomputed", "distance", a kernel transformer or a list of them
    repair : clip negative eigenvalues (for distances after exp(-D / mean D))

    Attributes (after ``learn`` and ``check``)
    ------------------------------------------
    n_images_, n_kernels_ ; distances_ : whether ``learn`` returned distances instead of kernels
    """

    _stored: ClassVar[dict[str, Declared]] = {
        "kernel": Either((Choice(("precomputed", "distance")), TEMPLATE, Many(TEMPLATE))),
        "repair": boolean(),
        "distances_": boolean(),
        "n_kernels_": size("k", low=1),
        "n_images_": size("n"),
        "transformers_": Many(TRANSFORMER, nullable=True),
        "gamma_": floats("k", low=0, nullable=True),
        "projections_": Many(floats("n", "n", optional=True), length="k"),
        "mean_self_kernel_": floats("k"),
    }

    def __init__(self, kernel: Any, repair: bool) -> None:
        self.kernel = kernel
        self.repair = repair

    def learn(self, X: Any) -> np.ndarray:
        """Kernels or distances (k, n, n) of the training images, still to be checked."""
        self.distances_ = isinstance(self.kernel, str) and self.kernel == "distance"
        self.transformers_: list[Any] | None = None
        if not isinstance(self.kernel, str):
            given = self.kernel if isinstance(self.kernel, list | tuple) else [self.kernel]
            self.transformers_ = [clone(k) for k in given]
        self.gamma_: np.ndarray | None = None
        if self.transformers_ is None:
            bases = stack_kernels(X)
        else:
            bases = stack_kernels([np.asarray(kernel.fit_transform(X)) for kernel in self.transformers_])
        if self.distances_:
            low = bases.min(axis=(1, 2))
            if np.any(low < 0):
                raise ValueError(f"distance matrix {int(np.argmin(low))} has a negative value, {low.min():.3g}")
            if self.repair:
                # a repaired kernel has no length scale left to learn: it is a kernel from here on
                self.gamma_, self.distances_ = unit_scales(bases), False
                bases = np.exp(-self.gamma_[:, None, None] * bases)
        self.n_kernels_, self.n_images_ = bases.shape[:2]
        return bases

    def check(self, bases: np.ndarray, inducing: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Symmetric, positive semidefinite kernels (or distances of such) from ``learn``, and self-kernels (k, n).

        With m ``inducing`` images only the block of these and of as many others is tested, O(m³) in place of O(n³);
        where it fails, the whole.
        """
        k, n = bases.shape[:2]
        sample = None
        if inducing is not None:
            sample = np.union1d(inducing, np.linspace(0, n - 1, len(inducing)).astype(int))
        self.projections_: list[np.ndarray | None] = [None] * k
        gamma = unit_scales(bases) if self.distances_ else np.ones(k)
        for i in range(k):
            if self.distances_:
                check_kernel(np.exp(-gamma[i] * bases[i]), i, sample=sample)
                continue
            given = bases[i]
            checked, self.projections_[i] = check_kernel(given, i, self.repair, sample)
            if checked is not given:
                bases = _own(bases)
                bases[i] = checked
        self_kernels = np.ones((k, n)) if self.distances_ else np.einsum("kii->ki", bases).copy()
        self.mean_self_kernel_ = self_kernels.mean(axis=1)
        tiny = (self.mean_self_kernel_ > 0) & (self.mean_self_kernel_ < SMALLEST)
        if tiny.any():
            raise ValueError(
                f"kernel {np.argmax(tiny)} has values of {self.mean_self_kernel_[tiny][0]:.3g}; rescale it"
            )
        return bases, self_kernels

    def rows(self, X: Any, diagonal: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Kernels or distances (k, m, n) between m new and the training images, and self-kernels (k, m).

        ``diagonal (m,)`` or ``(m, k)`` are the self-kernels; by default what the transformers say, else the mean of the
        training images.
        """
        if self.transformers_ is None:
            rows = stack_kernels(X, self.n_images_)
        else:
            rows = stack_kernels([np.asarray(kernel.transform(X)) for kernel in self.transformers_], self.n_images_)
            if diagonal is None and all(hasattr(kernel, "diagonal") for kernel in self.transformers_):
                diagonal = np.stack([kernel.diagonal(X) for kernel in self.transformers_], axis=1)
        k, m, _ = rows.shape
        if k != self.n_kernels_:
            raise ValueError(f"fitted with {self.n_kernels_} kernels, got {k}")
        if self.gamma_ is not None:
            rows = np.exp(-self.gamma_[:, None, None] * rows)
        for i, projection in enumerate(self.projections_):
            if projection is not None:
                rows = _own(rows)
                with np.errstate(over="ignore", invalid="ignore"):  # soft labels that overflow are reported as such
                    rows[i] = rows[i] @ projection
        if diagonal is None:
            return rows, np.repeat(self.mean_self_kernel_[:, None], m, axis=1)
        diagonal = np.asarray(diagonal, dtype=float)
        if diagonal.ndim == 1:
            diagonal = diagonal[:, None]
        if diagonal.shape not in ((m, 1), (m, k)) or not np.isfinite(diagonal).all():
            raise ValueError(
                f"diagonal must hold {m} finite numbers for each of {k} kernels, got shape {diagonal.shape}"
            )
        return rows, np.broadcast_to(diagonal.T, (k, m)).copy()

    def check_extendable(self) -> None:
        """Raise where one more training image asks for another ``learn``."""
        if self.transformers_ is not None:
            raise ValueError("update is for precomputed kernels; call fit with the new image included")
        if self.repair and any(projection is not None for projection in self.projections_):
            raise ValueError("update cannot extend a repaired kernel; call fit with the new image included")

    def append(self, self_kernels: np.ndarray) -> None:
        """One more training image, with self-kernels (k,): new rows have one more column."""
        # without repair only rounding was clipped; what is projected is the part in the images of ``fit``
        self.projections_ = [None if p is None else block_diag(p, 1.0) for p in self.projections_]
        self.mean_self_kernel_ = (self.mean_self_kernel_ * self.n_images_ + self_kernels) / (self.n_images_ + 1)
        self.n_images_ += 1

    def check_finite(self, labels: np.ndarray, rows: np.ndarray, self_kernels: np.ndarray) -> None:
        """Raise if soft ``labels (m, ·)`` of images with these kernels are not finite, and say whose they are."""
        bad = np.flatnonzero(~np.isfinite(labels).all(axis=1))
        if len(bad):
            largest = max(np.abs(rows[:, bad[0]]).max(), np.abs(self_kernels[:, bad[0]]).max())
            raise ValueError(
                f"the soft labels of image {bad[0]} of {len(labels)} are not finite: its kernel values reach "
                f"{largest:.3g}, those of a training image with itself are {self.mean_self_kernel_} on average"
            )
