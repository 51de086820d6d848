# SPDX-License-Identifier: BSD-3-Clause
r"""The Gaussian process posterior of a whole pool, kept current label by label.

Let L be the Cholesky factor of :math:`\sigma^2 I + K_{LL}` for the labelled images in the order they came, and
:math:`V = L^{-1} K_{L,\cdot}` the solved kernel between them and all N images of the pool.  Then for the whole pool
(kapoor2010, eq. 5 and 6)::

    mean = V' z,  z = L^-1 T        variance = diag(K) - column sums of V²

When image j is labelled, V gains one row, and that is all that is ever computed::

    d = sqrt(variance_j + sigma²),   v = (K_j - V_j' V) / d,   z_new = (t - V_j' z) / d
    mean += v z_new',   variance -= v²

O(nN) for n labels (a product of V with one of its columns), whatever the number of classes; L itself is not needed.

A class seen for the first time needs the column it would have had from the start, all targets -1.  That column is the
same for every class not yet seen, so one is kept for all of them: ``mean[:, 0]``.
"""

import numpy as np


class PoolPosterior:
    """Mean and variance of the soft labels of N images for C classes and the class "none of them".

    Parameters
    ----------
    kernel : (N, N) positive semidefinite
    noise : σ² > 0
    """

    def __init__(self, kernel: np.ndarray, noise: float) -> None:
        self.kernel = kernel
        self.noise = noise
        self.n_labels = 0
        # a kernel that is semidefinite but for rounding can have a diagonal just below zero
        self.variance = np.maximum(np.asarray(np.diagonal(kernel), dtype=float), 0.0)
        self._mean = np.zeros((1, len(kernel)))
        self._solved = np.empty((16, len(kernel)))
        self._targets = np.empty((16, 1))
        self.watched = np.empty(0, int)
        self.cross = np.empty((len(kernel), 0))

    def watch(self, images: np.ndarray) -> None:
        """Keep the posterior covariances ``cross (N, R)`` of all images with these R; O(NR) more for each label."""
        solved = self._solved[: self.n_labels]
        self.watched = np.asarray(images, dtype=int)
        self.cross = self.kernel[:, self.watched] - solved.T @ solved[:, self.watched]

    @property
    def mean(self) -> np.ndarray:
        """(N, 1 + C); column 0 belongs to every class that has not been seen."""
        return self._mean.T

    @property
    def n_classes(self) -> int:
        return len(self._mean) - 1

    def add_class(self) -> int:
        """Start a column for a new class, to which no image labelled so far belongs; return its number."""
        self._mean = np.vstack([self._mean, self._mean[:1]])
        self._targets = np.hstack([self._targets, self._targets[:, :1]])
        return len(self._mean) - 1

    def solve(self, image: int, variance: np.ndarray | None = None, more: np.ndarray | None = None) -> np.ndarray:
        """(N,) the new row of V if ``image`` were labelled next; ``more (b, N)`` are rows already imagined."""
        n = self.n_labels
        solved = self._solved[:n]
        covariance = self.kernel[image] - solved[:, image] @ solved
        if more is not None and len(more):
            covariance = covariance - more[:, image] @ more
        own = (self.variance if variance is None else variance)[image]
        return covariance / np.sqrt(max(float(own), 0.0) + self.noise)

    def add_label(self, image: int, column: int) -> None:
        """Condition on image ``image`` belonging to class ``column`` and to no other."""
        row = self.solve(image)
        n = self.n_labels
        if n == len(self._solved):
            self._solved = np.vstack([self._solved, np.empty_like(self._solved)])
            self._targets = np.vstack([self._targets, np.empty_like(self._targets)])
        target = np.full(len(self._mean), -1.0)
        target[column] = 1.0
        z = (target - self._solved[:n, image] @ self._targets[:n]) / np.sqrt(
            max(float(self.variance[image]), 0.0) + self.noise
        )
        self._solved[n] = row
        self._targets[n] = z
        self._mean += z[:, None] * row
        if len(self.watched):
            self.cross -= row[:, None] * row[self.watched]
        # rounding must not leave a negative variance behind
        self.variance = np.maximum(self.variance - row**2, 0.0)
        self.n_labels = n + 1
