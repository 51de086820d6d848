"""What every public estimator promises, whatever it computes; scikit-learn's checks are for tables, these for sets."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import patchbag
from patchbag import Bags, Channels
from patchbag.storage import models as storage

N = 24
LABELS = np.array(["a", "b", "c"])[np.arange(N) % 3]


def make_bags(seed: int = 0, n: int = N, dtype: Any = np.float64) -> Bags:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(12, 30, n)
    centres = np.array([[0, 0, 0, 0], [4, 0, 2, 0], [0, 4, 0, 2]])
    arrays = [centres[i % 3] * rng.random((m, 1)).round() + rng.normal(size=(m, 4)) for i, m in enumerate(sizes)]
    return Bags.from_list([a.astype(dtype) for a in arrays], [rng.random((m, 2)) for m in sizes])


def make_statistics(seed: int = 0, **options: Any) -> Any:
    model = patchbag.UniversalStatistics(patchbag.UniversalMixture(4, random_state=0), **options)
    return model.fit(make_bags()).transform(make_bags(seed))


def make_mixtures(seed: int = 0) -> Any:
    return patchbag.MAPAdaptation().fit_transform(make_statistics(seed))


def make_vectors(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(N, 6)) + 3 * np.eye(6)[np.arange(N) % 3]


def make_histograms(seed: int = 0) -> np.ndarray:
    rows = np.abs(make_vectors(seed))
    return rows / rows.sum(axis=1, keepdims=True)


def make_images(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (48, 56, 3), np.uint8) for _ in range(4)]


def make_patches(seed: int = 0) -> Bags:
    return patchbag.MultiscalePatches().transform(make_images(seed))


def make_kernel(seed: int = 0) -> np.ndarray:
    vectors = make_vectors(seed)
    return vectors @ vectors.T


def make_channels(seed: int = 0) -> Channels:
    return Channels(x=make_vectors(seed))


# public estimator -> an instance, and what it takes; what follows "query:" has no fit of this kind
CASES: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "AdditiveClassifier": (lambda: patchbag.AdditiveClassifier(random_state=0), make_histograms),
    "AdditiveKernelPCA": (lambda: patchbag.AdditiveKernelPCA(random_state=0), make_histograms),
    "BagOfWords": (patchbag.BagOfWords, make_statistics),
    "BagPCA": (lambda: patchbag.BagPCA(2, random_state=0), make_bags),
    "Channel": (lambda: patchbag.Channel("x"), make_channels),
    "ColorStatistics": (patchbag.ColorStatistics, make_images),
    "ContextualHistograms": (patchbag.ContextualHistograms, make_histograms),
    "ContextualSimilarity": (patchbag.ContextualSimilarity, make_mixtures),
    "DeepPatches": (lambda: patchbag.DeepPatches(size=96), make_images),
    "DefiniteKernel": (patchbag.DefiniteKernel, make_kernel),
    "DenseSIFT": (patchbag.DenseSIFT, make_images),
    "DiffusionKernel": (lambda: patchbag.DiffusionKernel(entry_power=1.0), make_vectors),
    "FeatureChannels": (lambda: patchbag.FeatureChannels([("sift", patchbag.DenseSIFT())]), make_images),
    "FisherVector": (patchbag.FisherVector, make_statistics),
    "GaussianProcessClassifier": (patchbag.GaussianProcessClassifier, make_kernel),
    "GeometricBlur": (lambda: patchbag.GeometricBlur(5), make_images),
    "Gist": (lambda: patchbag.Gist(64), make_images),
    "HistogramKernel": (patchbag.HistogramKernel, make_histograms),
    "InnerProductKernel": (patchbag.InnerProductKernel, make_vectors),
    "KernelPCAMap": (lambda: patchbag.KernelPCAMap(patchbag.HistogramKernel(), random_state=0), make_histograms),
    "KernelUnion": (lambda: patchbag.KernelUnion([("one", patchbag.InnerProductKernel())]), make_vectors),
    "LDAFisherVector": (lambda: patchbag.LDAFisherVector(2, random_state=0), make_statistics),
    "LateFusionClassifier": (lambda: patchbag.LateFusionClassifier([("one", LogisticRegression())]), make_vectors),
    "LatentFisherVector": (patchbag.LatentFisherVector, make_statistics),
    "LinearClassifier": (lambda: patchbag.LinearClassifier(random_state=0), make_vectors),
    "LocalBinaryPatterns": (patchbag.LocalBinaryPatterns, make_images),
    "MAPAdaptation": (patchbag.MAPAdaptation, make_statistics),
    "MaximumLikelihoodMixtures": (
        lambda: patchbag.MaximumLikelihoodMixtures(patchbag.UniversalMixture(2, random_state=0)),
        make_bags,
    ),
    "MeanDescriptor": (patchbag.MeanDescriptor, make_bags),
    "MinimumDistanceKernel": (patchbag.MinimumDistanceKernel, make_bags),
    "MixtureKernel": (patchbag.MixtureKernel, make_mixtures),
    "MulticlassLeveragedNeighbors": (
        lambda: patchbag.MulticlassLeveragedNeighbors(3, random_state=0),
        make_vectors,
    ),
    "MultiscalePatches": (patchbag.MultiscalePatches, make_images),
    "Normalizer": (lambda: patchbag.Normalizer(["power", "l2"]), make_vectors),
    "PLSAFisherVector": (lambda: patchbag.PLSAFisherVector(2, random_state=0), make_statistics),
    "PerDescriptor": (lambda: patchbag.PerDescriptor(StandardScaler(), random_state=0), make_bags),
    "PoolClassifier": (lambda: patchbag.PoolClassifier(random_state=0), make_vectors),
    "PolyaVector": (patchbag.PolyaVector, make_statistics),
    "PyramidMatchKernel": (lambda: patchbag.PyramidMatchKernel(n_levels=3, random_state=0), make_bags),
    "RandomFourierMap": (lambda: patchbag.RandomFourierMap(n_components=6, random_state=0), make_histograms),
    "ReferenceWeights": (patchbag.ReferenceWeights, make_mixtures),
    "SMPSimilarity": (lambda: patchbag.SMPSimilarity(k=3), make_patches),
    "SetKernel": (patchbag.SetKernel, make_bags),
    "SparseLogisticClassifier": (lambda: patchbag.SparseLogisticClassifier(random_state=0), make_kernel),
    "SpatialPyramidMatch": (lambda: patchbag.SpatialPyramidMatch(4, random_state=0), make_bags),
    "SquareRootMap": (patchbag.SquareRootMap, make_histograms),
    "StochasticLinearClassifier": (
        lambda: patchbag.StochasticLinearClassifier(random_state=0),
        make_vectors,
    ),
    "UniversalMixture": (lambda: patchbag.UniversalMixture(3, random_state=0), make_bags),
    "UniversalNearestNeighbors": (lambda: patchbag.UniversalNearestNeighbors(3, random_state=0), make_vectors),
    "UniversalStatistics": (
        lambda: patchbag.UniversalStatistics(patchbag.UniversalMixture(3, random_state=0)),
        make_bags,
    ),
    "VLAD": (patchbag.VLAD, make_statistics),
}
# public classes with tests of their own: they take folders, pools, kernels of pools, several labels per image, or
# answer with neighbours
BASES = {"FeatureExtractor", "Kernel", "StatisticsTransformer"}
OTHERS = {"ActiveLearner", "BregmanNeighbors", "Categorizer", "GaussianProcessQuery", "ImageClusters", "MultilabelSVM"}
OTHERS |= {"FaissSearch", "PoolLearner"}

pytestmark = [
    pytest.mark.filterwarnings("ignore:the counts vary no more than independent draws"),
    pytest.mark.filterwarnings("ignore:.*not converge"),
    pytest.mark.filterwarnings("ignore:.*re-seeded"),
]


def answer(estimator: Any, X: Any) -> np.ndarray:
    """What a fitted estimator says of a dataset, as one array."""
    for method in ("transform", "decision_function", "score_samples"):
        if hasattr(estimator, method):
            return as_array(getattr(estimator, method)(X))
    raise AssertionError(type(estimator))


def as_array(result: Any) -> np.ndarray:
    if isinstance(result, Channels):
        return np.concatenate([as_array(result[name]) for name in result.names])
    if isinstance(result, Bags):
        return np.asarray(result.values)
    if hasattr(result, "arrays"):
        return np.concatenate([np.asarray(a).ravel() for a in result.arrays().values()])
    return np.asarray(result)


def fitted(name: str, seed: int = 0) -> tuple[Any, Any]:
    make, data = CASES[name]
    X = data(seed)
    return make().fit(X, LABELS[: len(X)]), X


def test_every_public_estimator_is_checked():
    public = {name for name in patchbag.__all__ if isinstance(getattr(patchbag, name), type)}
    estimators = {name for name in public if issubclass(getattr(patchbag, name), BaseEstimator)}
    assert estimators == CASES.keys() | OTHERS | BASES


@pytest.mark.parametrize("name", sorted(CASES))
class TestEstimator:
    def test_constructors_only_store_and_clones_have_the_same_parameters(self, name):
        estimator = CASES[name][0]()
        params = estimator.get_params(deep=False)
        copy = clone(estimator)
        assert type(copy) is type(estimator) and copy.get_params(deep=False).keys() == params.keys()
        plain = {k: v for k, v in params.items() if isinstance(v, bool | int | float | str | None)}
        assert {k: copy.get_params()[k] for k in plain} == plain
        assert estimator.set_params(**plain) is estimator
        with pytest.raises(ValueError, match="Invalid parameter"):
            estimator.set_params(no_such_parameter=1)

    def test_every_parameter_has_a_rule_and_a_wrong_value_is_an_error_in_fit(self, name):
        make, data = CASES[name]
        estimator = make()
        rules = estimator._parameter_constraints
        own = [key for key in estimator.get_params(deep=False) if key in rules]
        assert own or not estimator.get_params(deep=False)
        for key in own:
            if rules[key] == "no_validation":
                continue
            wrong = clone(estimator).set_params(**{key: object()})
            with pytest.raises((ValueError, TypeError)):
                wrong.fit(data(), LABELS[: len(data())])

    def test_fitting_twice_gives_the_same_and_leaves_the_input_as_it_was(self, name):
        make, data = CASES[name]
        X = data()
        before = joblib.hash(X)
        first, second = make().fit(X, LABELS[: len(X)]), make().fit(X, LABELS[: len(X)])
        again = first.fit(X, LABELS[: len(X)])
        np.testing.assert_array_equal(answer(second, X), answer(again, X))
        assert joblib.hash(X) == before

    def test_a_fit_that_fails_does_not_spoil_the_next(self, name):
        make, data = CASES[name]
        estimator, X = make(), data()
        with pytest.raises((ValueError, TypeError, AttributeError, KeyError)):
            estimator.fit(object(), LABELS) and answer(estimator, object())
        expected = answer(make().fit(X, LABELS[: len(X)]), X)
        np.testing.assert_array_equal(answer(estimator.fit(X, LABELS[: len(X)]), X), expected)

    def test_one_sample_is_answered_as_among_others(self, name):
        estimator, X = fitted(name)
        if not hasattr(estimator, "transform") or isinstance(X, list):
            pytest.skip("its rows are not those of its samples")
        one, whole = as_array(estimator.transform(X[2:3])), as_array(estimator.transform(X)[2:3])
        np.testing.assert_allclose(one, whole, rtol=1e-5, atol=1e-6)

    def test_it_travels_to_another_process_and_through_a_model_file(self, name, tmp_path):
        estimator, X = fitted(name)
        again = pickle.loads(pickle.dumps(estimator))
        np.testing.assert_array_equal(answer(again, X), answer(estimator, X))
        kept = vars(estimator).keys()
        loaded = storage.load(storage.save(estimator, tmp_path / "m"))
        assert {key for key in kept if key.endswith("_") and key[0] != "_"} <= vars(loaded).keys()  # all are declared
        np.testing.assert_array_equal(answer(loaded, X), answer(estimator, X))

    def test_it_stands_in_a_pipeline(self, name):
        make, data = CASES[name]
        X = data()
        alone = answer(make().fit(X, LABELS[: len(X)]), X)
        pipeline = Pipeline([("step", make())]).fit(X, LABELS[: len(X)])
        np.testing.assert_array_equal(answer(pipeline[0], X), alone)

    def test_before_it_is_fitted_it_says_so(self, name):
        make, data = CASES[name]
        estimator = make()
        if getattr(estimator, "__sklearn_is_fitted__", lambda: False)():
            pytest.skip("learns nothing")
        with pytest.raises(NotFittedError):
            answer(estimator, data())
        for method in ("predict", "predict_proba", "predict_set", "typicality", "diagonal"):
            if hasattr(estimator, method):
                with pytest.raises(NotFittedError):
                    getattr(estimator, method)(data())


BAG_TAKERS = sorted(name for name, (_, data) in CASES.items() if data is make_bags)


@pytest.mark.parametrize("name", BAG_TAKERS)
def test_lists_of_arrays_are_taken_like_bags(name):
    estimator, bags = fitted(name)
    plain = Bags(bags.values, bags.offsets)
    if name == "SpatialPyramidMatch":  # which needs positions
        estimator.set_params(n_levels=1).fit(plain)
    expected = answer(estimator.fit(plain), plain)
    listed = list(plain)
    np.testing.assert_array_equal(answer(clone(estimator).fit(listed), listed), expected)


@pytest.mark.parametrize("name", BAG_TAKERS)
def test_single_and_double_precision_agree(name):
    make, _ = CASES[name]
    double, single = make_bags(), make_bags(dtype=np.float32)
    first, second = (answer(make().fit(bags), bags) for bags in (double, single))
    scale = np.abs(first).max()
    np.testing.assert_allclose(second, first, atol=2e-3 * scale)


def test_parts_of_forged_models_that_are_not_fitted_or_have_no_weights_are_errors_of_ours():
    with pytest.raises(NotFittedError):
        patchbag.MulticlassLeveragedNeighbors().predict_proba(make_vectors())
    with pytest.raises(ValueError, match="weights must be 4 numbers"):
        patchbag.SMPSimilarity(weights=[]).fit(make_patches())
