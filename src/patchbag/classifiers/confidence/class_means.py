# SPDX-License-Identifier: BSD-3-Clause
r"""How far an image is from the nearest mean of a class, from inner products alone.

A classifier sees an image through what tells its classes apart.  An image of a class never seen can lie anywhere else,
and a large score for a wrong class is common.  The distance to the mean of the training images of a class looks in all
directions.  With a kernel k, and :math:`m_c` the mean of the :math:`n_c` training images of class c,

.. math:: d_c(x) = k(x, x) - \frac{2}{n_c} \sum_{i \in c} k(x, x_i) + \|m_c\|^2 - \frac{s^2}{n_c},\qquad
          \|m_c\|^2 = \frac{1}{n_c^2} \sum_{i, j \in c} k(x_i, x_j),\qquad
          s^2 = \frac{\sum_i k(x_i, x_i) - \sum_c n_c \|m_c\|^2}{n - C}

and the statistic is the least of the :math:`d_c`.  The last term makes it an estimate of the distance to the mean of
all images of the class that is right on average: a mean of few images is off by :math:`s^2 / n_c`, and images that are
left out, which find fewer images in their class, would look stranger than new ones.
"""

from typing import Any

import numpy as np

from patchbag.device import like, to_host


def class_shares(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """(n, C) the weights of images in the means of their classes ``codes (n,)``; NaN for classes without an image."""
    members = codes[:, None] == np.arange(n_classes)
    with np.errstate(invalid="ignore"):
        return np.asarray(members / members.sum(axis=0), dtype=float)


def scatter(squared: np.ndarray, norms: np.ndarray, codes: np.ndarray) -> float:
    """s², given k(x, x) of the training images (n,), ‖m‖² of the classes (C,), and the images' classes (n,)."""
    sizes = np.bincount(codes)
    return float(max(squared.sum() - sizes @ norms, 0.0) / max(len(codes) - len(sizes), 1))


def mean_norms(gram: Any, codes: np.ndarray, n_classes: int, spread: float = 0.0) -> np.ndarray:
    """(C,) ‖m‖² - s²/n of the classes of training images with the kernel ``gram (n, n)``; NaN for those without one."""
    shares = class_shares(codes, n_classes)
    squared = np.sum(shares * to_host(gram @ like(shares, gram)), axis=0, dtype=float)
    return np.asarray(squared - spread / np.maximum(np.bincount(codes, minlength=n_classes), 1))


def nearest_mean(cross: Any, diagonal: np.ndarray, norms: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """(m,) the least distance of each image to the mean of a class.

    Parameters
    ----------
    cross : (m, n) kernel of the images with the training images
    diagonal : (m,) kernel of the images with themselves
    norms : (C,) what :func:`mean_norms` says of the classes
    codes : (n,) numbers of the training images' classes
    """
    return nearest_of(to_host(cross @ like(class_shares(codes, len(norms)), cross)), diagonal, norms)


def nearest_of(products: np.ndarray, diagonal: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """:func:`nearest_mean`, given the inner products with the means of the classes (m, C)."""
    return np.asarray(np.fmin.reduce(diagonal[:, None] - 2.0 * products + norms, axis=1), dtype=float)
