"""addkPCA against the printed formulas, and what makes an embedding one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.kernel_approximation import AdditiveChi2Sampler

from patchbag import AdditiveKernelPCA, SquareRootMap
from patchbag.embeddings.eigenfunctions import KERNELS, beginning, nystroem, quantiles, top_eigenpairs
from patchbag.similarity.histograms.kernel import histogram_kernel


@pytest.fixture(scope="module")
def histograms():
    rng = np.random.default_rng(0)
    X = rng.gamma(0.3, size=(300, 40)) * (rng.random((300, 40)) < 0.5)
    return X / np.maximum(X.sum(axis=1, keepdims=True), 1e-12)


@pytest.mark.parametrize("size", [12, 90])
def test_eigenpairs_are_those_of_the_full_decomposition(size):
    u = np.sort(np.random.default_rng(1).random((5, size)), axis=1)
    matrices = KERNELS["chi2"](u[:, :, None], u[:, None, :])
    values, vectors = top_eigenpairs(matrices, 4, beginning(matrices, 4, np.random.default_rng(0)))
    vectors = vectors.swapaxes(1, 2)
    expected = np.linalg.eigvalsh(matrices)[:, ::-1][:, :4]
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6 * expected.max())
    residual = matrices @ vectors - vectors * values[:, None, :]
    assert np.abs(residual).max() < 1e-3 * expected.max()


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_the_functions_are_those_of_nystroem(kernel, histograms):
    """(7.4) and (7.6), dimension by dimension, with full decompositions; signs of eigenvectors are arbitrary."""
    E = 60
    model = AdditiveKernelPCA(kernel, n_components=E, n_functions=3, n_samples=30, n_points=400, random_state=0)
    found = model.fit(histograms).transform(histograms)
    samples, shares, _ = quantiles(histograms, 30)
    eigen = []
    for d in range(histograms.shape[1]):
        matrix = KERNELS[kernel](samples[d][:, None], samples[d][None]).astype(float) * shares[d] / 30
        values, vectors = np.linalg.eigh(matrix)
        eigen += [(values[-e], d, vectors[:, -e]) for e in (1, 2, 3)]
    eigen.sort(key=lambda item: -item[0])
    literal = np.zeros((len(histograms), len(histograms)))
    for value, d, vector in eigen[:E]:
        k = KERNELS[kernel](histograms[:, d][:, None], samples[d][None].astype(float))
        phi = k @ vector * np.sqrt(shares[d] / 30) / np.sqrt(value)
        literal += np.outer(phi, phi)
    np.testing.assert_allclose(found @ found.T, literal, atol=2e-3)  # interpolation, and single precision
    assert found.shape == (300, E) and model.functions_.sum() == E


def test_one_function_already_approximates_chi2_and_is_a_root():
    """Figure 7.1, values regularly spaced in [0, 1]."""
    u = np.linspace(0, 1, 128)[None]
    matrix = KERNELS["chi2"](u[:, :, None], u[:, None, :])
    values, vectors = top_eigenpairs(matrix, 3, beginning(matrix, 3, np.random.default_rng(0)))
    phi = nystroem(u, u, vectors / np.sqrt(values)[:, :, None], KERNELS["chi2"])[0, :, 0]
    phi *= np.sign(phi[-1])
    assert np.abs(phi - np.sqrt(u[0])).max() < 0.12
    assert np.abs(np.outer(phi, phi) - matrix[0]).mean() < 0.03
    assert values[0, 0] / np.trace(matrix[0]) > 0.9


def test_the_kernel_is_closer_than_scikit_learns_with_fewer_numbers(histograms):
    exact = histogram_kernel(histograms, histograms, "chi2")
    ours = AdditiveKernelPCA(random_state=0).fit(histograms[:150])
    theirs = AdditiveChi2Sampler(sample_steps=2).fit(histograms)
    errors = []
    for model in (ours, theirs):
        phi = model.transform(histograms[150:])
        errors.append(np.abs(phi @ phi.T - exact[150:, 150:]).mean())
    assert ours.transform(histograms).shape[1] < theirs.transform(histograms).shape[1]
    assert errors[0] < errors[1] / 2


def test_zero_stays_zero_and_sparse_rows_stay_sparse(histograms):
    rows = sparse.csr_matrix(histograms)
    model = AdditiveKernelPCA(random_state=0).fit(rows)
    out = model.transform(rows)
    assert sparse.issparse(out) and not model.transform(np.zeros((1, 40))).any()
    np.testing.assert_array_equal(out.toarray(), model.transform(histograms))
    roots = SquareRootMap().fit(rows).transform(rows)
    np.testing.assert_allclose(roots.toarray() ** 2, histograms, atol=1e-15)
    exact = histogram_kernel(histograms, histograms, "bhattacharyya")
    np.testing.assert_allclose((roots @ roots.T).toarray(), exact, atol=1e-12)


def test_dimensions_with_more_energy_get_more_functions(histograms):
    X = histograms.copy()
    X[:, 0] = 0
    X[:, 1] *= 100
    functions = AdditiveKernelPCA(random_state=0).fit(X).functions_
    assert functions[0] == 0 and functions[1] >= np.median(functions)


def test_constant_tables_are_coarser_than_linear_ones(histograms):
    exact = histogram_kernel(histograms, histograms, "chi2")
    errors = []
    for interpolation in ("linear", "constant"):
        phi = AdditiveKernelPCA(interpolation=interpolation, n_points=32, random_state=0).fit_transform(histograms)
        errors.append(np.abs(phi @ phi.T - exact).mean())
    assert errors[0] < errors[1] < 0.02


def test_a_kernel_of_ones_own(histograms):
    phi = AdditiveKernelPCA(lambda u, v: u * v, random_state=0).fit_transform(histograms)
    np.testing.assert_allclose(phi @ phi.T, histograms @ histograms.T, atol=2e-3)


def test_dimensions_without_a_value_have_no_functions_even_where_the_kernel_has_none_at_zero(histograms):
    X = histograms.copy()
    X[:, 7] = 0
    with np.errstate(all="raise"):  # 0 / 0
        own = AdditiveKernelPCA(lambda u, v: 2 * u * v / (u + v), random_state=0).fit(X)
    assert own.functions_[7] == 0
    np.testing.assert_allclose(own.transform(X), AdditiveKernelPCA(random_state=0).fit_transform(X), atol=1e-4)
    with pytest.raises(ValueError, match="all numbers are zero"):
        AdditiveKernelPCA().fit(0 * X)


def test_a_kernel_that_is_not_zero_at_zero_is_refused(histograms):
    """Sparse rows would leave out what dense ones have."""
    with pytest.raises(ValueError, match=r"k\(0, v\) is 1 for a v"):
        AdditiveKernelPCA(lambda u, v: 1 + u * v).fit(histograms)


def test_negative_numbers_are_named():
    with pytest.raises(ValueError, match="not negative"):
        AdditiveKernelPCA().fit([[0.1, -0.2], [0.3, 0.4]])
