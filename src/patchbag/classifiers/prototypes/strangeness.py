# SPDX-License-Identifier: BSD-3-Clause
"""How unlike all prototypes images are, from vectors or from similarities to the training images (``similar``)."""

from typing import Any

import numpy as np

from patchbag.classifiers.confidence.class_means import class_shares, mean_norms, nearest_mean, scatter
from patchbag.classifiers.confidence.ties import looseness


def class_scatter(X: np.ndarray, codes: np.ndarray, n_classes: int, similar: bool) -> float:
    """s², how much training images scatter within their classes."""
    if similar:
        return scatter(np.diagonal(X), mean_norms(X, codes, n_classes), codes)
    norms = np.sum((class_shares(codes, n_classes).T @ X) ** 2, axis=1)
    return scatter(np.einsum("ij,ij->i", X, X), norms, codes)


def gram_matrix(X: np.ndarray, kept: np.ndarray, similar: bool) -> np.ndarray:
    """Inner products of the training images ``kept``."""
    return np.asarray(X[np.ix_(kept, kept)] if similar else X[kept] @ X[kept].T)


def strangeness(
    rows: np.ndarray, X: Any, kept: Any, codes: np.ndarray, norms: np.ndarray, ties: np.ndarray | None, similar: bool
) -> np.ndarray:
    """Statistics (2, m) of rows, given prototypes ``kept`` of ``X``; without ``ties`` the last of them."""
    cross = rows[:, kept] if similar else rows @ X[kept].T
    own = np.zeros(len(rows)) if similar else np.einsum("ij,ij->i", rows, rows)
    far = nearest_mean(cross, own, norms, codes)
    return far[None] if ties is None else np.stack([looseness(cross, ties), far])
