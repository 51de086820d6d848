# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import itertools
import os
import sys

import numpy as np
import pytest
from PIL import Image

from collection.pictures import Rows, save
from patchbag.collection import CollectionError, open_collection
from patchbag.collection.folder import find_images
from patchbag.collection.labels import LabelFile
from patchbag.images.decoders import FORMATS, known_formats
from patchbag.images.loading import ImageError, load_image


def test_images_come_by_class_and_name_with_their_labels(photos):
    collection = open_collection(photos)
    assert collection.names == [f"cat/{i}.png" for i in range(4)] + [f"dog/{i}.png" for i in range(4, 7)]
    assert collection.labels.tolist() == ["cat"] * 4 + ["dog"] * 3 and collection.classes == ["cat", "dog"]
    assert collection.paths == [str(photos / name) for name in collection.names]
    assert len(collection) == 7 and collection.remarks == () and collection.root == photos
    assert repr(collection) == f"Collection({str(photos)!r}, 7 images, 2 classes)"


def test_what_is_not_used_is_counted_and_named(photos):
    (photos / "cat" / "notes.txt").write_text("hello")
    (photos / "cat" / ".hidden.png").write_text("no")
    (photos / ".git").mkdir()
    (photos / ".git" / "x.png").write_text("no")
    (photos / "dog" / "4.png").rename(photos / "loose.png")
    (photos / "readme.md").write_text("nobody expects it to be used")
    (photos / "empty").mkdir()
    for name in ("a.mov", "b.MOV", "c"):
        (photos / "phone").mkdir(exist_ok=True)
        (photos / "phone" / name).write_bytes(b"")
    collection = open_collection(photos)
    assert collection.classes == ["cat", "dog"] and len(collection) == 7
    assert collection.remarks == (
        "the sub-folder 'empty' is no class: it has no files",
        "the sub-folder 'phone' is no class: none of its 3 files is named like an image (.mov 2, no ending 1)",
        "passed over 2 files that are not named like an image (.txt 1, hidden 1)",
    )
    known = collection.labelled()
    assert known.remarks[-1] == "1 image without a label is left out: loose.png" and len(known) == 6
    assert known[[0]].remarks == known.remarks


def test_images_of_nested_folders_belong_to_the_outer_class(photos):
    save(photos / "cat" / "old" / "0.png")
    collection = open_collection(photos)
    assert collection.names[4] == "cat/old/0.png" and collection.labels.tolist().count("cat") == 5


def test_images_are_picked_with_their_labels_by_slices_index_arrays_and_masks(photos):
    save(photos / "new.png")
    collection = open_collection(photos)
    assert collection.labels.dtype == object and collection.labels[-1] is None
    assert collection[2:5].names == ["cat/2.png", "cat/3.png", "dog/4.png"]
    assert collection[[6, 0]].labels.tolist() == ["dog", "cat"] and collection[[6, 0]].paths[0] == str(
        photos / "dog/6.png"
    )
    assert collection[np.arange(8) > 5].names == ["dog/6.png", "new.png"] and collection[-1].names == ["new.png"]
    assert collection.unlabelled().names == ["new.png"] and len(collection[:0]) == 0
    assert collection[[7, 1]].unlabelled().names == ["new.png"] and collection[[7, 1]].classes == ["cat"]
    assert collection[[7, 5, 1]].labelled().names == ["dog/5.png", "cat/1.png"]
    assert collection.labelled().labels.dtype.kind == "U"


@pytest.mark.parametrize("ending", ["jfif", "jpe", "JPG"])
def test_other_endings_of_jpeg_files_are_images(photos, ending):
    Image.open(photos / "cat" / "0.png").save(photos / "cat" / f"new.{ending}", "JPEG")
    assert f"cat/new.{ending}" in open_collection(photos).names


@pytest.mark.parametrize("kind", [kind for kind in known_formats() if FORMATS[kind]])
def test_every_ending_that_a_folder_takes_is_decoded(tmp_path, kind):
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"this Pillow has no {kind}")
    for ending in FORMATS[kind]:
        Image.new("L", (16, 16), 99).save(tmp_path / f"a{ending}", kind)
        assert load_image(tmp_path / f"a{ending}").array.shape == (16, 16)
    assert len(open_collection(tmp_path)) == len(FORMATS[kind])


def test_other_formats_stay_closed_whatever_the_name_of_the_file(tmp_path):
    with (tmp_path / "a.png").open("wb") as file:
        Image.new("L", (16, 16)).save(file, "EPS")
    with pytest.raises(ImageError, match="not an image in a format that can be read"):
        load_image(tmp_path / "a.png")


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_are_followed_once_and_loops_end(photos, tmp_path):
    save(tmp_path / "elsewhere" / "9.png")
    (photos / "cow").symlink_to(tmp_path / "elsewhere")
    (photos / "cat" / "up").symlink_to(photos)
    (photos / "dog" / "here").symlink_to(photos / "dog")
    (photos / "dog" / "nowhere").symlink_to(tmp_path / "nowhere")
    (photos / "dog" / "link.png").symlink_to(photos / "dog" / "4.png")
    names = open_collection(photos).names
    assert names[4] == "cow/9.png" and "dog/link.png" in names and len(names) == 9
    names = open_collection(photos / "cat").names  # "up" leads to it again
    assert "0.png" in names and not [name for name in names if "cat/" in name]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_not_utf8_survive_everything(photos):
    strange = os.fsdecode(b"caf\xe9.png")
    save(photos / strange)
    save(photos / os.fsdecode(b"k\xfche") / "1.png")
    book = LabelFile(photos / "labels.csv")
    book.put(strange, "cat")
    assert LabelFile.open(book.path).answers == {strange: "cat"}
    collection = open_collection(photos)
    assert strange in collection.names and collection.classes[-1] == os.fsdecode(b"k\xfche")
    for _ in range(2):
        described = collection.describe(Rows())
        assert len(described.bags) == 9 and not described.failures
    assert Rows.calls == 9


def test_a_sub_folder_that_cannot_be_read_is_named(photos, cannot_be_read):
    cannot_be_read("dog")
    collection = open_collection(photos)
    assert collection.remarks == (f"{photos / 'dog'} cannot be read (Permission denied)",)
    with pytest.raises(CollectionError, match=r"of 4 images the only label is 'cat'.*dog cannot be read"):
        collection.labelled()


def test_folders_that_do_not_fit_say_what_was_found(tmp_path, photos):
    with pytest.raises(CollectionError, match="there is no folder"):
        open_collection(tmp_path / "nowhere")
    with pytest.raises(CollectionError, match="is not a folder"):
        open_collection(photos / "cat" / "0.png")
    with pytest.raises(CollectionError, match=r"of 4 images none has a label, two classes.*label some: patchbag act"):
        open_collection(photos / "cat").labelled()
    (tmp_path / "empty" / "phone").mkdir(parents=True)
    (tmp_path / "empty" / "phone" / "a.mov").write_bytes(b"")
    with pytest.raises(CollectionError, match=r"has no images; .*'phone' is no class: none of its 1 files .*\(.mov 1"):
        open_collection(tmp_path / "empty")
    (tmp_path / "empty" / "notes.txt").write_text("no image")
    with pytest.raises(CollectionError, match=r"has no images; .*passed over 1 file .*\(.txt 1\)"):
        open_collection(tmp_path / "empty")
    with pytest.raises(CollectionError, match="the list of images is empty"):
        open_collection([])


def test_files_folders_and_patterns_name_each_image_once_and_in_order(photos):
    one = str(photos / "dog" / "5.png")
    found, unread = find_images([one, str(photos / "dog"), str(photos / "*" / "0*.png")])
    assert [os.path.basename(path) for path in found] == ["5.png", "4.png", "6.png", "0.png"] and found[0] == one
    assert not unread
    collection = open_collection(found)
    assert collection.paths == found and collection.labels.tolist() == [None] * 4
    with pytest.raises(CollectionError, match="no file or folder"):
        find_images(["nothing.jpg"])
    with pytest.raises(CollectionError, match="no images in"):
        find_images([str(photos / "*.gif")])


def test_where_nothing_is_left_to_ask_for_nobody_is_sent_to_asking(photos):
    with pytest.raises(CollectionError, match=r"of 7 images the only label is 'cat'.*\(--labels\)$"):
        open_collection(photos, dict.fromkeys(open_collection(photos).names, "cat")).labelled()
    one = [str(photos / "cat" / "0.png")]
    with pytest.raises(CollectionError, match=r"of 1 image none has a label.*\(--labels\)$"):
        open_collection(one).labelled()


def test_classes_that_differ_in_capitals_alone_are_remarked_on(photos):
    names = open_collection(photos).names
    labels = dict(zip(names, itertools.cycle(["cat", "Cat", "dog"])))
    collection = open_collection(photos, labels)
    assert collection.classes == ["Cat", "cat", "dog"]
    assert collection.remarks == ("classes that differ in capitals alone are several: 'Cat' and 'cat'",)
    assert open_collection(photos).remarks == ()
