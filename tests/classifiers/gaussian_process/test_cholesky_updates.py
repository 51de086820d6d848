# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

from patchbag.classifiers.gaussian_process.cholesky_updates import append_sample, rank_one, remove_sample


@pytest.fixture
def matrix():
    a = np.random.default_rng(0).normal(size=(9, 14))
    return a @ a.T


def test_append_equals_factor_of_the_bordered_matrix(matrix):
    factor = append_sample(np.linalg.cholesky(matrix[:8, :8]), matrix[8, :8], matrix[8, 8])
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), atol=1e-12)


def test_append_builds_a_factor_from_nothing(matrix):
    factor = np.zeros((0, 0))
    for i in range(len(matrix)):
        factor = append_sample(factor, matrix[i, :i], matrix[i, i])
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), atol=1e-12)


def test_append_of_a_repeated_sample_is_a_clear_error(matrix):
    with pytest.raises(np.linalg.LinAlgError, match="repeats samples"):
        append_sample(np.linalg.cholesky(matrix), matrix[3], matrix[3, 3] - 1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rank_one_equals_factor_of_the_changed_matrix(matrix, sign):
    v = 0.3 * np.random.default_rng(1).normal(size=9)
    changed = rank_one(np.linalg.cholesky(matrix), v, sign)
    np.testing.assert_allclose(changed, np.linalg.cholesky(matrix + sign * np.outer(v, v)), atol=1e-12)


def test_downdate_that_leaves_an_indefinite_matrix_is_an_error(matrix):
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        rank_one(np.linalg.cholesky(matrix), 100 * np.ones(9), -1.0)


@pytest.mark.parametrize("index", [0, 4, 8])
def test_remove_equals_factor_of_the_smaller_matrix(matrix, index):
    keep = np.arange(9) != index
    factor = remove_sample(np.linalg.cholesky(matrix), index)
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix[np.ix_(keep, keep)]), atol=1e-12)


def test_wrong_sizes_are_named(matrix):
    factor = np.linalg.cholesky(matrix)
    with pytest.raises(ValueError, match=r"9 samples but the new sample has covariances of shape \(3,\)"):
        append_sample(factor, np.ones(3), 1.0)
    with pytest.raises(ValueError, match=r"9 samples but the vector has shape \(3,\)"):
        rank_one(factor, np.ones(3))
    with pytest.raises(IndexError, match="sample 9 of 9"):
        remove_sample(factor, 9)
