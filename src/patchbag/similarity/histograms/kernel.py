# SPDX-License-Identifier: BSD-3-Clause
r"""Kernels between histograms: Bhattacharyya, χ², intersection, and their exponential versions.

For histograms a, b (liu2010, eq. 2.10-2.12), all positive semidefinite:

.. math::

    K_{bha} = \sum_i \sqrt{a_i b_i}, \qquad K_{chi2} = 2 \sum_i \frac{a_i b_i}{a_i + b_i}, \qquad K_{int} = \sum_i
    \min(a_i, b_i)

and :math:`\exp(-\gamma \cdot d)` of the distance that belongs to each (2.13-2.15), which for histograms that sum to
one is :math:`d = 1 - K`:

.. math:: d_{bha} = \tfrac12 \sum (\sqrt{a_i} - \sqrt{b_i})^2, \quad
    d_{chi2} = \tfrac12 \sum \frac{(a_i - b_i)^2}{a_i + b_i}, \quad d_{int} = \tfrac12 \sum |a_i - b_i| .

Every distance is (Σa + Σb)/2 - K, so one pass computes both; a word that an image lacks adds nothing to K and is
skipped.

Slip.  (2.15) lacks the factor ½ that exp(γ(K - 1)) has for the intersection; we keep ½, so that γ means the same in
all three.

γ is by default the inverse of the mean distance of the training histograms (zhang2007, as for the KLK).
Cost: n·m·V; Bhattacharyya is one matrix product, the others a Numba kernel over tiles of 64 columns, in parallel.
"""

from dataclasses import KW_ONLY
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numba import njit
from sklearn.utils._param_validation import StrOptions

from patchbag.parameters import POSITIVE, TWO_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state
from patchbag.similarity.base import HistogramSimilarity, map_rows
from patchbag.storage.declared import Declared, real

KERNELS = ("bhattacharyya", "chi2", "intersection")
TILE = 64
TILE_ROWS = 16
# rows of a job
BLOCK = 256


# error_model: Python's test for a division by zero would keep the loop from being vectorised
@njit(cache=True, nogil=True, error_model="numpy")
def _tiles(a, tiles, chi2, tiny, out):  # pragma: no cover - compiled
    """K_int, or K_chi2 / 2, of rows a (n, V) with columns in tiles (T, V, TILE)."""
    n, m = out.shape
    n_tiles = tiles.shape[0]
    total = np.empty(TILE, a.dtype)
    n_row_tiles = (n + TILE_ROWS - 1) // TILE_ROWS
    for job in range(n_tiles * n_row_tiles):
        t, first = job % n_tiles, (job // n_tiles) * TILE_ROWS
        start, width = t * TILE, min(TILE, m - t * TILE)
        for r in range(first, min(first + TILE_ROWS, n)):
            total[:] = 0
            for v in range(a.shape[1]):
                x = a[r, v]
                if x == 0:
                    continue
                column = tiles[t, v]
                if chi2:
                    for j in range(TILE):
                        # tiny keeps 0/0 away where x itself is subnormal
                        total[j] += x * column[j] / (x + column[j] + tiny)
                else:
                    for j in range(TILE):
                        total[j] += min(x, column[j])
            for j in range(width):
                out[r, start + j] = total[j]


def _tile_rows(a: np.ndarray, tiles: np.ndarray, m: int, chi2: bool) -> np.ndarray:
    out = np.empty((len(a), m), tiles.dtype)
    _tiles(np.ascontiguousarray(a, tiles.dtype), tiles, chi2, np.finfo(tiles.dtype).tiny, out)
    return out


def histogram_kernel(A: np.ndarray, B: np.ndarray, kernel: str = "chi2") -> np.ndarray:
    """K of every pair of rows (2.10-2.12): ``(n, m)``, float32 if both inputs are, else float64."""
    dtype = np.result_type(A, B)
    if kernel == "bhattacharyya":
        return np.sqrt(A, dtype=dtype) @ np.sqrt(B, dtype=dtype).T
    n_tiles = -(-len(B) // TILE)
    padded = np.zeros((n_tiles * TILE, B.shape[1]), dtype)
    padded[: len(B)] = B
    tiles = np.ascontiguousarray(padded.reshape(n_tiles, TILE, -1).swapaxes(1, 2))
    rows = partial(_tile_rows, tiles=tiles, m=len(B), chi2=kernel == "chi2")
    out = map_rows(rows, [A[start : start + BLOCK] for start in range(0, len(A), BLOCK)], len(A))
    return 2 * out if kernel == "chi2" else out


def histogram_distance(A: np.ndarray, B: np.ndarray, kernel: str = "chi2") -> np.ndarray:
    """d of every pair of rows (the exponents of 2.13-2.15, without γ): ``(n, m)``, ≥ 0."""
    similarity = histogram_kernel(A, B, kernel)
    half = (A.sum(axis=1)[:, None] + B.sum(axis=1)) / 2
    return np.maximum(half.astype(similarity.dtype) - similarity, 0)


@estimator
class HistogramKernel(HistogramSimilarity):
    """Histograms → rows of similarities to the training histograms, for an SVM with a precomputed kernel.

    Parameters
    ----------
    kernel : ``"bhattacharyya"``, ``"chi2"`` or ``"intersection"``
    exponential : exp(-γ d) (2.13-2.15) instead of K (2.10-2.12)
    gamma : by default 1 / mean distance between at most ``gamma_samples`` training histograms
    random_state : seed of that subset

    Attributes
    ----------
    references_ : (m, V);  gamma_ : float, with ``exponential``

    >>> HistogramKernel("chi2", exponential=True).fit_transform(words).shape
    (120, 120)
    """

    kernel: str = parameter(StrOptions(set(KERNELS)), default="chi2")
    _: KW_ONLY
    exponential: bool = parameter("boolean", default=False)
    gamma: float | None = parameter(POSITIVE, None, default=None)
    gamma_samples: int = parameter(TWO_OR_MORE, default=512)
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "gamma_": real(low=0, optional=True),
    }

    def _fit(self, histograms: np.ndarray) -> None:
        super()._fit(histograms)
        if self.exponential:
            self.gamma_ = self._choose_gamma() if self.gamma is None else float(self.gamma)

    def _choose_gamma(self) -> float:
        n = len(self.references_)
        if n < 2:
            raise ValueError("gamma is chosen from the distances between training histograms: need two, or give gamma")
        size = min(n, self.gamma_samples)
        sample = self.references_[np.sort(check_random_state(self.random_state).choice(n, size, replace=False))]
        mean = float(histogram_distance(sample, sample, self.kernel).sum(dtype=np.float64)) / (size * (size - 1))
        if not mean > 0:
            raise ValueError("all training histograms are the same (mean distance is 0); give gamma")
        return 1 / mean

    def _compare(self, histograms: np.ndarray) -> np.ndarray:
        if self.exponential:
            return np.exp(-self.gamma_ * histogram_distance(histograms, self.references_, self.kernel))
        return histogram_kernel(histograms, self.references_, self.kernel)

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        missing = values["exponential"] and values.get("gamma_") is None
        return "its gamma_ is missing" if missing else None
