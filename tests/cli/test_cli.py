from __future__ import annotations

import csv
import json
import os
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from cli.commands import run
from patchbag import Categorizer, cli
from patchbag.cli import app, screen
from patchbag.cli.files import check_output_folder, check_outputs
from patchbag.cli.options import parse_settings

SMALL = ["--set", "statistics.mixture.n_components=3", "--set", "statistics.projection.n_components=8"]


@pytest.fixture
def model(picture_folder, tmp_path):
    result = run("train", picture_folder, "-o", tmp_path / "m.patchbag", "-r", "words", "-j", 1, *SMALL)
    assert result.exit_code == 0, result.output
    assert "36 images, 3 classes" in result.output
    return tmp_path / "m.patchbag"


def test_results_go_to_a_file_or_a_pipe_while_the_terminal_shows_a_bar(monkeypatch, capsys):
    terminal = Console(stderr=True, force_terminal=True, width=40)
    monkeypatch.setattr(screen, "err", terminal)
    with screen.counting("looking at images", 2) as step:
        step()
        print("a.jpg\t" + 60 * "b")
    shown = capsys.readouterr()
    assert shown.out == "a.jpg\t" + 60 * "b" + "\n" and "looking at images" in shown.err


def test_train_then_predict_prints_a_line_an_image(model, picture_folder):
    result = run("predict", model, picture_folder / "bars", "-j", 1)
    assert result.exit_code == 0
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert len(rows) == 12 and rows[0][0].endswith("bars/00.png")
    assert all(len(row) == 7 and float(row[2]) >= float(row[4]) for row in rows)


def test_on_a_terminal_predictions_are_a_table(model, picture_folder, monkeypatch):
    console = Console(force_terminal=True, width=150, record=True)
    monkeypatch.setattr(screen, "out", console)
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


def test_predictions_are_written_to_a_table_or_to_json_lines(model, picture_folder, tmp_path):
    (picture_folder / "bars" / "broken.jpg").write_text("text")
    for name in ("a.csv", "a.jsonl"):
        assert run("predict", model, picture_folder / "bars", "-o", tmp_path / name, "-j", 1).exit_code == 0
    with (tmp_path / "a.csv").open() as file:
        table = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(table) == len(lines) == 13 and sum(bool(row["error"]) for row in table) == 1
    for row, line in zip(table, lines, strict=True):
        assert row["image"] == line["image"] and row["label"] == line.get("label", "")
    good = next(row for row in table if row["label"])
    assert float(good[f"p({good['label']})"]) == float(good["probability"])
    wrong = run("predict", model, picture_folder, "-o", tmp_path / "a.txt", "-j", 1)
    assert wrong.exit_code == 1 and ".csv, .jsonl or .parquet" in str(wrong.exception)


def test_predictions_go_out_block_by_block(model, picture_folder, monkeypatch):
    from patchbag.categorizer import Categorizer
    from patchbag.cli import prediction

    sizes = []
    judge = Categorizer.judge
    monkeypatch.setattr(prediction, "BLOCK", 5)
    monkeypatch.setattr(Categorizer, "judge", lambda self, X, c: sizes.append(len(X)) or judge(self, X, c))
    result = run("predict", model, picture_folder / "bars", "-j", 1)
    assert sizes == [5, 5, 2] and len(result.stdout.splitlines()) == 12


def test_info_says_what_a_model_is(model):
    text = run("info", model).output
    assert "3: bars" in text and "BagOfWords → Normalizer → LinearClassifier" in text and "36 training images" in text


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
    monkeypatch.setattr("warnings.showwarning", None)  # main replaces it for good
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_an_error_of_the_system_names_the_file_and_says_what_it_is(monkeypatch, capsys):
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "photos/m.patchbag")

    monkeypatch.setattr("patchbag.categorizer.Categorizer.load", refuse)
    assert fail(monkeypatch, capsys, "info", "photos/m.patchbag") == "error: photos/m.patchbag: Permission denied\n"


def test_mistakes_of_the_user_are_one_line(monkeypatch, capsys, tmp_path, picture_folder):
    (tmp_path / "empty").mkdir()
    cases = {
        ("train", tmp_path / "nowhere"): "there is no folder",
        ("train", tmp_path / "empty"): "has no images",
        ("train", picture_folder, "-r", "magic"): "no recipe 'magic'",
        ("train", picture_folder, "-s", "features.stride=2"): "no parameter 'features.stride'",
        ("predict", tmp_path / "none.patchbag", picture_folder): "cannot read the model",
        ("predict", picture_folder / "bars" / "00.png", picture_folder): "not a patchbag model",
        ("evaluate", picture_folder, "--train-per-class", 12, "-j", 1): "leave none for testing",
        ("undo", tmp_path / "nowhere"): "there is no folder",
    }
    for arguments, message in cases.items():
        text = fail(monkeypatch, capsys, *arguments)
        assert message in text and "Traceback" not in text


@pytest.mark.parametrize(
    "setting",
    [
        "features.bin_sizes=4",
        "features.max_side=abc",
        "statistics.projection.n_components=abc",
        "statistics.projection.n_components=2.5",
        "statistics.pyramid=5",
        "statistics.mixture.tol=x",
        "statistics.mixture.split_iter=-1",
        "normalize.steps=5",
        "classifier.folds=x",
        "encoding=foo",
        "features.n_jobs=2",
    ],
)
def test_a_setting_of_the_wrong_kind_is_one_line_that_names_it(monkeypatch, capsys, picture_folder, setting):
    text = fail(monkeypatch, capsys, "train", picture_folder, "-s", setting)
    assert text.count("\n") == 1 and text.startswith("error: ") and setting.split("=")[0] in text


def test_a_setting_that_only_training_finds_wrong_is_one_line_too(monkeypatch, capsys, picture_folder):
    def trip(*_):
        raise TypeError("'int' object is not iterable")

    monkeypatch.setattr("patchbag.categorizer.Categorizer.fit", trip)
    text = fail(monkeypatch, capsys, "train", picture_folder, "-r", "words", "-j", 1, *SMALL)
    assert "does not work with --set statistics.mixture.n_components=3" in text and "TypeError" in text
    result = run("train", picture_folder, "-r", "words", "-j", 1)  # without settings it is a bug of ours
    assert isinstance(result.exception, TypeError)


def test_an_experiment_that_is_not_complete_is_one_line(monkeypatch, capsys, tmp_path, picture_folder):
    path = tmp_path / "bad.toml"
    path.write_text('[[run]]\nname = "a"\nrecipe = "words"\n')
    assert "there is no data in it" in fail(monkeypatch, capsys, "reproduce", path)
    head = f'data = "{picture_folder.name}"\ntrain_per_class = 5\n'
    path.write_text(head + path.read_text() + 'settings = { "features.stride" = 2 }\n')
    text = fail(monkeypatch, capsys, "reproduce", path, "--data", tmp_path)
    assert "run 'a': recipe 'words' has no parameter 'features.stride'" in text and text.count("\n") == 1


# --- what goes out -----------------------------------------------------------------------------------------------


def test_outputs_are_tried_before_images_are_described(monkeypatch, capsys, tmp_path, picture_folder):
    monkeypatch.setattr("patchbag.collection.Collection.describe", lambda *a: pytest.fail("too late"))
    (tmp_path / "file").write_text("old")
    page = tmp_path / "r.html"
    cases = [
        (("train", picture_folder, "-o", picture_folder), "is a folder; name a file in it"),
        (("train", picture_folder, "-o", tmp_path / "file" / "m"), "cannot write"),
        (("evaluate", picture_folder, "--json", tmp_path / "file" / "a.json"), "cannot write"),
        (("evaluate", picture_folder, "--json", picture_folder), "is a folder"),
        (("train", picture_folder, "-o", picture_folder / "bars" / "00.png"), "was not written by patchbag"),
        (("train", picture_folder, "-r", "fischer"), "did you mean 'fisher'?"),
        (("evaluate", picture_folder, "--pool"), "'auto' does not learn from images without a label"),
        (("evaluate", picture_folder, "--report", picture_folder), "is a folder"),
        (("evaluate", picture_folder, "--json", page, "--report", page), "are one file"),
        (("active", picture_folder, "--simulate", "-o", tmp_path / "file" / "x"), "cannot write"),
        (("active", picture_folder, "--labels", tmp_path / "file" / "l.csv"), "cannot write"),
        (("reproduce", "liu2010/toy", "-o", tmp_path / "file"), "is a file; the output needs a folder"),
        (("demo", "-o", tmp_path / "file" / "x"), f"cannot write into {tmp_path / 'file' / 'x'}: Not a directory"),
        (("demo", "-o", tmp_path / "file"), "is a file; the output needs a folder"),
    ]
    for arguments, message in cases:
        assert message in fail(monkeypatch, capsys, *arguments), arguments
    assert (tmp_path / "file").read_text() == "old" and not page.exists()


def test_trying_outputs_leaves_nothing_but_folders(tmp_path):
    ours = '{"patchbag": "0.2.0"}'
    (tmp_path / "old").write_text(ours)
    check_outputs(tmp_path / "old", tmp_path / "a" / "b" / "new", None, replaced=True)
    check_output_folder(tmp_path / "c")
    assert sorted(p.name for p in tmp_path.rglob("*") if p.name != "cache") == ["a", "b", "c", "old"]
    assert (tmp_path / "old").read_text() == ours


def test_every_command_replaces_what_it_wrote_and_nothing_else(monkeypatch, capsys, model, picture_folder, tmp_path):
    photos = picture_folder / "bars"
    common = ["-r", "words", "-j", 1, *SMALL]
    searching = ["search", picture_folder, photos / "00.png", "--by", "color"]
    writing = {
        "m.patchbag": lambda out: ["train", picture_folder, "-o", out, *common],
        "r.html": lambda out: ["evaluate", picture_folder, "--report", out, "--splits", 1, *common],
        "r.json": lambda out: ["evaluate", picture_folder, "--json", out, "--splits", 1, *common],
        "p.csv": lambda out: ["predict", model, photos, "-o", out, "-j", 1],
        "p.jsonl": lambda out: ["predict", model, photos, "-o", out, "-j", 1],
        "s.html": lambda out: [*searching, "--page", out],
    }
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").mkdir()
    for name, arguments in writing.items():
        out = tmp_path / "theirs" / name
        out.write_text("image,label\n1.png,a year of work\n")
        assert "was not written by patchbag" in fail(monkeypatch, capsys, *arguments(out)), name
        assert "a year of work" in out.read_text()
        for force in (["--force"], []):  # and then it is ours
            result = run(*arguments(out), *force)
            assert result.exit_code == 0, (name, result.output, result.exception)
            assert b"a year of work" not in out.read_bytes()


def test_what_only_speaks_of_patchbag_is_not_ours(tmp_path):
    notes = {
        "notes.md": "patchbag train photos: 93 %, unlike_anything_seen 3",
        "mine.csv": "image,label\npatchbag-demo/1.png,cat\n",
        "own.json": '{"images": {"patchbag": 1}}',
        "own.html": "<!doctype html><title>My notes</title>patchbag",
    }
    for name, text in notes.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match="was not written by patchbag"):
            check_outputs(tmp_path / name)


def test_a_full_disk_is_an_error_that_names_the_file_and_takes_nothing_else_along(
    picture_folder, tmp_path, monkeypatch
):
    from patchbag.cli.prediction import sorting, writing
    from patchbag.experiments.journal import Journal

    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    answer = {"image": str(picture_folder / "bars" / "00.png"), "label": "bars", "unlike_anything_seen": False}
    for name in ("p.csv", "p.jsonl"):
        (tmp_path / name).symlink_to(full)
        with pytest.raises(OSError, match=f"No space left.*{name}"), writing(tmp_path / name, ["bars"], False) as write:
            write(answer)
    (tmp_path / "sorted").mkdir()
    (tmp_path / "sorted" / "undo.csv").symlink_to(full)
    with pytest.raises(OSError, match=r"No space left.*undo\.csv"), sorting(tmp_path / "sorted", False) as place:
        place(answer)
    assert not [*(tmp_path / "sorted").glob("*/*")]
    (tmp_path / "file").touch()
    journal = Journal(tmp_path / "file" / "journal")
    with pytest.warns(UserWarning, match="figures are not kept in"):
        journal["split"] = {"accuracy": 1.0}
    assert journal["split"] == {"accuracy": 1.0} and journal.path is None


def test_a_damaged_store_is_said_and_begun_anew(picture_folder, tmp_path, own_store, monkeypatch, capsys):
    index = own_store / "features-1.sqlite"
    index.parent.mkdir()
    index.write_bytes(b"no database at all" * 300)
    assert "cannot be used" in fail(monkeypatch, capsys, "cache")
    options = ["-r", "words", "-j", 1, "-o", tmp_path / "m", *SMALL]
    with pytest.warns(UserWarning, match="features are not kept"):
        assert run("train", picture_folder, *options).exit_code == 0
    assert run("train", picture_folder, *options).exit_code == 0
    index.write_bytes(b"no database at all" * 300)
    assert run("cache", "--clear").exit_code == 0 and not index.exists()


def test_it_is_said_which_page_of_a_file_is_read(picture_folder, tmp_path):
    for path in [*picture_folder.rglob("*.png")]:
        with Image.open(path) as picture:
            picture.save(path.with_suffix(".tif"), save_all=True, append_images=[picture.rotate(90)])
        path.unlink()
    options = ["-r", "words", "-j", 1, "-o", tmp_path / "x.patchbag", *SMALL]
    assert "page 1 of each is read (--frame)" in run("train", picture_folder, *options, "--frame", 1).output
    assert "no page 2" in str(run("train", picture_folder, *options, "--frame", 2).output)


def test_it_is_said_what_becomes_of_sixteen_bits(picture_folder):
    for path in (picture_folder / "bars").glob("*.png"):
        with Image.open(path) as picture:
            levels = np.asarray(picture.convert("L")).astype(np.uint16) // 2 + 100
        Image.fromarray(levels).save(path)
    said = run("train", picture_folder, "-r", "words", "-j", 1, "-o", "m", *SMALL).stderr
    assert "12 of 36 PNG and TIFF files that were looked at have 16 bits per level" in said


def test_a_folder_that_cannot_be_read_is_named(picture_folder, cannot_be_read):
    run("train", picture_folder, "-o", "m", "-r", "words", "-j", 1, *SMALL)
    cannot_be_read("bars")
    result = run("predict", "m", picture_folder, "-j", 1)
    assert f"{picture_folder / 'bars'} cannot be read (Permission denied)" in result.stderr
    assert len(result.stdout.splitlines()) == 24
    result = run("predict", "m", picture_folder / "bars", "-j", 1)
    assert "there are no images in" in str(result.exception) and "cannot be read" in str(result.exception)


def test_a_model_reads_the_page_and_the_channels_that_it_was_trained_on(picture_folder, tmp_path):
    for path in [*picture_folder.rglob("*.png")]:
        with Image.open(path) as picture:
            empty = Image.new("L", picture.size, 90)
            page = Image.merge("RGB", [empty, picture, empty])
            Image.new("RGB", picture.size, (90, 90, 90)).save(
                path.with_suffix(".tif"), save_all=True, append_images=[page]
            )
        path.unlink()
    model, photos = tmp_path / "m.patchbag", picture_folder
    reading = ["--frame", 1, "--channels", 1]
    assert run("train", photos, "-r", "words", "-j", 1, "-o", model, *SMALL, *reading).exit_code == 0
    said = [run("predict", model, photos, "--json", "-j", 1, *how).stdout for how in ([], reading, ["--frame", 0])]
    assert said[0] == said[1] != said[2]
    pages = [run("predict", model, photos, "-j", 1, *how).stderr for how in ([], ["--frame", 0])]
    assert "page 1 of each is read" in pages[0] and "page 0 of each is read" in pages[1]
    right = sum(Path(line["image"]).parent.name == line["label"] for line in map(json.loads, said[0].splitlines()))
    assert right > 30
    assert "page 1, channels 1" in run("info", model).stdout
    features = Categorizer.load(model).recipe_["features"]
    assert features.reads() == (1, (1,)) and features.fit().reads() == (0, None)


def test_the_limit_of_pixels_is_raised_by_every_command_that_reads_images():
    from typer.main import get_command

    commands = get_command(app).commands
    named = {name for name, command in commands.items() if any(p.name == "max_pixels" for p in command.params)}
    searching = {"index", "search", "duplicates", "cluster"}
    assert {"train", "evaluate", "predict", "active", "serve", "reproduce", *searching} <= named


def test_the_limit_of_pixels_holds_for_threads_and_only_while_the_command_runs(picture_folder):
    from patchbag.runtime import allowed_pixels, raised_pixels

    with raised_pixels(50), ThreadPoolExecutor(1) as pool:
        assert pool.submit(allowed_pixels).result() == 50
    assert allowed_pixels() is None
    result = run("index", picture_folder, "--by", "color", "--max-pixels", "50")
    assert "over the limit of 50" in str(result.exception) and allowed_pixels() is None


def test_the_report_is_written_even_if_the_json_file_cannot_be(monkeypatch, picture_folder, tmp_path):
    monkeypatch.setattr("patchbag.cli.categorize.check_outputs", lambda *a, **k: None)
    options = ["-r", "words", "--splits", 1, "-j", 1, *SMALL]  # half of each class trains
    result = run("evaluate", picture_folder, *options, "--json", tmp_path, "--report", tmp_path / "r.html")
    assert "cannot write" in str(result.exception) and (tmp_path / "r.html").exists()
    assert "6 training images per class" in result.output


def test_names_come_out_as_they_are_and_lines_whole(monkeypatch, capsys, picture_folder, tmp_path):
    try:
        (picture_folder / "bars").rename(os.fsdecode(os.fsencode(picture_folder) + b"/caf\xe9"))
    except OSError:
        pytest.skip("this file system takes only names that are text")
    page = tmp_path / "[bold]" / f"{'a long name ' * 9}.html"
    figures = tmp_path / "[red]o.json"
    options = ["-r", "words", "--train-per-class", 6, "--splits", 2, "-j", 1, *SMALL]
    result = run("evaluate", picture_folder, *options, "--report", page, "--json", figures)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) == 2 and lines[1] == f"report: {page}"
    assert re.fullmatch(
        r"words: \S+ ± \S+ % mean per-class accuracy \(2 random splits, 6 training images per class\)", lines[0]
    )
    assert "caf\\udce9" in page.read_text(encoding="utf-8")
    data = json.loads(figures.read_text(encoding="utf-8"))
    assert "caf\udce9" in data["classes"]
    total = f"{data['seconds']['total']:.2f}"
    assert total in page.read_text(encoding="utf-8").split("describe images")[1] and total in result.stderr
    model = tmp_path / "[dim]m"
    result = run("train", picture_folder, "-o", model, "-r", "words", "-j", 1, *SMALL)
    assert result.stdout.startswith(f"{model}: words, 36 images")
    # the next program in a pipe gets the bytes of such a name
    predict = [sys.executable, "-m", "patchbag", "predict", model, picture_folder, "-j", "1"]
    sent = subprocess.run(predict, check=True, capture_output=True).stdout
    assert sent.count(os.fsencode(picture_folder) + b"/caf\xe9/") == 12


def test_tables_are_not_wrapped_in_a_pipe():
    line = next(line for line in run("recipes").stdout.splitlines() if line.startswith("gp-combined"))
    assert "weights learned by evidence, Gaussian process" in line and "kapoor2010" in line


def test_tables_in_a_pipe_have_no_blanks_behind_their_lines(model):
    lines = [*run("info", model).stdout.splitlines(), *run("recipes").stdout.splitlines()]
    assert len(lines) > 30 and not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--port", "{port}"], "cannot listen at 127.0.0.1, port {port}: Address already in use; name another port"),
        (["--port", "0", "--db", "labels.sqlite"], "a database is given as sqlite:///FILE or postgresql://SERVER/NAME"),
    ],
)
def test_a_page_that_cannot_be_served_says_why_in_one_line(picture_folder, option, message):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        options = [part.format(port=port) for part in option]
        command = [sys.executable, "-m", "patchbag", "serve", picture_folder, "--no-open", *options]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and ended.stderr.startswith(f"error: {message.format(port=port)}")
    assert len(ended.stderr.splitlines()) == 1


def test_what_of_a_folder_is_not_used_is_said(picture_folder):
    (picture_folder / "empty").mkdir()
    (picture_folder / "phone").mkdir()
    (picture_folder / "phone" / "a.mov").write_bytes(b"")
    (picture_folder / "broken").mkdir()
    (picture_folder / "broken" / "a.png").write_bytes(b"")
    (picture_folder / "bars" / "00.png").rename(picture_folder / "loose.png")
    result = run("train", picture_folder, "-r", "words", "-j", 1, *SMALL)
    assert result.exit_code == 0 and "35 images, 3 classes" in result.stdout
    for said in ("'empty' is no class: it has no files", "(.mov 1)", "1 image without a label is left out: loose.png"):
        assert said in result.stderr
    assert "the class 'broken' is left out: none of its images can be read" in result.stderr


def test_control_c_ends_a_command_with_one_line(monkeypatch, picture_folder):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("patchbag.cli.categorize.describe_labelled", interrupted)
    result = run("train", picture_folder, "-r", "words")
    assert result.exit_code == 130 and result.output == "stopped\n"


def test_a_folder_where_everything_is_broken_says_so(monkeypatch, capsys, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "f" / name).mkdir(parents=True)
        (tmp_path / "f" / name / "x.jpg").write_text("text")
    text = fail(monkeypatch, capsys, "train", tmp_path / "f", "-j", 1)
    assert "left out 2 of 2" in text and "fewer than two classes" in text


def test_what_the_makefile_runs_for_the_page_is_there(tmp_path):
    code = re.search(r'python -c "(.*)"', (Path(__file__).parents[2] / "Makefile").read_text())[1]
    assert "'patchbag-demo/unsorted'" in code
    exec(code.replace("'patchbag-demo/unsorted'", repr(str(tmp_path / "unsorted"))), {})
    assert len(list((tmp_path / "unsorted").glob("*.png"))) > 400


def test_demo_runs_the_whole_path(tmp_path):
    mine = [tmp_path / "demo" / "tiles" / part for part in ("train/mine/a.png", "test/cat/b.png", "c.png", "train/d")]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not the demo's")
    started = time.process_time()  # what others do on the machine does not count
    result = run("demo", "-o", tmp_path / "demo", "-r", "words")
    assert result.exit_code == 0, result.output
    assert [path.read_text() for path in mine] == ["not the demo's"] * 4
    assert "of 136 test tiles" in result.output and "14 photographs" in result.output  # and it used none of them
    assert time.process_time() - started < 120
    accuracy = float(result.output.split(" % of")[0].rsplit(" ", 1)[-1])
    assert accuracy > 40  # chance is 7
    assert (tmp_path / "demo" / "report.html").stat().st_size > 50_000
    assert (tmp_path / "demo" / "model.patchbag").exists()


def test_the_demo_does_not_replace_a_model_of_the_users(monkeypatch, capsys, tmp_path):
    (tmp_path / "model.patchbag").write_text("mine")
    assert "was not written by the demo" in fail(monkeypatch, capsys, "demo", "-o", tmp_path)
    assert (tmp_path / "model.patchbag").read_text() == "mine" and not (tmp_path / "tiles").exists()


def test_import_and_help_are_quick():
    def best(*command: str) -> float:
        """Seconds of the processor, the least of three."""
        times = []
        for _ in range(3):
            before = os.times()  # others may keep the machine busy
            subprocess.run([sys.executable, *command], check=True, capture_output=True)
            after = os.times()
            times.append(after.children_user + after.children_system - before.children_user - before.children_system)
        return min(times)

    bare = best("-c", "pass")
    assert best("-c", "import patchbag") - bare < 0.5
    assert best("-m", "patchbag", "--help") - bare < 1.0
    code = "import sys, patchbag, patchbag.cli; print(sorted({'numba', 'sklearn', 'cv2', 'numpy'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded.strip() == "[]"


def test_every_option_has_a_help_text():
    from typer.main import get_command

    parameters = [(c.name, p) for c in get_command(app).commands.values() for p in c.params]
    assert len(parameters) > 20
    for command, parameter in parameters:
        assert parameter.help, (command, parameter.name)


def test_no_word_of_a_help_text_is_cut_off_on_a_terminal_of_80_columns(monkeypatch):
    from typer.main import get_command

    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    for command in get_command(app).commands:
        text = run(command, "--help").stdout
        assert text.count("\n") > 5 and "…" not in text, text


def test_every_kind_of_features_is_named_in_the_help():
    from patchbag.stages import FEATURES

    text = re.sub(r"[\s│]+", " ", run("train", "--help").stdout)
    assert not [name for name in FEATURES if not re.search(rf"[ ,]{name}[,.]", text)]


def test_features_and_labels_are_chosen_by_name(picture_folder, tmp_path):
    table = tmp_path / "mine.csv"
    rows = [f"{p.name};{'left' if int(p.stem) % 2 else 'right'}" for p in sorted(picture_folder.rglob("*.png"))]
    table.write_text("\ufefffile;category\n" + "\n".join(rows) + "\n", encoding="utf-8")
    result = run("train", picture_folder, "--labels", table, "-f", "color", "-r", "words", "-j", 1, *SMALL)
    assert result.exit_code == 0 and "36 images, 2 classes" in result.output, result.output
    branches = [o.replace("statistics", f"classifier.{b}.statistics") for b in ("sift", "color") for o in SMALL]
    result = run("evaluate", picture_folder, "-f", "sift,color", "-r", "words", "--splits", 1, "-j", 1, *branches)
    assert result.exit_code == 0 and "mean per-class accuracy" in result.output, result.output
    assert "must be some of sift," in str(run("train", picture_folder, "-f", "colour").exception)


def test_control_characters_in_names_are_written_out():
    assert screen.visible("cat\x1b[2J\x9b\n") == "cat\\x1b[2J\\x9b\n"


def test_too_many_training_images_are_an_error_before_anything_is_described(picture_folder, monkeypatch):
    monkeypatch.setattr("patchbag.cli.categorize.describe_labelled", lambda *a, **k: pytest.fail("described"))
    result = run("evaluate", picture_folder, "-r", "words", "--train-per-class", 12)
    assert isinstance(result.exception, ValueError) and "12 images: 12 for training leave none" in str(result.exception)
    (picture_folder / "lonely").mkdir()
    (picture_folder / "bars" / "00.png").rename(picture_folder / "lonely" / "00.png")
    error = str(run("evaluate", picture_folder, "-r", "words").exception)
    assert "class 'lonely' has 1 image" in error and "add images to it, or leave it out" in error


def test_of_more_images_than_its_kernels_have_room_for_auto_learns_from_a_sample_and_says_so(
    picture_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("patchbag.protocol.MOST_IMAGES", 21)
    result = run("train", picture_folder, "-o", tmp_path / "m.patchbag", "-j", 1)
    assert "auto learns from 21 of the 36 images with a label" in result.stderr
    assert "auto, 21 images, 3 classes" in result.output, result.output
    chosen = run("train", picture_folder, "-o", tmp_path / "n.patchbag", "-j", 1, "-s", "classifier.noise=0.1")
    assert "auto, 21 images, 3 classes" in chosen.output, chosen.output
    assert "learns from" not in run("train", picture_folder, "-r", "words", "-j", 1, *SMALL).stderr


def test_the_same_image_in_two_classes_is_named(picture_folder):
    copy = picture_folder / "stripes" / "copy.png"
    copy.write_bytes((picture_folder / "bars" / "00.png").read_bytes())
    result = run("train", picture_folder, "-r", "words", "-j", 1, *SMALL)
    assert "the same image has different labels: bars/00.png (bars) and stripes/copy.png (stripes)" in result.stderr


def test_images_are_sorted_into_folders_and_that_is_taken_back(picture_folder, tmp_path):
    run("train", picture_folder, "-o", "m", "-r", "words", "-j", 1, *SMALL)
    for options in ([], ["--link"]):
        result = run("predict", "m", picture_folder / "bars", "--sort-into", "sorted", "--reject", 0, "-j", 1, *options)
        assert result.exit_code == 0, result.output
        placed = list(Path("sorted").rglob("*.png"))
        assert len(placed) == 12 and all(p.is_symlink() is bool(options) for p in placed)
        run("predict", "m", picture_folder / "bars", "--sort-into", "sorted", "--reject", 0, "-j", 1, *options)
        assert list(Path("sorted").rglob("*.png")) == placed  # the same command again
        (tmp_path / "sorted" / "bars" / "mine.txt").parent.mkdir(exist_ok=True)
        (tmp_path / "sorted" / "bars" / "mine.txt").write_text("mine")
        assert "removed 12 files" in run("undo", "sorted").stdout
        assert [p.name for p in Path("sorted").rglob("*") if p.is_file()] == ["mine.txt"]
    assert len(list((picture_folder / "bars").iterdir())) == 12


def test_an_evaluation_that_is_stopped_goes_on_where_it_was(picture_folder, monkeypatch):
    from patchbag import evaluation

    options = ["evaluate", picture_folder, "-r", "words", "--splits", 3, "-j", 1, "--train-per-class", 6, *SMALL]
    whole = run(*options, "--json", "whole.json")
    assert whole.exit_code == 0, whole.output
    real, calls = evaluation._run_split, []

    def stop(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(evaluation, "_run_split", stop)
    assert "the splits that are done are kept" in run(*options).stderr
    assert run(*options, "--json", "again.json").exit_code == 0
    assert len(calls) == 4  # two, the one that was stopped, and that one again
    figures = [json.loads(Path(name).read_text()) for name in ("whole.json", "again.json")]
    for name in ("mean_accuracy", "confusion", "reliability", "mistakes"):
        assert figures[0][name] == figures[1][name]


def test_recipes_say_when_to_use_them_and_which_parameters_matter():
    assert "you have few labels" in run("recipes").stdout
    few, every = run("recipes", "fisher"), run("recipes", "fisher", "--all")
    assert len(few.stdout.splitlines()) == 11 and "features.step" in few.stdout
    assert len(every.stdout.splitlines()) > 25
