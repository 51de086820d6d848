# SPDX-License-Identifier: BSD-3-Clause
"""The command line from ``patchbag active`` to ``patchbag train``."""

from __future__ import annotations

import json
import shutil

import pytest

from cli import commands
from patchbag import Categorizer
from patchbag.collection import open_collection
from patchbag.collection.labels import LabelFile

SMALL = ["-j", 1, "-s", "statistics.mixture.n_components=3", "-s", "statistics.projection.n_components=8"]
ASK = ["-r", "gp-fisher", *SMALL]
ASKED = " ".join(["--recipe gp-fisher", *(f"--set {part}" for part in SMALL if "=" in str(part))])


def run(*arguments: object, answers: str | None = None):
    result = commands.run(*arguments, said=answers)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def pool(picture_folder):
    """Bars and diagonals in folders of their own, twelve stripes in ``unlabelled``."""
    (picture_folder / "stripes").rename(picture_folder / "unlabelled")
    return picture_folder


def answer(folder, count: int, name: str = "labels.csv") -> LabelFile:
    book = LabelFile(folder / name)
    for path in sorted((folder / "unlabelled").iterdir())[:count]:
        book.put(f"unlabelled/{path.name}", "stripes")
    return book


def test_training_uses_the_answers_and_leaves_the_pool_out(pool):
    said = "12 images without a label are left out"
    result = run("train", pool, "-r", "words", *SMALL)
    assert "24 images, 2 classes" in result.stdout and said in result.stderr
    answer(pool, 8)
    result = run("train", pool, "-r", "words", "-o", "m", *SMALL)
    assert "32 images, 3 classes" in result.stdout and "4 images without a label are left out" in result.stderr
    assert [str(c) for c in Categorizer.load("m").classes_] == ["bars", "diagonals", "stripes"]


def test_evaluation_uses_the_answers_and_leaves_the_pool_out(pool):
    answer(pool, 8)
    options = ["-r", "words", "--splits", 1, "--train-per-class", 4, "--json", "o.json"]
    result = run("evaluate", pool, *options, *SMALL)
    assert "4 images without a label are left out" in result.stderr
    assert json.loads((pool.parent / "o.json").read_text())["splits"][0]["n_test"] == 8 + 8 + 4


def test_answers_in_a_json_file_of_the_folder_are_taken_up_again(pool):
    answer(pool, 8, "labels.json")
    result = run("active", pool, "-r", "words", "--show", "none", *SMALL, answers="stripes\nq\n")
    assert "1 new label, 3 of 36 images without one" in result.stdout and not (pool / "labels.csv").exists()
    assert len(LabelFile.open(pool / "labels.json").answers) == 9
    assert "36 images" not in run("train", pool, "-r", "words", "-o", "m", *SMALL).stdout


def test_labelling_ends_with_the_command_that_trains(pool):
    assert (
        run("active", pool, *ASK, answers="stripes\nq\n").stdout.splitlines()[-1]
        == f"next: patchbag train {pool} {ASKED}"
    )


def test_moving_takes_earlier_answers_along(pool):
    answer(pool, 5)
    result = run("active", pool, "--move", *ASK, answers="stripes\nq\n")
    assert "moved 5 images that had a label into the folders of their classes" in result.stdout
    assert len(list((pool / "stripes").iterdir())) == 6 and len(list((pool / "unlabelled").iterdir())) == 6
    answers = LabelFile.open(pool / "labels.csv").answers
    assert len(answers) == 6 and all(path.startswith("stripes/") for path in answers)


def test_moving_works_when_nothing_is_left_to_ask(pool):
    answer(pool, 12)
    result = run("active", pool, "--move", *ASK)
    assert result.stdout.splitlines()[-1] == f"next: patchbag train {pool} {ASKED}"
    assert None not in open_collection(pool).labels.tolist()
    assert "36 images, 3 classes" in run("train", pool, "-r", "words", *SMALL).stdout


def test_a_file_of_labels_without_a_header_is_left_as_it_is(pool, tmp_path):
    (tmp_path / "mine.csv").write_text("unlabelled/30.png,stripes\n")
    arguments = ["active", pool, "--labels", tmp_path / "mine.csv", *ASK]
    result = commands.run(*arguments, said="bars\n")
    assert "expected the columns image and label" in str(result.exception)
    assert (tmp_path / "mine.csv").read_text() == "unlabelled/30.png,stripes\n"


def test_a_simulation_says_what_it_ignores_and_that_rounds_were_cut(picture_folder, tmp_path):
    options = ["--simulate", "--runs", 1, "--rounds", 100, "--move", "--labels", tmp_path / "none.csv"]
    result = run("active", picture_folder, *options, *ASK)
    assert "--move is ignored" in result.stderr
    assert "100 rounds were asked for, but" in result.stdout and "±" not in result.stdout
    assert "on the 1 image without a label at the end; 1 run" in result.stdout
    assert not (tmp_path / "none.csv").exists()


def test_training_after_labelling_learns_from_the_images_without_a_label_too(picture_folder):
    (picture_folder / "unlabelled").mkdir()
    for name in ("bars", "stripes"):
        for path in sorted((picture_folder / name).glob("*.png"))[2:]:
            path.rename(picture_folder / "unlabelled" / f"{name}-{path.name}")
        shutil.rmtree(picture_folder / "diagonals", ignore_errors=True)
    last = run("active", picture_folder, "-j", 1, "--rounds", 1, answers="bars\n").stdout.splitlines()[-1]
    assert last == f"next: patchbag train {picture_folder} --recipe deep-pool"
    text = run("train", picture_folder, "-j", 1, "-o", "m").stdout  # what auto means for a folder like this
    assert "m: deep-pool, 24 images (19 of them without a label), 2 classes" in text
    found = run("predict", "m", picture_folder / "unlabelled", "-j", 1).stdout.splitlines()
    right = [line.split("\t")[0].split("/")[-1].startswith(line.split("\t")[1]) for line in found]
    assert len(right) == 20 and sum(right) > 16
