# SPDX-License-Identifier: BSD-3-Clause
r"""Geometric blur: oriented edge energy around edge points, blurred the more the farther away (Berg & Malik 2001).

Under a small distortion of the image, what lies at x from a feature point moves by an amount proportional to |x|.  So
the signal there is averaged over a region of that size before it is sampled::

    B(p, x) = (S * G_{alpha |x| + beta})(p + x)

where S is a sparse signal, p the feature point and G_s a Gaussian of standard deviation s.  S are ``n_orientations``
channels of edge energy: with gradient (g_x, g_y) and the edge's orientation known up to 180 degrees, channel k at
angle t_k = k pi / n is the half-wave rectified

    S_k = max(0, (g_x² - g_y²) cos 2 t_k + 2 g_x g_y sin 2 t_k) / |g|,

the gradient's length times the cosine of twice its angle to t_k: sparse, and blind to the polarity of the edge.

Samples lie on rings around p, 1, 8, 8, 10, 12, 12 of them at radii of 0, 8, 16, 32, 64, 100 pixels: 51 samples of 4
channels make 204 dimensions.  Each ring has one blur, so the image is blurred once for each ring and then only
sampled (bilinear).  Beyond the image the signal is zero.  The descriptor has unit length, after a square root: near
the point, where the blur is narrow, a few samples are much larger than all others and would decide every distance.

Feature points are edge points: drawn at random in proportion to the edge energy, at least ``spacing`` pixels from one
another, from those above ``threshold`` times the strongest.  The draw is seeded for each image by ``random_state``.

Wide blurs are made on a coarser grid, so that a ring takes some 50 products per pixel and channel at most.

Deviations: Berg & Malik use the output of a boundary detector as S, and sparser channels work better with it;
kapoor2010 was given its GB kernels by others, who do not state their sampling.  Ours (radii, root, number of points)
was chosen on every fifth class of Caltech-101, 15 training images each.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from numbers import Integral, Real

import cv2
import numpy as np
from sklearn.utils._param_validation import Interval

from patchbag.features.extraction import COUNT, LENGTHS, MOST_PIXELS, FeatureExtractor, Several
from patchbag.images.loading import ImageError
from patchbag.parameters import ONE_OR_MORE, ZERO_OR_MORE, estimator, parameter

RADII = (0.0, 8.0, 16.0, 32.0, 64.0, 100.0)
COUNTS = (1, 8, 8, 10, 12, 12)
COARSE = 3.0  # a grid may be so coarse that a blur is this many of its pixels wide


def edge_channels(image: np.ndarray, n_orientations: int = 4, sigma: float = 1.0) -> np.ndarray:
    """Oriented edge energy (n_orientations, h, w) of a grey image; derivatives of a Gaussian of width ``sigma``."""
    smooth = cv2.GaussianBlur(np.asarray(image, np.float32), (0, 0), sigma, borderType=cv2.BORDER_REPLICATE)
    padded = np.pad(smooth, 1, mode="edge")
    gx = (padded[1:-1, 2:] - padded[1:-1, :-2]) / 2
    gy = (padded[2:, 1:-1] - padded[:-2, 1:-1]) / 2
    length = np.sqrt(gx**2 + gy**2)
    cosine, sine = gx**2 - gy**2, 2 * gx * gy
    safe = np.where(length > 0, length, 1)
    angles = 2 * np.pi * np.arange(n_orientations) / n_orientations
    return np.stack([np.maximum(0, cosine * np.cos(t) + sine * np.sin(t)) / safe for t in angles])


def ring_offsets(radii: Sequence[float] = RADII, counts: Sequence[int] = COUNTS) -> list[np.ndarray]:
    """Sample offsets (count, 2) as (x, y) for each ring."""
    rings = []
    for radius, count in zip(radii, counts):
        angles = 2 * np.pi * np.arange(count) / count
        rings.append(radius * np.stack([np.cos(angles), np.sin(angles)], axis=1))
    return rings


def geometric_blur(
    channels: np.ndarray,
    points: np.ndarray,
    alpha: float = 0.5,
    beta: float = 1.0,
    radii: Sequence[float] = RADII,
    counts: Sequence[int] = COUNTS,
) -> np.ndarray:
    """Geometric blur descriptors, not normalised.

    Parameters
    ----------
    channels : (c, h, w) sparse signals
    points : (n, 2) feature points as (x, y) pixels
    alpha, beta : blur α|x| + β at distance |x|
    radii, counts : rings of samples

    Returns
    -------
    (n, Σ counts · c) float32, ring after ring, all channels of a sample together
    """
    points = np.asarray(points, dtype=float)
    parts = []
    for radius, offsets in zip(radii, ring_offsets(radii, counts)):
        where = points[:, None] + offsets
        samples = [sample_blurred(channel, where, alpha * radius + beta) for channel in channels]
        parts.append(np.stack(samples, axis=2).reshape(len(points), -1))
    return np.concatenate(parts, axis=1).astype(np.float32)


def sample_blurred(signal: np.ndarray, where: np.ndarray, width: float) -> np.ndarray:
    """Values at (..., 2) positions of a signal (h, w), zero outside, after a Gaussian blur of ``width`` pixels.

    A wide blur leaves nothing that a coarser grid could not hold: every second pixel is dropped, after a binomial
    filter of variance 1, as long as the rest of the blur stays ``COARSE`` pixels wide.
    """
    halvings = max(0, int(np.log2(max(width, 1e-9) / COARSE)))
    f = 2**halvings
    # samples beyond the image still see the blurred signal inside it
    beyond = max(0.0, -where.min(), (where - np.array(signal.shape[::-1])).max())
    margin = f * (int(np.ceil(beyond / f)) + 2)
    source: np.ndarray = np.pad(np.asarray(signal, np.float32), margin)
    for _ in range(halvings):
        source = cv2.pyrDown(source)
    if width > 1e-3:  # narrower than any pixel
        rest = np.sqrt(width**2 - (f**2 - 1) / 3) / f
        source = cv2.GaussianBlur(source, (0, 0), rest, borderType=cv2.BORDER_CONSTANT)
    return bilinear(source, (where + margin) / f)


def bilinear(image: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Values of an image at (..., 2) positions (x, y) in pixels; zero outside."""
    height, width = image.shape
    padded = np.pad(image, 1)
    x = np.clip(where[..., 0] + 1, 0, width + 1)
    y = np.clip(where[..., 1] + 1, 0, height + 1)
    left, top = np.minimum(x.astype(int), width), np.minimum(y.astype(int), height)
    fx, fy = x - left, y - top
    upper = padded[top, left] * (1 - fx) + padded[top, left + 1] * fx
    lower = padded[top + 1, left] * (1 - fx) + padded[top + 1, left + 1] * fx
    return upper * (1 - fy) + lower * fy


def edge_points(
    channels: np.ndarray, n_points: int, spacing: float, threshold: float, random: np.random.RandomState
) -> np.ndarray:
    """At most ``n_points`` edge points (n, 2) as (x, y), drawn in proportion to the energy and spread out."""
    energy = channels.sum(axis=0)
    peak = float(energy.max(initial=0.0))
    y, x = np.nonzero(energy > threshold * peak) if peak > 0 else (np.empty(0, int), np.empty(0, int))
    # ordering by exponential clocks with the energy as rate draws without replacement, in proportion to it
    clocks = random.exponential(size=len(x)) / np.maximum(energy[y, x], np.finfo(np.float32).tiny)
    free = np.ones(energy.shape, bool)
    reach = int(np.floor(spacing))
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disc = rows**2 + columns**2 < spacing**2
    chosen: list[tuple[int, int]] = []
    for i in np.argsort(clocks, kind="stable"):
        if len(chosen) == n_points:
            break
        if not free[y[i], x[i]]:
            continue
        chosen.append((x[i], y[i]))
        top, left = max(y[i] - reach, 0), max(x[i] - reach, 0)
        bottom, right = min(y[i] + reach + 1, energy.shape[0]), min(x[i] + reach + 1, energy.shape[1])
        inside = disc[top - y[i] + reach : bottom - y[i] + reach, left - x[i] + reach : right - x[i] + reach]
        free[top:bottom, left:right] &= ~inside
    return np.array(chosen, dtype=float).reshape(-1, 2)


@estimator
class GeometricBlur(FeatureExtractor):
    """Geometric blur descriptors at edge points of grey images: 204 dimensions by default.

    Parameters
    ----------
    n_points : at most so many points per image
    spacing : smallest distance between two points, in pixels
    threshold : edge energy, as a share of the strongest, under which a pixel is no edge
    n_orientations : channels
    sigma : width of the derivative filter, in pixels
    alpha, beta : blur α|x| + β at distance |x| from the point
    radii, counts : rings of samples, in pixels
    root : take the square root before the descriptor is brought to unit length
    random_state : seed of the draw of points, a whole number
    min_side : pictures with a shorter side than that are enlarged first, None to leave them as they are
    max_side, max_pixels : see :func:`patchbag.images.loading.load_image`
    n_jobs : workers (processes, unless the images are few), None for those of the context, -1 for all cores
    """

    n_points: int = parameter(Interval(Integral, 1, 100_000, closed="both"), default=200)
    _: KW_ONLY
    spacing: float = parameter(Interval(Real, 0, MOST_PIXELS, closed="both"), default=4.0)
    threshold: float = parameter(Interval(Real, 0, 1, closed="left"), default=0.1)
    n_orientations: int = parameter(COUNT, default=4)
    sigma: float = parameter(Interval(Real, 0.1, MOST_PIXELS, closed="both"), default=1.0)
    alpha: float = parameter(Interval(Real, 0, MOST_PIXELS, closed="both"), default=0.5)
    beta: float = parameter(Interval(Real, 0, MOST_PIXELS, closed="both"), default=1.0)
    radii: Sequence[float] = parameter(Several(Real, 0, MOST_PIXELS, closed="both"), default=RADII)
    counts: Sequence[int] = parameter(LENGTHS, default=COUNTS)
    root: bool = parameter("boolean", default=True)
    random_state: int = parameter(ZERO_OR_MORE, default=0)
    min_side: int | None = parameter(ONE_OR_MORE, None, default=None)

    def _validate_params(self) -> None:
        super()._validate_params()
        if len(self.radii) != len(self.counts):
            raise ValueError(f"radii and counts must be of one length, got {self.radii!r} and {self.counts!r}")

    def describe(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Descriptors (n, d) and positions (n, 2) of one grey image."""
        height, width = image.shape
        channels = edge_channels(image, self.n_orientations, self.sigma)
        random = np.random.RandomState(self.random_state)
        points = edge_points(channels, self.n_points, self.spacing, self.threshold, random)
        if not len(points):
            raise ImageError("has no edges: all its pixels are alike; leave it out")
        values = geometric_blur(channels, points, self.alpha, self.beta, self.radii, self.counts)
        values = np.sqrt(values) if self.root else values
        norms = np.sqrt((values**2).sum(axis=1, keepdims=True))
        positions = (points + 0.5) / np.array([width, height])
        return values / np.where(norms > 0, norms, 1), positions.astype(np.float32)
