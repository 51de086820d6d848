"""Experiments on points of the plane: condensing, regions, the decay of the risk."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from patchbag.experiments import (
    Experiment,
    ExperimentError,
    answers,
    load_experiment,
    points,
    run_experiment,
    write_results,
)
from patchbag.experiments.condensed import CondensedNeighbors
from patchbag.experiments.journal import Journal
from patchbag.experiments.planes import CENTRES, VARIANCE, BayesRule
from patchbag.experiments.runs import CLASSIFIERS
from patchbag.runtime import runtime_context


def draw(n, rng):
    labels = np.arange(n) % 2
    centres = np.array([CENTRES["0"], CENTRES["1"]])[labels, rng.integers(0, 2, n)]
    return centres + rng.normal(size=(n, 2)) * np.sqrt(VARIANCE), labels.astype(str)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Points drawn from Ripley's densities, in his format."""
    folder, rng = tmp_path_factory.mktemp("data") / "tables", np.random.default_rng(0)
    folder.mkdir()
    for name, n in (("synth.tr", 100), ("synth.te", 400)):
        lines = [f"{x:.4f} {y:.4f} {label}" for (x, y), label in zip(*draw(n, rng))]
        (folder / name).write_text("\n".join(["xs ys yc", *lines]))
    return folder.parent


def test_bayes_rule_errs_as_often_as_the_integral_of_the_smaller_density_says():
    X, y = draw(50_000, np.random.default_rng(1))
    x = np.stack(np.meshgrid(np.linspace(-2, 2, 401), np.linspace(-1, 2, 301)), axis=-1).reshape(-1, 1, 2)
    density = [np.exp(-((x - np.array(at)) ** 2).sum(axis=2) / (2 * VARIANCE)).mean(axis=1) for at in CENTRES.values()]
    integral = 0.5 * np.minimum(*density).sum() * 0.01**2 / (2 * np.pi * VARIANCE)
    assert integral == pytest.approx(0.0893, abs=1e-4)
    assert np.mean(BayesRule().predict(X) != y) == pytest.approx(integral, abs=0.004)


def test_condensed_examples_classify_all_training_examples_right():
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    X = rng.normal(size=(150, 4)) + np.eye(3, 4)[y] * 3
    model = CondensedNeighbors(random_state=0).fit(X, y)
    plain = KNeighborsClassifier(1).fit(X[model.prototypes_], y[model.prototypes_])
    assert len(model.prototypes_) < 75
    np.testing.assert_array_equal(plain.predict(X), y)
    np.testing.assert_array_equal(model.predict(X), y)
    assert set(CondensedNeighbors(random_state=1).fit(X, y).prototypes_) != set(model.prototypes_)


@pytest.mark.parametrize(
    "name", ["knn", "mlnn", "unn", "condensed-nn", "metric-knn", "metric-mlnn", "plsa-knn", "rbf-svm"]
)
@pytest.mark.filterwarnings("ignore:.*(onverge|iteration)")
def test_partners_of_the_boosted_neighbours_tell_classes_apart(name):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = rng.dirichlet(np.ones(70), 200) * np.where(y[:, None], np.linspace(0.2, 1, 70), np.linspace(1, 0.2, 70))
    found = []
    for _ in range(2):
        with runtime_context(seed=0):
            found.append(CLASSIFIERS[name]().fit(X[:120], y[:120]).predict(X))
    assert np.mean(found[0][120:] == y[120:]) > 0.7
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", ["figure4_5", "figure4_8", "figure5_4"])
def test_regions_of_the_plane_are_drawn_with_the_points_kept(name, tables, tmp_path):
    result = run_experiment(load_experiment(f"piro2010/{name}"), tables)
    for run in result["runs"]:
        assert len(run["panel"]["kept"]) == run["kept"] and run["mean"] < 25
        assert {0, 1} == set(np.ravel(run["panel"]["regions"]))
    assert len(result["runs"][0]["panel"]["points"]) == (400 if name == "figure4_5" else 100)
    _, plot = write_results(result, tmp_path)
    assert plot.stat().st_size > 10_000


def test_an_unknown_model_is_named(tables):
    spec = load_experiment("piro2010/figure5_4")
    spec["run"][0]["model"] = "tree"
    with pytest.raises(ExperimentError, match="model must be one of bayes, unn, mlnn, svm"):
        run_experiment(spec, tables)


def test_the_largest_leverage_lowers_the_risk_fastest_and_no_round_raises_it(tables, tmp_path):
    result = run_experiment(load_experiment("piro2010/figure4_6"), tables)
    curves = {run["curve_name"]: np.array(run["curve"]) for run in result["runs"]}
    assert all(np.diff(curve).max() <= 1e-12 for curve in curves.values())
    first = {name: curve[20] for name, curve in curves.items()}
    assert first["boosting"] < min(first["lazy, random order"], first["lazy, class after class"])
    assert write_results(result, tmp_path)[1].is_file()


def test_boosted_neighbours_need_fewer_points_than_random_and_condensed_ones(tables):
    spec = load_experiment("piro2010/figure4_7") | {"at": [0.2]}
    rows = run_experiment(spec, tables)["runs"]
    errors = {row.get("series"): row["mean"] for row in rows}
    assert rows[0]["kept"] <= 20 and rows[-1]["std"] > 0
    assert max(errors["UNN"], errors["MLNN"]) < min(errors["random k-NN"], errors[None])


def test_errors_of_tables_are_kept_in_the_journal(tables, monkeypatch):
    """Of what was found, nothing is computed again; of a changed table, everything."""
    monkeypatch.setattr(points, "LOSSES", ["exponential"])
    fits = []
    error = points._error
    monkeypatch.setattr(points, "_error", lambda *given: fits.append(given) or error(*given))
    spec = {
        "kind": "uci",
        "tables": {"ripley": {"file": "synth.tr", "label": -1, "k": 3, "published": [10.0, 12.0, 11.0]}},
    }
    journal = Journal()
    rows = points.uci_table(Experiment(spec, tables, journal=journal))
    once = len(fits)
    assert once == 10 * len(rows) and all(0 <= row["mean"] < 40 for row in rows)
    assert points.uci_table(Experiment(spec, tables, journal=journal)) == rows and len(fits) == once
    plain = next(row for row in rows if row["name"] == "ripley: k-NN")
    X, y = points.read_table(tables / "tables" / "synth.tr", -1)
    folds = RepeatedStratifiedKFold(n_splits=2, n_repeats=5, random_state=0)
    expected = 100 * cross_val_score(KNeighborsClassifier(3), X, y, cv=folds)
    assert plain["published"] == 12.0 and plain["accuracies"] == pytest.approx(list(expected))
    points.uci_table(Experiment(spec | {"seed": 1}, tables, journal=journal))
    assert len(fits) == 2 * once


def test_half_of_the_classes_are_left_out_at_once():
    labels = np.repeat(list("abcdefg"), 2)
    halves = [answers._left_out({"half": True}, labels, seed) for seed in range(20)]
    assert all(len(found) == 1 and len(set(found[0])) == 3 for found in halves)
    assert set(np.concatenate([found[0] for found in halves])) == set("abcdefg")
    assert [one.tolist() for one in answers._left_out({}, labels, 0)] == [[c] for c in "abcdefg"]


def test_ranks_and_distrust_are_told_of_recipes(picture_folder, own_store):
    spec = {"name": "x", "title": "t", "data": picture_folder.name, "train_per_class": 6, "splits": 1}
    spec["run"] = [{"name": "MLNN", "recipe": "mlnn-gist", "settings": {"projection.n_components": 4}}]
    spec["run"][0]["published"] = {"r = 2": 50.0}
    rows = run_experiment(spec | {"kind": "ranks", "at": [1, 2]}, picture_folder.parent)["runs"]
    assert [row["name"] for row in rows] == ["MLNN: r = 1", "MLNN: r = 2"]
    assert rows[0]["mean"] <= rows[1]["mean"] <= 100 and rows[1]["published"] == 50.0
    assert rows[0]["mean"] == pytest.approx(np.mean(list(rows[0]["classes"].values())))
    del spec["train_per_class"]
    for half in (False, True):
        rows = run_experiment(spec | {"kind": "distrust", "at": [3, 6], "half": half}, picture_folder.parent)["runs"]
        assert len({row["name"] for row in rows}) == 16
        figures = {row["name"].removeprefix("MLNN, 6 per class: "): row["mean"] for row in rows}
        assert 0 <= figures["calibration error"] <= 100 and 1 <= figures["classes per set"] <= 2
        assert figures["accuracy"] <= figures["90 % sets that hold the class"]
    rows = run_experiment(spec | {"kind": "calibration", "at": [2, 3]}, picture_folder.parent)["runs"]
    figures = {row["name"].removeprefix("MLNN, 3 per class: "): row["mean"] for row in rows}
    assert figures["furthest apart"] == pytest.approx(abs(figures["stated"] - figures["right"]))
    assert figures["log loss at the best power"] <= figures["log loss"]
