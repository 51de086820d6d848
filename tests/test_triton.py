"""The fused kernels of a GPU beside their plain twins: compiled on a card, in Triton's interpreter where there is none.

The interpreter is asked for in the root's conftest.py, before anything imports Triton; it takes CPU tensors.
"""

from __future__ import annotations

import numpy as np
import pytest

from patchbag.device import to_host
from patchbag.encodings.fisher import fisher_vector
from patchbag.mixture import dense_triton
from patchbag.mixture.accumulate import accumulate, raw_moments
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.dense import dense_sums, log_likelihoods, posteriors, standardized
from patchbag.mixture.parameters import check_parameters
from patchbag.runtime import tensor_cores
from patchbag.similarity.mixtures.matching import component_frame
from patchbag.similarity.mixtures.one_to_one import kl_one_to_one, product_one_to_one, symmetric_kl_one_to_one

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def tensor(a, dtype=np.float32):
    return torch.asarray(np.asarray(a, dtype), device=DEVICE)


def universal(rng, K, D):
    return check_parameters(rng.dirichlet(np.ones(K)), rng.normal(size=(K, D)), rng.uniform(0.5, 1.5, (K, D)))


@pytest.fixture(autouse=True)
def full_precision():
    with tensor_cores(False):
        yield


@pytest.mark.parametrize("resident", [0, dense_triton.RESIDENT], ids=["in two kernels", "in one"])
@pytest.mark.parametrize(("K", "D"), [(5, 6), (70, 40)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_sums_of_segments_are_those_of_dense_products(monkeypatch, resident, K, D, dtype):
    monkeypatch.setattr(dense_triton, "RESIDENT", resident)
    rng = np.random.default_rng(0)
    mixture, offsets = universal(rng, K, D), np.array([0, 0, 70, 71, 150])
    values = rng.uniform(0, 4, (150, D)).astype(dtype)
    s0, s1, s2, totals = (to_host(a) for a in dense_triton.segment_sums(tensor(values, dtype), offsets, mixture))
    expected = [to_host(a) for a in dense_sums(torch.asarray(values.astype(np.float32)), offsets, mixture)]
    assert np.allclose(s0, expected[0], atol=1e-4)
    assert np.allclose(np.concatenate([s1, s2], axis=2), expected[1], atol=1e-4 * np.abs(expected[1]).max())
    share, logits = posteriors(standardized(torch.asarray(values.astype(np.float32)), mixture), mixture)
    assert np.allclose(totals, to_host(log_likelihoods(share, logits)), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("resident", [0, dense_triton.RESIDENT], ids=["in two kernels", "in one"])
def test_raw_moments_of_segments_are_those_of_the_cpu(monkeypatch, resident):
    monkeypatch.setattr(dense_triton, "RESIDENT", resident)
    rng = np.random.default_rng(1)
    mixture, values = universal(rng, 7, 5), rng.normal(size=(90, 5)).astype(np.float32)
    found = dense_triton.segment_sums(tensor(values), np.array([0, 40, 90]), mixture, raw=True)[:3]
    s0, s12, _ = accumulate(values, np.repeat([0, 1], [40, 50]), 2, mixture)
    for a, b in zip(found, (s0, *raw_moments(s0, s12, mixture))):
        assert np.allclose(to_host(a), b, atol=1e-3)


def test_no_descriptors_and_no_segments_are_sums_of_nothing():
    mixture = universal(np.random.default_rng(2), 4, 3)
    for offsets in ([0], [0, 0, 0]):
        s0, s1, s2, totals = dense_triton.segment_sums(tensor(np.empty((0, 3))), np.array(offsets), mixture)
        assert s1.shape == s2.shape == (len(offsets) - 1, 4, 3) and len(totals) == 0
        assert not s0.any() and not s1.any() and not s2.any()


def test_fisher_vectors_of_one_kernel_are_those_of_the_formula():
    from patchbag.encodings.fisher_triton import gradients

    rng = np.random.default_rng(3)
    mixture, s0, at = universal(rng, 40, 30), rng.gamma(1, 3, (9, 40)), rng.normal(size=(9, 40, 30))
    s0[4] = 0  # an image without a descriptor
    arrays = [a.astype(np.float32) for a in (s0, s0[..., None] * at, s0[..., None] * (at**2 + 0.5))]
    expected = fisher_vector(*arrays, mixture)
    found = to_host(gradients(*map(tensor, arrays), mixture))
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max() and not found[4].any()


@pytest.fixture(scope="module")
def mixtures():
    """Of 21 images and of 70 references, 5 components in 7 dimensions."""
    rng = np.random.default_rng(4)
    base = rng.normal(size=(5, 7))

    def draw(n):
        means, variances = base + 0.4 * rng.normal(size=(n, 5, 7)), rng.uniform(0.5, 1.5, (n, 5, 7))
        return Mixtures(*(a.astype(np.float32) for a in (rng.dirichlet(np.ones(5), n), means, variances)))

    return draw(21), draw(70)


@pytest.mark.parametrize("sides", ["l", "lr"])
def test_divergences_of_one_kernel_are_those_of_the_cpu(mixtures, sides):
    from patchbag.similarity.mixtures.divergence_triton import divergences

    expected = (kl_one_to_one if sides == "l" else symmetric_kl_one_to_one)(*mixtures)
    P, Q = (Mixtures(*map(tensor, m.arrays().values())) for m in mixtures)
    found = to_host(divergences(P, Q, component_frame(Q), sides, 16))
    assert np.abs(found - expected).max() < 1e-5 * expected.max()


@pytest.mark.parametrize("rho", [0.5, 1.0])
def test_product_kernels_of_one_kernel_are_those_of_the_cpu(mixtures, rho):
    from patchbag.similarity.mixtures.product_triton import product_sums

    expected = product_one_to_one(*mixtures, rho)
    P, Q = (Mixtures(*map(tensor, m.arrays().values())) for m in mixtures)
    norms = torch.zeros(21, device=DEVICE).double(), torch.zeros(70, device=DEVICE).double()
    found = to_host(product_sums(P, Q, norms, rho, component_frame(Q)))
    assert np.abs(found - expected).max() < 1e-5 * expected.max()


@pytest.mark.parametrize("k", [1, 4, 37])
def test_distances_to_nearest_points_are_those_of_sorting_all(k):
    from patchbag.similarity.nearest_triton import kth_distances

    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(50, 6)), rng.normal(size=(3, 37, 6))
    y[0, 3] = y[0, 5]  # two at the same distance
    expected = np.sort(np.linalg.norm(x[None, :, None] - y[:, None], axis=3), axis=2)[:, :, k - 1]
    assert np.allclose(to_host(kth_distances(tensor(x), tensor(y), k)), expected, atol=1e-5)
