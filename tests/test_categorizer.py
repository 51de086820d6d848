from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from patchbag import Bags, Categorizer
from patchbag.recipes import RECIPES, make_recipe
from patchbag.steps import apply_runtime, extractors

SMALL = {"recipe__statistics__mixture__n_components": 4, "recipe__statistics__projection__n_components": 12}


@pytest.fixture(scope="module")
def trained(textures) -> Categorizer:
    images, labels = textures
    return Categorizer("fisher").set_params(**SMALL).fit(images[::2], labels[::2])


@pytest.mark.parametrize("recipe", ["words", "fisher"])
def test_a_recipe_tells_textures_apart(textures, recipe):
    images, labels = textures
    categorizer = Categorizer(recipe).fit(images[::2], labels[::2])
    assert categorizer.score(images[1::2], labels[1::2]) > 0.9
    assert categorizer.classes_.tolist() == ["bars", "diagonals", "stripes"]
    assert set(categorizer.seconds_) == {name for name, _ in make_recipe(recipe).steps}


# eighteen small pictures are few to learn priors from: better than chance (1/3) is all that is asked
@pytest.mark.filterwarnings("ignore:the counts vary no more than independent draws")
@pytest.mark.filterwarnings("ignore:.*is not positive semidefinite")
@pytest.mark.parametrize("recipe", sorted(name for name in RECIPES if not name.startswith("gp-")))
def test_every_recipe_survives_the_disk(textures, tmp_path, recipe):
    images, labels = textures
    categorizer = Categorizer(recipe).fit(images[::2], labels[::2])
    assert categorizer.score(images[1::2], labels[1::2]) > 0.45
    again = Categorizer.load(categorizer.save(tmp_path / "m.patchbag"))
    assert np.array_equal(again.predict_proba(images), categorizer.predict_proba(images))


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
    bags = extractors(trained.recipe_)[0].transform(images[:1])
    assert isinstance(bags, Bags) and np.allclose(trained.predict_proba(bags), expected)


def test_training_on_bags_equals_training_on_their_images(trained, textures):
    images, labels = textures
    bags = extractors(trained.recipe_)[0].transform(images[::2])
    again = Categorizer("fisher").set_params(**SMALL).fit(bags, labels[::2])
    assert np.array_equal(again.decision_function(images), trained.decision_function(images))


def test_prediction_does_not_depend_on_the_chunks(trained, textures, monkeypatch):
    images, _ = textures
    whole = trained.predict_proba(images)
    monkeypatch.setattr("patchbag.categorizer.CHUNK", 5)
    assert np.allclose(trained.predict_proba(images), whole, atol=1e-6)


def test_parameters_are_reached_in_scikit_learns_way():
    categorizer = Categorizer("words")
    assert categorizer.get_params()["recipe__features__step"] == 8
    changed = clone(categorizer).set_params(recipe__features__step=12)
    assert changed.get_params()["recipe__features__step"] == 12
    assert clone(changed).get_params()["recipe__features__step"] == 12
    assert categorizer.recipe == "words"
    with pytest.raises(ValueError, match="Invalid parameter"):
        categorizer.set_params(recipe__features__stride=3)
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


def test_runtime_settings_reach_every_step():
    pipeline = apply_runtime(make_recipe("fisher"), n_jobs=2, cache="somewhere", random_state=5)
    params = pipeline.get_params()
    assert params["features__n_jobs"] == 2 and params["features__cache"] == "somewhere"
    assert params["statistics__mixture__random_state"] == params["statistics__projection__random_state"] == 5


def test_a_seed_that_was_set_wins_over_that_of_the_run():
    categorizer = Categorizer("fisher", random_state=3).set_params(recipe__classifier__random_state=7)
    params = apply_runtime(categorizer.pipeline(), n_jobs=1, cache=None, random_state=3).get_params()
    assert params["classifier__random_state"] == 7
    assert params["statistics__mixture__random_state"] == params["statistics__projection__random_state"] == 3
    zero = make_recipe("fisher").set_params(statistics__mixture__random_state=0)  # not what the class starts with
    assert apply_runtime(zero, n_jobs=1, cache=None, random_state=3).get_params()["classifier__random_state"] == 3
    assert zero.get_params()["statistics__mixture__random_state"] == 0


def test_own_seeds_survive_training_and_clones_for_other_splits(textures):
    images, labels = textures
    small = Categorizer("words").set_params(**SMALL, recipe__statistics__mixture__random_state=11)
    models = [clone(small).set_params(random_state=s).fit(images[::6], labels[::6]) for s in (0, 1)]
    seeds = [m.recipe_.get_params()["statistics__mixture__random_state"] for m in models]
    assert seeds == [11, 11]
    others = [m.recipe_.get_params()["classifier__random_state"] for m in models]
    assert others == [0, 1]


@pytest.mark.parametrize("nothing", ["passthrough", None])
def test_steps_may_pass_through(textures, tmp_path, nothing):
    images, labels = textures
    categorizer = Categorizer("words").set_params(**SMALL, recipe__normalize=nothing).fit(images[::2], labels[::2])
    assert list(categorizer.seconds_) == ["features", "statistics", "encoding", "classifier"]
    direct = make_recipe("words").set_params(normalize="passthrough", **{k[8:]: v for k, v in SMALL.items()})
    direct = apply_runtime(direct, n_jobs=None, cache=None, random_state=0).fit(images[::2], labels[::2])
    assert np.allclose(categorizer.decision_function(images), direct.decision_function(images))
    again = Categorizer.load(categorizer.save(tmp_path / "m"))
    assert np.array_equal(again.predict_proba(images[:4]), categorizer.predict_proba(images[:4]))


def test_the_last_step_cannot_pass_through(textures):
    images, labels = textures
    with pytest.raises(ValueError, match="'classifier', must be a classifier, got 'passthrough'"):
        Categorizer("words").set_params(recipe__classifier="passthrough").fit(images, labels)


def test_colour_is_never_ignored(textures):
    images, labels = textures
    chosen = Categorizer("fisher").set_params(recipe__features__step=16)
    with pytest.raises(ValueError, match="set color before the parameters"):
        chosen.set_params(color=True)
    assert chosen.color is False
    with pytest.raises(ValueError, match="set color before the parameters"):
        Categorizer(make_recipe("fisher"), color=True).fit(images, labels)
    both = Categorizer("fisher", color=True).set_params(recipe__classifier__orh__features__step=16)
    assert [name for name, _ in clone(both).pipeline()[-1].branches] == ["orh", "col"]
    with pytest.raises(ValueError, match="set color before the parameters"):
        both.set_params(color=False)
    assert both.set_params(color=True, recipe="words").recipe == "words"
    assert Categorizer("fisher").set_params(color=True).pipeline()[-1].branches[1][0] == "col"


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
        ("photos", None, "open_folder"),
        (["a.png", "b.png"], ["x", None], "image 1 of 2 has no label"),
        (["a.png", "b.png"], [["x"], ["y"]], "one label an image"),
    ],
)
def test_what_is_no_list_of_images_with_labels_is_named(images, labels, message):
    with pytest.raises(ValueError, match=message):
        Categorizer("words").fit(images, labels)
