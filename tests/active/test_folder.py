# SPDX-License-Identifier: BSD-3-Clause
"""Folders of which some images have labels, read for training, and the files of labels in them."""

from __future__ import annotations

import json
import os

import pytest
from PIL import Image

from patchbag.active.folder import LabelFile, open_labelled
from patchbag.datasets import FolderError, open_folder


def make(root, *names: str):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(root / name)
    return root


def pairs(images) -> list[tuple[str, str]]:
    root = os.path.commonpath(images.paths)
    return [(os.path.relpath(path, root), label) for path, label in zip(images.paths, images.labels.tolist())]


# --- what is trained on ------------------------------------------------------------------------------------------


def test_the_pool_is_no_class_and_its_answers_are_labels(tmp_path):
    root = make(tmp_path, "cat/1.png", "dog/1.png", "unlabelled/2.png", "unlabelled/3.png", "Unlabeled/4.png", "5.png")
    (root / "cat" / "notes.txt").write_text("")
    (root / "labels.csv").write_text("image,label\nunlabelled/3.png,cat\n5.png,ant\nunlabelled/2.png,\n")
    images = open_labelled(root)
    assert pairs(images) == [("5.png", "ant"), ("cat/1.png", "cat"), ("unlabelled/3.png", "cat"), ("dog/1.png", "dog")]
    assert "2 images without a label are left out" in images.remarks
    assert any("(.txt 1)" in remark for remark in images.remarks)
    assert not any("in no sub-folder" in remark for remark in images.remarks)


def test_the_pool_is_no_class_without_a_file_of_labels_either(tmp_path):
    images = open_labelled(make(tmp_path, "cat/1.png", "dog/1.png", "unlabelled/2.png"))
    assert images.classes == ["cat", "dog"] and images.remarks == ("1 image without a label is left out",)


@pytest.mark.parametrize("name", ["labels.csv", "labels.json"])
def test_images_that_all_lie_loose_are_trained_on_under_their_answers(tmp_path, name):
    book = LabelFile(make(tmp_path, "a.png", "b.png") / name)
    book.put("a.png", "cat")
    with pytest.raises(FolderError, match=r"of 2 images all have the label 'cat'; two classes are needed"):
        open_labelled(tmp_path)
    book.put("b.png", "dog")
    images = open_labelled(tmp_path)
    assert pairs(images) == [("a.png", "cat"), ("b.png", "dog")] and images.remarks == ()


def test_a_folder_without_pool_and_answers_is_read_as_ever(tmp_path):
    root = make(tmp_path, "cat/1.png", "dog/deep/1.png", "loose.png")
    (root / "empty").mkdir()
    usual, images = open_folder(root), open_labelled(root)
    assert images.paths == usual.paths and images.labels.tolist() == usual.labels.tolist()
    assert images.remarks == usual.remarks and len(usual.remarks) == 2
    with pytest.raises(FolderError, match="there is no folder"):
        open_labelled(root / "nowhere")


@pytest.mark.parametrize(
    ("name", "text"),
    [("labels.csv", "file,class\nx.png,1\n"), ("labels.json", json.dumps({"0": "cat"})), ("labels.json", "[1]")],
)
def test_files_that_are_only_named_like_answers_are_not_read_and_that_is_said(tmp_path, name, text):
    root = make(tmp_path, "cat/1.png", "dog/1.png")
    (root / name).write_text(text)
    images = open_labelled(root)
    assert images.paths == open_folder(root).paths
    assert len(images.remarks) == 1 and f"{name} is not read" in images.remarks[0]
    (root / "dog" / "1.png").unlink()
    with pytest.raises(FolderError, match=f"needs at least 2 sub-folders.*{name} is not read"):
        open_labelled(root)


def test_answers_in_two_files_are_an_error(tmp_path):
    root = make(tmp_path, "cat/1.png", "dog/1.png", "a.png")
    LabelFile(root / "labels.csv").put("a.png", "cat")
    LabelFile(root / "labels.json").put("a.png", "dog")
    with pytest.raises(FolderError, match="both have labels"):
        open_labelled(root)


# --- files of labels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["a.png,cat\n", "a.png,cat\nb.png,dog\n", "image\na.png\n", "image;label\na.png;cat\n"]
)
def test_a_file_without_the_header_is_refused_and_not_taken_for_empty(tmp_path, text):
    (tmp_path / "l.csv").write_text(text)
    with pytest.raises(ValueError, match=r"l\.csv is not a file of labels: expected the columns image and label"):
        LabelFile.open(tmp_path / "l.csv")


@pytest.mark.parametrize(("line", "what"), [("b.png", "fewer"), ("b,2.png,cat", "more")])
def test_a_line_with_other_columns_is_an_error_that_names_it(tmp_path, line, what):
    (tmp_path / "l.csv").write_text(f"image,label\na.png,cat\n{line}\n")
    with pytest.raises(ValueError, match=rf"l\.csv, line 3: expected the columns image,label, got {what}"):
        LabelFile.open(tmp_path / "l.csv")


def test_an_empty_file_has_no_answers_and_skipped_images_no_label(tmp_path):
    (tmp_path / "l.csv").write_text("\n")
    assert LabelFile.open(tmp_path / "l.csv").answers == {}
    (tmp_path / "l.csv").write_text("image,label\na.png,\n\nb.png,cat\n")
    assert LabelFile.open(tmp_path / "l.csv").answers == {"a.png": None, "b.png": "cat"}


def test_names_with_commas_and_unusual_line_ends_come_back_as_they_were(tmp_path):
    names = ["a,b.png", 'quo"te.png', "new\nline.png", "next\x85line.png", "separator\u2028.png"]
    book = LabelFile(tmp_path / "l.csv")
    for name in names:
        book.put(name, "cat")
    assert LabelFile.open(tmp_path / "l.csv").answers == dict.fromkeys(names, "cat")


def test_further_columns_stay_when_answers_are_written(tmp_path):
    path = tmp_path / "l.csv"
    path.write_text("image,notes,label\na.png,dark,cat\nb.png,,\n", encoding="utf-8")
    book = LabelFile.open(path)
    book.put("c.png", "cow")
    book.rename({"a.png": "cat/a.png"})
    assert path.read_text(encoding="utf-8").splitlines() == [
        "image,label,notes", "cat/a.png,cat,dark", "b.png,,", "c.png,cow,"
    ]  # fmt: skip
