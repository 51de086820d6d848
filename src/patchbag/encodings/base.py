# SPDX-License-Identifier: BSD-3-Clause
"""What the encodings have in common: Statistics in, one row of numbers per image (and cell) out.

``StatisticsTransformer`` checks parameters and statistics once and hands them to ``_fit`` and ``_encode``, which are
only the algorithm.  Both always see an axis of cells, of length one where there are none: an encoding of statistics
``(n, K, ...)`` is ``(n, width)``, one of ``(n, C, K, ...)`` is ``(n, C, width)``; ``Normalizer`` joins the cells.

A cell without descriptors encodes as zeros, an image without any is an error.  Statistics of another universal mixture
than the one the encoding was fitted on are refused, since components of the same number are different ones.
"""

from collections.abc import Collection
from dataclasses import replace
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from patchbag.device import lies_elsewhere, to_host
from patchbag.mixture.statistics import Statistics
from patchbag.parameters import estimator
from patchbag.records import as_floats, require_finite
from patchbag.storage.declared import Declared, Either, Part, Shape
from patchbag.storage.registry import Storable

# Statistics that are encoded at a time.  Temporaries that stay in the cache are several times as fast as fresh memory;
# an encoding that learns has compiled loops over images, which want many.
CACHED_VALUES, BLOCK_VALUES, DEVICE_BLOCK_VALUES = 1 << 17, 1 << 23, 1 << 28


class SomeOf(StrOptions):
    """Constraint on a parameter: a list of some of the options, at least so many."""

    def __init__(self, options: set[str], least: int = 1) -> None:
        super().__init__(options)
        self.least = least

    def is_satisfied_by(self, val: Any) -> bool:
        is_list = isinstance(val, Collection) and not isinstance(val, str)
        return is_list and len(val) >= self.least and set(val) <= self.options

    def __str__(self) -> str:
        return f"a list of {self.least} or more, each entry {super().__str__()}"


@estimator
class StatisticsTransformer(Storable, TransformerMixin, BaseEstimator):
    """Base of the encodings of :class:`Statistics`.

    An encoding that ``uses_moments`` is relative to the universal mixture, which the statistics must know; the others
    accept arrays of counts too.  One that ``learns`` a model of the training images needs the cells it was fitted on,
    and runs on NumPy alone unless it ``stays``, as the others do, wherever the statistics lie.

    Attributes
    ----------
    universal_ : the mixture of the training statistics, None where they do not know it
    layout_ : (C, K) or, with moments, (C, K, D) of the training statistics
    """

    uses_moments: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    stays: ClassVar[bool] = False

    # models of version 0.1 have one or the other
    universal_: Any = None  # GaussianParameters
    layout_: tuple[int, ...] | None = None

    _stored: ClassVar[dict[str, Declared]] = {
        "universal_": Part("GaussianParameters", optional=True, K="K", D="D"),
        "layout_": Either((Shape(("C", "K")), Shape(("C", "K", "D"))), optional=True),
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the statistics of training images."""
        statistics, _ = self._check(X)
        if self.uses_moments and statistics.universal is None:
            raise ValueError(
                "these statistics do not know their mixture: make them with UniversalStatistics or collect()"
            )
        self._fit(statistics)
        values = statistics.s1 if self.uses_moments else statistics.s0
        self.universal_, self.layout_ = statistics.universal, tuple(values.shape[1:])
        return self

    def transform(self, X: Any) -> Any:
        """Encode statistics: (n, width), or (n, C, width) if they have cells."""
        check_is_fitted(self)
        statistics, has_cells = self._check(X)
        values = statistics.s1 if self.uses_moments else statistics.s0
        shape, first = tuple(values.shape[1:]), 0 if self.learns else 1
        theirs, own = statistics.universal, self.universal_
        layout = self.layout_
        if layout is None and own is not None:
            layout = (shape[0], own.n_components, own.dimension)[: len(shape)]
        if layout is not None and shape[first:] != layout[first:]:
            raise ValueError(
                f"{type(self).__name__} was fitted on (cells, components, dimensions) {layout}, got {shape}"
            )
        if theirs is not None and own is not None and theirs != own:
            raise ValueError(
                "these statistics were collected under another universal mixture than those this encoding was fitted "
                "on: components of the same number are different ones; collect them with the same UniversalStatistics"
            )
        most = (BLOCK_VALUES if self.learns else CACHED_VALUES) if is_numpy_array(values) else DEVICE_BLOCK_VALUES
        block = min(max(1, most // prod(shape)), len(statistics))
        codes = self._encode(statistics[:block])
        if block < len(statistics):
            xp, head = array_namespace(codes), codes
            codes = xp.empty((len(statistics), *codes.shape[1:]), dtype=codes.dtype, device=device(codes))
            codes[:block, ...] = head
            for i in range(block, len(statistics), block):
                codes[i : i + block, ...] = self._encode(statistics[i : i + block])
        require_finite(codes, "the encodings", "rescale the descriptors, or give them as float64")
        return codes if has_cells else codes[:, 0, ...]

    def _fit(self, statistics: Statistics) -> None:
        """Learn what the encoding needs beyond the universal mixture."""

    def _encode(self, statistics: Statistics) -> Any:
        """Codes (n, C, width) of statistics with an axis of cells."""
        raise NotImplementedError

    def _check(self, X: Any) -> tuple[Statistics, bool]:
        """Statistics with an axis of cells, and whether it was there."""
        if not self.uses_moments and (sparse.issparse(X) or isinstance(X, list) or hasattr(X, "__array__")):
            X = _from_counts(X)
        if not isinstance(X, Statistics):
            raise TypeError(f"expected Statistics (from UniversalStatistics or collect), got {type(X).__name__}")
        arrays = {name: as_floats(a) for name, a in X.arrays().items()}
        if self.learns and not (self.stays and lies_elsewhere(X.s0)):
            arrays = {name: np.ascontiguousarray(to_host(a)) for name, a in arrays.items()}
        s0, s1, s2 = arrays.values()
        if s0.ndim not in (2, 3) or 0 in s0.shape or s1.shape != s2.shape or s1.shape[:-1] != s0.shape:
            shapes = ", ".join(str(tuple(a.shape)) for a in (s0, s1, s2))
            raise ValueError(
                "expected counts s0 (images, words) or (images, cells, words), each one or more, and moments s1, s2 "
                f"with one axis more, got shapes {shapes}"
            )
        if self.uses_moments and s1.shape[-1] == 0:
            raise ValueError("these statistics are counts alone; make them with moments=True")
        if is_numpy_array(s0):
            moments = (s1, s2) if self.uses_moments else ()
            _check_numbers(s0.reshape(len(s0), -1), *(s.reshape(len(s0), -1) for s in moments))
        has_cells = s0.ndim == 3
        if not has_cells:
            arrays = {name: a[:, None, ...] for name, a in arrays.items()}
        return replace(X, **arrays), has_cells

    @classmethod
    def _check_stored(cls, values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        """What no shape can say of the models P of an encoding that learns: one per cell, or one for all."""
        layout = values.get("layout_")
        if layout is not None and (len(layout) == 3) is not cls.uses_moments:
            return f"its layout is {layout}"
        if values.get("universal_") is None and (layout is None or cls.uses_moments):
            return "nothing says which statistics it was fitted on"
        per_cell = values.get("per_cell", False)
        if "P" in sizes and "C" in sizes and sizes["P"] != (sizes["C"] if per_cell else 1):
            return f"it has {sizes['P']} models for {sizes['C']} cells"
        return None


def _from_counts(X: Any) -> Statistics:
    """Counts (n, K) or (n, C, K) of any type as Statistics without moments."""
    # the encoding of a sparse row is dense, so this is never the largest array
    counts = X.toarray() if sparse.issparse(X) else np.asarray(X)
    if counts.dtype.kind not in "biuf":
        raise ValueError(f"expected numbers (counts), got an array of {counts.dtype}")
    if counts.dtype not in (np.float32, np.float64):
        counts = counts.astype(np.float64)
    nothing = np.empty((*counts.shape, 0))
    return Statistics(counts, nothing, nothing)


def _check_numbers(counts: np.ndarray, *moments: np.ndarray) -> None:
    """Raise unless every row of the counts is finite, not negative and not zero, and all moments are finite."""
    n, lowest, highest = len(counts), counts.min(axis=1), counts.max(axis=1)
    wrong = ~((lowest >= 0) & (highest < np.inf))
    if wrong.any():
        i = np.argmax(wrong)
        raise ValueError(
            f"image {i} of {n} has negative or non-finite counts (smallest {lowest[i]}); "
            "pass counts of words, not a centred or whitened histogram"
        )
    empty = highest == 0
    if empty.any():
        raise ValueError(
            f"image {np.argmax(empty)} of {n} is empty: all its counts are 0; drop it, "
            "or extract descriptors with a smaller patch or step"
        )
    for s in moments:
        # a sum can only be finite if its terms are: one product is faster than isfinite on every number
        with np.errstate(over="ignore", invalid="ignore"):
            suspects = ~np.isfinite(s @ np.ones(s.shape[1], s.dtype))
        for i in np.flatnonzero(suspects):
            if not np.isfinite(s[i]).all():
                raise ValueError(f"image {i} of {n} has NaN or infinite moments; look at its descriptors")


def pool_cells(counts: np.ndarray, per_cell: bool) -> np.ndarray:
    """Counts (n, C, K) as (P, samples, K): one model per cell, or one for the cells of all images together."""
    return np.ascontiguousarray(counts.transpose(1, 0, 2)) if per_cell else counts.reshape(1, -1, counts.shape[2])


def unpool_cells(codes: np.ndarray, n: int) -> np.ndarray:
    """Codes (P, samples, width) of counts from :func:`pool_cells` as (n, C, width)."""
    return codes.transpose(1, 0, 2) if len(codes) > 1 else codes.reshape(n, -1, codes.shape[2])
