# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

from patchbag.classifiers.gaussian_process.kernel_stack import check_kernel, stack_kernels

RNG = np.random.default_rng(0)
A, B = (a @ a.T for a in RNG.normal(size=(2, 5, 5)))


def test_every_form_of_several_kernels_is_the_same_stack():
    expected = np.stack([A, B])
    for form in ([A, B], (A, B), np.stack([A, B], axis=2), np.hstack([A, B])):
        np.testing.assert_array_equal(stack_kernels(form), expected)
    np.testing.assert_array_equal(stack_kernels(A.astype(np.float32)), A[None].astype(np.float32))


def test_rows_of_new_images_have_one_column_a_training_image():
    np.testing.assert_array_equal(stack_kernels(np.hstack([A, B])[:2], 5), np.stack([A[:2], B[:2]]))


@pytest.mark.parametrize(
    ("form", "n", "message"),
    [
        ([A, B[:4, :4]], None, r"different sizes: kernel 0 is \(5, 5\), kernel 1 is \(4, 4\)"),
        (A[:, :4], None, "5 rows and 4 columns; expected 5 columns"),
        ([A[:, :4]], None, "must be square, got 5 rows and 4 columns"),
        (A, 4, "expected 4 columns"),
        ([A[:, :3]], 4, "has 3 columns, expected 4"),
        ([A, np.where(B[2, 1] == B, np.nan, B)], None, "kernel 1 has a value that is not finite in row 1"),
        (np.zeros(5), None, "got an array of shape"),
    ],
)
def test_bad_forms_are_clear_errors(form, n, message):
    with pytest.raises(ValueError, match=message):
        stack_kernels(form, n)


def test_indefinite_kernel_says_how_far_and_is_repaired_on_request():
    _, vectors = np.linalg.eigh(A)
    bad = (vectors * np.array([-2.0, 1.0, 1.0, 1.0, 3.0])) @ vectors.T
    with pytest.raises(
        ValueError, match=r"kernel 3: .* is not positive .* from -2 to 3, 1 of them .* 25 %.*repair=True"
    ):
        check_kernel(bad, 3)
    repaired, projection = check_kernel(bad, 3, repair=True)
    np.testing.assert_allclose(repaired, (vectors * np.array([0.0, 1.0, 1.0, 1.0, 3.0])) @ vectors.T, atol=1e-12)
    np.testing.assert_allclose(bad @ projection, repaired, atol=1e-12)


def test_negative_eigenvalues_of_rounding_are_clipped_without_asking():
    kernel = np.ones((400, 400)) * 5 - 1e-4 * np.eye(400)
    repaired, projection = check_kernel(kernel)
    assert projection is not None
    assert np.linalg.eigvalsh(repaired)[0] > -1e-9
    np.testing.assert_allclose(repaired, kernel, atol=2e-4)


def test_slightly_indefinite_kernels_of_many_images_are_repaired_and_definite_ones_are_left_alone():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(600, 60))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    other = np.linalg.qr(np.hstack([points, rng.normal(size=(600, 20))]))[0][:, 60:]
    definite = points @ points.T
    assert check_kernel(definite, repair=True)[1] is None
    for size in (3e-6, 1e-7):
        repaired, projection = check_kernel(definite - size * other @ other.T, repair=True)
        assert projection is not None
        assert np.linalg.eigvalsh(repaired)[0] > -1e-12
        np.testing.assert_allclose(repaired, definite, atol=1e-12)


def test_semidefinite_kernels_pass_unchanged_and_asymmetric_ones_do_not():
    low_rank = A[:, :2] @ A[:, :2].T
    kernel, projection = check_kernel(low_rank)
    assert projection is None
    np.testing.assert_allclose(kernel, low_rank)
    with pytest.raises(ValueError, match="not symmetric"):
        check_kernel(np.triu(A))


def test_kernels_along_the_first_axis_are_told_where_they_belong():
    with pytest.raises(ValueError, match="along the last axis"):
        stack_kernels(np.ones((2, 5, 5)))
    assert stack_kernels(np.ones((5, 5, 2))).shape == (2, 5, 5)
