"""The lines of a GPU ask for nothing but the standard of the Array API, except the latent mixture (digamma)."""

from __future__ import annotations

import array_api_strict as xp
import numpy as np
import pytest
from sklearn.base import clone

from patchbag import (
    BagPCA,
    Bags,
    ContextualSimilarity,
    FisherVector,
    LinearClassifier,
    MAPAdaptation,
    MixtureKernel,
    Normalizer,
    ReferenceWeights,
    UniversalMixture,
    UniversalStatistics,
)
from patchbag.device import to_host
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.parameters import check_parameters
from patchbag.mixture.statistics import Statistics, collect


@pytest.fixture
def images():
    """24 bags of three kinds, with positions, and the kinds."""
    rng = np.random.default_rng(0)
    kinds = np.arange(24) % 3
    arrays = [rng.normal(2 * np.eye(12)[kind], 1, (int(rng.integers(30, 60)), 12)) for kind in kinds]
    return Bags.from_list(
        [a.astype(np.float32) for a in arrays], [rng.uniform(0, 1, (len(a), 2)) for a in arrays]
    ), kinds


@pytest.fixture
def mixtures():
    rng = np.random.default_rng(8)
    means = rng.normal(size=(6, 5)) + 0.4 * rng.normal(size=(14, 6, 5))
    arrays = [rng.dirichlet(np.ones(6), 14), means, rng.uniform(0.5, 1.5, (14, 6, 5))]
    return Mixtures(*(a.astype(np.float32) for a in arrays))


@pytest.mark.filterwarnings("ignore")  # of so few images
@pytest.mark.parametrize("pyramid", [None, ["1x1", "2x2"]])
def test_the_road_from_bags_to_labels_runs_on_any_array_library(images, pyramid):
    """Nothing but the standard of the Array API is asked for."""
    floats, kinds = images
    order = np.random.default_rng(0).permutation(len(floats))
    elsewhere = Bags(xp.asarray(floats.values), floats.offsets, xp.asarray(floats.positions))[order]
    projection = BagPCA(6, random_state=0).fit(floats)
    steps = UniversalStatistics(UniversalMixture(5, random_state=0), projection, pyramid).fit(floats)
    found, expected = [], []
    for given, collected in ((floats[order], expected), (elsewhere, found)):
        statistics = collect(given, steps.mixture_.parameters_, steps.pyramid_, projection=steps.projection_)
        vectors = Normalizer(["whiten", "power", "l2"]).fit_transform(FisherVector().fit_transform(statistics))
        model = LinearClassifier(random_state=0).fit(vectors, kinds[order])
        collected += [statistics.s2, vectors, model.decision_function(vectors)]
    assert all(type(a).__module__.startswith("array_api_strict") for a in found[:2])
    assert np.allclose(to_host(found[0]), expected[0], rtol=1e-3, atol=0.1)
    assert np.allclose(to_host(found[1]), expected[1], atol=2e-3)
    assert np.allclose(found[2], expected[2], atol=2e-2)


def test_adaptation_and_kernels_of_mixtures_run_on_any_array_library(mixtures):
    there = Mixtures(*map(xp.asarray, mixtures.arrays().values()))
    for similarity in (
        ReferenceWeights("kl", iterations=1),
        ContextualSimilarity(iterations=2),
        MixtureKernel("klk", gamma=0.1),
    ):
        expected = clone(similarity).fit(mixtures[:10]).transform(mixtures)
        found = clone(similarity).fit(there[:10]).transform(there)
        assert np.allclose(found, expected, atol=2e-4)
    rng = np.random.default_rng(3)
    universal = check_parameters(rng.dirichlet(np.ones(6)), rng.normal(size=(6, 5)), np.ones((6, 5)))
    s0, at = rng.gamma(1, 3, (7, 6)), rng.normal(size=(7, 6, 5))
    arrays = s0, s0[..., None] * at, s0[..., None] * (at**2 + 0.5)
    here = MAPAdaptation().fit_transform(Statistics(*arrays, universal))
    found = MAPAdaptation().fit_transform(Statistics(*map(xp.asarray, arrays), universal))
    assert np.allclose(to_host(found.variances), here.variances) and np.allclose(to_host(found.means), here.means)
