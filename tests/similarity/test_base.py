# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from patchbag.bags import Bags
from patchbag.similarity import base
from patchbag.similarity.definite import DefiniteKernel
from patchbag.similarity.histograms.context import ContextualHistograms
from patchbag.similarity.histograms.kernel import HistogramKernel
from patchbag.similarity.inner_product import InnerProductKernel
from patchbag.similarity.mixtures import one_to_one
from patchbag.similarity.mixtures.context import ContextualSimilarity
from patchbag.similarity.mixtures.kernel import MixtureKernel
from patchbag.similarity.mixtures.references import ReferenceWeights
from patchbag.similarity.sets import minimum_distance, pyramid_match
from patchbag.similarity.sets.kernel import SetKernel
from patchbag.similarity.sets.minimum_distance import MinimumDistanceKernel
from patchbag.similarity.sets.pyramid_match import PyramidMatchKernel
from patchbag.similarity.sets.spatial_match import SpatialPyramidMatch
from patchbag.similarity.union import KernelUnion

KERNELS = {
    "bags": [
        SetKernel(),
        SetKernel("lyu", local="linear", p=2.0),
        MinimumDistanceKernel(),
        MinimumDistanceKernel(0.5, squared=True),
        PyramidMatchKernel(random_state=0),
        PyramidMatchKernel("vocabulary", n_branches=3, position_weight=0.5, random_state=0),
        SpatialPyramidMatch(4, random_state=0),
    ],
    "mixtures": [
        MixtureKernel(normalize=True),
        MixtureKernel("klk"),
        MixtureKernel("klk", matching="matched"),
        MixtureKernel(matching="one-to-many"),
        ContextualSimilarity(),
        ContextualSimilarity(matching="all", iterations=2),
    ],
    "histograms": [
        HistogramKernel(),
        HistogramKernel("bhattacharyya", exponential=True),
        ContextualHistograms(),
        InnerProductKernel(),
    ],
}
NO_KERNELS = [ReferenceWeights(), ContextualSimilarity(symmetric=False), ContextualHistograms(symmetric=False)]
CASES = [(kind, kernel) for kind, kernels in KERNELS.items() for kernel in kernels]


@pytest.fixture
def data(make_mixtures):
    rng = np.random.default_rng(0)
    sizes = rng.integers(3, 12, 14)
    bags = Bags.from_list([rng.normal(size=(n, 3)) for n in sizes], [rng.random((n, 2)) for n in sizes])
    return {"bags": bags, "mixtures": make_mixtures(14, seed=3), "histograms": rng.dirichlet(np.ones(9), 14)}


@pytest.mark.parametrize(("kind", "kernel"), CASES, ids=str)
def test_gram_is_exactly_symmetric_and_rows_of_the_references_are_the_same(data, kind, kernel):
    kernel, X = clone(kernel), data[kind]
    with pytest.raises(NotFittedError):
        kernel.transform(X)
    gram = kernel.fit_transform(X)
    np.testing.assert_array_equal(gram, gram.T)
    fitted = clone(kernel).fit(X)
    np.testing.assert_allclose(fitted.transform(X), gram, atol=2e-4)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(X[:5]), kernel.transform(X[:5]))
    assert base.is_kernel(kernel) and hasattr(fitted, "references_")


def test_kernels_are_known_by_their_class_and_not_by_their_numbers():
    assert base.is_kernel(DefiniteKernel()) and base.is_kernel(KernelUnion([]))
    assert base.is_kernel(make_pipeline(StandardScaler(), InnerProductKernel()))
    for step in (*NO_KERNELS, StandardScaler(), make_pipeline(InnerProductKernel(), StandardScaler()), "passthrough"):
        assert not base.is_kernel(step)


@pytest.mark.parametrize(
    "kernel", [*(kernel for _, kernel in CASES), *NO_KERNELS, DefiniteKernel(), KernelUnion([])], ids=str
)
def test_every_parameter_has_a_rule(kernel):
    parameters = set(inspect.signature(type(kernel)).parameters)
    assert set(kernel._parameter_constraints) == parameters == set(kernel.get_params(deep=False))


@pytest.mark.parametrize(
    ("kind", "kernel"),
    [
        ("mixtures", MixtureKernel("klk", random_state=0)),
        ("bags", PyramidMatchKernel(random_state=0)),
        ("bags", MinimumDistanceKernel(0.5)),
    ],
    ids=["klk", "pyramid match", "minimum distance"],
)
def test_gram_has_the_same_bits_on_one_worker_on_threads_and_in_processes(data, kind, kernel, monkeypatch):
    # several blocks, and not what the other processes would cut: the caller cuts
    for module, name, value in (
        (one_to_one, "ROW_NUMBERS", 300),
        (pyramid_match, "ROWS", 30),
        (minimum_distance, "ROWS", 20),
    ):
        monkeypatch.setattr(module, name, value)
    found = []
    for backend, n_jobs in (("threading", 1), ("threading", 2), ("loky", 2)):
        with parallel_config(backend, n_jobs=n_jobs):
            found.append((clone(kernel).fit_transform(data[kind]), clone(kernel).fit(data[kind]).transform(data[kind])))
    for gram, rows in found[1:]:
        np.testing.assert_array_equal(gram, found[0][0])
        np.testing.assert_array_equal(rows, found[0][1])
