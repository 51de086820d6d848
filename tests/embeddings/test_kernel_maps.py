"""kPCA and random Fourier features against the printed formulas and the kernels that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from patchbag import (
    Bags,
    HistogramKernel,
    KernelPCAMap,
    MAPAdaptation,
    MixtureKernel,
    PyramidMatchKernel,
    RandomFourierMap,
    ReferenceWeights,
    UniversalMixture,
    UniversalStatistics,
)


@pytest.fixture(scope="module")
def histograms():
    X = np.random.default_rng(0).gamma(0.5, size=(120, 20))
    return X / X.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def bags():
    rng = np.random.default_rng(1)
    return Bags.from_list([rng.normal(i % 3, 1, (int(m), 3)) for i, m in enumerate(rng.integers(10, 25, 40))])


def adapted(bags):
    statistics = UniversalStatistics(UniversalMixture(4, random_state=0)).fit_transform(bags)
    return MAPAdaptation().fit_transform(statistics)


def test_vectors_are_those_of_the_printed_formulas(histograms):
    """(7.4) and (7.5), written out; signs of eigenvectors are arbitrary."""
    train, test = histograms[:60], histograms[60:]
    kernel = HistogramKernel("chi2", exponential=True, gamma=2.0)
    found = KernelPCAMap(kernel, n_components=7, n_samples=None).fit(train).transform(test)
    values, vectors = np.linalg.eigh(kernel.fit_transform(train))
    rows = kernel.transform(test)
    for e in range(7):
        literal = rows @ vectors[:, -1 - e] / np.sqrt(values[-1 - e])
        np.testing.assert_allclose(np.abs(found[:, e]), np.abs(literal), atol=1e-8)


@pytest.mark.parametrize(
    ("kernel", "make"),
    [
        (MixtureKernel("ppk", normalize=True), adapted),
        (PyramidMatchKernel("uniform", n_levels=3, random_state=0), lambda b: b),
    ],
)
def test_inner_products_are_the_kernel_where_all_samples_teach(kernel, make, bags):
    X = make(bags)
    model = KernelPCAMap(kernel, n_samples=None)
    phi = model.fit_transform(X)
    np.testing.assert_allclose(phi @ phi.T, kernel.fit_transform(X), atol=1e-3)
    np.testing.assert_allclose(model.transform(X), phi, atol=1e-3)  # of single precision, divided by small σ
    assert model.energy_ == pytest.approx(1, abs=1e-4)


def test_more_samples_and_directions_are_closer(histograms):
    kernel = HistogramKernel("bhattacharyya", exponential=True, gamma=1.0)
    exact = kernel.fit_transform(histograms)
    errors = []
    for n_samples, n_components in ((20, 5), (20, None), (80, None)):
        model = KernelPCAMap(kernel, n_components=n_components, n_samples=n_samples, random_state=0).fit(histograms)
        phi = model.transform(histograms)
        errors.append(np.abs(phi @ phi.T - exact).mean())
    assert errors[0] > errors[1] > errors[2]
    assert model.coefficients_.shape[0] == 80


def test_a_list_of_bags_serves_as_well_as_bags(bags):
    model = KernelPCAMap(PyramidMatchKernel("uniform", n_levels=3, random_state=0), n_samples=20, random_state=0)
    np.testing.assert_array_equal(model.fit_transform(list(bags)), model.fit_transform(bags))


def test_a_similarity_that_is_no_kernel_is_refused(bags):
    with pytest.raises(ValueError, match="not a symmetric kernel"):
        KernelPCAMap(ReferenceWeights()).fit(adapted(bags))


@pytest.mark.parametrize("kernel", ["bhattacharyya", "intersection"])
def test_random_features_tend_to_the_exponential_kernel(kernel, histograms):
    exact = HistogramKernel(kernel, exponential=True, gamma=3.0).fit_transform(histograms)
    errors = []
    for n_components in (50, 5000):
        model = RandomFourierMap(kernel, n_components=n_components, gamma=3.0, random_state=0).fit(histograms)
        phi = model.transform(histograms)
        np.testing.assert_allclose(np.linalg.norm(phi, axis=1), 1, atol=1e-6)
        errors.append(np.abs(phi @ phi.T - exact).mean())
    assert errors[1] < 0.015 and errors[1] < errors[0] / 5


def test_orthogonal_frequencies_have_the_smaller_error(histograms):
    exact = HistogramKernel("bhattacharyya", exponential=True, gamma=3.0).fit_transform(histograms)
    errors = np.zeros(2)
    for seed in range(8):
        for i, orthogonal in enumerate((False, True)):
            phi = RandomFourierMap(n_components=40, gamma=3.0, orthogonal=orthogonal, random_state=seed).fit_transform(
                histograms
            )
            errors[i] += np.abs(phi @ phi.T - exact).mean()
    assert errors[1] < 0.8 * errors[0]


def test_gamma_is_that_of_the_exact_kernel_and_sparse_rows_serve(histograms):
    model = RandomFourierMap(random_state=0).fit(histograms)
    assert model.gamma_ == pytest.approx(HistogramKernel("bhattacharyya", exponential=True).fit(histograms).gamma_)
    np.testing.assert_allclose(model.transform(sparse.csr_array(histograms)), model.transform(histograms), atol=1e-12)
