"""The lines that a GPU runs, on a GPU or on PyTorch's CPU tensors: the same numbers as NumPy's, from bags to labels."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.svm import SVC

from patchbag import (
    BagPCA,
    Bags,
    ContextualSimilarity,
    DenseSIFT,
    FisherVector,
    GaussianProcessClassifier,
    LatentFisherVector,
    LinearClassifier,
    Normalizer,
    ReferenceWeights,
    UniversalMixture,
    UniversalStatistics,
)
from patchbag.classifiers import linear
from patchbag.classifiers.gaussian_process import evidence
from patchbag.classifiers.hinge import hinge_machines
from patchbag.device import like, prefetch, to_device, to_host
from patchbag.encodings import latent_dense
from patchbag.encodings.latent_fisher import BLOCKS
from patchbag.mixture.adaptation import Mixtures
from patchbag.mixture.dense import segment_products
from patchbag.mixture.parameters import check_parameters
from patchbag.mixture.statistics import Statistics
from patchbag.recipes import RECIPES, make_recipe
from patchbag.runtime import runtime_context

try:
    import torch as installed

    DEVICE = "cuda" if installed.cuda.is_available() else "torch"
except ImportError:
    DEVICE = "torch"


@pytest.fixture
def torch(monkeypatch):
    """PyTorch, whose tensors become NumPy's arrays by ``to_host`` alone, as those of a GPU do."""
    torch = pytest.importorskip("torch")

    def refuse(tensor, dtype=None):
        raise TypeError("a tensor of a GPU cannot be read by NumPy")

    monkeypatch.setattr(torch.Tensor, "__array__", refuse)
    return torch


@pytest.fixture(scope="module")
def bags():
    """24 images of three kinds; sizes differ, descriptors are bytes."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(60, 190, (3, 4, 12))
    kinds = np.arange(24) % 3
    arrays, positions = [], []
    for kind in kinds:
        n = int(rng.integers(30, 60))
        rows = centers[kind, rng.integers(0, 4, n)] + rng.normal(0, 25, (n, 12))
        arrays.append(np.clip(rows, 0, 255).astype(np.uint8))
        positions.append(rng.uniform(0, 1, (n, 2)).astype(np.float32))
    return Bags.from_list(arrays, positions), kinds


def small(name: str):
    """A recipe with sizes that fit the few images here."""
    model = make_recipe(name)[1:]
    sizes = {"projection__n_components": 6, "mixture__n_components": 4}
    names = model.get_params()
    chosen = {n: v for n in names for end, v in sizes.items() if n.endswith(end)}
    return model.set_params(**{n: v for n, v in chosen.items() if names[n] is not None})


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_products_of_segments_of_any_sizes(library):
    xp = pytest.importorskip(library)
    rng = np.random.default_rng(1)
    share, rows = rng.uniform(size=(50, 3)), rng.normal(size=(50, 8))
    for offsets in ([0, 25, 50], [0, 4, 4, 17, 50], [0, 0, 50, 50]):
        counts, products = segment_products(xp.asarray(share), xp.asarray(rows), np.array(offsets))
        assert np.allclose(to_host(counts), [share[a:b].sum(axis=0) for a, b in pairwise(offsets)])
        assert np.allclose(to_host(products), [share[a:b].T @ rows[a:b] for a, b in pairwise(offsets)])


@pytest.mark.parametrize("assignment", ["soft", "hard", "nearest"])
@pytest.mark.parametrize("pyramid", [None, ["1x1", "2x2", "3x1"]])
def test_statistics_and_fisher_vectors_are_those_of_the_cpu(torch, bags, assignment, pyramid):
    steps = UniversalStatistics(UniversalMixture(5, random_state=0), BagPCA(6, random_state=0), pyramid, assignment)
    steps.fit(bags[0])
    expected = steps.transform(bags[0])
    with runtime_context(device=DEVICE):
        found = steps.transform(bags[0])
        vectors = Normalizer(["whiten", "power", "l2"]).fit_transform(FisherVector().fit_transform(found))
    assert isinstance(found.s1, torch.Tensor) and isinstance(vectors, torch.Tensor)
    assert np.allclose(to_host(found.s0), expected.s0, atol=1e-3)
    assert np.allclose(to_host(found.s2), expected.s2, rtol=1e-3, atol=0.1)
    plain = Normalizer(["whiten", "power", "l2"]).fit_transform(FisherVector().fit_transform(expected))
    if assignment == "soft":
        assert np.abs(to_host(vectors) - plain).max() < 2e-3 * np.abs(plain).max()


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("options", [{}, {"root": True}, {"window": "gaussian"}, {"magnification": None}])
def test_dense_sift_of_a_batch_is_that_of_its_images(options, dtype):
    rng = np.random.default_rng(6)
    images = np.stack([np.cumsum(rng.normal(0, 6, (61, 50)), axis=i) + 120 for i in (0, 1, 1)])
    images[2, 20:50, 10:40] = 77  # nothing to see there
    images = np.clip(images, 0, 255).astype(np.uint8)
    sift = DenseSIFT(7, (4, 5), dtype=dtype, **options)
    expected = sift.transform(list(images))
    for device in ("cpu", DEVICE):
        if device != "cpu":
            pytest.importorskip("torch")
        with runtime_context(device=device):
            found = sift.describe_batch(images)
        assert np.array_equal(found.offsets, expected.offsets) and np.array_equal(found.positions, expected.positions)
        gap = np.abs(to_host(found.values).astype(float) - expected.values)
        tolerance = 1e-4 if options.get("root") else 1e-5  # a root of little is more
        assert gap.max() <= (1 if dtype == "uint8" else tolerance)
    assert (expected.values == 0).all(axis=1).any()


def test_em_climbs_to_the_same_likelihood(torch, bags):
    values = bags[0].values.astype(np.float32)
    weight = np.random.default_rng(2).uniform(0.5, 2, len(values))
    for named in ({}, {"sample_weight": weight}):
        mixture = UniversalMixture(6, random_state=0)
        expected = clone(mixture).fit(values, **named)
        with runtime_context(device=DEVICE):
            found = clone(mixture).fit(values, **named)
        assert isinstance(found.means_, np.ndarray)
        assert found.lower_bound_ == pytest.approx(expected.lower_bound_, abs=2e-4)


def test_machines_of_all_classes_at_once_are_those_of_libsvm(torch):
    rng = np.random.default_rng(3)
    labels = np.arange(90) % 3
    X = rng.normal(size=(90, 40)) + 2.0 + 0.7 * np.eye(40)[labels]
    gram, signs = X @ X.T, np.where(labels[:, None] == np.arange(3), 1.0, -1.0)
    for C in (0.01, 1.0, 100.0):
        dual, intercept = hinge_machines(torch.asarray(gram), signs, C)
        assert np.allclose(to_host(dual).sum(axis=0), 0, atol=1e-6 * C)
        for k in range(3):
            a, s = to_host(dual)[:, k], signs[:, k]
            machine = SVC(kernel="precomputed", C=C, tol=1e-6).fit(gram, s)
            best = np.zeros(90)
            best[machine.support_] = machine.dual_coef_[0]
            risks = [0.5 * d @ gram @ d - s @ d for d in (a, best)]
            assert np.min(s * a) >= 0 and np.max(s * a) <= C
            assert risks[0] == pytest.approx(risks[1], rel=1e-5)
            assert np.allclose(gram @ a + intercept[k], machine.decision_function(gram), atol=5e-3 * max(1, C / 10))


@pytest.mark.parametrize("limit", [10, 6000])
def test_a_linear_classifier_of_tensors_keeps_numpy_arrays(torch, monkeypatch, limit):
    monkeypatch.setattr(linear, "GRAM_LIMIT", limit)  # above it libsvm would take too long
    rng = np.random.default_rng(4)
    labels = np.arange(60) % 3
    X = (rng.normal(size=(60, 80)) + 3 * np.eye(80)[labels]).astype(np.float32)
    for model in ("svm", "least-squares"):
        expected = LinearClassifier(model, random_state=0).fit(X, labels)
        found = LinearClassifier(model, random_state=0).fit(torch.asarray(X), labels)
        assert type(found.coef_) is np.ndarray and found.C_ == expected.C_
        assert np.allclose(found.decision_function(X), expected.decision_function(X), atol=1e-2)
        assert np.allclose(found.predict_proba(torch.asarray(X)), expected.predict_proba(X), atol=1e-2)
    with pytest.raises(ValueError, match="fitted on rows of 80 numbers, got 79"):
        found.predict(torch.asarray(X[:, 1:]))
    with pytest.raises(ValueError, match="not finite"):
        LinearClassifier().fit(torch.asarray(np.full((4, 2), np.nan)), [0, 0, 1, 1])


@pytest.mark.filterwarnings("ignore:the latent mixture")  # few iterations
@pytest.mark.parametrize("per_cell", [True, False])
def test_the_latent_mixture_of_tensors_is_that_of_arrays(torch, monkeypatch, per_cell):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(latent_dense, "VALUES", 700)  # several parts
    universal = check_parameters(rng.dirichlet(np.ones(5)), rng.normal(size=(5, 6)), np.ones((5, 6)))
    s0, at = rng.gamma(1, 3, (40, 3, 5)), rng.normal(size=(40, 3, 5, 6))
    arrays = [a.astype(np.float32) for a in (s0, s0[..., None] * at, s0[..., None] * (at**2 + 0.5))]
    here, there = (
        LatentFisherVector(per_cell=per_cell, count_scale=0.5, max_iter=20).fit(Statistics(*given, universal))
        for given in (arrays, [torch.asarray(a) for a in arrays])
    )
    assert np.allclose(there.free_energy_, here.free_energy_, rtol=1e-9)
    for blocks in (BLOCKS, ("m", "b"), ("alpha",)):
        here.blocks = blocks
        expected = here.transform(Statistics(*arrays, universal))
        found = here.transform(Statistics(*(torch.asarray(a) for a in arrays), universal))
        assert type(found) is torch.Tensor and np.allclose(to_host(found), expected, atol=1e-6)


# of several channels, of sets that are compared with each other on the CPU, and one that takes its time
OTHERS = {"auto", "gp-combined", "gp-pmk", "gp-spm", "gmm-mle"}


@pytest.mark.filterwarnings("ignore")  # of so few images
@pytest.mark.parametrize("name", sorted(set(RECIPES) - OTHERS))
def test_recipes_trained_on_either_device_predict_on_the_other(torch, bags, name):
    images, kinds = bags
    with runtime_context(seed=0):
        here = small(name).fit(images, kinds)
        with runtime_context(device=DEVICE):
            there = small(name).fit(images, kinds)
            crossed = here.predict_proba(images)
        assert np.allclose(crossed, here.predict_proba(images), atol=2e-3)
        assert np.mean(there.predict(images) == here.predict(images)) > 0.9
        assert np.abs(there.predict_proba(images) - here.predict_proba(images)).mean() < 0.02


def test_thousands_of_images_are_combined_on_the_device(torch, monkeypatch):
    rng = np.random.default_rng(5)
    labels = np.arange(80) % 4
    views = [rng.normal(size=(80, 20)) + strength * np.eye(20)[labels] for strength in (0.0, 1.5, 3.0)]
    kernels = [X @ X.T / 20 for X in views]
    expected = GaussianProcessClassifier(random_state=0).fit(kernels, labels)
    monkeypatch.setattr(evidence, "DEVICE_SIZE", 10)
    with runtime_context(device=DEVICE):
        found = GaussianProcessClassifier(random_state=0).fit(kernels, labels)
    assert np.allclose(found.weights_, expected.weights_, rtol=0.02, atol=1e-6)
    assert found.log_evidence_ == pytest.approx(expected.log_evidence_, rel=1e-5)
    assert np.allclose(found.predict_proba(kernels), expected.predict_proba(kernels), atol=1e-2)
    broken = [k - 3 * np.eye(80) for k in kernels]
    with runtime_context(device=DEVICE), pytest.raises(ValueError, match="not positive semidefinite"):
        GaussianProcessClassifier().fit(broken, labels)


def test_what_cannot_be_had_is_said():
    with pytest.raises(ValueError, match='device must be "cpu", "cuda"'), runtime_context(device="tpu"):
        pass
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="sees no CUDA GPU"), runtime_context(device="cuda"):
            pass


def test_chunks_are_made_ahead_and_in_order():
    assert list(prefetch(lambda i: i * i, range(7))) == [i * i for i in range(7)]
    with pytest.raises(ZeroDivisionError):
        list(prefetch(lambda i: 1 // i, [1, 0, 1]))


def test_arrays_of_files_and_of_odd_types_arrive(torch, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.uint8).reshape(3, 2))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    with runtime_context(device=DEVICE):
        assert to_device(mapped).dtype == torch.uint8
        assert to_device(np.arange(3, dtype=np.uint16)).tolist() == [0.0, 1.0, 2.0]
        assert to_device(None) is None
    assert to_device(mapped) is mapped
    assert like([1.5], torch.zeros(1, dtype=torch.float32)).dtype == torch.float32


def test_one_image_is_compared_with_many_by_their_patches(torch):
    from patchbag.features.laplacian import MultiscalePatches
    from patchbag.similarity.smp import StackedPatches, divergences_to

    rng = np.random.default_rng(0)
    shapes = [(40, 64, 3), (40, 64, 3), (64, 40, 3), (72, 48, 3)]
    patches = list(MultiscalePatches().transform([rng.integers(0, 256, shape, np.uint8) for shape in shapes]))
    expected = divergences_to(patches[0], patches, k=3)
    with runtime_context(device=DEVICE):
        found = divergences_to(patches[0], patches, k=3)
        assert isinstance(StackedPatches.of(patches[:2]).divergences(patches[3], k=3), torch.Tensor)
    assert isinstance(found, np.ndarray) and found == pytest.approx(expected, rel=1e-3, abs=1e-3)


@pytest.fixture(scope="module")
def mixtures():
    rng = np.random.default_rng(8)
    universal = rng.normal(size=(6, 5))
    means = universal + 0.4 * rng.normal(size=(14, 6, 5))
    arrays = [rng.dirichlet(np.ones(6), 14), means, rng.uniform(0.5, 1.5, (14, 6, 5))]
    return Mixtures(*(a.astype(np.float32) for a in arrays))


@pytest.mark.parametrize("measure", ["kl", "bhattacharyya"])
@pytest.mark.parametrize("iterations", [1, 3, None])
@pytest.mark.parametrize("leave_out_self", [False, True])
def test_weights_of_references_are_those_of_the_cpu(torch, mixtures, measure, iterations, leave_out_self):
    weights = ReferenceWeights(measure, iterations=iterations, leave_out_self=leave_out_self)
    expected, new = weights.fit_transform(mixtures), weights.transform(mixtures[:3])
    with runtime_context(device=DEVICE):
        there = Mixtures(*map(to_device, mixtures.arrays().values()))
        found = clone(weights)
        assert np.allclose(found.fit_transform(there), expected, atol=2e-4)
        assert np.allclose(found.transform(there[:3]), new, atol=2e-4)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("iterations", [2, None])
def test_contextual_similarities_are_those_of_the_cpu(torch, mixtures, symmetric, iterations):
    similarity = ContextualSimilarity(symmetric=symmetric, iterations=iterations).fit(mixtures[:10])
    expected = similarity.transform(mixtures)
    with runtime_context(device=DEVICE):
        there = Mixtures(*map(to_device, mixtures.arrays().values()))
        found = clone(similarity).fit(there[:10]).transform(there)
    assert np.allclose(found, expected, atol=2e-4)
    assert iterations is not None or (np.diagonal(found) == 1).all()
