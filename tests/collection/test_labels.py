# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from collection.pictures import save
from patchbag.collection import CollectionError, open_collection
from patchbag.collection.labels import LabelFile, NotLabelsError

SPECIES = {"a.png": "ant", "b.png": "bee", "in/c.png": "ant"}


@pytest.fixture
def flat(tmp_path):
    for name in SPECIES:
        save(tmp_path / "flat" / name)
    return tmp_path / "flat"


def labels_of(collection):
    return dict(zip(collection.names, collection.labels.tolist()))


class Frame:
    """A stand-in for a data frame: named columns, rows with an index."""

    def __init__(self, columns, index=None):
        self.table, self.columns = columns, list(columns)
        if index is not None:
            self.index = index

    def __getitem__(self, column):
        return np.array(self.table[column], dtype=object)


class Series:
    """A stand-in for a column of a data frame with images as index."""

    def __init__(self, pairs):
        self.pairs = pairs

    def items(self):
        return iter(self.pairs)


NAMES, LABELS = list(SPECIES), list(SPECIES.values())
TABLES = {
    "dict": SPECIES,
    "pair": (NAMES, LABELS),
    "arrays": [np.array(NAMES), np.array(LABELS)],
    "series": Series(list(SPECIES.items())),
    "frame": Frame({"id": [1, 2, 3], "Filename": NAMES, "class": LABELS}),
    "frame with index": Frame({"species": LABELS}, NAMES),
    "frame with index and columns": Frame({"weight": [1, 2, 3], "label": LABELS}, [Path(name) for name in NAMES]),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_labels_come_from_tables_in_memory(flat, table):
    assert labels_of(open_collection(flat, labels=table)) == SPECIES


@pytest.mark.parametrize(
    "text",
    [
        "image,label\na.png,ant\nb.png,bee\nin/c.png,ant\n",
        "\ufeffFile;weight;Category\r\na.png;1;ant\r\nb.png;2;bee\r\nin/c.png;3;ant\r\n",
        "path\ttarget\n./a.png\tant\nb.png\t bee\nin\\c.png\tant\n",
        "a.png,ant\nb.png,bee\nin/c.png,ant\n",
        '\nname,class\n"a.png",ant\n\nb.png,bee\nin/c.png,ant\nb.png,bee',
        "sep=;\r\nimage;label\r\na.png;ant\r\nb.png;bee\r\nin/c.png;ant\r\n",
        "sep=|\nimage|label\na.png|ant\nb.png|bee\nin/c.png|ant\n",
        "label, image\nant, a.png\nbee, b.png\nant, in/c.png\n",
        "image,label\na.png ,ant\nb,bee\nin/c,ant\n",
    ],
)
def test_labels_come_from_csv_with_the_usual_headers_or_none(flat, tmp_path, text):
    (tmp_path / "species.csv").write_bytes(text.encode())
    assert labels_of(open_collection(flat, labels=tmp_path / "species.csv")) == SPECIES


@pytest.mark.parametrize("data", [SPECIES, [{"Image": name, "target": label} for name, label in SPECIES.items()]])
def test_labels_come_from_json(flat, data):
    (flat / "species.json").write_text(json.dumps(data))
    assert labels_of(open_collection(flat, labels="species.json")) == SPECIES


def test_images_are_found_by_any_path_that_leads_to_them(flat, monkeypatch):
    monkeypatch.chdir(flat.parent)
    table = {
        str(flat / "a.png"): "ant",
        os.path.join("flat", "b.png"): "bee",
        flat / "in" / ".." / "in" / "c.png": "ant",
    }
    assert labels_of(open_collection("flat", labels=table)) == SPECIES


def test_a_table_alone_says_the_labels(photos):
    (photos / "labels.csv").write_text("image,label\ncat/1.png,cow\n")
    collection = open_collection(photos, labels={"cat/0.png": "b", "dog/4.png": "a"})
    assert collection.names[:2] == ["dog/4.png", "cat/0.png"] and collection.labels.tolist() == ["a", "b"] + [None] * 5
    assert len(collection.labelled()) == 2 and len(collection.unlabelled()) == 5


def test_numbers_stay_numbers_and_gaps_are_no_labels(flat):
    labels = [np.float64(3), float("nan"), np.int64(0)]
    collection = open_collection(flat, labels=Frame({"label": labels}, NAMES))
    assert labels_of(collection) == {"in/c.png": 0, "a.png": 3, "b.png": None}
    assert [type(label) for label in collection.labels] == [int, int, type(None)]
    assert collection.labelled().labels.dtype.kind == "i"
    assert open_collection(flat, labels={"a.png": "", "b.png": None, "in/c.png": " x "}).classes == ["x"]


@pytest.mark.parametrize(
    ("values", "remarked"),
    [
        ([0.73, 1.5, -2.25], True),
        (["0,73", "1e-3", "1.5e2"], True),
        ([0.5, 0.5, 1.5], True),
        ([1.0, 2.0, 3.0], False),
        (["1.10", "v1.5", "x"], False),
        ([0.5, 0.5, 0.5], False),
    ],
)
def test_measurements_in_place_of_labels_are_remarked_on(flat, values, remarked):
    remarks = open_collection(flat, labels=dict(zip(SPECIES, values))).remarks
    assert any("look like measurements" in remark for remark in remarks) == remarked


def test_labels_of_images_that_are_gone_are_remarked_on(flat):
    collection = open_collection(flat, labels={**SPECIES, "gone.png": "cow", "skipped.png": None})
    assert labels_of(collection) == SPECIES
    assert collection.remarks == (f"an image with a label is not in {flat}, first 'gone.png'",)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"x.png": 1, "y.png": 2}, "none of the 2 images with a label is in .*flat, first 'x.png'"),
        ((["a.png", "./a.png"], ["ant", "bee"]), r"a.png has two labels, 'ant' and 'bee' \(row 2\)"),
        ({"a.png": "ant", "b.png": 1}, "all texts or all numbers, got 'ant' and 1"),
        ({"a.png": ["ant"]}, r"row 1, a.png: a label must be a text or a number, got \['ant'\]"),
        (Frame({"x": NAMES, "y": LABELS}, NAMES), r"expected one of the columns image, .*got \['x', 'y'\]"),
        (Frame({"label": LABELS}), "images as index"),
        (7, "labels must be a file, a dict .* got int"),
        ((NAMES, LABELS[:2]), "of one length"),
        ("nothing.csv", "cannot read .*nothing.csv"),
    ],
)
def test_tables_that_do_not_fit_say_why(flat, table, message):
    with pytest.raises(CollectionError, match=message):
        open_collection(flat, labels=table)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("l.csv", "image,label\na.png,ant\nb.png\n", "l.csv, line 3: expected the columns image,label, got fewer"),
        ("l.csv", "image,label\na,2.png,ant\n", "line 2: .* got more"),
        (
            "l.csv",
            "picture,label,x\na.png,ant,1\n",
            "line 1: expected one of the columns image, .*got 'picture, label, x'",
        ),
        ("l.csv", "picture,label\nnowhere.png,ant\n", "line 1: expected one of the columns image"),
        ("l.csv", "image,label\n", "there are no labels in .*l.csv"),
        ("l.xlsx", "PK\3\4", "l.xlsx, it is a workbook of a spreadsheet; save it as CSV"),
        ("l.csv", "a.png,ant,3\n", "line 1: expected one of the columns"),
        ("l.csv", "image,label\na.png,ant\na.png,bee\n", "two labels, 'ant' and 'bee' .*l.csv, line 3"),
        ("l.json", '[{"image": "a.png"}]', "l.json, item 1: expected one of the columns"),
        ("l.json", '"a.png"', "item 1: "),
        ("l.json", '{"a.png": {"x": 1}}', "l.json, item 1, a.png: a label must be a text or a number"),
        ("l.json", "{", "l.json, it is not JSON .*; expected an object image → label"),
        ("l.csv", 'image,label\na.png,ant\n"b.png,bee\na.png,ant\n', "l.csv, line 3: .* a name with a ',' has quotes"),
    ],
)
def test_files_that_do_not_fit_say_where(flat, tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(CollectionError, match=message):
        open_collection(flat, labels=tmp_path / name)


@pytest.mark.parametrize(
    "text",
    [
        "photo,species\na.png,ant\nb.png,bee\n",
        "Klasse;Datei\nant;a.png\nbee;b.png\n",
        "ant,a.png\nbee,b.png\n",
        "image,label\na,ant\nb,bee\n",
    ],
)
def test_columns_of_any_name_and_names_without_their_ending_are_found_by_the_images_in_them(flat, tmp_path, text):
    (tmp_path / "l.csv").write_text(text)
    assert labels_of(open_collection(flat, tmp_path / "l.csv").labelled()) == {"a.png": "ant", "b.png": "bee"}


def test_a_header_is_no_image_though_one_is_called_so(flat, tmp_path):
    save(flat / "image.png")
    (tmp_path / "l.csv").write_text("image,label\na.png,ant\nimage,bee\n")
    assert labels_of(open_collection(flat, tmp_path / "l.csv").labelled()) == {"a.png": "ant", "image.png": "bee"}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "cp1252"])
def test_tables_are_read_as_spreadsheets_write_them(flat, tmp_path, encoding):
    save(flat / "Käfer.png")
    (tmp_path / "l.csv").write_bytes("image;label\r\na.png;Ameise\r\nKäfer.png;Käfer\r\n".encode(encoding))
    assert labels_of(open_collection(flat, tmp_path / "l.csv").labelled()) == {"a.png": "Ameise", "Käfer.png": "Käfer"}


# --- answers ---------------------------------------------------------------------------------------------------------


def test_the_pool_is_no_class_and_its_answers_are_labels(tmp_path):
    for name in ("cat/1.png", "dog/1.png", "unlabelled/2.png", "unlabelled/3.png", "Unlabeled/4.png", "5.png"):
        save(tmp_path / "p" / name)
    (tmp_path / "p" / "labels.csv").write_text("image,label\nunlabelled/3.png,cat\n5.png,ant\nunlabelled/2.png,\n")
    known = open_collection(tmp_path / "p").labelled()
    assert labels_of(known) == {"5.png": "ant", "cat/1.png": "cat", "unlabelled/3.png": "cat", "dog/1.png": "dog"}
    assert known.names[2] == "unlabelled/3.png"
    assert known.remarks == ("2 images without a label are left out: Unlabeled/4.png, unlabelled/2.png",)


@pytest.mark.parametrize("name", ["labels.csv", "labels.json", "other.csv"])
def test_answers_are_labels_beside_the_sub_folders(photos, name):
    save(photos / "new.png")
    book = LabelFile(photos / name)
    book.put("new.png", "cow")
    collection = open_collection(photos, labels=book if name == "other.csv" else None)
    assert collection.classes == ["cat", "cow", "dog"] and labels_of(collection)["new.png"] == "cow"


def test_an_answer_against_the_sub_folder_is_an_error(photos):
    LabelFile(photos / "labels.csv").put("cat/1.png", "dog")
    with pytest.raises(CollectionError, match=r"cat/1.png has two labels, 'cat' and 'dog' \(.*labels.csv, answer 1\)"):
        open_collection(photos)


@pytest.mark.parametrize(
    ("name", "text"),
    [("labels.csv", "file,class\nx.png,1\n"), ("labels.json", json.dumps({"0": "cat"})), ("labels.json", "[1]")],
)
def test_files_that_are_only_named_like_answers_are_not_read_and_that_is_said(photos, name, text):
    (photos / name).write_text(text)
    collection = open_collection(photos)
    assert len(collection.remarks) == 1 and f"{name} is not read" in collection.remarks[0]
    assert "not all of its keys" in collection.remarks[0] or f"{name})" in collection.remarks[0]  # --labels FILE
    with pytest.raises(CollectionError, match=f"the only label is 'cat', two classes are needed.*{name} is not read"):
        collection[:4].labelled()


def test_answers_in_two_files_are_an_error(photos):
    LabelFile(photos / "labels.csv").put("cat/1.png", "cat")
    LabelFile(photos / "labels.json").put("cat/1.png", "cat")
    with pytest.raises(CollectionError, match="both have labels"):
        open_collection(photos)


@pytest.mark.parametrize("text", ["a.png,cat\n", "a.png,cat\nb.png,dog\n", "image\na.png\n", "file,label\na.png,cat\n"])
def test_a_file_without_the_header_is_refused_and_not_taken_for_empty(tmp_path, text):
    (tmp_path / "l.csv").write_text(text)
    with pytest.raises(NotLabelsError, match=r"l\.csv is not a file of labels: expected the columns image and label"):
        LabelFile.open(tmp_path / "l.csv")


def test_a_line_with_other_columns_is_an_error_that_names_it(tmp_path):
    for line, what in (("b.png", "fewer"), ("b,2.png,cat", "more")):
        (tmp_path / "l.csv").write_text(f"image,label\na.png,cat\n{line}\n")
        with pytest.raises(CollectionError, match=rf"l\.csv, line 3: expected the columns image,label, got {what}"):
            LabelFile.open(tmp_path / "l.csv")


def test_an_empty_file_has_no_answers_and_skipped_images_no_label(tmp_path):
    (tmp_path / "l.csv").write_text("\n")
    assert LabelFile.open(tmp_path / "l.csv").answers == {}
    (tmp_path / "l.csv").write_text("image,label\na.png,\n\nb.png,cat\n")
    assert LabelFile.open(tmp_path / "l.csv").answers == {"a.png": None, "b.png": "cat"}


def test_names_with_commas_and_unusual_line_ends_come_back_as_they_were(tmp_path):
    names = ["a,b.png", 'quo"te.png', "new\nline.png", "next\x85line.png", "separator\u2028.png", "tab\t;.png"]
    for path in (tmp_path / "l.csv", tmp_path / "l.json"):
        book = LabelFile(path)
        for name in names:
            book.put(name, "cat")
        assert LabelFile.open(path).answers == dict.fromkeys(names, "cat")


def test_further_columns_stay_when_answers_are_written(tmp_path):
    path = tmp_path / "l.csv"
    path.write_text("image,notes,label\na.png,dark,cat\nb.png,,\n", encoding="utf-8")
    book = LabelFile.open(path)
    book.put("c.png", "cow")
    with book.renaming({"a.png": "cat/a.png"}):
        assert LabelFile.open(book.path).answers.keys() >= {"a.png", "cat/a.png"}  # whoever is killed here loses none
    book.drop("b.png")
    assert path.read_text(encoding="utf-8").splitlines() == ["image,label,notes", "cat/a.png,cat,dark", "c.png,cow,"]
    assert [p.name for p in tmp_path.iterdir()] == ["l.csv"]


def test_a_write_that_fails_leaves_the_answers_as_they_were(tmp_path, monkeypatch):
    book = LabelFile(tmp_path / "l.csv")
    book.put("a.png", "cat")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        book.put("b.png", "dog")
    assert LabelFile.open(book.path).answers == {"a.png": "cat"}
    assert [p.name for p in tmp_path.iterdir()] == ["l.csv"]


def test_runs_at_the_same_time_and_edits_by_hand_lose_no_answer(tmp_path):
    path = tmp_path / "l.csv"
    program = (
        "import sys; from patchbag.collection.labels import LabelFile; book = LabelFile.open(sys.argv[1])\n"
        "for i in range(40): book.put(f'{sys.argv[2]}-{i}.png', 'cat')"
    )
    runs = [subprocess.Popen([sys.executable, "-c", program, str(path), str(k)]) for k in range(2)]
    mine = LabelFile(path)
    mine.put("mine.png", "dog")
    assert [run.wait() for run in runs] == [0, 0]
    with path.open("a") as file:
        file.write("edited.png,cow\n")
    mine.put("more.png", "dog")
    answers = LabelFile.open(path).answers
    assert len(answers) == 83 and answers["edited.png"] == "cow" and answers["0-39.png"] == answers["1-0.png"] == "cat"


def test_labels_that_spreadsheets_would_calculate_are_written_as_text_and_read_as_they_were(tmp_path):
    book = LabelFile(tmp_path / "labels.csv")
    for i, label in enumerate(["=HYPERLINK(1)", "+a", "@b", "-1", "cat"]):
        book.put(f"{i}.png", label)
    text = book.path.read_text()
    assert "'=HYPERLINK" in text and "'-1" not in text and "\n=" not in text
    assert list(LabelFile.open(book.path).answers.values()) == ["=HYPERLINK(1)", "+a", "@b", "-1", "cat"]
