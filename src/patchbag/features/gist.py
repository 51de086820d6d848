# SPDX-License-Identifier: BSD-3-Clause
r"""Gist (Oliva & Torralba 2001): how much of each scale and orientation lies where in an image.

1. The image is stretched to ``size`` × ``size``.  Its logarithm is **pre-filtered**: slow changes of light, below about
   4 cycles per image, are taken off, and what is left is divided by its local deviation

   .. math:: u = v - g * v, \qquad u / (0.2 + \sqrt{g * u^2}), \qquad \hat g(f) = e^{-f^2 \ln 2 / 16},

   with v = ln(1 + grey level) mirrored at its borders by 5 pixels and f in cycles per image.
2. **Gabor filters** in the Fourier domain, one-sided, at scales :math:`f_s = 0.3 / 1.85^s` cycles per pixel and
   orientations :math:`\theta_o = \pi o / O`:

   .. math:: \hat G_{s,o}(f, \theta) = \exp\left(-3.5 (f / f_s - 1)^2 - 2\pi (O/8)^2 (\theta + \theta_o)^2\right),

   with θ + θₒ in (-π, π]; the image is mirrored at its borders by 32 pixels first.
3. The magnitudes of the responses are averaged in ``blocks`` × ``blocks`` blocks: 4 scales × 8 orientations × 16 blocks
   = 512 numbers.  Layout: ``index = x + blocks * (y + blocks * (orientation + O * scale))``.

``color=True`` does this for R, G and B: 3 × 512.

**What is computed.**  A one-sided filter passes a small part of the frequencies, and moving that part to the origin
multiplies the response by a wave, which its magnitude does not see.  So each filter's part is cut out and transformed
back at its own, coarser sampling: of 320 × 320 numbers a side of 320, 160, 80 or 40 is left, the smallest that leaves
out less than :data:`LEFT_OUT` of a filter's power.  Single precision.  A bag has one descriptor, at the centre.
"""

from dataclasses import KW_ONLY
from functools import lru_cache
from typing import ClassVar, NamedTuple

import cv2
import numpy as np
from numba import njit
from scipy import fft

from patchbag.features.extraction import COUNT, LENGTH, FeatureExtractor
from patchbag.images.loading import Mode
from patchbag.parameters import estimator, parameter

LOW_CYCLES = 4.0
LOW_BORDER = 5
LEVEL = 0.2
BORDER = 32
LEFT_OUT = 1e-4
OVERSAMPLING = 2  # a magnitude is not band-limited as its response is
COARSEST = 8


class Filter(NamedTuple):
    """Where a filter's part of the frequencies lies (rows and columns, wrapped), and its values there."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


def frequencies(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertical (n, 1) and horizontal (1, n) cycles per image, in the order of the fast Fourier transform."""
    f = np.fft.fftfreq(n) * n
    return f[:, None], f[None, :]


def gabor(n: int, scale: int, orientation: int, n_orientations: int) -> np.ndarray:
    """(n, n) transfer function of one filter, in the order of the fast Fourier transform."""
    fy, fx = frequencies(n)
    angle = np.arctan2(fy, fx) + np.pi * orientation / n_orientations
    angle = np.where(angle > np.pi, angle - 2 * np.pi, angle)
    radius = np.hypot(fx, fy) / n / (0.3 / 1.85**scale)
    return np.exp(-3.5 * (radius - 1) ** 2 - 2 * np.pi * (n_orientations / 8) ** 2 * angle**2)


def passed(power: np.ndarray, n_left: int) -> np.ndarray:
    """The ``n_left`` neighbouring frequencies, the ends joined, that hold most of ``power (n,)``, as indices."""
    n = len(power)
    if n_left == n:
        return np.arange(n)
    sums = np.cumsum(np.concatenate([[0.0], power, power]))
    start = int(np.argmax(sums[n_left : n_left + n] - sums[:n]))
    return np.arange(start, start + n_left) % n


@lru_cache(maxsize=8)
def filter_bank(n: int, n_scales: int, n_orientations: int) -> tuple[Filter, ...]:
    """The parts that the filters pass of the frequencies of an n × n image, scale after scale."""
    bank = []
    for scale in range(n_scales):
        for orientation in range(n_orientations):
            full = gabor(n, scale, orientation, n_orientations)
            power = full**2
            sides = []
            for axis in (1, 0):
                along, left = power.sum(axis=axis), n
                while left > n // COARSEST and left % 2 == 0:
                    if along[passed(along, left // 2)].sum() < (1 - LEFT_OUT / 2) * along.sum():
                        break
                    left //= 2
                sides.append(passed(along, min(n, OVERSAMPLING * left)))
            rows, columns = sides
            part = full[np.ix_(rows, columns)] * (len(rows) * len(columns) / n**2)
            bank.append(Filter(rows, columns, part.astype(np.float32)))
    return tuple(bank)


@lru_cache(maxsize=8)
def low_pass(n: int) -> np.ndarray:
    """(n, n // 2 + 1) transfer function of the pre-filter, for transforms of real images."""
    fy, fx = frequencies(n)
    half = slice(0, n // 2 + 1)
    return np.exp(-(fy**2 + fx[:, half] ** 2) * np.log(2) / LOW_CYCLES**2).astype(np.float32)


def prefilter(image: np.ndarray) -> np.ndarray:
    """Local contrast (n, n), float32, of a square grey image on the scale 0..255."""
    v = np.pad(np.log1p(image.astype(np.float32)), LOW_BORDER, mode="symmetric")
    g = low_pass(len(v))
    u = v - fft.irfft2(fft.rfft2(v) * g, v.shape)
    local = fft.irfft2(fft.rfft2(u * u) * g, v.shape)
    u /= LEVEL + np.sqrt(np.maximum(local, 0))
    return u[LOW_BORDER:-LOW_BORDER, LOW_BORDER:-LOW_BORDER]


@njit(cache=True, nogil=True, fastmath=True)
def _block_means(response, top, left, height, width, blocks, out):  # pragma: no cover - compiled
    for by in range(blocks):
        for bx in range(blocks):
            total = np.float32(0.0)
            for y in range(top + by * height, top + (by + 1) * height):
                for x in range(left + bx * width, left + (bx + 1) * width):
                    z = response[y, x]
                    total += np.sqrt(z.real * z.real + z.imag * z.imag)
            out[by * blocks + bx] = total / (height * width)


def gist(image: np.ndarray, n_scales: int = 4, n_orientations: int = 8, blocks: int = 4) -> np.ndarray:
    """The descriptor (n_scales · n_orientations · blocks²,) of a square grey image on the scale 0..255.

    Its side must be a multiple of 8 · ``blocks``.
    """
    u = np.pad(prefilter(image), BORDER, mode="symmetric")
    n = len(u)
    spectrum = fft.fft2(u)
    bank = filter_bank(n, n_scales, n_orientations)
    out = np.empty((len(bank), blocks * blocks), np.float32)
    for number, (rows, columns, values) in enumerate(bank):
        part = spectrum if values.shape == spectrum.shape else spectrum[rows[:, None], columns]
        response = fft.ifft2(part * values, overwrite_x=True)
        steps = n // len(rows), n // len(columns)
        height, width = (len(image) // blocks // step for step in steps)
        _block_means(response, BORDER // steps[0], BORDER // steps[1], height, width, blocks, out[number])
    return out.ravel()


@estimator
class Gist(FeatureExtractor):
    """Gist: one descriptor per image, 512 numbers, or 3 × 512 with ``color``.

    Parameters
    ----------
    size : side in pixels to which images are stretched, a multiple of 8 · ``blocks``
    n_scales, n_orientations, blocks : of the filters, and blocks per side
    color : describe R, G and B each
    max_side, max_pixels : see :func:`patchbag.images.loading.load_image`
    n_jobs : workers (threads), None for those of the context, -1 for all cores

    >>> Gist().transform([np.zeros((64, 48), np.uint8)]).dimension
    512
    """

    mode: ClassVar[Mode] = "rgb"
    parallel = "threads"
    size: int = parameter(LENGTH, default=256)
    _: KW_ONLY
    n_scales: int = parameter(COUNT, default=4)
    n_orientations: int = parameter(COUNT, default=8)
    blocks: int = parameter(COUNT, default=4)
    color: bool = parameter("boolean", default=False)

    def describe(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The descriptor (1, d) of one RGB image, and its position, the centre."""
        if self.size % (COARSEST * self.blocks):
            raise ValueError(f"size must be a multiple of {COARSEST * self.blocks} (8 · blocks), got {self.size}")
        square = cv2.resize(np.asarray(image, np.float32), (self.size, self.size), interpolation=cv2.INTER_AREA)
        channels = square.transpose(2, 0, 1) if self.color else square.mean(axis=2)[None]
        values = [gist(channel, self.n_scales, self.n_orientations, self.blocks) for channel in channels]
        return np.concatenate(values)[None], np.full((1, 2), 0.5)
