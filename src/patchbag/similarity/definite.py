# SPDX-License-Identifier: BSD-3-Clause
r"""Is this similarity a kernel?  A test for positive semidefiniteness, and the repair by clipping eigenvalues.

An SVM or a Gaussian process asks for a positive semidefinite Gram matrix.  Many good similarities are not (the KLK,
2.21), and the answer of an SVM on them can be far off without a warning.

With the training Gram matrix :math:`G = U \Lambda U^T` and :math:`U_+` its eigenvectors of positive eigenvalue,
clipping gives :math:`G_+ = U_+ \Lambda_+ U_+^T`, the nearest semidefinite matrix in the Frobenius norm.  Since
:math:`G_+ = G\,T` with the projection :math:`T = U_+ U_+^T`, rows of similarities of new images are repaired the same
way, :math:`k(x)^T T`: an image that is also a training image gets the same row as in training (chen2009,
"similarity-based classification").

``DefiniteKernel`` stands between a kernel and a classifier with a precomputed kernel.  It raises by default and clips
when asked.  Eigenvalues above ``-tolerance · largest`` count as rounding.  Cost: one eigendecomposition, O(n³): about
a second for 1,500.
"""

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh
from sklearn.utils import check_array
from sklearn.utils._param_validation import StrOptions

from patchbag.parameters import NOT_NEGATIVE, estimator, parameter
from patchbag.similarity.base import Kernel
from patchbag.storage.declared import Declared, Part, boolean, floats, integer, real, size, stored
from patchbag.storage.registry import storable


@storable
@dataclass(frozen=True)
class Definiteness:
    """What the eigenvalues of a Gram matrix say; ``str`` of it is a sentence."""

    n: int = stored(integer(low=0))
    smallest: float = stored(real())
    largest: float = stored(real())
    n_negative: int = stored(integer(low=0))
    negative_mass: float = stored(real())
    definite: bool = stored(boolean())

    def __str__(self) -> str:
        state = "is positive semidefinite" if self.definite else "is not positive semidefinite"
        return (
            f"the {self.n} × {self.n} Gram matrix {state}: eigenvalues from {self.smallest:.3g} to {self.largest:.3g}, "
            f"{self.n_negative} of them negative with {100 * abs(self.negative_mass):.2g} % of the absolute sum"
        )


def definiteness(gram: Any, tolerance: float = 1e-6) -> Definiteness:
    """How far a symmetric matrix is from positive semidefinite.

    >>> definiteness([[1.0, 2.0], [2.0, 1.0]]).smallest
    -1.0
    """
    eigenvalues = eigh(np.asarray(gram, np.float64), eigvals_only=True)
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    negative = eigenvalues < -tolerance * max(abs(smallest), abs(largest))
    total = float(np.abs(eigenvalues).sum())
    mass = float(-eigenvalues[negative].sum()) / total if total else 0.0
    return Definiteness(len(eigenvalues), smallest, largest, int(negative.sum()), mass, not negative.any())


def clip_eigenvalues(gram: Any) -> tuple[np.ndarray, np.ndarray]:
    """The semidefinite matrix nearest to a symmetric one, and the projection T that takes rows there: both (n, n)."""
    eigenvalues, vectors = eigh(np.asarray(gram, np.float64))
    kept = vectors[:, eigenvalues > 0]
    return (kept * eigenvalues[eigenvalues > 0]) @ kept.T, kept @ kept.T


@estimator
class DefiniteKernel(Kernel):
    """Checks the training Gram matrix, and repairs it on request; goes before a classifier with a precomputed kernel.

    Parameters
    ----------
    action : ``"raise"``, ``"warn"`` or ``"clip"`` when the matrix is not positive semidefinite
    tolerance : negative eigenvalues smaller than this fraction of the largest are rounding

    Attributes
    ----------
    definiteness_ : what was found;  projection_ : (n, n) or None where nothing was to repair

    >>> make_pipeline(MixtureKernel("klk"), DefiniteKernel("clip"), SVC(kernel="precomputed"))  # doctest: +SKIP
    """

    action: str = parameter(StrOptions({"raise", "warn", "clip"}), default="raise")
    _: KW_ONLY
    tolerance: float = parameter(NOT_NEGATIVE, default=1e-6)

    _stored: ClassVar[dict[str, Declared]] = {
        "definiteness_": Part("Definiteness"),
        "n_features_in_": size("n"),
        "projection_": floats("n", "n", nullable=True),
    }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True  # cross-validation cuts rows and columns
        return tags

    def _check(self, X: Any, fitted: bool = False) -> np.ndarray:
        X = check_array(X, dtype=[np.float64, np.float32], input_name="similarities")
        if fitted and X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"expected similarities to the {self.n_features_in_} training samples, got {X.shape[1]} columns"
            )
        if fitted:
            return X
        if X.shape[0] != X.shape[1]:
            raise ValueError(
                f"a Gram matrix is square, got shape {X.shape}; fit on the similarities of the training set to itself"
            )
        asymmetry = float(np.abs(X - X.T).max())
        if asymmetry > 1e-3 * float(np.abs(X).max()):
            raise ValueError(f"the Gram matrix is not symmetric: K(i, j) and K(j, i) differ by up to {asymmetry:.3g}")
        return (X + X.T) / 2

    def _fit(self, gram: np.ndarray) -> None:
        self.definiteness_ = definiteness(gram, self.tolerance)
        self.n_features_in_ = len(gram)
        self.projection_ = None
        if self.definiteness_.definite:
            return
        if self.action == "clip":
            self.projection_ = clip_eigenvalues(gram)[1]
            return
        advice = (
            "a classifier on it may be far off (an SVM most of all, a linear one on rows of similarities least): raise "
            "the relevance factor of the adaptation, or clip it with DefiniteKernel('clip')"
        )
        if self.action == "raise":
            raise ValueError(f"{self.definiteness_}; {advice}")
        warnings.warn(f"{self.definiteness_}; {advice}", stacklevel=5)

    def _compare(self, X: np.ndarray) -> np.ndarray:
        return X if self.projection_ is None else X @ self.projection_
