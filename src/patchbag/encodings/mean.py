# SPDX-License-Identifier: BSD-3-Clause
"""The mean of a bag's descriptors: one vector per image, as a network's pooled output is.

A bag of one descriptor (``DeepPatches(output="pooled")``) is that descriptor.  Cost: one pass over the descriptors.
"""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags
from patchbag.parameters import estimator
from patchbag.records import require_finite
from patchbag.storage.declared import Declared, size

ROWS = 1 << 18


def bag_means(bags: Bags) -> np.ndarray:
    """(n, d) mean descriptor of every bag, in float64 for float64 descriptors, else float32."""
    dtype = np.float64 if bags.dtype == np.float64 else np.float32
    parts = [np.empty((0, bags.dimension), dtype)]
    for chunk in bags.check_not_empty().chunks(ROWS):
        sums = np.add.reduceat(np.asarray(chunk.values, dtype), chunk.offsets[:-1], axis=0, dtype=np.float64)
        parts.append((sums / chunk.sizes[:, None]).astype(dtype))
    return np.concatenate(parts)


@estimator
class MeanDescriptor(TransformerMixin, BaseEstimator):
    """Bags → one vector per image, the mean of its descriptors.

    >>> MeanDescriptor().fit_transform([np.array([[1.0, 2.0], [3.0, 4.0]])])
    array([[2., 3.]])
    """

    _stored: ClassVar[dict[str, Declared]] = {
        "n_features_in_": size("d"),
    }

    def fit(self, X: Any, y: Any = None) -> Self:
        """Remember the number of dimensions; there is nothing to learn."""
        self.n_features_in_ = as_bags(X).dimension
        return self

    def transform(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "n_features_in_")
        bags = as_bags(X)
        if bags.dimension != self.n_features_in_:
            raise ValueError(f"fitted on {self.n_features_in_}-D descriptors, got {bags.dimension}-D ones")
        return require_finite(bag_means(bags), "the means of the descriptors")
