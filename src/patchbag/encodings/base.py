# SPDX-License-Identifier: BSD-3-Clause
"""What the encodings have in common: Statistics in, one row of numbers an image (and cell) out.

``StatisticsTransformer`` validates once and hands clean statistics to ``_fit`` and ``_encode``, which are only the
algorithm.  An encoding of statistics with a cell axis keeps it: ``(n, C, width)``; ``Normalizer`` joins the cells.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from array_api_compat import is_numpy_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from patchbag.mixture.parameters import GaussianParameters
from patchbag.mixture.statistics import Statistics

# Statistics that are encoded at a time: bounds the temporaries.
BLOCK_VALUES = 1 << 23


class StatisticsTransformer(TransformerMixin, BaseEstimator):
    """Base of the encodings of :class:`Statistics`; those that need no more than counts say so."""

    uses_moments = True

    def fit(self, X: Statistics, y: Any = None) -> Self:
        statistics = self._check(X)
        if statistics.universal is None:
            raise ValueError(
                "these statistics do not know their mixture: make them with UniversalStatistics or collect()"
            )
        self.universal_ = statistics.universal
        self._fit(statistics)
        return self

    def transform(self, X: Statistics) -> Any:
        check_is_fitted(self, "universal_")
        statistics = self._check(X)
        expected = self.universal_.means.shape if self.uses_moments else (self.universal_.n_components,)
        shape = tuple(statistics.s1.shape[-2:]) if self.uses_moments else tuple(statistics.s0.shape[-1:])
        if shape != expected:
            raise ValueError(
                f"fitted on {self.universal_.n_components} components × {self.universal_.dimension} dimensions, "
                f"got statistics of shape {tuple(statistics.s1.shape)}"
            )
        if statistics.universal is not None and statistics.universal != self.universal_:
            raise ValueError(
                "these statistics were collected under another universal mixture than those this encoding was fitted "
                "on: components of the same number are different ones; collect them with the same UniversalStatistics"
            )
        if not is_numpy_array(statistics.s0):
            return self._encode(statistics)
        block = max(1, BLOCK_VALUES // max(1, int(np.prod(statistics.s1.shape[1:]))))
        parts = [self._encode(statistics[i : i + block]) for i in range(0, len(statistics), block)]
        return np.concatenate(parts) if parts else self._encode(statistics)

    def _check(self, X: Any) -> Statistics:
        return check_moments(X) if self.uses_moments else check_statistics(X)

    def _fit(self, statistics: Statistics) -> None:
        """Learn what the encoding needs beyond the universal mixture."""

    def _encode(self, statistics: Statistics) -> Any:
        raise NotImplementedError

    @property
    def parameters(self) -> GaussianParameters:
        check_is_fitted(self, "universal_")
        return self.universal_


def check_statistics(X: Any) -> Statistics:
    """The argument if it is well-formed Statistics, otherwise a clear error."""
    if not isinstance(X, Statistics):
        raise TypeError(f"expected Statistics (from UniversalStatistics or collect), got {type(X).__name__}")
    if X.s0.ndim not in (2, 3) or tuple(X.s1.shape) != tuple(X.s2.shape) or tuple(X.s1.shape[:-1]) != tuple(X.s0.shape):
        shapes = ", ".join(str(tuple(a.shape)) for a in X.arrays().values())
        raise ValueError(f"expected s0 (n, [C,] K), s1 and s2 (n, [C,] K, D), got shapes {shapes}")
    return X


def check_moments(X: Any) -> Statistics:
    """Well-formed Statistics that have more than counts."""
    statistics = check_statistics(X)
    if statistics.s1.shape[-1] == 0:
        raise ValueError("these statistics are counts alone; make them with moments=True")
    return statistics
