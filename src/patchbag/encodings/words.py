# SPDX-License-Identifier: BSD-3-Clause
r"""Bag of words: how often each component of the universal mixture occurs in an image.

.. math:: h_k = \frac{1}{N} \sum_t \gamma_{tk}

(liu2010, eq. 2.9).  With soft assignment :math:`\gamma_{tk}` is the posterior of the component; with statistics
collected under ``assignment="hard"`` (or ``"nearest"``) it is 0 or 1, the classical histogram of visual words.  Cost:
nothing beyond the statistics.
"""

from typing import Any

from array_api_compat import array_namespace

from patchbag.encodings.base import StatisticsTransformer
from patchbag.mixture.statistics import Statistics
from patchbag.parameters import estimator, parameter


def word_frequencies(s0: Any) -> Any:
    """(..., K) counts → relative frequencies; a cell without descriptors is a row of zeros."""
    xp = array_namespace(s0)
    total = xp.sum(s0, axis=-1, keepdims=True)
    return s0 / xp.where(total > 0, total, xp.ones_like(total))


@estimator
class BagOfWords(StatisticsTransformer):
    """Soft or hard word histogram, as the statistics were assigned.

    Parameters
    ----------
    normalize : relative frequencies (default) or counts
    """

    normalize: bool = parameter("boolean", default=True)

    def _encode(self, statistics: Statistics) -> Any:
        return word_frequencies(statistics.s0) if self.normalize else statistics.s0
