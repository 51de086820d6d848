"""The layout of IRMA's radiographs."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from patchbag.collection import CollectionError
from patchbag.datasets.irma import PARTS, body_part, open_irma
from patchbag.experiments import Experiment, load_experiment
from patchbag.experiments.files import ExperimentError

CODES = {"1877": "1121-120-942-700", "1880": "1121-127-700-500", "33": "1123-127-500-000", "34": "1121-4a0-454-700"}


@pytest.fixture
def radiographs(tmp_path):
    folder = tmp_path / "irma" / "ImageCLEFmed2009_train.02" / "ImageCLEFmed2009_train.02"
    folder.mkdir(parents=True)
    for i, name in enumerate([*CODES, "99"]):
        Image.fromarray(np.full((20, 20), i, np.uint8)).save(folder / f"{name}.png")
    lines = ["image_id;irma_code;05_class", *(f"{name};{code};1" for name, code in CODES.items())]
    table = tmp_path / "irma" / "ImageCLEFmed2009_train_codes.02.csv"
    table.write_text("\n".join(lines))
    return table


def test_there_are_twelve_parts_and_codes_name_them():
    assert len(set(PARTS.values())) == 12
    assert body_part("1121-120-413-700") == "hand" and body_part("11211204307aa") is None


def test_images_have_the_part_of_the_body_of_their_code(radiographs):
    images = open_irma(radiographs.parent)
    known = {name.rpartition("/")[2]: label for name, label in zip(images.names, images.labels)}
    assert known == {
        "1877.png": "knee and middle leg",
        "1880.png": None,
        "33.png": "chest",
        "34.png": "shoulder and upper arm",
        "99.png": None,
    }
    assert open_irma(radiographs.parent, "codes").labelled().classes == sorted(CODES.values())


def test_what_is_no_table_of_codes_is_named(radiographs, tmp_path):
    with pytest.raises(CollectionError, match="has no table"):
        open_irma(tmp_path / "irma" / "ImageCLEFmed2009_train.02")
    radiographs.write_text("image_id;irma_code\n1877;1121-120-942\n")
    with pytest.raises(CollectionError, match="line 2: an IRMA code is like"):
        open_irma(radiographs.parent)
    radiographs.write_text("image,label\n")
    with pytest.raises(CollectionError, match="expected the columns image_id;irma_code"):
        open_irma(radiographs.parent)


def test_experiments_open_the_layout_and_draw_so_many_images_per_class(radiographs):
    spec = load_experiment("piro2010/irma")
    assert len(Experiment(spec, radiographs.parents[1]).images) == 3
    folder = radiographs.parents[1]
    many = {f"{i}": "1121-120-942-700" for i in range(100, 105)}
    for name in many:
        Image.fromarray(np.full((20, 20), 9, np.uint8)).save(radiographs.parent / f"{name}.png")
    radiographs.write_text("image_id;irma_code\n" + "\n".join(f"{n};{c}" for n, c in (CODES | many).items()))
    some = Experiment(spec | {"images_per_class": 2}, folder).images
    assert sorted(some.labels.tolist()) == ["chest", *["knee and middle leg"] * 2, "shoulder and upper arm"]
    assert Experiment(spec | {"images_per_class": 2}, folder).images.names == some.names
    with pytest.raises(ExperimentError, match="layout must be one of folders, imagenet, imagenet-voc, irma"):
        len(Experiment(spec | {"layout": "dicom"}, folder).images)
