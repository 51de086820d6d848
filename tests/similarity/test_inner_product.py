# SPDX-License-Identifier: BSD-3-Clause
"""Inner products as a kernel: its Gram matrix is one, whatever the rank and the precision of the vectors."""

from __future__ import annotations

import numpy as np

from patchbag.classifiers.gaussian_process.kernel_stack import check_kernel
from patchbag.similarity import inner_product
from patchbag.similarity.inner_product import InnerProductKernel, gram_matrix

# as a network's pooled vectors: far from the origin, fewer dimensions than images
VECTORS = (5 + np.random.default_rng(0).normal(size=(300, 40))).astype(np.float32)


def test_the_gram_matrix_of_fewer_dimensions_than_images_needs_no_repair():
    for normalize in (True, False):
        gram = InnerProductKernel(normalize).fit_transform(VECTORS)
        assert check_kernel(gram)[1] is None
    single = VECTORS @ VECTORS.T
    assert check_kernel(((single + single.T) / 2).astype(float))[1] is not None


def test_blocks_of_columns_add_up_to_the_symmetric_gram_matrix(monkeypatch):
    monkeypatch.setattr(inner_product, "BLOCK", 7)
    gram = gram_matrix(VECTORS)
    np.testing.assert_allclose(gram, VECTORS.astype(float) @ VECTORS.T.astype(float), rtol=1e-13)
    np.testing.assert_array_equal(gram, gram.T)
