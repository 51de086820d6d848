# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
from scipy import sparse

from patchbag import AdditiveClassifier, AdditiveKernelPCA, LinearClassifier


def test_typicality_measures_distances_of_the_explicit_vectors():
    rng = np.random.default_rng(0)
    X, y = rng.dirichlet(np.ones(6), size=30), np.arange(30) % 3
    model = AdditiveClassifier(AdditiveKernelPCA(), C=1.0, random_state=0).fit(X, y)
    explicit = model.embedding_.transform(X)
    explicit = explicit.toarray() if sparse.issparse(explicit) else explicit
    plain = LinearClassifier(C=1.0, random_state=0).fit(explicit, y)
    np.testing.assert_allclose(model.typicality(X), plain.typicality(explicit))
