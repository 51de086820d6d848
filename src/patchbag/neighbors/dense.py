# SPDX-License-Identifier: BSD-3-Clause
r"""The nearest points by matrix products alone, on any Array API library: the path of CUDA tensors.

The scores of a block of points are one product of [φ − ν, 1] with [μ − ψ, b]; the bias is a column of it, because
adding it afterwards would read and write all scores once more.  Of every ``GROUP`` scores only the smallest is kept.
At the end the groups with the smallest minima of each query are looked into: their points' scores are computed again in
float64.  Points of other groups have scores of at least the next minimum; where that is not above the k-th score by
more than twice the error of the product (``forms``), the query is asked again with more groups.  So the neighbours are
those of the product in float64, whereas :func:`~patchbag.neighbors.brute.search_brute` computes the divergences by
definition.

Cost: the product, one read of its result, n/GROUP numbers sorted per query and (k + few)·GROUP scores in float64.
"""

from typing import Any

import numpy as np

from patchbag.neighbors.forms import Points, Queries

GROUP = 128
EXTRA = 4
# scores that stand in memory at a time
TILE = 1 << 31
# numbers that are gathered at a time
GATHER = 1 << 27


def smallest(values: Any, k: int, xp: Any, where: Any) -> Any:
    """(m, k) where the k smallest numbers of each row (m, n) are, ascending.

    They are in the k groups with the smallest minima: all is read once and little is sorted.
    """
    m, n = values.shape
    whole = n - n % GROUP
    if whole <= k * GROUP:
        return xp.argsort(values, axis=1)[:, : min(k, n)]
    groups = smallest(xp.min(xp.reshape(values[:, :whole], (m, -1, GROUP)), axis=2), k, xp, where)
    members = xp.reshape(groups[:, :, None] * GROUP + xp.arange(GROUP, device=where), (m, -1))
    rest = xp.broadcast_to(xp.arange(whole, n, device=where), (m, n - whole))
    members = xp.concat([members, xp.astype(rest, members.dtype)], axis=1)
    order = xp.argsort(xp.take_along_axis(values, members, axis=1), axis=1)[:, :k]
    return xp.take_along_axis(members, order, axis=1)


class DensePoints:
    """Points on a device: ``xp`` is the library's namespace, ``where`` the device."""

    def __init__(self, points: Points, xp: Any, where: Any = None) -> None:
        self.xp, self.where, self.points = xp, where, points
        n, width = points.vectors.shape
        padding = -n % GROUP
        # widths that are multiples of 4 are aligned
        single = np.zeros((n + padding, width + 1 + -(width + 1) % 4), points.vectors.dtype)
        single[:n, :width] = -points.vectors
        single[:n, width] = points.bias
        single[n:, width] = np.finfo(single.dtype).max / 4
        single[:, width] = np.minimum(single[:, width], np.finfo(single.dtype).max / 4)
        psi, conjugate = points.form.points(points.rows)
        double = np.zeros((n + padding, width + 1))
        double[:n, :width] = -psi
        double[:n, width] = np.where(np.isfinite(points.bias), conjugate, np.inf)
        double[n:, width] = np.inf
        self.single, self.double = self._put(single), self._put(double)

    def _put(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array, device=self.where)

    def search(self, queries: Queries, k: int, extra: int = EXTRA) -> tuple[Any, Any]:
        """The k nearest points of each query: divergences (m, k), ascending, and indices (m, k), on the device."""
        xp = self.xp
        m, width = queries.phi.shape
        left = np.zeros((m, self.single.shape[1]), self.points.vectors.dtype)
        left[:, :width], left[:, width] = queries.centred, 1
        minima = self._minima(self._put(left))
        n_groups = minima.shape[1]
        order = smallest(minima, min(k + extra + 1, n_groups), xp, self.where)
        distances, indices = self._look(order[:, : min(k + extra, n_groups)], queries, k)
        if k + extra >= n_groups:
            return distances, indices
        beyond = xp.astype(xp.take_along_axis(minima, order[:, -1:], axis=1)[:, 0], xp.float64)
        unsure = distances[:, -1] - self._put(queries.offset - 2 * queries.error) >= beyond
        again = np.array([int(i) for i in xp.nonzero(unsure)[0]], dtype=np.int64)
        if not len(again):
            return distances, indices
        more, which = self.search(queries.part(again), k, 4 * (extra + k))
        position = np.arange(m)
        position[again] = m + np.arange(len(again))
        position = self._put(position)
        return (
            xp.take(xp.concat([distances, more], axis=0), position, axis=0),
            xp.take(xp.concat([indices, which], axis=0), position, axis=0),
        )

    def _minima(self, left: Any) -> Any:
        """(m, groups) the smallest score of each group."""
        xp = self.xp
        m, n = left.shape[0], self.single.shape[0]
        step = max(TILE // (m * GROUP), 1) * GROUP
        found = []
        for first in range(0, n, step):
            scores = left @ xp.matrix_transpose(self.single[first : min(first + step, n), :])
            found.append(xp.min(xp.reshape(scores, (m, -1, GROUP)), axis=2))
        return found[0] if len(found) == 1 else xp.concat(found, axis=1)

    def _look(self, groups: Any, queries: Queries, k: int) -> tuple[Any, Any]:
        """Divergences in float64 of the points of some groups (m, g), and the k smallest of them."""
        xp = self.xp
        m, width = queries.phi.shape
        phi = np.ones((m, width + 1))
        phi[:, :width] = queries.phi
        phi_there, constant = self._put(phi), self._put(queries.constant)
        inside = xp.arange(GROUP, device=self.where)
        step = max(GATHER // (groups.shape[1] * GROUP * (width + 1)), 1)
        distances, indices = [], []
        for first in range(0, m, step):
            part = slice(first, min(first + step, m))
            # ascending, so that a stable sort puts the first of equal points first
            chosen = xp.sort(groups[part, :], axis=1)
            members = xp.reshape(chosen[:, :, None] * GROUP + inside, (chosen.shape[0], -1))
            rows = xp.reshape(xp.take(self.double, xp.reshape(members, (-1,)), axis=0), (*members.shape, width + 1))
            scores = (rows @ phi_there[part, :, None])[:, :, 0] + constant[part, None]
            order = xp.argsort(scores, axis=1, stable=True)[:, :k]
            distances.append(xp.take_along_axis(scores, order, axis=1))
            indices.append(xp.take_along_axis(members, order, axis=1))
        return xp.concat(distances, axis=0), xp.concat(indices, axis=0)
