# SPDX-License-Identifier: BSD-3-Clause
r"""Geometric verification: do local features of two images agree on one view of the same thing? (Philbin et al. 2007)

1. **Keypoints.**  At most ``KEYPOINTS`` SIFT keypoints (Lowe 2004) of the grey image, no side longer than ``SIDE``;
   descriptors are divided by their sum, and of their entries the square root is taken (Arandjelović & Zisserman 2012).
2. **Matches.**  A keypoint's nearest one in the other image, where the second nearest is farther by 1 / ``RATIO``.
3. **Agreement.**  The homography that most matches agree with to ``TOLERANCE`` pixels (RANSAC); it must not mirror
   or crush the image.  The number of matches that agree is the verdict: from ``LEAST`` on the image is verified.

Of the first N results those that are verified come first, by the number of matches, then the others as they were.  It
finds the same thing from another side, and says nothing of images that are only of the same kind.

**Cost.**  Each image is decoded and described once for a query, and all descriptors of a pair compared: no index of
keypoints is kept, so that N is small.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np

from patchbag.features.extraction import single_threaded_opencv
from patchbag.images.loading import ImageError, load_image
from patchbag.runtime import parallel_map

SIDE = 480
KEYPOINTS = 800
RATIO = 0.8
TOLERANCE = 5.0  # pixels
LEAST = 12
CRUSHED = 0.05  # share of an area that may be left of it


class LocalFeatures(NamedTuple):
    """Keypoints ``(n, 2)`` in pixels and their descriptors ``(n, 128)`` of unit length."""

    points: np.ndarray
    descriptors: np.ndarray


def local_features(source: Any) -> LocalFeatures:
    """SIFT keypoints of an image; ImageError where it cannot be read."""
    grey = np.clip(load_image(source, mode="grey", max_side=SIDE).array, 0, 255).astype(np.uint8)
    with single_threaded_opencv:
        found, described = cv2.SIFT.create(KEYPOINTS).detectAndCompute(grey, None)
    if not found:
        return LocalFeatures(np.empty((0, 2), np.float32), np.empty((0, 128), np.float32))
    points = np.array([keypoint.pt for keypoint in found], np.float32)
    return LocalFeatures(points, np.sqrt(described / np.maximum(described.sum(axis=1, keepdims=True), 1e-6)))


def match_features(a: LocalFeatures, b: LocalFeatures) -> np.ndarray:
    """Pairs (m, 2) of keypoints of both images that are nearest, and much nearer than the second nearest."""
    if len(a.points) < LEAST or len(b.points) < max(LEAST, 2):
        return np.empty((0, 2), np.int64)
    squares = 2 - 2 * (a.descriptors @ b.descriptors.T)
    two = np.argpartition(squares, 1, axis=1)[:, :2]
    values = np.take_along_axis(squares, two, axis=1)
    first = np.argmin(values, axis=1)
    rows = np.arange(len(two))
    near = values[rows, first] < RATIO**2 * values[rows, 1 - first]
    pairs = np.stack([rows, two[rows, first]], axis=1)[near]
    _, once = np.unique(pairs[:, 1], return_index=True)  # a place that everything is matched to tells nothing
    return np.asarray(pairs[np.sort(once)])


def agreeing_matches(a: LocalFeatures, b: LocalFeatures) -> int:
    """How many matches agree with one homography from the second image to the first."""
    pairs = match_features(a, b)
    if len(pairs) < LEAST:
        return 0
    here, there = a.points[pairs[:, 0]], b.points[pairs[:, 1]]
    with single_threaded_opencv:
        cv2.setRNGSeed(0)
        warp, inside = cv2.findHomography(there, here, cv2.RANSAC, TOLERANCE, maxIters=1000)
    if warp is None or inside is None:
        return 0
    determinant = float(np.linalg.det(warp[:2, :2]))
    return int(inside.sum()) if CRUSHED < determinant < 1 / CRUSHED else 0


def count_matches(query: Any, images: Sequence[Any], n_jobs: int | None = None) -> list[int]:
    """Matches of each image that agree with the query; 0 where an image cannot be read any more."""
    return list(parallel_map(partial(_compare, local_features(query)), images, n_jobs))


def _compare(query: LocalFeatures, image: Any) -> int:
    try:
        return agreeing_matches(query, local_features(image))
    except ImageError:
        return 0


def verified_first(matches: Sequence[int]) -> np.ndarray:
    """Order of results: verified ones by falling number of matches, then the others as they were.

    >>> verified_first([0, 40, 3, 90])
    array([3, 1, 0, 2])
    """
    numbers = np.asarray(matches)
    return np.argsort(-np.where(numbers >= LEAST, numbers, 0), kind="stable")
