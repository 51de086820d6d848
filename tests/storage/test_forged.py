"""Forged model files: their checksum is right, and nothing else is believed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import patchbag
from patchbag.storage import models as storage
from patchbag.storage.models import ModelFileError
from storage.forging import write_tree


def forge(path: Path, change) -> Path:
    """The model with its tree and tensors changed, and the checksum that belongs to them."""
    with safe_open(path, "numpy") as file:
        tree = json.loads(file.metadata()[storage.FORMAT])["model"]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tree = change(tree, tensors) or tree
    return write_tree(path.with_suffix(".forged"), tree, tensors)


def put(name: str, where, value):
    def change(tree, tensors):
        key = next(key for key in sorted(tensors) if name in key)
        tensors[key] = np.array(tensors[key])
        tensors[key][where] = value

    return change


def cut(name: str, *shape: int):
    def change(tree, tensors):
        key = next(key for key in sorted(tensors) if name in key)
        tensors[key] = np.resize(tensors[key], shape)

    return change


@pytest.mark.parametrize(
    "estimator, data, change, message",
    [
        ("PyramidMatchKernel", "bags", put(".images", 0, 10_000), r"BinIndex\.images has a value of 10000, above"),
        ("PyramidMatchKernel", "bags", put(".images", 0, -1), r"BinIndex\.images has a value of -1, below 0"),
        ("PyramidMatchKernel", "bags", put(".starts", -1, 10_000), r"BinIndex\.starts has a value"),
        ("PyramidMatchKernel", "bags", put(".starts", 1, 0), None),  # an empty bin does no harm
        ("PyramidMatchKernel", "bags", cut("self_match_", 3), r"self_match_ has shape \(3,\)"),
        ("LDAFisherVector", "counts", cut("eta_", 1, 2, 99), r"LDAFisherVector\.eta_ has shape"),
        ("LDAFisherVector", "counts", put("eta_", 0, np.nan), "NaN or infinite"),
        ("AdditiveKernelPCA", "counts", cut("tables_", 5), "its tables have 5 numbers"),
        ("VocabularyBins", "bags", put(".children", 0, 10_000), r"children has a value of 10000"),
        ("VocabularyBins", "bags", put(".children", (slice(None), 1), 4), "not a tree|has a value"),
    ],
)
def test_arrays_that_compiled_loops_index_with_are_checked_before_there_is_an_object(
    estimator, data, change, message, bags, tmp_path
):
    made = {
        "PyramidMatchKernel": patchbag.PyramidMatchKernel(n_levels=3, random_state=0),
        "VocabularyBins": patchbag.PyramidMatchKernel("vocabulary", n_levels=3, n_branches=3, random_state=0),
        "LDAFisherVector": patchbag.LDAFisherVector(random_state=0),
        "AdditiveKernelPCA": patchbag.AdditiveKernelPCA(random_state=0),
    }[estimator]
    X = bags if data == "bags" else np.random.default_rng(0).integers(1, 9, (20, 6)).astype(float)
    path = storage.save(made.fit(X), tmp_path / "m")
    if message is None:
        assert np.isfinite(storage.load(forge(path, change)).transform(X)).all()
        return
    with pytest.raises(ModelFileError, match=message):
        storage.load(forge(path, change))


@pytest.mark.parametrize(
    "tree, message",
    [
        ({"$object": "SpatialPyramid", "params": {"grids": ["1500x1500"]}}, "more than 4096 pieces"),
        ({"$object": "SpatialPyramid", "params": {"grids": ["99999999x1"]}}, "more than 4096 pieces"),
        ({"$strings": ["a" * 100_000] + ["b"] * 100_000}, "labels take more than 64 MB"),
        ({"$strings": [["a"], 3]}, "not all texts"),
        (eval("[" * 60 + "]" * 60), "deep inside of one another"),
        ({"$object": "SearchIndex", "params": {"folder": "photos"}}, "not a part of patchbag models"),
        ({"$object": "Collection", "params": {}}, "not a part of patchbag models"),
        ({"$object": "DenseSIFT", "params": {"bin_sizes": {"$tuple": [100_000_000]}}}, "bin_sizes"),
        ({"$object": "GeometricBlur", "params": {"alpha": True}}, "alpha is True, which is no number"),
        ({"$object": "GeometricBlur", "params": {"radii": {"$tuple": [0, True]}}}, "radii"),
        ({"$object": "FisherVector", "params": {}, "state": {"layout_": {"$tuple": [1, -5, 4]}}}, "layout_"),
    ],
)
def test_small_files_that_would_exhaust_the_machine_or_open_folders_are_refused(tmp_path, tree, message):
    write_tree(tmp_path / "evil", tree, version=1)
    with pytest.raises(ModelFileError, match=message):
        storage.load(tmp_path / "evil")


def test_limits_and_workers_of_the_machine_are_not_taken_from_a_file(tmp_path):
    params = {"max_pixels": 10**15, "n_jobs": 10**6}
    tree = {"$object": "DenseSIFT", "params": params}
    write_tree(tmp_path / "m", tree)
    loaded = storage.load(tmp_path / "m")
    assert loaded.n_jobs is None and loaded.max_pixels == patchbag.DenseSIFT().max_pixels


def test_forgeries_of_a_few_models_end_in_an_error_of_ours_or_a_finite_answer(monkeypatch):
    monkeypatch.setenv("FUZZ_FEW", "1")
    script = Path(__file__).parents[2] / "fuzz" / "models.py"
    monkeypatch.syspath_prepend(str(script.parent))
    import campaign

    counts, findings = campaign.run(str(script), 300, 0, None, most=150)
    del counts["MB"]
    assert not findings and counts.total() == 150


@pytest.mark.filterwarnings("ignore::FutureWarning")  # scikit-learn 1.8 on wants CalibratedClassifierCV in its place
@pytest.mark.parametrize("classes", [2, 3])
def test_an_svc_with_probabilities_can_be_saved(classes, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 4))
    model = SVC(probability=True, random_state=0).fit(X, np.arange(30) % classes)
    path = storage.save(model, tmp_path / "m")
    assert np.array_equal(storage.load(path).predict_proba(X), model.predict_proba(X))
    with pytest.raises(ModelFileError, match="do not fit together"):
        storage.load(forge(path, cut("_probA", 0)))


@pytest.mark.parametrize(
    "change, message",
    [
        (put("_n_support", 0, 10**6), "do not fit together"),
        (put("support_", 0, 10**6), "do not fit together"),
        (cut("_dual_coef_", 2, 3), "shape"),
        (cut("support_vectors_", 3, 4), "do not fit together"),
    ],
)
def test_arrays_for_libsvm_are_checked_too(change, message, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 4))
    path = storage.save(SVC().fit(X, np.arange(30) % 3), tmp_path / "m")
    with pytest.raises(ModelFileError, match=message):
        storage.load(forge(path, change))


def without(*path: str | int):
    """A change that takes an entry out of the tree."""

    def change(tree, tensors):
        for key in path[:-1]:
            tree = tree[key]
        del tree[path[-1]]

    return change


def setting(value, *path):
    """A change that puts a value into the tree."""

    def change(tree, tensors):
        for key in path[:-1]:
            tree = tree[key]
        tree[path[-1]] = value

    return change


def fitted(name: str, bags):
    """A model of a few parts."""
    X = np.random.default_rng(0).normal(size=(30, 4))
    y = np.arange(30) % 2
    scaled = Pipeline([("scale", StandardScaler()), ("classifier", SVC())])
    linear = patchbag.LinearClassifier(C=1.0, random_state=0)
    twice = patchbag.LateFusionClassifier([("a", linear), ("b", linear)])
    mixture = patchbag.UniversalMixture(2, random_state=0)
    statistics = patchbag.UniversalStatistics(mixture, patchbag.BagPCA(2))
    categorizer = patchbag.Categorizer(
        Pipeline(
            [("features", patchbag.BagPCA(2)), ("mean", patchbag.MeanDescriptor()), ("c", patchbag.LinearClassifier())]
        )
    )
    return {
        "Pipeline": lambda: scaled.fit(X, y),
        "StandardScaler": lambda: StandardScaler().fit(X),
        "LateFusionClassifier": lambda: twice.fit(X, y),
        "Normalizer": lambda: patchbag.Normalizer(["whiten"]).fit(X),
        "UniversalStatistics": lambda: statistics.fit(bags),
        "Categorizer": lambda: categorizer.fit(bags, np.arange(len(bags)) % 2),
    }[name]()


BARE_MIXTURE = {"$object": "UniversalMixture", "params": {}}


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("Pipeline", lambda tree, _: tree["state"]["steps"].reverse(), "SVC is not the last and has no transform"),
        ("StandardScaler", setting(None, "state", "scale_"), "its scale_ is missing"),
        ("StandardScaler", setting(None, "state", "mean_"), "its mean_ is missing"),
        (
            "Categorizer",
            without("state", "recipe_", "state", "steps", -1, "$tuple", 1, "state"),
            "LinearClassifier that is",
        ),
        ("LateFusionClassifier", setting([], "state", "branches_"), "at least one branch"),
        ("LateFusionClassifier", setting([1.0], "params", "weights"), "2 numbers"),
        ("LateFusionClassifier", setting([0.0, 0.0], "params", "weights"), "not all zero"),
        ("Normalizer", without("state", "mean_"), "its mean_ of shape None"),
        ("UniversalStatistics", setting(BARE_MIXTURE, "state", "mixture_"), "UniversalMixture that is not fitted"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(name, change, message, bags, tmp_path):
    path = storage.save(fitted(name, bags), tmp_path / "m")
    with pytest.raises(ModelFileError, match=message):
        storage.load(forge(path, change))


def test_a_projection_that_makes_no_bags_is_an_error_of_ours(bags, tmp_path):
    path = storage.save(fitted("UniversalStatistics", bags), tmp_path / "m")

    class Other:
        def transform(self, X):
            return [1]

    model = storage.load(path)
    model.projection_ = Other()
    with pytest.raises(ValueError, match="Other makes list"):
        model.transform(bags)


@pytest.mark.parametrize("name", ["ContextualSimilarity", "ReferenceWeights", "MAPAdaptation"])
def test_iterations_of_a_model_come_to_an_end(name, tmp_path):
    tree = {"$object": name, "params": {"iterations": 2**31}}
    write_tree(tmp_path / "m", tree)
    with pytest.raises(ModelFileError, match=r"'iterations' parameter of .* must be .* \[1"):
        storage.load(tmp_path / "m")


@pytest.mark.parametrize("change", [without("state", "seen_"), setting(None, "state", "seen_")])
@pytest.mark.parametrize("make", [patchbag.PolyaVector, lambda: patchbag.LDAFisherVector(random_state=0)])
def test_a_model_that_does_not_know_which_words_it_has_seen_counts_all(make, change, tmp_path):
    X = np.random.default_rng(0).integers(1, 9, (20, 6)).astype(float)  # every word is seen
    model = make().fit(X)
    again = storage.load(forge(storage.save(model, tmp_path / "m"), change))
    assert np.array_equal(again.transform(X), model.transform(X))
