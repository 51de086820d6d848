import numpy as np
import pytest

from patchbag.mixture.adaptation import Mixtures


@pytest.fixture
def make_mixtures():
    """Mixtures around one universal model: n of them, K components in D dimensions."""

    def make(n, k=5, d=3, seed=0, spread=0.4, dtype=np.float64):
        common, own = np.random.default_rng(99), np.random.default_rng(seed)
        means, variances = 2 * common.normal(size=(k, d)), common.uniform(0.4, 1.5, (k, d))
        weights = own.dirichlet(np.full(k, 4.0), n)
        moved = means + spread * own.normal(size=(n, k, d)) * np.sqrt(variances)
        return Mixtures(
            *(a.astype(dtype) for a in (weights, moved, variances * np.exp(spread * own.normal(size=(n, k, d)))))
        )

    return make
