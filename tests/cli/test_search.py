# SPDX-License-Identifier: BSD-3-Clause
"""The commands index and search, as a person or a pipe sees them."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from cli.commands import run
from patchbag.cli import screen
from patchbag.cli.finding import find, plain_search, read_query


@pytest.fixture
def photos(picture_folder):
    """Three images of each of two classes."""
    shutil.rmtree(picture_folder / "diagonals")
    for folder in ("bars", "stripes"):
        for path in sorted((picture_folder / folder).iterdir())[3:]:
            path.unlink()
    return picture_folder


def test_a_folder_is_indexed_once_and_searched(photos):
    result = run("index", photos)
    assert result.exit_code == 0 and "6 images by deep (6 new" in result.stdout
    assert "nothing new" in run("index", photos).stdout
    result = run("search", photos, photos / "bars" / "00.png", "--top", 2)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[0] for row in rows] == [str(photos / "bars" / "00.png")] * 2
    assert all("bars/" in row[1] for row in rows) and 0 < float(rows[0][2]) <= float(rows[1][2])


def test_search_makes_the_index_itself_and_prints_one_json_line_per_query(photos):
    (photos / "broken.jpg").write_text("text")
    queries = [photos / "bars" / "00.png", photos / "broken.jpg"]
    result = run("search", photos, *queries, "--top", 3, "--json")
    good, bad = [json.loads(line) for line in result.stdout.splitlines()]
    assert good["query"] == str(queries[0]) and len(good["results"]) == 3
    assert set(good["results"][0]) == {"image", "distance"}
    assert "is not an image" in bad["error"]
    assert "left out 1 of 7 files" in result.stderr and "broken.jpg" in result.stderr


def test_a_sub_folder_that_cannot_be_read_is_named_by_every_command_that_compares(photos, cannot_be_read):
    cannot_be_read("stripes")
    query = photos / "bars" / "00.png"
    for command in (("index", photos), ("search", photos, query), ("duplicates", photos), ("cluster", photos)):
        result = run(*command)
        assert result.exit_code == 0, result.stderr
        assert f"{photos / 'stripes'} cannot be read (Permission denied)" in result.stderr


def test_images_too_small_for_patches_come_with_what_can_be_done_on_the_command_line(photos):
    small = photos / "bars" / "small.png"
    Image.new("RGB", (512, 5)).save(small)  # too long to be enlarged
    result = run("search", photos, small, "--by", "color")
    listed, failed = result.stderr.split("error:")
    for said in (listed, failed):
        assert "is 512×5 pixels" in said and "enlarge it or leave it out" in said and "--by deep" in said
    assert "--by deep" not in run("index", photos, "--by", "deep").stderr
    result = run("train", photos, "-r", "words", "-o", photos / "m", "-j", 1, "-s", "statistics.mixture.n_components=2")
    assert "enlarge it or leave it out" in result.stderr and "deep-linear, take images of any size" in result.stderr


def test_a_full_disk_keeps_nobody_from_searching(photos, monkeypatch):
    def full(*given, **more):
        raise OSError(28, "No space left on device")

    def closed(*given, **more):
        raise sqlite3.OperationalError("database or disk is full")

    for i in range(9):
        shutil.copy(photos / "bars" / "00.png", photos / "bars" / f"copy{i}.png")
    monkeypatch.setattr("patchbag.search.folder_index.write_index", full)
    monkeypatch.setattr("sqlite3.connect", closed)
    with pytest.warns(UserWarning, match="features are not kept"), pytest.warns(UserWarning, match="the index is not"):
        result = run("search", photos, photos / "stripes" / "24.png", "--top", 1)
    assert result.exit_code == 0 and "stripes" in result.stdout


def test_a_warning_is_shown_once_wherever_it_comes_from(capsys, monkeypatch):
    monkeypatch.setattr(screen, "warned", set())
    for line in (1, 2):
        screen.show_warning("the disk is full", UserWarning, "a.py", line)
    assert capsys.readouterr().err.count("the disk is full") == 1


def test_standard_input_is_a_query_and_an_address_is_none(photos):
    data = (photos / "stripes" / "24.png").read_bytes()
    result = run("search", photos, "-", "--top", 1, "--json", said=data)
    assert json.loads(result.stdout)["results"] == [{"image": str(photos / "stripes" / "24.png"), "distance": 0.0}]
    with pytest.raises(ValueError, match="nothing is fetched from a network"):
        read_query("https://example.org/a.jpg")


def test_a_query_that_cannot_be_read_is_named_and_the_status_says_so(photos):
    result = run("search", photos, "-", said=b"")
    assert result.exit_code == 1 and "standard input: there are no bytes in it" in result.stderr
    result = run("search", photos, "nowhere.jpg")
    assert result.exit_code == 1 and "nowhere.jpg: there is no such file" in result.stderr


def test_results_can_be_a_page_of_thumbnails(photos):
    result = run("search", photos, photos / "bars" / "00.png", "--page", "out/found.html", "--top", 2)
    assert result.exit_code == 0
    text = Path("out/found.html").read_text(encoding="utf-8")
    assert text.count("data:image/jpeg") == 3 and "bars" in text and "<script" not in text


def test_on_a_terminal_results_are_a_table_with_pictures(photos, monkeypatch):
    console = Console(force_terminal=True, width=150, record=True, color_system="truecolor")
    monkeypatch.setattr(screen, "out", console)
    assert run("search", photos, photos / "bars" / "00.png", "--top", 2).exit_code == 0
    text = console.export_text()
    assert "distance" in text and text.count("▀") > 40


def test_a_part_of_the_query_is_four_numbers(photos):
    result = run("search", photos, photos / "bars" / "00.png", "--crop", "0,0,0.5,1", "--top", 1)
    assert result.exit_code == 0 and result.stdout.count("\t") == 2
    for wrong in ("1,2", "a,b,c,d", "0.5,0,0.4,1"):
        assert run("search", photos, photos / "bars" / "00.png", "--crop", wrong).exit_code == 1


def test_clearing_the_cache_clears_the_indexes(photos):
    run("index", photos)
    assert "1 search index" in run("cache").stdout
    assert "1 search index" in run("cache", "--clear").stdout
    assert "search index" not in run("cache").stdout


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ("", {}),
        ("--top 3", {"top": 3}),
        ("-k 7 --json -b fisher", {"top": 7, "as_json": True, "by": "fisher"}),
        ("--by color --no-diffuse", {"by": "color", "diffuse": False}),
        ("--diffuse --crop 0,0,0.5,1", {"diffuse": True, "crop": "0,0,0.5,1"}),
    ],
)
def test_plain_searches_are_read_as_typer_reads_them(options, given, monkeypatch):
    seen = []
    monkeypatch.setattr("patchbag.cli.search.find", lambda folder, images, **more: seen.append((folder, images, more)))
    words = ["search", "photos", "-", *options.split(), "b.jpg"]
    run(*words)
    assert plain_search(words) == {"folder": Path("photos"), "images": ["-", "b.jpg"], **given}
    defaults = {name: p.default for name, p in inspect.signature(find).parameters.items() if p.default is not p.empty}
    assert seen == [(Path("photos"), ["-", "b.jpg"], defaults | given)]


@pytest.mark.parametrize(
    "options", ["--top 0", "--top", "--by --json", "--crop", "--top=3", "-h", "--page x.html", "--"]
)
def test_other_searches_are_left_to_typer(options):
    assert plain_search(["search", "photos", "a.jpg", *options.split()]) is None
    assert plain_search(["search", "photos"]) is None and plain_search(["index", "photos", "a.jpg"]) is None


MODULES = """
import sys
from patchbag.cli import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_a_search_in_a_built_index_imports_nothing_slow(photos):
    for path in photos.rglob("*.png"):
        os.utime(path, (1e9, 1e9))  # what was modified just now is read again
    run("index", photos)
    command = [sys.executable, "-c", MODULES, "search", str(photos), str(photos / "bars" / "00.png"), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert len(json.loads(done.stdout)["results"]) == 5
    slow = "typer sklearn scipy numba cv2 joblib PIL sqlite3 pydantic rich onnxruntime safetensors"
    assert not set(slow.split()) & set(done.stderr.split())
