# SPDX-License-Identifier: BSD-3-Clause
r"""Whether two images show the same picture, or one a part of the other: aligned by local features, then compared.

1. **Keypoints.**  At most ``KEYPOINTS`` ORB keypoints (Rublee et al. 2011) of the grey image, no side longer than
   ``SIDE``, each described by 256 bits; simpler ones than SIFT will do here, where the last step decides.
2. **Matches.**  Keypoints that are each other's nearest by the number of bits that differ.
3. **Alignment.**  The rotation, scale and shift that most matches agree with (RANSAC, Fischler & Bolles 1981; OpenCV's
   ``estimateAffinePartial2D``).
4. **Agreement.**  One image is warped onto the other; over their overlap, blurred, the normalised correlation of grey
   levels tells copies from other pictures.  It does not see changes of brightness and contrast, and little of changes
   of colour:

.. math:: r = \frac{\sum_p (a_p - \bar a)(b_p - \bar b)}{\sqrt{\sum_p (a_p - \bar a)^2 \sum_p (b_p - \bar b)^2}}

   A series of shots agrees as a whole, and disagrees where something moved.  So the correlation is also taken in each
   of ``BLOCKS`` × ``BLOCKS`` parts of the overlap that show something, and agreement is the smaller one of that of the
   whole and a low percentile of the parts: the ``MOVED``-th of images that had to be aligned, as those of a series have
   to, and the ``STILL``-th of others, of whose faint parts compression may leave little.

Where nothing was moved (a copy that was resized, compressed or recoloured) the last step alone is enough, without
keypoints: the images lie on each other as they are.

**Cost.**  Each image is decoded and looked at once; of a pair, all keypoints are compared with all.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import cv2
import numpy as np

from patchbag.features.extraction import single_threaded_opencv
from patchbag.images.loading import load_image

SIDE = 256
KEYPOINTS = 500
BITS = 64  # of 256 that may differ in a match
TOLERANCE = 4.0  # pixels by which a match may miss the alignment
LEAST = 8  # matches that agree
BLUR = 1.5
EDGE = 7  # pixels, as far as the blur reaches
BLOCKS = 8
MOVED, STILL = 10, 25
FEW = 4  # parts that show something, below which only the whole counts
FLAT = 4.0  # deviation of grey levels below which a part shows nothing
WORTH = 0.7  # correlation of small squares from which on a closer look is worth it
WHOLE = 32  # side of the small square in which whole images are compared


@dataclass(frozen=True)
class Picture:
    """What is needed of an image: blurred grey levels, keypoints ``(n, 2)`` and their descriptors ``(n, 32)`` bytes."""

    grey: np.ndarray
    small: np.ndarray
    points: np.ndarray
    descriptors: np.ndarray


@dataclass(frozen=True)
class Alignment:
    """How well one image lies on another: agreement, the share of the smaller one that overlaps.

    ``scale`` is the size of the second image's things in the first one's pixels.
    """

    agreement: float
    overlap: float
    scale: float


NONE = Alignment(0.0, 0.0, 1.0)


def look(source: Any) -> Picture:
    """Grey levels and keypoints of an image; ImageError where it cannot be read."""
    grey = np.clip(load_image(source, mode="grey", max_side=SIDE).array, 0, 255).astype(np.uint8)
    with single_threaded_opencv:
        small = cv2.resize(grey, (WHOLE, WHOLE), interpolation=cv2.INTER_AREA).astype(np.float32)
        points, descriptors = np.empty((0, 2), np.float32), np.empty((0, 32), np.uint8)
        found, described = cv2.ORB.create(KEYPOINTS, fastThreshold=8).detectAndCompute(grey, None)
        if len(found):
            points, descriptors = np.array([keypoint.pt for keypoint in found], np.float32), described
        blurred = cv2.GaussianBlur(grey, (0, 0), BLUR)
    return Picture(blurred, small, points, descriptors)


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Normalised correlation of two arrays of numbers; 0 where one of them is constant."""
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale > 1e-6 * a.size else 0.0


def agreement(a: np.ndarray, b: np.ndarray, mask: np.ndarray, lowest: float = MOVED) -> float:
    """How well two grey images of one size agree where the mask is true, as a whole and in its parts; at most 1."""
    if mask.sum() < WHOLE**2 / 4:
        return 0.0
    a, b = a.astype(np.float32), b.astype(np.float32)
    whole = correlation(a[mask], b[mask])
    parts = []
    sides = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    ys, xs = (np.linspace(side[0], side[-1] + 1, BLOCKS + 1).astype(int) for side in sides)
    for top, bottom in pairwise(ys):
        for left, right in pairwise(xs):
            here = slice(top, bottom), slice(left, right)
            inside = mask[here]
            if inside.mean() < 0.9:
                continue
            one, other = a[here][inside], b[here][inside]
            deviations = float(one.std()), float(other.std())
            if min(deviations) >= FLAT:
                parts.append(correlation(one, other))
            elif max(deviations) >= 3 * FLAT:  # there is something in one of them only
                parts.append(0.0)
    return min(whole, float(np.percentile(parts, lowest))) if len(parts) >= FEW else whole


def match(a: Picture, b: Picture) -> tuple[np.ndarray, np.ndarray]:
    """Points of both images that are each other's nearest by their descriptors."""
    if min(len(a.points), len(b.points)) < LEAST:
        return a.points[:0], b.points[:0]
    with single_threaded_opencv:
        pairs = cv2.BFMatcher(cv2.NORM_HAMMING, crossCheck=True).match(a.descriptors, b.descriptors)
    index = np.array([(p.queryIdx, p.trainIdx) for p in pairs if p.distance <= BITS], np.int64).reshape(-1, 2)
    return a.points[index[:, 0]], b.points[index[:, 1]]


def lie_as_they_are(a: Picture, b: Picture) -> float:
    """How well two whole images agree that lie on each other."""
    found = correlation(a.small, b.small)
    if found >= WORTH:
        with single_threaded_opencv:
            stretched = cv2.resize(b.grey, (a.grey.shape[1], a.grey.shape[0]), interpolation=cv2.INTER_AREA)
        found = min(found, agreement(a.grey, stretched, np.ones(a.grey.shape, bool), STILL))
    return found


def align(a: Picture, b: Picture) -> Alignment:
    """The second image warped onto the first one, by the matches that agree."""
    here, there = match(a, b)
    if len(here) < LEAST:
        return NONE
    with single_threaded_opencv:
        cv2.setRNGSeed(0)
        warp, inside = cv2.estimateAffinePartial2D(there, here, ransacReprojThreshold=TOLERANCE, maxIters=500)
        if warp is None or inside.sum() < LEAST:
            return NONE
        scale = float(np.hypot(warp[0, 0], warp[1, 0]))
        size = a.grey.shape[1], a.grey.shape[0]
        warped = cv2.warpAffine(b.grey, warp, size, flags=cv2.INTER_LINEAR)
        inside_of_b = cv2.warpAffine(np.ones(b.grey.shape, np.uint8), warp, size, flags=cv2.INTER_NEAREST)
        # at the edge of a part the blur has seen other pixels than in the whole
        mask = cv2.erode(inside_of_b, np.ones((EDGE, EDGE), np.uint8), borderValue=1) > 0
    smaller = min(a.grey.size, b.grey.size * scale**2)
    overlap = float(inside_of_b.sum()) / max(smaller, 1.0)
    return Alignment(agreement(a.grey, warped, mask), min(overlap, 1.0), scale)
