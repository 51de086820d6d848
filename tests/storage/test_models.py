from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, NuSVC

import patchbag
from patchbag import Categorizer, LinearClassifier, UniversalMixture
from patchbag.similarity.histograms.context import ContextualHistograms
from patchbag.storage import models as storage
from patchbag.storage.models import ModelFileError
from patchbag.storage.registry import find_class, storable
from storage.forging import write_tree

# written by version 0.1.0 of patchbag (tests/data/make_model.py); it must load for ever
FIXTURE = Path(__file__).parents[1] / "data" / "words-v1.patchbag"


@pytest.fixture(scope="module")
def trained(textures):
    images, labels = textures
    small = {"recipe__statistics__mixture__n_components": 3, "recipe__statistics__projection__n_components": 8}
    return Categorizer("fisher", n_jobs=1).set_params(**small).fit(images[::3], labels[::3])


@pytest.fixture(scope="module")
def model(trained, tmp_path_factory):
    return trained.save(tmp_path_factory.mktemp("model") / "m.patchbag")


def test_predictions_are_identical_after_a_round_trip(trained, model, textures):
    again = Categorizer.load(model)
    images, _ = textures
    assert np.array_equal(again.decision_function(images), trained.decision_function(images))
    assert np.array_equal(again.predict_proba(images), trained.predict_proba(images))
    assert again.classes_.tolist() == trained.classes_.tolist()
    assert again.get_params()["recipe__statistics__mixture__n_components"] == 3


def test_a_model_of_the_first_version_still_loads_and_says_the_same(textures):
    images, _ = textures
    expected = json.loads(FIXTURE.with_suffix(".json").read_text())
    categorizer = Categorizer.load(FIXTURE)
    assert categorizer.classes_.tolist() == expected["classes"]
    assert np.allclose(categorizer.predict_proba(images[::6]), expected["probabilities"], atol=2e-3)


def test_a_loaded_mixture_can_be_trained_further(bags, tmp_path):
    online = UniversalMixture(3).partial_fit(bags[:15])
    storage.save(online, tmp_path / "m")
    again = storage.load(tmp_path / "m")
    assert np.allclose(again.partial_fit(bags[15:]).means_, online.partial_fit(bags[15:]).means_)


def test_a_failed_save_leaves_the_old_file_alone(trained, model, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(model.read_bytes())
    broken = Categorizer(Pipeline([("classifier", RandomForestClassifier())]))
    broken.recipe_ = broken.recipe
    with pytest.raises(TypeError, match=r"RandomForestClassifier, which a model file cannot hold"):
        broken.save(path)
    assert path.read_bytes() == model.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def header_of(data: bytes) -> tuple[int, dict]:
    (length,) = struct.unpack("<Q", data[:8])
    return length, json.loads(data[8 : 8 + length])


def with_manifest(data: bytes, change) -> bytes:
    """The file with its manifest changed and everything else, checksum included, as it was."""
    length, header = header_of(data)
    manifest = json.loads(header["__metadata__"]["patchbag-model"])
    change(manifest)
    header["__metadata__"]["patchbag-model"] = json.dumps(manifest)
    new = json.dumps(header).encode()
    return struct.pack("<Q", len(new)) + new + data[8 + length :]


def flip(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda d: b"", "not a patchbag model"),
        (lambda d: d[: len(d) // 2], "damaged or truncated|truncated"),
        (lambda d: d[:100], "truncated"),
        (flip, "checksum does not match"),
        (lambda d: b"\x89PNG\r\n" + d, "not a patchbag model"),
        (lambda d: pickle.dumps({"a": 1}), "not a patchbag model"),
        (lambda d: with_manifest(d, lambda m: m.update(version=99)), "version 99"),
        (lambda d: with_manifest(d, lambda m: m["model"].update({"$object": "os.system"})), "checksum"),
    ],
)
def test_damaged_truncated_and_foreign_files_are_clear_errors(model, tmp_path, damage, message):
    path = tmp_path / "broken"
    path.write_bytes(damage(model.read_bytes()))
    with pytest.raises(ModelFileError, match=message):
        storage.load(path)


def test_missing_files_folders_and_other_safetensors_are_clear_errors(tmp_path):
    with pytest.raises(ModelFileError, match="cannot read the model"):
        storage.load(tmp_path / "none")
    with pytest.raises(ModelFileError, match="is a folder"):
        storage.load(tmp_path)
    save_file({"a": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(ModelFileError, match="not a patchbag model"):
        storage.load(tmp_path / "other")


@pytest.mark.parametrize(
    "tree, message",
    [
        ({"$object": "system", "params": {}}, "'system', which is not a part"),
        ({"$object": "BagOfWords", "params": {}, "state": {"transform": 1}}, "not a fitted attribute"),
        ({"$object": "BagOfWords", "params": {"nonsense": 1}}, "does not describe a model"),
        ({"$tensor": "absent"}, "does not describe a model"),
        ({"$what": 1}, "unknown entry"),
    ],
)
def test_a_file_cannot_name_other_classes_or_replace_methods(tmp_path, tree, message):
    write_tree(tmp_path / "evil", tree, version=1)
    with pytest.raises(ModelFileError, match=message):
        storage.load(tmp_path / "evil")


def test_a_model_of_another_kind_is_not_a_categorizer(bags, tmp_path):
    storage.save(UniversalMixture(2).fit(bags), tmp_path / "m")
    with pytest.raises(ModelFileError, match="holds a UniversalMixture, not a Categorizer"):
        Categorizer.load(tmp_path / "m")


def test_every_public_estimator_can_be_part_of_a_model():
    public = {name: getattr(patchbag, name) for name in patchbag.__all__}
    estimators = {name: cls for name, cls in public.items() if isinstance(cls, type) and hasattr(cls, "get_params")}
    assert len(estimators) > 30 and all(find_class(name) is cls for name, cls in estimators.items())


def test_what_is_public_but_no_class_cannot_be_named_in_a_file():
    assert find_class("load_image") is None and find_class("os") is None and find_class("__version__") is None


def test_names_of_earlier_versions_are_understood():
    assert find_class("PolyaEncoding") is patchbag.PolyaVector


@storable
class Halved(BaseEstimator):
    def __init__(self, factor: float = 0.5) -> None:
        self.factor = factor


def test_a_class_of_ones_own_survives_the_disk_once_it_is_marked(tmp_path):
    assert storage.load(storage.save(Halved(0.25), tmp_path / "m")).factor == 0.25

    class Unmarked(BaseEstimator):
        pass

    with pytest.raises(TypeError, match="marked storable"):
        storage.save(Unmarked(), tmp_path / "m")


@pytest.mark.parametrize("divergence", ["kl", "bhattacharyya"])
@pytest.mark.parametrize("context", [None, np.full(5, 0.2)])
def test_contextual_similarities_of_histograms_survive_a_round_trip(divergence, context, tmp_path):
    X = np.random.default_rng(0).dirichlet(np.ones(5), size=12)
    recipe = Pipeline([("context", ContextualHistograms(divergence, context=context)), ("linear", LinearClassifier())])
    recipe.fit(X, np.tile(["city", "coast"], 6))
    again = storage.load(storage.save(recipe, tmp_path / "m"))
    assert np.array_equal(again[0].transform(X), recipe[0].transform(X))
    assert np.array_equal(again.decision_function(X), recipe.decision_function(X))


def test_what_cannot_be_saved_is_named_with_what_can(tmp_path):
    with pytest.raises(TypeError, match=r"NuSVC, which .* cannot hold.*LinearClassifier and GaussianProcessClassifier"):
        storage.save(Pipeline([("svm", NuSVC(kernel="precomputed"))]), tmp_path / "m")
    own = ContextualHistograms(lambda q, m: ((q - m) ** 2).sum(axis=-1)).fit(np.full((3, 4), 0.25))
    with pytest.raises(TypeError, match=r"ContextualHistograms\.divergence is a builtins\.function"):
        storage.save(own, tmp_path / "m")


@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_pipeline_that_ends_in_an_svc_or_a_logistic_regression_can_be_saved(kernel, classes, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 4))
    y = np.array(["a", "b", "c"])[np.arange(30) % classes]
    given = X @ X.T if kernel == "precomputed" else X
    for classifier in (SVC(kernel=kernel), LogisticRegression()):
        model = Pipeline([("scale", StandardScaler()), ("classifier", classifier)]).fit(given, y)
        again = storage.load(storage.save(model, tmp_path / "m"))
        # scikit-learn's weights may lie in columns and are read back in rows, which BLAS adds up in another order
        np.testing.assert_allclose(again.decision_function(given), model.decision_function(given), rtol=1e-12)
        assert np.array_equal(again.predict(given), model.predict(given))
