# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np

from oracles.gaussian_process import posterior
from patchbag.active.posterior import PoolPosterior

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
KERNEL = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2)) * np.outer(1 + X[:, 0] ** 2, 1 + X[:, 0] ** 2)


def test_labels_one_by_one_equal_the_batch_posterior_also_for_a_class_that_comes_late():
    pool = PoolPosterior(KERNEL, 0.1)
    images = RNG.permutation(40)[:25]
    codes = np.concatenate([np.zeros(10, int), RNG.integers(0, 3, 15)])
    columns = {}
    for image, code in zip(images, codes):
        if code not in columns:
            columns[code] = pool.add_class()
        pool.add_label(int(image), columns[code])
    targets = np.where(codes[:, None] == np.array([-1, *columns]), 1.0, -1.0)
    mean, variance = posterior(KERNEL[np.ix_(images, images)], targets, 0.1, KERNEL[:, images], np.diag(KERNEL))
    np.testing.assert_allclose(pool.mean, mean, atol=1e-9)
    np.testing.assert_allclose(pool.variance, variance, atol=1e-9)


def test_watched_covariances_are_those_of_the_posterior_whenever_watching_begins():
    images = [3, 7, 20]
    early, late = PoolPosterior(KERNEL, 0.1), PoolPosterior(KERNEL, 0.1)
    early.watch(np.arange(40))
    for pool in (early, late):
        column = pool.add_class()
        for image in images:
            pool.add_label(image, column)
    late.watch(np.arange(40))
    block = KERNEL[np.ix_(images, images)] + 0.1 * np.eye(3)
    expected = KERNEL - KERNEL[:, images] @ np.linalg.solve(block, KERNEL[images])
    np.testing.assert_allclose(early.cross, expected, atol=1e-9)
    np.testing.assert_allclose(late.cross, expected, atol=1e-9)


def test_imagined_rows_give_the_variance_that_labels_will_leave():
    pool = PoolPosterior(KERNEL, 0.1)
    column = pool.add_class()
    pool.add_label(3, column)
    first = pool.solve(7)
    variance = pool.variance - first**2
    second = pool.solve(11, variance, first[None])
    for image in (7, 11):
        pool.add_label(image, column)
    np.testing.assert_allclose(variance - second**2, pool.variance, atol=1e-12)


def test_labelling_twins_with_little_noise_leaves_no_negative_variance():
    pool = PoolPosterior(np.ones((5, 5)), 1e-12)
    column = pool.add_class()
    for image in range(4):
        pool.add_label(image, column)
    assert np.all(pool.variance >= 0) and np.isfinite(pool.mean).all()
