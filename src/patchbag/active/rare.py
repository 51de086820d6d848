# SPDX-License-Identifier: BSD-3-Clause
r"""Questions that look for classes without a label, and when to ask them.

A class of five images among classes of hundreds is not a cluster for a long time, and stands for little doubt (see
representatives).  But its images are unlike all labelled ones.  How unlike image i is:

.. math:: u_i = \Big(\varphi_i^\top\varphi_i - k_{iL}\,(K_{LL} + \sigma^2 I)^{-1} k_{Li}\Big)
          + \Big(1 - \max_{l \in L} x_i^\top x_l\Big),

the variance under the diffusion kernel that the labels leave, an image's own part left aside, and the distance to the
nearest labelled image.  The first is large in small groups whose images are joined to each other and to few others,
and small for outliers; the second also sees what the leading eigenvectors of the graph do not.  The image with the
largest sum is asked for.

**Turns.**  Both kinds of question can find a class.  The next one is of the kind that has failed fewer times since it
last found one; of a representative if both have failed equally often.  So as long as every cluster is a new class there
are only representatives, a kind that finds classes goes on, and where neither does they alternate.  Where all classes
are known and have a label, only representatives are asked for.
"""

from __future__ import annotations

import numpy as np

BLOCK = 100  # labelled images at a time


class Turns:
    """How often each kind of question has failed to find a class since it last found one."""

    def __init__(self) -> None:
        self._failures = [0, 0]  # of representatives, and of unlike images
        self._unlike: dict[int, bool] = {}  # how images were asked for, that have no answer yet

    @property
    def unlike(self) -> bool:
        """Whether the next question is about the image that is least like the labelled ones."""
        return self._failures[1] < self._failures[0]

    def ask(self, image: int, unlike: bool) -> None:
        """A question about an image; those that nobody asked for count as representatives."""
        self._unlike[image] = unlike

    def asked_as_unlike(self, image: int) -> bool:
        return self._unlike.get(image, False)

    def answer(self, image: int, new: bool) -> None:
        """Whether the label of an image was the first of its class."""
        kind = self._unlike.pop(image, False)
        self._failures[kind] = 0 if new else self._failures[kind] + 1

    def expecting(self, asked: list[bool]) -> Turns:
        """The turns if open questions, ``asked`` in one way or the other, find what such questions have lately found:
        all of them a class, where representatives did, else none.
        """
        turns = Turns()
        turns._failures = list(self._failures)
        for unlike in asked if self._failures[0] else []:
            turns._failures[unlike] += 1
        return turns


class LabelDistances:
    """Distance of all images, by one minus the cosine of their ``vectors (N, d)`` of unit length, to the nearest one
    with a label.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        self._vectors = vectors
        self._nearest = np.full(len(vectors), -1.0, dtype=np.float32)
        self._n = 0

    def to(self, labelled: np.ndarray) -> np.ndarray:
        """(N,) distances to ``labelled``, which has the images of the last call and after them new ones."""
        for start in range(self._n, len(labelled), BLOCK):
            cosines = self._vectors @ self._vectors[labelled[start : start + BLOCK]].T
            self._nearest = np.maximum(self._nearest, cosines.max(axis=1))
        self._n = len(labelled)
        return np.asarray(1.0 - self._nearest)
