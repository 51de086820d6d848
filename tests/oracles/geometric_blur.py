# SPDX-License-Identifier: BSD-3-Clause
"""Literal geometric blur: at each sample, a Gaussian-weighted sum over all pixels of the image."""

from __future__ import annotations

import numpy as np


def blur_at(channel, x, y, width):
    rows, columns = np.mgrid[: channel.shape[0], : channel.shape[1]]
    weights = np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * width**2)) / (2 * np.pi * width**2)
    return (weights * channel).sum()


def descriptor(channels, point, alpha, beta, radii, counts):
    values = []
    for radius, count in zip(radii, counts):
        for k in range(count):
            angle = 2 * np.pi * k / count
            x, y = point[0] + radius * np.cos(angle), point[1] + radius * np.sin(angle)
            values.extend(blur_at(channel, x, y, alpha * radius + beta) for channel in channels)
    return np.array(values)


def edge_energy(gx, gy, angle):
    """Gradient length times the rectified cosine of twice the angle between gradient and channel."""
    return np.hypot(gx, gy) * max(0.0, np.cos(2 * (np.arctan2(gy, gx) - angle)))
