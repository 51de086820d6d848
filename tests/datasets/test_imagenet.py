"""The layouts of ImageNet."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from patchbag.collection import CollectionError
from patchbag.datasets.imagenet import VOC_SYNSETS, open_imagenet
from patchbag.experiments.experiment import LAYOUTS

TABBY, CRANE, OTHER_CRANE, TENCH = "n02123045", "n02012849", "n03126707", "n01440764"


@pytest.fixture
def imagenet(tmp_path):
    """Two training images of each of four synsets, and two validation images."""
    for synset in (TABBY, CRANE, OTHER_CRANE, TENCH):
        for i in range(2):
            draw(tmp_path / "train" / synset / f"{synset}_{i}.JPEG")
    for i in (1, 2):
        draw(tmp_path / "val" / f"ILSVRC2012_val_0000000{i}.JPEG")
    return tmp_path


def draw(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((20, 20), np.uint8)).save(path, format="jpeg")


def label_of(images):
    return {name.rpartition("/")[2]: label for name, label in zip(images.names, images.labels)}


def test_a_folder_per_synset_and_a_table_of_the_validation_images_give_labels(imagenet):
    assert open_imagenet(imagenet).labelled().classes == sorted([TABBY, CRANE, OTHER_CRANE, TENCH])
    (imagenet / "LOC_val_solution.csv").write_text(
        f"ImageId,PredictionString\nILSVRC2012_val_00000001,{TENCH} 1 2 3 4\n"
    )
    (imagenet / "LOC_synset_mapping.txt").write_text(
        f"{TENCH} tench, Tinca tinca\n{CRANE} crane\n{OTHER_CRANE} crane\n{TABBY} tabby, tabby cat\n"
    )
    found = label_of(open_imagenet(imagenet))
    assert found["ILSVRC2012_val_00000001.JPEG"] == found[f"{TENCH}_1.JPEG"] == "tench"
    assert found["ILSVRC2012_val_00000002.JPEG"] is None
    assert found[f"{CRANE}_0.JPEG"] == f"crane {CRANE}"  # the bird, and not the machine


def test_wider_classes_take_in_what_lies_below_and_the_nearest_one_counts(imagenet):
    cat, animal = VOC_SYNSETS["cat"], "n00015388"
    (imagenet / "wordnet.is_a.txt").write_text(
        f"{animal} {cat}\n{animal} {TENCH}\n{cat} n02121808\nn02121808 {TABBY}\n{TABBY} {cat}\n"  # a circle ends
    )
    assert set(label_of(LAYOUTS["imagenet-voc"](imagenet)).values()) == {"cat", None}
    found = label_of(open_imagenet(imagenet, {"animal": animal, "cat": cat}))
    assert found[f"{TABBY}_0.JPEG"] == "cat" and found[f"{TENCH}_0.JPEG"] == "animal"
    assert found[f"{CRANE}_0.JPEG"] is None


def test_what_is_not_imagenet_is_named(tmp_path, imagenet):
    draw(tmp_path / "other" / "cats" / "1.jpg")
    with pytest.raises(CollectionError, match="has no folder of a synset"):
        open_imagenet(tmp_path / "other")
    (imagenet / "LOC_val_solution.csv").write_text("a,b\n")
    with pytest.raises(CollectionError, match="expected the columns ImageId,PredictionString"):
        open_imagenet(imagenet)
