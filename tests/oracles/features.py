# SPDX-License-Identifier: BSD-3-Clause
"""Dense features and retrieval figures as their definitions say, with loops."""

from __future__ import annotations

import numpy as np


def gradient(image, x, y):
    """Central difference, one-sided at the border, of the nearest pixel inside the image."""
    h, w = image.shape
    x, y = min(max(x, 0), w - 1), min(max(y, 0), h - 1)

    def slope(values, i):
        if i == 0:
            return values[1] - values[0]
        if i == len(values) - 1:
            return values[-1] - values[-2]
        return (values[i + 1] - values[i - 1]) / 2

    return slope(image[y], x), slope(image[:, x], y)


def sift_histogram(image, cx, cy, bin_size, window, window_size=2.0):
    """The (4, 4, 8) histogram of one patch before normalisation: every pixel votes trilinearly."""
    image = np.asarray(image, float)
    sigma = window_size * bin_size
    reach = 1.5 * bin_size + bin_size
    xs = np.arange(np.floor(cx - reach), np.ceil(cx + reach) + 1).astype(int)
    ys = np.arange(np.floor(cy - reach), np.ceil(cy + reach) + 1).astype(int)
    histogram = np.zeros((4, 4, 8))
    for y in ys:
        for x in xs:
            gx, gy = gradient(image, x, y)
            magnitude, angle = np.hypot(gx, gy), np.arctan2(gy, gx) % (2 * np.pi)
            g = np.exp(-0.5 * ((x - cx) ** 2 + (y - cy) ** 2) / sigma**2) if window == "gaussian" else 1.0
            for by in range(4):
                for bx in range(4):
                    dx, dy = x - (cx + (bx - 1.5) * bin_size), y - (cy + (by - 1.5) * bin_size)
                    share = max(0, 1 - abs(dx) / bin_size) * max(0, 1 - abs(dy) / bin_size) / bin_size**2
                    for t in range(8):
                        turn = abs((angle - t * np.pi / 4 + np.pi) % (2 * np.pi) - np.pi) / (np.pi / 4)
                        histogram[by, bx, t] += magnitude * g * share * max(0, 1 - turn)
    if window == "flat":
        weights = []
        for b in range(4):
            centre = (b - 1.5) * bin_size
            pixels = [p - cx for p in xs if abs(p - cx - centre) < bin_size]
            weights.append(np.mean([np.exp(-0.5 * (p / sigma) ** 2) for p in pixels]))
        histogram *= np.outer(weights, weights)[:, :, None]
    return histogram


def sift(image, cx, cy, bin_size, window, root=False):
    """One descriptor and the norm it had: normalise, clip at 0.2, normalise; RootSIFT instead of the last step."""
    h = sift_histogram(image, cx, cy, bin_size, window).ravel()
    norm = np.linalg.norm(h)
    h = np.minimum(h / norm, 0.2)
    return (np.sqrt(h / h.sum()) if root else h / np.linalg.norm(h)), norm


def color_cells(image, left, top, cell_size):
    """(96,) mean and standard deviation of each channel in each cell of one patch."""
    numbers = []
    for y in range(4):
        for x in range(4):
            rows = slice(top + y * cell_size, top + (y + 1) * cell_size)
            columns = slice(left + x * cell_size, left + (x + 1) * cell_size)
            cell = np.asarray(image[rows, columns], float).reshape(-1, 3)
            numbers += [*cell.mean(axis=0), *cell.std(axis=0)]
    return np.array(numbers)


def voc_ranking(y_true, scores, difficult):
    """Recall and precision down the ranking as the VOC devkit accumulates them."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])  # sorted() is stable
    positives = sum(1 for i in order if y_true[i] > 0 and not difficult[i])
    tp = fp = 0
    recall, precision = [], []
    for i in order:
        if difficult[i]:
            continue
        if y_true[i] > 0:
            tp += 1
        else:
            fp += 1
        recall.append(tp / positives)
        precision.append(tp / (tp + fp))
    return recall, precision


def voc_11_point(y_true, scores, difficult):
    recall, precision = voc_ranking(y_true, scores, difficult)
    total = 0.0
    for i in range(11):
        total += max((p for r, p in zip(recall, precision) if r >= i / 10 - 1e-12), default=0.0) / 11
    return total


def voc_all_point(y_true, scores, difficult):
    recall, precision = voc_ranking(y_true, scores, difficult)
    r, p = [0.0, *recall, 1.0], [0.0, *precision, 0.0]
    for i in range(len(p) - 2, -1, -1):
        p[i] = max(p[i], p[i + 1])
    return sum((r[i] - r[i - 1]) * p[i] for i in range(1, len(r)) if r[i] != r[i - 1])
