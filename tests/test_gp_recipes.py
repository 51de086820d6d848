from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from cli.commands import run
from patchbag import Categorizer, GaussianProcessClassifier, make_recipe
from patchbag.experiments import (
    ExperimentError,
    Journal,
    list_experiments,
    load_experiment,
    run_experiment,
    run_pipeline,
    write_results,
)
from patchbag.storage import models as storage

# smaller trees, vocabularies and bags: the same steps in a fraction of the time
SMALL = {
    "gp-pmk": {"kernel__n_levels": 4, "features__step": 16},
    "gp-spm": {"kernel__n_words": 20, "features__step": 16},
    "gp-fisher": {"statistics__mixture__n_components": 8, "features__step": 16},
    "gp-combined": {
        "kernels__pmk__kernel__n_levels": 4,
        "kernels__spm__kernel__n_words": 20,
        "features__sift__step": 16,
        "features__gb__n_points": 15,
    },
}


@pytest.fixture(autouse=True)
def own_folder(own_store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def small(name: str) -> Categorizer:
    return Categorizer(name).set_params(**{f"recipe__{k}": v for k, v in SMALL[name].items()})


def options(name: str) -> list[str]:
    return [part for k, v in SMALL[name].items() for part in ("--set", f"{k.replace('__', '.')}={json.dumps(v)}")]


@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_recipe_tells_textures_apart_and_survives_the_disk(textures, tmp_path, name):
    images, labels = textures
    categorizer = small(name).fit(images[::2], labels[::2])
    p = categorizer.predict_proba(images)
    assert np.isfinite(p).all() and np.allclose(p.sum(axis=1), 1) and p.min() >= 0
    assert categorizer.score(images[1::2], labels[1::2]) > 0.85
    again = Categorizer.load(categorizer.save(tmp_path / "m.patchbag"))
    assert np.array_equal(again.predict_proba(images), p)
    assert np.array_equal(again.decision_function(images), categorizer.decision_function(images))


@pytest.mark.parametrize(
    "settings",
    [
        {"likelihood": "probit", "max_iter": 3},
        {"n_inducing": 10},
        {"kernel": "distance"},
        {"kernel": "distance", "repair": True},
    ],
)
def test_every_kind_of_gaussian_process_survives_the_disk(tmp_path, rng, settings):
    x = rng.normal(size=(40, 3))
    y = np.array(["a", "b", "c"])[np.arange(40) % 3]
    x[:, 0] += 2 * (np.arange(40) % 3)
    distances = np.sqrt(((x[:, None] - x) ** 2).sum(axis=2))
    data = distances if settings.get("kernel") == "distance" else np.exp(-distances)
    model = GaussianProcessClassifier(random_state=0, **settings).fit(data[:30, :30], y[:30])
    storage.save(model, tmp_path / "gp")
    again = storage.load(tmp_path / "gp")
    assert np.array_equal(again.predict_proba(data[30:, :30]), model.predict_proba(data[30:, :30]))
    assert again.log_evidence_ == model.log_evidence_ and np.array_equal(again.weights_, model.weights_)


def test_a_loaded_model_learns_one_more_label_like_the_original(tmp_path, rng):
    x = rng.normal(size=(20, 2))
    kernel = np.exp(-((x[:, None] - x) ** 2).sum(axis=2))
    y = (x[:, 0] > 0).astype(int)
    model = GaussianProcessClassifier().fit(kernel[:15, :15], y[:15])
    storage.save(model, tmp_path / "gp")
    again = storage.load(tmp_path / "gp")
    for gp in (model, again):
        gp.update(kernel[15:16, :15], y[15])
    assert np.array_equal(again.predict_proba(kernel[16:, :16]), model.predict_proba(kernel[16:, :16]))


def test_kernels_of_other_recipes_join_by_name(textures):
    images, labels = textures
    settings = {"kernels__use": ["spm", "fisher", "gmm-ppk"], "features__gb": "drop", "features__sift__step": 16}
    categorizer = Categorizer("gp-combined").set_params(**{f"recipe__{k}": v for k, v in settings.items()})
    categorizer.set_params(recipe__kernels__spm__kernel__n_words=20).fit(images[::2], labels[::2])
    assert categorizer.recipe_[-1].weights_.shape == (3,)
    assert categorizer.score(images[1::2], labels[1::2]) > 0.85


def test_channels_are_described_on_request(textures):
    images, labels = textures
    recipe = make_recipe("gp-combined").set_params(features__sift__step=16, kernels__use=["fisher", "fisher-color"])
    with pytest.raises(ValueError, match=r"no channel 'color' among sift, gb; describe images by it too"):
        recipe.fit(images[::2], labels[::2])
    recipe.set_params(features__use=["sift", "color"]).fit(images[::2], labels[::2])
    assert recipe[0].transform(images[:2]).names == ("sift", "color")
    with pytest.raises(ValueError, match="use must name some of the channels sift, gb, color"):
        recipe.set_params(features__use=["sift", "colour"]).fit(images[::2], labels[::2])


def test_features_are_chosen_for_single_kernels_and_not_for_the_combination(textures):
    images, labels = textures
    assert len(make_recipe("gp-spm", ["sift", "color"])["classifier"].branches) == 2
    with pytest.raises(ValueError, match="'gp-combined' combines features of its own"):
        Categorizer("gp-combined", features="color").fit(images, labels)


def test_the_command_line_trains_predicts_and_evaluates(picture_folder, tmp_path):
    name = "gp-combined"
    result = run("train", picture_folder, "-r", name, "-o", tmp_path / "m", "-j", 1, *options(name))
    assert result.exit_code == 0 and "36 images, 3 classes" in result.output, result.output
    result = run("predict", tmp_path / "m", picture_folder / "bars", "-j", 1)
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 12
    arguments = ["--train-per-class", 6, "--splits", 2, "--json", tmp_path / "o.json", "-j", 1, *options("gp-spm")]
    result = run("evaluate", picture_folder, "-r", "gp-spm", *arguments)
    assert result.exit_code == 0 and json.loads((tmp_path / "o.json").read_text())["mean_accuracy"] > 0.8


# --- active ------------------------------------------------------------------------------------------------------


def test_active_labels_a_folder_and_takes_it_up_again(picture_folder):
    pool = picture_folder / "unlabelled"
    (picture_folder / "stripes").rename(pool)
    arguments = ["active", picture_folder, "-j", 1, "-r", "gp-fisher", *options("gp-fisher")]
    result = run(*arguments, said="stripes\n3\ns\nq\n")
    assert result.exit_code == 0, result.output
    assert "2 new labels, 10 of 36 images without one" in result.output and "1 bars   2 diagonals" in result.output
    with (picture_folder / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["stripes", "stripes", ""] and len(list(pool.iterdir())) == 12
    result = run(*arguments, "--rounds", 1, "--move", said="stripes\n")
    assert "1 new label, 9 of 36" in result.output and "3 stripes" in result.output
    assert len(list((picture_folder / "stripes").iterdir())) == 3 and len(list(pool.iterdir())) == 9


def test_active_leaves_broken_images_out_and_says_so(picture_folder):
    (picture_folder / "new.png").write_text("text")
    (picture_folder / "bars" / "00.png").rename(picture_folder / "00.png")
    result = run("active", picture_folder, "-j", 1, "-r", "gp-fisher", *options("gp-fisher"), said="q\n")
    assert result.exit_code == 0 and "left out 1 of 37" in result.output and "00.png" in result.output


def test_active_simulates_a_labelled_folder(picture_folder, tmp_path):
    arguments = [
        "--runs",
        2,
        "--rounds",
        6,
        "-o",
        tmp_path / "curve",
        "-j",
        1,
        "-r",
        "gp-fisher",
        *options("gp-fisher"),
    ]
    result = run("active", picture_folder, "--simulate", "-c", "margin", "--start", 1, *arguments)
    assert result.exit_code == 0, result.output
    assert "margin: " in result.output and "random: " in result.output
    data = json.loads((tmp_path / "curve.json").read_text())
    assert data["n_labels"] == list(range(3, 10)) and set(data["curves"]) == {"margin", "random"}
    result = run("active", picture_folder, "--simulate", *arguments)
    data = json.loads((tmp_path / "curve.json").read_text())
    assert data["n_labels"] == list(range(1, 7)) and list(data["curves"]) == ["representative", "random"]
    assert (tmp_path / "curve.png").exists()


def test_active_explains_what_it_cannot_do(picture_folder, tmp_path):
    (tmp_path / "empty").mkdir()
    cases = [
        ((tmp_path / "empty",), "has no images"),
        ((picture_folder,), "every image has a label"),
        ((picture_folder / "bars", "--simulate"), "none has a label"),
        ((picture_folder, "-c", "magic"), "must be one of representative, uncertainty"),
        ((picture_folder, "-r", "magic"), "no recipe 'magic'"),
    ]
    for arguments, message in cases:
        result = run("active", *arguments, "-j", 1)
        assert isinstance(result.exception, ValueError) and message in str(result.exception)


# --- experiments -------------------------------------------------------------------------------------------------


def test_every_experiment_of_the_paper_names_recipes_and_settings_that_exist():
    names = [name for name in list_experiments() if name.startswith("kapoor2010")]
    assert len(names) >= 10
    for name in names:
        spec = load_experiment(name)
        for run_spec in spec["run"] if spec["kind"] == "evaluate" else [spec]:
            run_pipeline(run_spec, {})


def test_given_kernels_are_compared_under_every_classifier(picture_folder, monkeypatch):
    spec = {
        "name": "x", "title": "x", "kind": "kernels", "data": picture_folder.name, "recipe": "gp-combined",
        "settings": {k.replace("__", "."): v for k, v in SMALL["gp-combined"].items()}, "test_per_class": 4,
        "run": [
            {"name": "GP", "kernels": ["spm"], "train_per_class": 6, "published": 50.0},
            {"name": "SVM", "kernels": ["spm"], "classifier": "svm", "train_per_class": 6},
            {"name": "NN", "kernels": ["spm"], "classifier": "nn", "train_per_class": 6},
            {"name": "all", "over": {"train_per_class": [3, 6]}, "published": [float("nan"), 70.0],
             "settings": {"l2": 1.0}},
        ],
    }  # fmt: skip
    journal = Journal()
    rows = run_experiment(spec, picture_folder.parent, splits=2, journal=journal)["runs"]
    assert [row["name"] for row in rows] == ["GP", "SVM", "NN", "all, 3", "all, 6"] and rows[0]["published"] == 50
    assert all(row["mean"] > 60 and len(row["accuracies"]) == 2 for row in rows)
    assert np.shape(rows[3]["weights"]) == (2, 4) and rows[1]["weights"] is None
    assert (rows[4]["x"], rows[4]["series"], rows[4]["published"], rows[3]["published"]) == (6, "all", 70.0, None)

    monkeypatch.setattr("patchbag.evaluation._run_split", lambda *a: pytest.fail("is in the journal"))
    assert run_experiment(spec, picture_folder.parent, splits=2, journal=journal)["runs"] == rows


def test_the_active_study_draws_curves_of_all_and_of_binary_problems(picture_folder):
    spec = {
        "name": "x", "title": "x", "kind": "active", "data": picture_folder.name, "recipe": "gp-spm",
        "settings": {k.replace("__", "."): v for k, v in SMALL["gp-spm"].items()}, "criteria": ["uncertainty"],
        "n_test": 3, "n_labels": 10, "at": [5, 10],
    }  # fmt: skip
    rows = run_experiment(spec, picture_folder.parent, splits=2)["runs"]
    names = [row["name"] for row in rows]
    assert names[:2] == ["uncertainty, 5 labels", "uncertainty, 10 labels"] and "random, 10 labels" in names
    assert len(rows[1]["curve"]) == len(rows[1]["n_labels"]) == 8
    binary = run_experiment({**spec, "binary": ["*"], "gain": 10}, picture_folder.parent, splits=2)["runs"]
    assert [row["name"] for row in binary[-3:]] == ["gain, bars", "gain, diagonals", "gain, stripes"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernels": ["spmm"]}, "no kernel 'spmm'; there are pmk, spm, gb, gbdist"),
        ({"classifier": "tree"}, "classifier must be one of gp, gp-classwise, svm, nn, got 'tree'"),
        ({"settings": {"lambda": 1}}, "gp has no parameter 'lambda'"),
    ],
)
def test_slips_in_runs_on_kernels_show_before_images_are_described(picture_folder, monkeypatch, change, message):
    monkeypatch.setattr("patchbag.experiments.tables.kernels_of", lambda *a: pytest.fail("too late"))
    spec = {"name": "x", "kind": "kernels", "data": picture_folder.name, "recipe": "gp-combined"}
    with pytest.raises(ExperimentError, match=message):
        run_experiment({**spec, "run": [{"name": "a", **change}]}, picture_folder.parent)
    active = {**spec, "kind": "active", "criteria": ["uncertainty"], "at": [200]}
    with pytest.raises(ExperimentError, match="at goes up to 200"):
        run_experiment(active, picture_folder.parent)
    with pytest.raises(ExperimentError, match="criteria must be among"):
        run_experiment({**active, "criteria": ["doubt"], "at": [9]}, picture_folder.parent)


def test_weights_and_confusions_have_plots_of_their_own(tmp_path):
    weights = {"name": "w", "mean": 1.0, "x": 5, "weights": [[1.0, 3.0], [2.0, 2.0]], "kernels": ["a", "b"]}
    confusion = {"name": "c", "mean": 1.0, "confusion": [[9, 1], [0, 10]], "classes": ["x", "y"]}
    for kind, row in (("weights", weights), ("confusion", confusion)):
        result = {"name": kind, "title": kind, "plot": kind, "runs": [row]}
        assert write_results(result, tmp_path)[1].read_bytes().startswith(b"\x89PNG")
