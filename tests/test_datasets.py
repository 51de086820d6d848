from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from patchbag.datasets import FolderError, find_images, half_of_smallest, open_folder, random_split
from patchbag.images import load_image


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


def test_what_is_not_used_is_counted_and_named(picture_folder):
    (picture_folder / "bars" / "notes.txt").write_text("hello")
    (picture_folder / "bars" / ".hidden.png").write_text("no")
    (picture_folder / "stripes" / "24.png").rename(picture_folder / "loose.png")
    (picture_folder / "readme.md").write_text("not an image: nobody expects it to be used")
    (picture_folder / "empty").mkdir()
    (picture_folder / "phone").mkdir()
    for name in ("a.heic", "b.HEIC", "c"):
        (picture_folder / "phone" / name).write_bytes(b"")
    folder = open_folder(picture_folder)
    assert folder.classes == ["bars", "diagonals", "stripes"] and len(folder) == 35 and folder.passed_over == 5
    assert folder.remarks == (
        "the sub-folder 'empty' is no class: it has no files",
        "the sub-folder 'phone' is no class: none of its 3 files is named like an image (.heic 2, no ending 1)",
        "1 image is in no sub-folder, so without a class: loose.png",
        "passed over 2 files that are not named like an image (.txt 1, hidden 1)",
    )
    assert folder.take([0]).remarks == folder.remarks


def test_a_folder_that_is_all_used_needs_no_remark(picture_folder):
    assert open_folder(picture_folder).remarks == ()


def test_long_lists_of_loose_images_are_cut(picture_folder):
    for i in range(12):
        (picture_folder / f"{i:02d}.png").write_bytes(b"")
    remark = open_folder(picture_folder).remarks[0]
    assert remark.startswith("12 images are in no sub-folder") and remark.endswith("09.png and 2 more")


@pytest.mark.parametrize("ending", ["jfif", "jpe", "JPG"])
def test_other_endings_of_jpeg_files_are_images(picture_folder, ending):
    path = picture_folder / "bars" / f"new.{ending}"
    Image.open(picture_folder / "bars" / "00.png").save(path, "JPEG")
    assert str(path) in open_folder(picture_folder).paths
    assert load_image(path).array.shape == (72, 72)


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
    (tmp_path / "empty" / "phone").mkdir()
    (tmp_path / "empty" / "phone" / "a.heic").write_bytes(b"")
    with pytest.raises(FolderError, match=r"'phone' is no class: none of its 1 files is named like an image \(.heic 1"):
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


def test_half_of_the_smallest_class_trains_where_nobody_said_how_many():
    assert half_of_smallest(np.repeat(["a", "b"], [7, 30])) == 3
    assert half_of_smallest(np.repeat(["a", "b"], [1, 30])) == 1
    assert half_of_smallest(np.repeat(["a", "b"], [500, 300])) == 100
