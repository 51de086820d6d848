# SPDX-License-Identifier: BSD-3-Clause
"""What all similarities have in common: ``fit`` keeps the references, ``transform`` compares with them.

A subclass fills in ``_check`` (its input, at the public door, once), ``_fit`` (what is learned from clean references)
and ``_compare`` (rows of clean samples against the references).  ``fit_transform`` gives the similarities of the
references with each other: exactly symmetric where the class says that it is a kernel.

A **kernel is known by its class**: it is a :class:`Kernel` whose ``symmetric`` is true.  Rows of other similarities are
vectors, whatever numbers they happen to hold (:func:`is_kernel`).

Gram matrices are cut into blocks of rows by the data alone and computed by the workers of the context
(:func:`map_rows`): each job carries its rows and returns its block, the same bits on any backend.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, device
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags
from patchbag.device import follow, from_device, to_host
from patchbag.mixture.adaptation import Mixtures
from patchbag.parameters import estimator
from patchbag.records import require_finite
from patchbag.runtime import parallel_map
from patchbag.storage.declared import Declared, Part, floats, size
from patchbag.storage.registry import Storable

SUM_TOLERANCE = 1e-3  # of histograms that must sum to one


@estimator
class Kernel(Storable, TransformerMixin, BaseEstimator):
    """Samples → rows of similarities to the reference samples.

    Attributes
    ----------
    references_ : what is kept of the reference samples
    """

    # whether K(a, b) = K(b, a)
    symmetric = True

    def _check(self, X: Any, fitted: bool = False) -> Any:
        """Clean samples; with ``fitted``, samples that can be compared with the references."""
        raise NotImplementedError

    def _fit(self, X: Any) -> None:
        """Learn from clean references, and keep them, on the host."""
        self.references_ = to_host(X)

    def _compare(self, X: Any) -> Any:
        """Similarities (n, number of references) of clean samples."""
        raise NotImplementedError

    def _fit_gram(self, X: Any) -> Any:
        """``_fit``, and the similarities (n, n) of the references with each other."""
        self._fit(X)
        gram = self._compare(X)
        return (gram + gram.T) / 2 if self.symmetric else gram

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the reference samples, and keep what is compared with."""
        self._fit(self._check(X))
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Similarities (n, n) of the reference samples with each other."""
        return require_finite(from_device(self._fit_gram(self._check(X))), "the similarities")

    def transform(self, X: Any) -> Any:
        """Similarities (m, n) of m samples to the n references."""
        check_is_fitted(self)
        return require_finite(from_device(self._compare(self._check(X, fitted=True))), "the similarities")

    def with_sums(self, weights: Sequence[np.ndarray]) -> Self | None:
        """A fitted copy with r references whose similarities are the present ones times ``weights (n, r)``, of which
        there is one per kernel; None where similarities are not linear in the references.
        """
        return None

    @classmethod
    def fit_transform_all(cls, kernels: Sequence[Self], X: Any) -> list[Any]:
        """``fit_transform`` of several kernels of this class; what they share may be computed once."""
        return [kernel.fit_transform(X) for kernel in kernels]

    @classmethod
    def transform_all(cls, kernels: Sequence[Self], X: Any) -> list[Any]:
        """``transform`` of several kernels of this class that were fitted on the same references."""
        return [kernel.transform(X) for kernel in kernels]


def is_kernel(step: Any) -> bool:
    """Whether a step, or the last one of a pipeline, gives kernels and not vectors.

    >>> from patchbag import InnerProductKernel, ReferenceWeights
    >>> is_kernel(Pipeline([("kernel", InnerProductKernel())])), is_kernel(ReferenceWeights())
    (True, False)
    """
    last = step.steps[-1][1] if isinstance(step, Pipeline) else step
    return isinstance(last, Kernel) and last.symmetric


def map_rows(function: Callable[[Any], Any], parts: Iterable[Any], n: int, out: Any = None) -> Any:
    """``function`` of every part of a dataset of n samples, on the workers of the context, one below the other."""
    start = 0
    for block in parallel_map(function, parts):
        if out is None and block.shape[0] == n:
            return block
        if out is None:
            out = array_namespace(block).empty((n, *block.shape[1:]), dtype=block.dtype, device=device(block))
        out[start : start + block.shape[0], ...] = block
        start += block.shape[0]
    return out


# --- bags, mixtures, histograms ---------------------------------------------------------------------------------------


def check_bags(X: Any, dimension: int | None = None) -> Bags:
    """Bags that are finite, positions included, not empty, and of the given dimension."""
    bags = as_bags(X).check_not_empty()
    if len(bags) == 0:
        raise ValueError("expected at least one bag, got none")
    for what, rows in (("feature", bags.values), ("position", bags.positions)):
        finite = np.ones(1, bool) if rows is None else np.isfinite(np.asarray(rows)).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            bag = int(np.searchsorted(bags.offsets, row, side="right")) - 1
            within = row - bags.offsets[bag]
            raise ValueError(f"bag {bag} of {len(bags)} has a {what} that is not finite (row {within})")
    if bags.dtype == np.float16:  # which compiled loops do not know
        bags = bags.replace(np.asarray(bags.values, dtype=np.float32))
    if dimension is not None and bags.dimension != dimension:
        raise ValueError(f"features have {bags.dimension} dimensions, the reference bags {dimension}")
    return bags


class BagKernel(Kernel):
    """Base of kernels between bags.

    ``most_features`` is how many a bag may have where every feature of one bag is compared with every one of another:
    the memory and the time of a pair grow with the square.
    """

    most_features: ClassVar[int | None] = None

    _stored: ClassVar[dict[str, Declared]] = {
        "references_": Part("Bags", n="n", d="d"),
        "n_features_in_": size("d"),
    }

    def _check(self, X: Any, fitted: bool = False) -> Bags:
        if fitted:
            check_is_fitted(self)
        bags = check_bags(X, self.n_features_in_ if fitted else None)
        bag = int(bags.sizes.argmax())
        if self.most_features is not None and bags.sizes[bag] > self.most_features:
            raise ValueError(
                f"bag {bag} of {len(bags)} has {bags.sizes[bag]:,} features: {type(self).__name__} compares all "
                f"of two bags, at most {self.most_features:,}; describe images more coarsely, or use "
                "PyramidMatchKernel, whose cost is linear"
            )
        return bags

    def _fit(self, bags: Bags) -> None:
        self.references_: Any = bags
        self.n_features_in_ = bags.dimension

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        check_bags(values["references_"])
        return None


def check_mixtures(X: Any, references: Mixtures | None = None, one_to_one: bool = False) -> Mixtures:
    """X if it is a sound Mixtures; else an error that says what was given, or which image is at fault.

    Parameters
    ----------
    references : mixtures, already checked, that X is to be compared with
    one_to_one : components of X and of the references are to correspond: both must have one universal model
    """
    if not isinstance(X, Mixtures):
        raise TypeError(f"expected Mixtures (from MAPAdaptation), got {type(X).__name__}")
    X.check(like=references)
    if one_to_one and not (X.corresponding and (references is None or references.corresponding)):
        raise ValueError(
            "mixtures that were trained on each image alone have no components that correspond one to one; "
            "match them (matching='matched', 'one-to-many' or 'all'), or adapt them from one universal model"
        )
    if references is not None and one_to_one:
        references.check_shared(X)
    return X


class MixtureSimilarity(Kernel):
    """Base of similarities of mixtures; ``matching`` says how their components are paired."""

    matching: str
    references_: Mixtures

    _stored: ClassVar[dict[str, Declared]] = {
        "references_": Part("Mixtures", n="n", K="K", D="D"),
    }

    @property
    def follows(self) -> bool:
        """Whether mixtures are compared where they lie; else on the host."""
        return False

    def _check(self, X: Any, fitted: bool = False) -> Any:
        references = None
        if isinstance(X, Mixtures):
            X = X if self.follows else from_device(X)
            references = follow(self.references_, X.means) if fitted else None
        return check_mixtures(X, references, self.matching == "one-to-one")


def check_histograms(X: Any, normalized: bool = False) -> np.ndarray:
    """X as a float array (n, V) of finite numbers ≥ 0, each row summing to one if ``normalized``."""
    X = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite=False, input_name="histograms")
    broken = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(broken):
        raise ValueError(f"histogram {broken[0]} of {len(X)} has an entry that is NaN or infinite")
    negative = np.flatnonzero(X.min(axis=1) < 0)
    if len(negative):
        raise ValueError(
            f"histogram {negative[0]} of {len(X)} has a negative entry ({X[negative[0]].min():.3g}); "
            "kernels of histograms need counts or frequencies"
        )
    sums = X.sum(axis=1)
    off = np.flatnonzero(np.abs(sums - 1) > SUM_TOLERANCE)
    if normalized and len(off):
        raise ValueError(
            f"histogram {off[0]} of {len(X)} sums to {sums[off[0]]:.6g}, not to one; divide each row by its sum"
        )
    return X


class HistogramSimilarity(Kernel):
    """Base of similarities of histograms; ``normalized`` ones must sum to one.

    Attributes
    ----------
    references_ : (m, V)
    """

    normalized: bool = False

    _stored: ClassVar[dict[str, Declared]] = {
        "references_": floats("n", "d", low=0),
        "n_features_in_": size("d"),
    }

    def _check(self, X: Any, fitted: bool = False) -> np.ndarray:
        histograms = check_histograms(to_host(X), self.normalized)
        if fitted and histograms.shape[1] != self.n_features_in_:
            raise ValueError(
                f"histograms of {histograms.shape[1]} and of {self.n_features_in_} words cannot be compared"
            )
        return histograms

    def _fit(self, histograms: np.ndarray) -> None:
        self.references_ = histograms
        self.n_features_in_ = histograms.shape[1]
