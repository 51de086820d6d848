import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from patchbag.similarity.histograms.kernel import KERNELS, HistogramKernel, histogram_distance, histogram_kernel

LITERAL = {
    "bhattacharyya": lambda a, b: sum(math.sqrt(x * y) for x, y in zip(a, b)),
    "chi2": lambda a, b: 2 * sum(x * y / (x + y) for x, y in zip(a, b) if x + y),
    "intersection": lambda a, b: sum(min(x, y) for x, y in zip(a, b)),
}
LITERAL_DISTANCE = {
    "bhattacharyya": lambda a, b: sum((math.sqrt(x) - math.sqrt(y)) ** 2 for x, y in zip(a, b)) / 2,
    "chi2": lambda a, b: sum((x - y) ** 2 / (x + y) for x, y in zip(a, b) if x + y) / 2,
    "intersection": lambda a, b: sum(abs(x - y) for x, y in zip(a, b)) / 2,
}


@pytest.fixture
def words():
    rng = np.random.default_rng(0)
    A, B = rng.dirichlet(np.full(30, 0.3), 20), rng.dirichlet(np.full(30, 0.3), 70)
    A[A < 0.01], B[B < 0.01] = 0, 0
    A[:, 3] = B[:, 3] = 0
    return A / A.sum(axis=1, keepdims=True), B / B.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("scale", [1.0, 37.0])
def test_kernels_and_distances_equal_the_formulas(words, kernel, scale):
    A, B = (scale * a for a in words)
    expected = [[LITERAL[kernel](a, b) for b in B] for a in A]
    np.testing.assert_allclose(histogram_kernel(A, B, kernel), expected, rtol=1e-10, atol=1e-14)
    expected = [[LITERAL_DISTANCE[kernel](a, b) for b in B] for a in A]
    np.testing.assert_allclose(histogram_distance(A, B, kernel), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_exponential_version_is_exp_gamma_times_kernel_minus_one(words, kernel):
    A, B = words
    model = HistogramKernel(kernel, exponential=True, gamma=3.0).fit(B)
    np.testing.assert_allclose(model.transform(A), np.exp(3 * (histogram_kernel(A, B, kernel) - 1)), rtol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_are_positive_semidefinite_with_ones_on_the_diagonal(words, kernel):
    for exponential in (False, True):
        gram = HistogramKernel(kernel, exponential=exponential).fit_transform(words[1])
        np.testing.assert_allclose(gram.diagonal(), 1, rtol=1e-10)
        assert np.linalg.eigvalsh(gram).min() > -1e-12


@pytest.mark.parametrize("kernel", KERNELS)
def test_float32_agrees_with_float64(words, kernel):
    A, B = words
    single = histogram_kernel(A.astype(np.float32), B.astype(np.float32), kernel)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, histogram_kernel(A, B, kernel), rtol=1e-4, atol=1e-6)


def test_gamma_is_one_over_the_mean_distance(words):
    B = words[1]
    distance = histogram_distance(B, B, "chi2")
    gamma = HistogramKernel("chi2", exponential=True).fit(B).gamma_
    assert gamma == pytest.approx(1 / distance[~np.eye(70, dtype=bool)].mean(), rel=1e-9)


def test_kernel_works_with_a_precomputed_svm(words):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.dirichlet(np.linspace(1, 3, 30), 30), rng.dirichlet(np.linspace(3, 1, 30), 30)])
    model = make_pipeline(HistogramKernel("chi2", exponential=True), SVC(kernel="precomputed", C=10))
    assert cross_val_score(clone(model), X, np.repeat([0, 1], 30), cv=3).mean() > 0.9


def test_wrong_input_is_named(words):
    A, B = words
    model = HistogramKernel().fit(B)
    with pytest.raises(ValueError, match="histogram 4 of 20 has a negative entry"):
        model.transform(np.where(np.arange(20)[:, None] == 4, -A, A))
    with pytest.raises(ValueError, match="29 and of 30 words"):
        model.transform(A[:, 1:])
    with pytest.raises(ValueError, match="The 'kernel' parameter of HistogramKernel must be"):
        HistogramKernel("rbf").fit(A)
    with pytest.raises(ValueError, match="mean distance is 0"):
        HistogramKernel(exponential=True).fit(A[[0, 0]])


def test_a_histogram_with_nan_is_named(words):
    A = words[0].copy()
    A[3, 1] = np.nan
    with pytest.raises(ValueError, match="histogram 3 of 20 has an entry that is NaN"):
        HistogramKernel().fit(A)
