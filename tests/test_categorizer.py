from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from patchbag import Bags, Categorizer, categorizer, open_collection
from patchbag.cli.advice import recommended
from patchbag.memory import predict_in_chunks
from patchbag.recipes import RECIPES, make_recipe
from patchbag.runtime import runtime_context

SMALL = {"recipe__statistics__mixture__n_components": 4, "recipe__statistics__projection__n_components": 12}


@pytest.fixture(scope="module")
def trained(textures) -> Categorizer:
    images, labels = textures
    return Categorizer("fisher").set_params(**SMALL).fit(images[::2], labels[::2])


@pytest.mark.parametrize("recipe", ["words", "fisher"])
def test_a_recipe_tells_textures_apart(textures, recipe):
    images, labels = textures
    model = Categorizer(recipe).fit(images[::2], labels[::2])
    assert model.score(images[1::2], labels[1::2]) > 0.9
    assert model.classes_.tolist() == ["bars", "diagonals", "stripes"]


# eighteen small pictures are few to learn priors from: better than chance (1/3) is all that is asked
@pytest.mark.filterwarnings("ignore:the counts vary no more than independent draws")
@pytest.mark.filterwarnings("ignore:.*is not positive semidefinite")
@pytest.mark.parametrize("recipe", sorted(name for name in RECIPES if not name.startswith("gp-")))
def test_every_recipe_survives_the_disk(textures, tmp_path, recipe):
    images, labels = textures
    model = Categorizer(recipe).fit(images[::2], labels[::2])
    assert model.score(images[1::2], labels[1::2]) > 0.45
    again = Categorizer.load(model.save(tmp_path / "m.patchbag"))
    assert np.array_equal(again.predict_proba(images), model.predict_proba(images))


def test_probabilities_scores_and_labels_agree(trained, textures):
    images, _ = textures
    p, s = trained.predict_proba(images), trained.decision_function(images)
    assert p.shape == s.shape == (36, 3)
    assert np.allclose(p.sum(axis=1), 1)
    assert np.array_equal(p.argmax(axis=1), s.argmax(axis=1))
    assert np.array_equal(trained.classes_[p.argmax(axis=1)], trained.predict(images))


def test_images_come_as_arrays_paths_pil_images_bytes_or_bags(trained, textures, picture_folder):
    images, _ = textures
    path = picture_folder / "bars" / "00.png"
    expected = trained.predict_proba(images[:1])
    for source in (str(path), path, Image.open(path), path.read_bytes()):
        assert np.allclose(trained.predict_proba([source]), expected)
    bags = trained.recipe_["features"].transform(images[:1])
    assert isinstance(bags, Bags) and np.allclose(trained.predict_proba(bags), expected)


def test_training_on_bags_equals_training_on_their_images(trained, textures):
    images, labels = textures
    bags = trained.recipe_["features"].transform(images[::2])
    again = Categorizer("fisher").set_params(**SMALL).fit(bags, labels[::2])
    assert np.array_equal(again.decision_function(images), trained.decision_function(images))


def test_prediction_does_not_depend_on_the_chunks(trained, textures, monkeypatch):
    images, _ = textures
    whole = trained.predict_proba(images)
    monkeypatch.setattr(categorizer, "predict_in_chunks", lambda *a: predict_in_chunks(*a, size=5))
    assert np.allclose(trained.predict_proba(images), whole, atol=1e-6)


def test_parameters_are_reached_in_scikit_learns_way():
    plain = Categorizer("words")
    assert plain.get_params()["recipe__features__step"] == 8
    changed = clone(plain).set_params(recipe__features__step=12)
    assert changed.get_params()["recipe__features__step"] == 12
    assert clone(changed).get_params()["recipe__features__step"] == 12
    assert plain.recipe == "words"
    with pytest.raises(ValueError, match="Invalid parameter"):
        plain.set_params(recipe__features__stride=3)
    with pytest.raises(ValueError, match="no recipe 'magic'"):
        Categorizer("magic").fit([np.zeros((40, 40))], ["a"])


def test_scikit_learns_tools_take_images(textures):
    images, labels = textures
    small = Categorizer("words").set_params(**SMALL)
    assert cross_val_score(small, images, labels, cv=2).mean() > 0.8
    search = GridSearchCV(small, {"recipe__encoding__normalize": [True, False]}, cv=2).fit(images, labels)
    assert search.best_score_ > 0.8


def test_the_same_seed_gives_the_same_answers(textures):
    images, labels = textures
    a, b = (Categorizer("words", random_state=3).fit(images[::2], labels[::2]) for _ in range(2))
    assert np.array_equal(a.decision_function(images), b.decision_function(images))


def test_the_seed_reaches_every_step_that_has_none_of_its_own(textures):
    images, labels = textures
    small = Categorizer("words").set_params(**SMALL, recipe__statistics__mixture__max_samples=300)
    seeds = [clone(small).set_params(random_state=s).fit(images[::6], labels[::6]) for s in (0, 0, 1)]
    means = [model.recipe_["statistics"].mixture_.means_ for model in seeds]
    assert np.array_equal(means[0], means[1]) and not np.array_equal(means[0], means[2])


def test_own_seeds_survive_training_and_clones_for_other_splits(textures):
    images, labels = textures
    own = {"recipe__statistics__mixture__random_state": 11, "recipe__statistics__projection__random_state": 11}
    small = Categorizer("words").set_params(**SMALL, **own)
    models = [clone(small).set_params(random_state=s).fit(images[::6], labels[::6]) for s in (0, 1)]
    means = [model.recipe_["statistics"].mixture_.means_ for model in models]
    assert np.array_equal(*means)


def test_prediction_leaves_a_fitted_model_as_it_is(trained, textures):
    before = joblib.hash(trained)
    trained.predict_proba(textures[0][:3])
    assert joblib.hash(trained) == before


@pytest.mark.parametrize("nothing", ["passthrough", None])
def test_steps_may_pass_through(textures, tmp_path, nothing):
    images, labels = textures
    model = Categorizer("words").set_params(**SMALL, recipe__normalize=nothing).fit(images[::2], labels[::2])
    direct = make_recipe("words").set_params(normalize="passthrough", **{k[8:]: v for k, v in SMALL.items()})
    with runtime_context(seed=0):
        direct.fit(images[::2], labels[::2])
    assert np.allclose(model.decision_function(images), direct.decision_function(images))
    again = Categorizer.load(model.save(tmp_path / "m"))
    assert np.array_equal(again.predict_proba(images[:4]), model.predict_proba(images[:4]))


def test_the_last_step_cannot_pass_through(textures):
    images, labels = textures
    with pytest.raises(ValueError, match="'classifier', must be a classifier, got 'passthrough'"):
        Categorizer("words").set_params(recipe__classifier="passthrough").fit(images, labels)


def test_features_are_chosen_by_name(textures, tmp_path):
    images, labels = textures
    assert type(Categorizer("fisher", features="color").pipeline()["features"]).__name__ == "ColorStatistics"
    with pytest.raises(ValueError, match="features must be some of sift, "):
        Categorizer("fisher", features="colour").fit(images, labels)
    with pytest.raises(ValueError, match="set features before the parameters"):
        Categorizer(make_recipe("fisher"), features="color").fit(images, labels)
    both = Categorizer("words", features=["sift", "color"])
    assert [name for name, _ in clone(both).pipeline()[-1].branches] == ["sift", "color"]
    both.set_params(**{f"recipe__classifier__{b}__{k[8:]}": v for b in ("sift", "color") for k, v in SMALL.items()})
    again = Categorizer.load(both.fit(images[::2], labels[::2]).save(tmp_path / "m"))
    assert np.array_equal(again.predict_proba(images), both.predict_proba(images))
    assert both.score(images[1::2], labels[1::2]) > 0.9


def test_bad_input_is_a_clear_error(trained, textures, tmp_path):
    images, labels = textures
    with pytest.raises(ValueError, match="36 images but 3 labels"):
        Categorizer().fit(images, labels[:3])
    with pytest.raises(ValueError, match="no images"):
        Categorizer().fit([], [])
    with pytest.raises(ValueError, match="no images"):
        trained.predict([])
    (tmp_path / "a.jpg").write_text("not a picture")
    with pytest.raises(ValueError, match=r"a\.jpg"):
        trained.predict([tmp_path / "a.jpg"])


def test_every_recipe_says_what_it_is():
    for name, recipe in RECIPES.items():
        assert recipe.name == name and recipe.summary and recipe.paper
        assert next(iter(make_recipe(name).named_steps)) == "features"


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        ("photos", None, "open_collection"),
        (["a.png", "b.png"], ["x", None], "image 1 of 2 has no label"),
        (["a.png", "b.png"], [["x"], ["y"]], "one label per image"),
        (["a.png", "b.png"], {"a.png": "x", "b.png": "y"}, "got a dict"),
        (SimpleNamespace(columns=["image"]), ["x", "y"], "pass its column of images"),
    ],
)
def test_what_is_no_list_of_images_with_labels_is_named(images, labels, message):
    with pytest.raises(ValueError, match=message):
        Categorizer("words").fit(images, labels)


def test_sets_and_typicality_come_with_the_probabilities(trained, textures, tmp_path):
    images, _ = textures
    found = trained.judge(images, 0.8)
    np.testing.assert_array_equal(found.probabilities, trained.predict_proba(images))
    assert found.sets.shape == (36, 3) and found.sets[np.arange(36), found.probabilities.argmax(axis=1)].all()
    np.testing.assert_array_equal(trained.predict_set(images, 0.8), found.sets)
    assert (found.typicality > 0).all() and found.typicality.max() <= 1
    blank = trained.typicality([np.zeros((72, 72), np.uint8)])
    assert blank[0] <= found.typicality.min()
    again = Categorizer.load(trained.save(tmp_path / "m.patchbag")).judge(images, 0.8)
    np.testing.assert_array_equal(again.typicality, found.typicality)
    np.testing.assert_array_equal(again.sets, found.sets)


def test_images_without_a_label_may_take_part_where_the_recipe_learns_from_them(textures):
    images, labels = textures
    few = np.array([label if i % 6 == 0 else None for i, label in enumerate(labels)], dtype=object)
    model = Categorizer("deep-pool").fit(images, few)
    rest = few == None  # noqa: E711
    assert model.takes_unlabelled and (model.predict(images)[rest] == labels[rest]).mean() > 0.8
    with pytest.raises(ValueError, match="image 1 of 36 has no label"):
        Categorizer("fisher").fit(images, few)
    assert recommended(few.tolist()) == "deep-pool" and recommended(labels.tolist()) == "auto"


def test_a_missing_label_among_texts_is_not_a_class(textures):
    images, labels = textures
    some = [label if i % 3 else float("nan") for i, label in enumerate(labels)]
    assert set(Categorizer("deep-pool").fit(images, some).classes_) == set(labels)
    with pytest.raises(ValueError, match="image 0 of 36 has no label"):
        Categorizer("words").fit(images, some)


def test_sets_of_a_recipe_that_has_none_hold_every_class(textures):
    images, labels = textures
    model = Categorizer("words", features=["sift", "color"]).fit(images[::2], labels[::2])
    assert model.predict_set(images[:3]).all() and (model.judge(images[:3]).typicality <= 1).all()


def test_models_of_version_0_1_judge_too():
    old = Categorizer.load(Path(__file__).parent / "data" / "words-v1.patchbag")
    found = old.judge([np.random.default_rng(0).integers(0, 256, (80, 80), np.uint8)])
    assert found.sets.all() and found.typicality.tolist() == [1.0]


def test_what_is_no_sequence_of_images_says_what_to_pass(picture_folder):
    collection = open_collection(picture_folder)
    one = np.asarray(Image.open(collection.paths[0]).convert("RGB"))
    pixels = Image.open(collection.paths[0])
    categorizer = Categorizer("words", features="sift").set_params(recipe__statistics__mixture__n_components=2)
    fitted = clone(categorizer).fit(iter(collection.paths), collection.labels)
    for act in (lambda images: categorizer.fit(images, collection.labels), fitted.predict, fitted.judge):
        with pytest.raises(ValueError, match=r"got one: .*for a folder open_collection\(folder\).paths"):
            act(picture_folder)
        for image in (collection.paths[0], one, pixels):
            with pytest.raises(ValueError, match=r"got one: .*for one image pass \[image\]"):
                act(image)
        with pytest.raises(ValueError, match=r"got Collection\(.*\); pass its paths"):
            act(collection)
    assert fitted.predict([one]).shape == fitted.predict([pixels]).shape == (1,)
    with pytest.raises(ValueError, match="expected a label per image, got None"):
        categorizer.fit(collection.paths, None)
