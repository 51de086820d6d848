from __future__ import annotations

import numpy as np
import pytest

from patchbag.datasets import FolderError, find_images, open_folder, random_split


def test_sub_folders_are_classes_and_order_is_sorted(picture_folder):
    folder = open_folder(picture_folder)
    assert folder.classes == ["bars", "diagonals", "stripes"]
    assert len(folder) == 36
    assert folder.paths == sorted(folder.paths)
    assert all(f"/{label}/" in path for path, label in zip(folder.paths, folder.labels))


def test_hidden_and_other_files_are_passed_over_and_counted(picture_folder):
    (picture_folder / "bars" / "notes.txt").write_text("hello")
    (picture_folder / "bars" / ".hidden.png").write_text("no")
    (picture_folder / ".git").mkdir()
    (picture_folder / ".git" / "x.png").write_text("no")
    folder = open_folder(picture_folder)
    assert len(folder) == 36 and folder.passed_over == 2 and ".git" not in folder.classes


def test_images_in_nested_folders_belong_to_the_outer_class(picture_folder):
    nested = picture_folder / "bars" / "deep"
    nested.mkdir()
    (picture_folder / "bars" / "00.png").rename(nested / "00.png")
    assert open_folder(picture_folder).labels.tolist().count("bars") == 12


def test_folders_that_do_not_fit_say_what_was_found(tmp_path, picture_folder):
    with pytest.raises(FolderError, match="there is no folder"):
        open_folder(tmp_path / "nowhere")
    with pytest.raises(FolderError, match="found images in 0 sub-folders and 12 images that are in no sub-folder"):
        open_folder(picture_folder / "bars")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FolderError, match="one a class, such as"):
        open_folder(tmp_path / "empty")


def test_files_folders_and_patterns_name_each_image_once(picture_folder):
    one = str(picture_folder / "bars" / "00.png")
    found = find_images([one, str(picture_folder / "bars"), str(picture_folder / "*" / "0*.png")])
    assert found[0] == one and len(found) == len(set(found)) == 12
    assert find_images([str(picture_folder / "stripes")])[0].endswith("24.png")
    with pytest.raises(FolderError, match="no file or folder"):
        find_images(["nothing.jpg"])
    with pytest.raises(FolderError, match="no images in"):
        find_images([str(picture_folder / "*.gif")])


def test_a_split_takes_the_same_number_of_every_class_and_is_decided_by_its_seed():
    labels = np.array(["a"] * 10 + ["b"] * 7)
    train, test = random_split(labels, 3, 0)
    assert labels[train].tolist() == ["a"] * 3 + ["b"] * 3
    assert sorted([*train, *test]) == list(range(17))
    assert np.array_equal(train, random_split(labels, 3, 0)[0])
    assert not np.array_equal(train, random_split(labels, 3, 1)[0])
    assert len(random_split(labels, 3, 0, test_per_class=2)[1]) == 4
    with pytest.raises(ValueError, match="class 'b' has 7 images: 7 for training leave none"):
        random_split(labels, 7, 0)
