from __future__ import annotations

import json
import shutil
from io import BytesIO

import cv2
import numpy as np
import pytest
from sklearn.base import clone

from patchbag import Categorizer, Collection, MixtureKernel, PerClassSplit, experiments, open_collection
from patchbag.experiments import (
    Experiment,
    ExperimentError,
    Journal,
    list_experiments,
    load_experiment,
    plots,
    run_experiment,
    write_results,
)
from patchbag.experiments import kernels as kernel_files
from patchbag.experiments.kernels import kernels_of
from patchbag.metrics import mean_class_accuracy
from patchbag.recipes import RECIPES, make_recipe

pytestmark = pytest.mark.usefixtures("own_store")

SMALL = {"statistics.mixture.n_components": 3, "statistics.projection.n_components": 8}


def pictures(folder):
    collection = open_collection(folder)
    return np.array(collection.paths), collection.labels.astype(str)


def spec_of(picture_folder, *runs, **more):
    spec = {"name": "x", "kind": "evaluate", "title": "t", "data": picture_folder.name, "train_per_class": 5}
    return {**spec, "splits": 2, "settings": SMALL, "run": list(runs), **more}


def test_a_run_gives_the_accuracy_of_its_recipe(picture_folder):
    run = {"name": "words", "recipe": "words", "published": 12.0}
    result = run_experiment(spec_of(picture_folder, run), picture_folder.parent)
    paths, labels = pictures(picture_folder)
    for i, (train, test) in enumerate(PerClassSplit(5, n_splits=2).split(labels, labels)):
        settings = {f"recipe__{k.replace('.', '__')}": v for k, v in SMALL.items()}
        model = Categorizer("words", random_state=i).set_params(**settings).fit(paths[train].tolist(), labels[train])
        expected = 100 * mean_class_accuracy(labels[test], model.predict(paths[test].tolist()))
        assert result["runs"][0]["accuracies"][i] == pytest.approx(expected)
    assert result["runs"][0]["published"] == 12.0


def test_runs_share_what_they_have_in_common(picture_folder, monkeypatch):
    fits = []
    original = clone

    def counting(step):
        fits.append(type(step).__name__)
        return original(step)

    monkeypatch.setattr("patchbag.mixture.universal.clone", counting)
    runs = [
        {"name": n, "recipe": "gmm-ppk", "settings": {"adaptation.relevance": r}} for n, r in (("a", 1.0), ("b", 9.0))
    ]
    result = run_experiment(spec_of(picture_folder, *runs, splits=1), picture_folder.parent)
    assert fits.count("UniversalMixture") == 1
    assert len(result["runs"]) == 2


def test_a_stopped_experiment_goes_on_where_it_was(picture_folder, tmp_path):
    runs = [
        {"name": "words", "recipe": "words"},
        {"name": "whole", "recipe": "words", "settings": {"classifier.C": 1.0}},
    ]
    spec = spec_of(picture_folder, *runs)
    expected = run_experiment(spec, picture_folder.parent)["runs"]
    place = tmp_path / "results" / "x.partial.jsonl"

    def stop(text):
        if text.startswith("split 2 of 2: whole"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(spec, picture_folder.parent, progress=stop, journal=Journal(place))
    with place.open("a") as file:
        file.write('{"key": "cut o')
    seen = []
    journal = Journal(place)
    assert len(journal) == 3
    result = run_experiment(spec, picture_folder.parent, progress=seen.append, journal=journal)
    assert [r["accuracies"] for r in result["runs"]] == [r["accuracies"] for r in expected]
    assert sum(text.startswith("split") for text in seen) == 2  # its beginning and its figure, of the one that lacked
    assert len(Journal(place)) == 4
    journal.remove()
    assert not place.exists()


def test_a_run_may_have_another_classifier_on_the_same_kernel(picture_folder, monkeypatch):
    made = []
    original = MixtureKernel.transform
    monkeypatch.setattr(MixtureKernel, "transform", lambda self, X: made.append(len(X)) or original(self, X))
    names = ("svm", "sparse-logistic")
    runs = [{"name": "own", "recipe": "gmm-ppk"}] + [{"name": n, "recipe": "gmm-ppk", "classifier": n} for n in names]
    rows = run_experiment(spec_of(picture_folder, *runs, splits=1), picture_folder.parent)["runs"]
    assert made == [21]  # the test images once, for three classifiers
    assert all(row["mean"] > 40 for row in rows)

    wrong = spec_of(picture_folder, {"name": "a", "recipe": "gmm-ppk", "classifier": "tree"})
    with pytest.raises(ExperimentError, match=r"must be one of sparse-logistic, svm, .*got 'tree'"):
        run_experiment(wrong, picture_folder.parent)


def test_the_universal_model_may_come_from_another_folder(picture_folder, monkeypatch):
    seen = []
    from patchbag import UniversalStatistics

    original = UniversalStatistics.fit
    monkeypatch.setattr(UniversalStatistics, "fit", lambda self, X, *a: seen.append(len(X)) or original(self, X, *a))
    runs = [{"name": "own", "recipe": "words"}, {"name": "other", "recipe": "words", "universal": picture_folder.name}]
    run_experiment(spec_of(picture_folder, *runs, splits=2), picture_folder.parent)
    assert seen == [36, 15, 15]  # all images of the other folder, once; then the training images of each split


def test_every_experiment_names_recipes_and_parameters_that_exist():
    assert "liu2010/scene15" in list_experiments()
    for name in list_experiments():
        spec = load_experiment(name)
        assert spec["title"] and spec["source"]
        for run in spec.get("run", []):
            if "recipe" in run:
                assert run["recipe"] in RECIPES
                experiments.run_pipeline(run, spec.get("settings", {}))
        valid = set().union(*(make_recipe(r).get_params() for r in RECIPES))
        assert {k.replace(".", "__") for k in spec.get("settings", {})} <= valid


def test_the_toy_example_gives_the_published_figures():
    rows = {r["name"]: r for r in run_experiment(load_experiment("liu2010/toy"), None)["runs"]}
    assert rows["δ of equal SKL"]["mean"] == pytest.approx(2.0, abs=0.06)
    assert rows["δ of equal Bhattacharyya"]["mean"] == pytest.approx(1.5, abs=0.06)
    weights = [rows[f"weight of p{i} at convergence"]["mean"] for i in (1, 2, 3)]
    assert weights == pytest.approx([0.5, 0.5, 0.0], abs=1e-3)


def test_discount_curves_lie_between_a_step_and_a_line():
    rows = {r["name"]: r["mean"] for r in run_experiment(load_experiment("cinbis2012/figure5"), None)["runs"]}
    curve = [v for k, v in rows.items() if k.startswith("α")]
    assert curve == sorted(curve, reverse=True)
    assert curve[0] > 0.98 and curve[-1] == pytest.approx(0.25, abs=0.01)


def test_results_are_written_as_json_and_plot(tmp_path):
    result = run_experiment(load_experiment("cinbis2012/figure5"), None)
    data, plot = write_results(result, tmp_path)
    assert json.loads(data.read_text())["runs"] == result["runs"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_confusions_beside_curves_are_a_plot_of_their_own(tmp_path):
    runs = [{"name": f"a, {x}", "series": "a", "x": x, "mean": 50.0 + x, "std": 1.0} for x in (0.1, 1.0)]
    runs += [{"name": "b", "mean": 60.0, "std": 1.0, "confusion": [[3, 1], [0, 4]], "classes": ["x", "y"]}]
    both = write_results({"name": "one", "runs": runs, "plot": "confusion", "axis": "share"}, tmp_path)
    assert [p.name for p in both] == ["one.json", "one.png", "one-confusion.png"] and all(p.is_file() for p in both)
    alone = write_results({"name": "two", "runs": runs[2:], "plot": "confusion"}, tmp_path)
    assert [p.name for p in alone] == ["two.json", "two.png"] and alone[1].stat().st_size > 1000


def test_the_legend_of_many_runs_lies_inside_of_the_plot_and_tells_them_apart():
    names = [f"a classifier with a name that is as long as this, {i}" for i in range(12)]
    runs = [{"name": n, "series": n, "x": x, "mean": 50.0 + x} for n in names[:4] for x in (0.1, 1.0)]
    figure, axes = plots._plot_curves(runs + [{"name": n, "mean": 60.0} for n in names[4:]])
    figure.savefig(BytesIO())
    box, inside = figure.legends[0].get_window_extent(), figure.bbox
    assert box.x0 >= inside.x0 and box.x1 <= inside.x1 and axes.get_window_extent().height > 0.4 * inside.height
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines if line.get_label() in names}) == 8


def test_missing_experiments_and_data_are_clear_errors(tmp_path):
    with pytest.raises(ExperimentError, match="there is no experiment 'liu2011/x'; there are"):
        load_experiment("liu2011/x")
    with pytest.raises(ExperimentError, match="PATCHBAG_DATA"):
        run_experiment(load_experiment("liu2010/scene15"), None)
    with pytest.raises(ValueError, match="there is no folder"):
        run_experiment(load_experiment("liu2010/scene15"), tmp_path)
    (tmp_path / "bad.toml").write_text("x = ")
    with pytest.raises(ExperimentError, match=r"bad\.toml"):
        load_experiment(str(tmp_path / "bad.toml"))


COMPLETE = """
data = "pictures"
train_per_class = 5
[[run]]
name = "one"
recipe = "words"
"""


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('data = "pictures"', "", "there is no data in it"),
        ("train_per_class = 5", "", "there must be train_per_class or folds in it"),
        ('recipe = "words"', "", "run 'one': there is no recipe in it"),
        ('name = "one"', "", "run 1: there is no name in it"),
        (COMPLETE, 'data = "x"\ntrain_per_class = 1', "there is no run in it"),
        (COMPLETE, 'data = "x"\ntrain_per_class = 1\nrun = "x"', r"each under a line \[\[run\]\]"),
        (COMPLETE, 'data = "x"\ntrain_per_class = 1\nrun = []', r"each under a line \[\[run\]\]"),
        ('"pictures"', "3", "data must be an instance of 'str'; got 3"),
        ("= 5", '= "x"', 'train_per_class must be an int .*; got "x"'),
        ("= 5", "= 0", r"train_per_class must be an int in the range \[1, inf\); got 0"),
        ("= 5", "= 5\nseed = -1", r"seed must be an int in the range \[0, inf\); got -1"),
        ("= 5", "= 5\nsettings = 3", "settings must be an instance of 'dict'; got 3"),
        ("= 5", '= 5\nkind = "magic"', "unknown kind 'magic'; there are evaluate"),
        ('"words"', '"words"\nover = { a = 3 }', "over must give a a list of values, got 3"),
        ('"words"', '"words"\nover = { a = [1, 2] }\npublished = [3]', "must be a list of 2 figures"),
    ],
)
def test_files_that_are_not_complete_say_what_is_missing(tmp_path, old, new, message):
    assert old in COMPLETE
    (tmp_path / "bad.toml").write_text(COMPLETE.replace(old, new))
    with pytest.raises(ExperimentError, match=rf"bad\.toml.*{message}"):
        load_experiment(str(tmp_path / "bad.toml"))


def test_complete_files_pass_and_other_encodings_are_refused(tmp_path):
    (tmp_path / "good.toml").write_text(COMPLETE)
    assert load_experiment(str(tmp_path / "good.toml"))["run"] == [{"name": "one", "recipe": "words"}]
    assert load_experiment(str(tmp_path / "good.toml"))["name"] == "good"
    (tmp_path / "latin.toml").write_bytes(b'title = "caf\xe9"')
    with pytest.raises(ExperimentError, match=r"latin\.toml.*utf-8"):
        load_experiment(str(tmp_path / "latin.toml"))


def test_settings_are_checked_before_images_are_described(picture_folder, monkeypatch):
    monkeypatch.setattr(Collection, "describe", lambda *a, **k: pytest.fail("too late"))
    good = {"name": "good", "recipe": "words"}
    for settings, message in (
        ({"features.stride": 3}, "run 'bad': recipe 'words' has no parameter 'features.stride'; is it 'features.step'"),
        ({"statistics.mixture.n_components": "x"}, "statistics.mixture.n_components must be an int"),
    ):
        bad = {"name": "bad", "recipe": "words", "settings": settings}
        with pytest.raises(ValueError, match=message) as error:
            run_experiment(spec_of(picture_folder, good, bad), picture_folder.parent)
        assert "Pipeline" not in str(error.value) and "\n" not in str(error.value)
    spec = spec_of(picture_folder, good, settings={"statistics.mixtures.n_components": 3})
    with pytest.raises(ExperimentError, match="no run has a parameter 'statistics"):
        run_experiment(spec, picture_folder.parent)


def test_a_run_may_leave_a_step_out(picture_folder):
    run = {"name": "plain", "recipe": "words", "settings": {"normalize": "passthrough"}}
    result = run_experiment(spec_of(picture_folder, run, splits=1), picture_folder.parent)
    assert result["runs"][0]["mean"] > 50


def test_over_repeats_a_run_and_whole_uses_the_first_cell(picture_folder, tmp_path):
    sizes = {"statistics.mixture.n_components": [2, 3]}
    pyramid = {"statistics.pyramid": ["1x1", "2x2"]}
    runs = [
        {"name": "whole", "recipe": "words", "over": sizes, "settings": pyramid, "whole": True},
        {"name": "cells", "recipe": "words", "over": sizes, "settings": pyramid},
        {"name": "alone", "recipe": "words", "settings": {"statistics.mixture.n_components": 2}},
    ]
    result = run_experiment(spec_of(picture_folder, *runs), picture_folder.parent)
    found = {r["name"]: r for r in result["runs"]}
    assert list(found) == ["whole, 2", "whole, 3", "cells, 2", "cells, 3", "alone"]
    assert found["whole, 2"]["accuracies"] == pytest.approx(found["alone"]["accuracies"])
    assert found["cells, 3"]["x"] == 3 and found["cells, 3"]["series"] == "cells"
    assert write_results(result, tmp_path)[1].stat().st_size > 1000


def test_over_takes_one_parameter(picture_folder):
    run = {"name": "both", "recipe": "words", "over": {"a": [1], "b": [2]}}
    with pytest.raises(ExperimentError, match="run 'both' varies 2 parameters"):
        run_experiment(spec_of(picture_folder, run), picture_folder.parent)


def test_classes_can_be_left_out(picture_folder):
    names = open_collection(picture_folder).classes
    spec = {"data": picture_folder.name, "without": names[:1]}
    assert Experiment(spec, picture_folder.parent).images.classes == names[1:]


def test_a_slip_in_a_key_is_found(tmp_path):
    path = tmp_path / "slip.toml"
    path.write_text('kind = "toy"\nspilts = 3\n')
    with pytest.raises(ExperimentError, match="unknown key 'spilts'; is it 'splits'"):
        load_experiment(str(path))


def test_several_features_are_branches_with_the_same_settings(picture_folder):
    runs = [{"name": "both", "recipe": "words", "features": ["sift", "color"]}, {"name": "one", "recipe": "words"}]
    result = run_experiment(spec_of(picture_folder, *runs, splits=1), picture_folder.parent)
    model = experiments.run_pipeline(runs[0], SMALL).named_steps["classifier"]
    sizes = [branch.get_params()["statistics__mixture__n_components"] for _, branch in model.branches]
    assert sizes == [3, 3]
    paths, labels = pictures(picture_folder)
    ((train, test),) = PerClassSplit(5, n_splits=1).split(labels, labels)
    settings = {
        f"recipe__classifier__{b}__{k.replace('.', '__')}": v for b in ("sift", "color") for k, v in SMALL.items()
    }
    direct = Categorizer("words", features=["sift", "color"], random_state=0).set_params(**settings)
    direct.fit(paths[train].tolist(), labels[train])
    assert result["runs"][0]["accuracies"][0] == pytest.approx(100 * direct.score(paths[test].tolist(), labels[test]))


def test_kernel_matrices_are_kept_for_other_experiments(picture_folder, monkeypatch):
    spec = {"data": picture_folder.name, "recipe": "gp-combined"}
    few = {"features.sift.step": 16, "features.use": ["sift"], "kernels.spm.kernel.n_words": 12}
    made = []
    original = kernel_files.make_kernel
    monkeypatch.setattr(kernel_files, "make_kernel", lambda *a: made.append(a) or original(*a))

    def kernels(use, **more):
        made.clear()
        settings = {**few, "kernels.use": use, **more}
        found = kernels_of(Experiment({**spec, "settings": settings}, picture_folder.parent))
        assert all(matrix.shape == (36, 36) for matrix in found.values())
        return found, len(made)

    first, count = kernels(["spm", "pmk"])
    assert count == 2
    again, count = kernels(["pmk", "spm", "gmm-ppk"])
    assert count == 1
    np.testing.assert_array_equal(again["spm"], first["spm"])
    assert kernels(["spm"], **{"kernels.spm.kernel.n_words": 13})[1] == 1
    assert kernels(["spm"], **{"features.sift.step": 17})[1] == 1
    assert kernels(["spm"])[1] == 0
    monkeypatch.setattr("patchbag.memory.code_digest", lambda: "another")
    assert kernels(["spm"])[1] == 1


def test_tables_are_read_with_or_without_headings(tmp_path):
    from patchbag.experiments.points import read_table

    (tmp_path / "a.csv").write_text("id,kind,x\n7,M,1.5\n8,B,2.5\n\n")
    X, y = read_table(tmp_path / "a.csv", 1, (0,))
    assert X.tolist() == [[1.5], [2.5]] and y.tolist() == ["M", "B"]
    (tmp_path / "b.txt").write_text("xs ys yc\n0.1 0.2 1\n0.3 0.4 0\n")
    X, y = read_table(tmp_path / "b.txt", -1)
    assert X.shape == (2, 2) and y.tolist() == ["1", "0"]
    with pytest.raises(ExperimentError, match=r"there is no c\.csv"):
        read_table(tmp_path / "c.csv", 0)


def test_folds_are_a_cross_validation(picture_folder):
    spec = spec_of(picture_folder, {"name": "words", "recipe": "words"})
    del spec["train_per_class"]
    row = run_experiment({**spec, "folds": 3}, picture_folder.parent)["runs"][0]
    assert len(row["accuracies"]) == 3


@pytest.mark.parametrize(("by", "more"), [("smp", {"preselected": 20}), ("smp", {}), ("deep", {"diffuse": True})])
def test_a_search_is_judged_by_the_classes_of_what_it_finds(picture_folder, by, more):
    spec = {"name": "x", "kind": "retrieval", "data": picture_folder.name, "at": [5], "queries": 6}
    spec["run"] = [{"name": "it", "by": by, **more}]
    without, with_query, mean_precision = run_experiment(spec, picture_folder.parent)["runs"]
    assert set(without["per_class"]) == {"bars", "diagonals", "stripes"}
    assert 50 < without["mean"] <= 100 and 50 < mean_precision["mean"] <= 100
    assert with_query["mean"] >= without["mean"]


@pytest.mark.parametrize("by", ["deep", "keypoints"])
def test_groups_are_judged_by_recall_over_the_precision_that_is_missing(picture_folder, tmp_path, by):
    (tmp_path / "ukbench").mkdir()
    for group, name in enumerate(("bars", "diagonals", "stripes")):
        for i, path in enumerate(sorted((picture_folder / name).iterdir())[:4]):
            shutil.copy(path, tmp_path / "ukbench" / f"ukbench{4 * group + i:05d}{path.suffix}")
    spec = {"name": "x", "kind": "retrieval", "data": "ukbench", "layout": "ukbench", "at": [1, 3, 9]}
    spec["run"] = [{"name": "it", "by": by, "expand": 2}, {"name": "two groups", "by": by, "first": 8}]
    spec["at"] = [1, 3, 7]
    runs = run_experiment(spec, tmp_path)["runs"]
    one, three, seven, four, precision = runs[:5]
    assert one["mean"] == pytest.approx((100 - one["x"]) / 3) and three["mean"] == pytest.approx(100 - three["x"])
    assert one["mean"] <= three["mean"] <= seven["mean"] and four["mean"] == pytest.approx(1 + 3 * three["mean"] / 100)
    assert 0 < precision["mean"] <= 100 and runs[7]["mean"] == 100  # all other seven are seen


def test_versions_of_the_query_are_counted_where_they_come_before_all_others(picture_folder):
    from patchbag.experiments.robustness import make_version

    spec = {"name": "x", "kind": "robustness", "data": picture_folder.name, "queries": 6, "versions": ["dark-1"]}
    spec["run"] = [{"name": "it", "by": "deep", "verify": 5}]
    every, dark, precision = run_experiment(spec, picture_folder.parent)["runs"]
    assert every["mean"] == dark["mean"] == precision["mean"] == 100  # a gamma of 1 changes nothing
    rng = np.random.default_rng(0)
    image = cv2.GaussianBlur(rng.integers(0, 256, (60, 90, 3)).astype(np.uint8), (0, 0), 2)
    for version in ("jpeg-10", "jpeg2000-30", "turn-10", "zoom-1.5", "view-10", "dark-2"):
        made = make_version(image, version, rng)
        assert made.shape == image.shape and made.dtype == np.uint8 and not np.array_equal(made, image)
    error = make_version(image, "jpeg2000-30", rng).astype(float) - image
    assert 28 < 10 * np.log10(255**2 / (error**2).mean()) < 40
    with pytest.raises(ExperimentError, match="no version 'upside-down'"):
        make_version(image, "upside-down", rng)


def test_trees_on_histograms_are_measured_against_all_points(picture_folder, monkeypatch, tmp_path):
    from patchbag.experiments import neighbors

    monkeypatch.setitem(neighbors.SIZES, "colors", (400, 30))
    monkeypatch.setitem(neighbors.SIZES, "words", (60, 10))
    monkeypatch.setattr(neighbors, "N_WORDS", 12)
    runs = [
        {"name": "leaves", "figure": "leaves", "settings": {"leaf_size": 20, "relocate": False}},
        {"name": "exact", "figure": "exact", "tree": "vantage", "settings": {"leaf_size": 20, "side": "left"}},
        {"name": "closer", "figure": "closer", "at": [1, 4, 400], "settings": {"leaf_size": 20}},
        {"name": "sample", "figure": "closer", "tree": "sample", "at": [0.1, 1.0]},
    ]
    spec = {"name": "n", "kind": "neighbors", "data": picture_folder.name, "features": "colors", "run": runs}
    result = run_experiment(spec, picture_folder.parent)
    leaves, exact, one, four, every, tenth, whole = result["runs"]
    assert 20 <= leaves["mean"] <= 400 and exact["mean"] > 0
    assert one["mean"] >= four["mean"] >= every["mean"] == 0 and one["x"] > four["x"] > every["x"]
    assert tenth["mean"] > 0 == whole["mean"] and whole["x"] == 1
    words = run_experiment({**spec, "features": "words", "run": runs[2:3]}, picture_folder.parent)
    assert words["runs"][-1]["mean"] == 0
    assert all(path.is_file() for path in write_results(result, tmp_path / "results"))


def test_clusters_are_held_against_the_classes(picture_folder):
    runs = [{"name": "words", "recipe": "words"}, {"name": "kernel", "recipe": "words-chi2"}]
    spec = {"kind": "clusters", "data": picture_folder.name, "train_per_class": 9, "splits": 2, "run": runs}
    rows = run_experiment({**spec, "name": "x", "title": "t", "source": "s"}, picture_folder.parent)["runs"]
    assert [row["name"] for row in rows] == ["words", "kernel"]
    assert all(20 < row["mean"] <= 100 for row in rows)
