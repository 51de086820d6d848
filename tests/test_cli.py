from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from patchbag import cli
from patchbag.cli import app, parse_settings

SMALL = ["--set", "statistics.mixture.n_components=3", "--set", "statistics.projection.n_components=8"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PATCHBAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def model(picture_folder, tmp_path):
    result = run("train", picture_folder, "-o", tmp_path / "m.patchbag", "-r", "words", "-j", 1, *SMALL)
    assert result.exit_code == 0, result.output
    assert "36 images, 3 classes" in result.output
    return tmp_path / "m.patchbag"


def test_train_then_predict_prints_a_line_an_image(model, picture_folder):
    result = run("predict", model, picture_folder / "bars", "-j", 1)
    assert result.exit_code == 0
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert len(rows) == 12 and rows[0][0].endswith("bars/00.png")
    assert all(len(row) == 7 and float(row[2]) >= float(row[4]) for row in rows)


def test_on_a_terminal_predictions_are_a_table(model, picture_folder, monkeypatch):
    console = cli.Console(force_terminal=True, width=150, record=True)
    monkeypatch.setattr(cli, "out", console)
    assert run("predict", model, picture_folder / "bars", "-j", 1).exit_code == 0
    text = console.export_text()
    assert "probability" in text and text.count("00.png") == 1 and text.count("%") > 12


def test_predict_as_json_has_every_probability_and_the_broken_files(model, picture_folder):
    (picture_folder / "bars" / "broken.jpg").write_text("text")
    result = run("predict", model, picture_folder / "bars" / "*.*g", "--json", "-j", 1)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == 13
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1, abs=1e-4)
    assert rows[0]["label"] == max(rows[0]["probabilities"], key=rows[0]["probabilities"].get)
    assert rows[-1]["image"].endswith("broken.jpg") and "error" in rows[-1]


def test_predicting_only_broken_files_fails(model, tmp_path):
    (tmp_path / "x.png").write_bytes(b"")
    result = run("predict", model, tmp_path / "x.png", "-j", 1)
    assert result.exit_code == 1
    assert "x.png" in result.output


def test_evaluate_writes_the_json_and_the_report(picture_folder, tmp_path):
    (picture_folder / "bars" / "broken.png").write_bytes(b"\x89PNG")
    out, page = tmp_path / "out.json", tmp_path / "r.html"
    options = ["--recipe", "words", "--train-per-class", 4, "--splits", 2, "--seed", 0, "-j", 1]
    result = run("evaluate", picture_folder, *options, "--json", out, "--report", page, *SMALL)
    assert result.exit_code == 0, result.output
    assert "left out 1 of 37 files" in result.output and "broken.png" in result.output
    data = json.loads(out.read_text())
    assert {"recipe", "mean_accuracy", "std_accuracy", "splits", "seconds", "parameters"} <= set(data)
    assert data["recipe"] == "words" and 0.5 < data["mean_accuracy"] <= 1
    assert data["splits"][0]["n_test"] == 24  # the broken file has moved no label
    assert data["left_out"][0]["image"].endswith("broken.png")
    assert "broken.png" in page.read_text()
    assert f"{100 * data['mean_accuracy']:.2f}" in result.output


def test_the_second_run_takes_its_features_from_the_cache(picture_folder, tmp_path, monkeypatch):
    options = ["-r", "words", "--train-per-class", 4, "--splits", 1, "-j", 1, "--json", tmp_path / "a.json", *SMALL]
    first = run("evaluate", picture_folder, *options)
    accuracy = json.loads((tmp_path / "a.json").read_text())["mean_accuracy"]
    assert "36 images" in run("cache").output
    monkeypatch.setattr("patchbag.features.dense_sift.DenseSIFT.describe", lambda *a: pytest.fail("not cached"))
    second = run("evaluate", picture_folder, *options)
    assert first.exit_code == second.exit_code == 0
    assert json.loads((tmp_path / "a.json").read_text())["mean_accuracy"] == accuracy
    assert "removed 36" in run("cache", "--clear").output
    assert "0 images" in run("cache").output


def test_without_cache_nothing_is_kept(picture_folder):
    assert run("train", picture_folder, "-r", "words", "-j", 1, "--no-cache", *SMALL).exit_code == 0
    assert "0 images" in run("cache").output


def test_recipes_lists_names_and_parameters():
    assert all(name in run("recipes").output for name in ("words", "fisher"))
    assert "statistics.mixture.n_components" in run("recipes", "fisher").output


def test_settings_are_json_or_text():
    assert parse_settings(["a.b=3", "c=x", 'd=["1x1"]', "e=null"]) == {"a__b": 3, "c": "x", "d": ["1x1"], "e": None}
    with pytest.raises(ValueError, match="NAME=VALUE"):
        parse_settings(["abc"])


def fail(monkeypatch, capsys, *arguments: object) -> str:
    """Run through main, as the command does, and return what a person reads."""
    monkeypatch.setattr(sys, "argv", ["patchbag", *map(str, arguments)])
    monkeypatch.setattr(cli, "err", cli.Console(stderr=True, width=200))
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_mistakes_of_the_user_are_one_line(monkeypatch, capsys, tmp_path, picture_folder):
    (tmp_path / "empty").mkdir()
    cases = {
        ("train", tmp_path / "nowhere"): "there is no folder",
        ("train", tmp_path / "empty"): "at least 2 sub-folders",
        ("train", picture_folder, "-r", "magic"): "no recipe 'magic'",
        ("train", picture_folder, "-s", "features.stride=2"): "no parameter 'features.stride'",
        ("predict", tmp_path / "none.patchbag", picture_folder): "cannot read the model",
        ("predict", picture_folder / "bars" / "00.png", picture_folder): "not a patchbag model",
        ("evaluate", picture_folder, "--train-per-class", 12, "-j", 1): "leave none for testing",
    }
    for arguments, message in cases.items():
        text = fail(monkeypatch, capsys, *arguments)
        assert message in text and "Traceback" not in text


def test_a_folder_where_everything_is_broken_says_so(monkeypatch, capsys, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "f" / name).mkdir(parents=True)
        (tmp_path / "f" / name / "x.jpg").write_text("text")
    text = fail(monkeypatch, capsys, "train", tmp_path / "f", "-j", 1)
    assert "left out 2 of 2" in text and "fewer than two classes" in text


def test_demo_runs_the_whole_path(tmp_path):
    started = time.perf_counter()
    result = run("demo", "-o", tmp_path / "demo", "-r", "words")
    assert result.exit_code == 0, result.output
    assert time.perf_counter() - started < 60
    accuracy = float(result.output.split(" % of")[0].rsplit(" ", 1)[-1])
    assert accuracy > 40  # chance is 7
    assert (tmp_path / "demo" / "report.html").stat().st_size > 50_000
    assert (tmp_path / "demo" / "model.patchbag").exists()


def test_import_and_help_are_quick():
    def best(*command: str) -> float:
        times = []
        for _ in range(3):
            started = time.perf_counter()
            subprocess.run([sys.executable, *command], check=True, capture_output=True)
            times.append(time.perf_counter() - started)
        return min(times)

    bare = best("-c", "pass")
    assert best("-c", "import patchbag") - bare < 0.5
    assert best("-m", "patchbag.cli", "--help") - bare < 1.0
    code = "import sys, patchbag, patchbag.cli; print(sorted({'numba', 'sklearn', 'cv2', 'numpy'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded.strip() == "[]"


def test_every_option_has_a_help_text():
    from typer.main import get_command

    parameters = [(c.name, p) for c in get_command(app).commands.values() for p in c.params]
    assert len(parameters) > 20
    for command, parameter in parameters:
        assert parameter.help, (command, parameter.name)
