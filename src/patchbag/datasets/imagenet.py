# SPDX-License-Identifier: BSD-3-Clause
"""ImageNet: images by synset, or by wider classes of synsets such as those of PASCAL VOC (liu2010 §7.6).

Any of these layouts, in a folder or below it::

    n02124075/n02124075_9862.JPEG                    # a folder per synset: training images, and archives of one synset
    val/ILSVRC2012_val_00000001.JPEG                 # with LOC_val_solution.csv: "ILSVRC2012_val_00000001,n01751748 …"

Beside them, if they are there: ``LOC_synset_mapping.txt`` or ``words.txt`` ("n02124075 Egyptian cat, …"), whose first
name is the label in place of the synset's number, and ``wordnet.is_a.txt`` ("parent child" per line), which says what
is below a synset.

``VOC_SYNSETS`` are the 18 classes of the thesis, each with all synsets below.  The thesis names the classes; the
numbers are WordNet 3.0's.
"""

import csv
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from patchbag.collection import Collection, CollectionError, open_collection
from patchbag.collection.folder import scan

SYNSET = re.compile(r"n\d{8}")
NAMES, CHILDREN, ANSWERS = ("LOC_synset_mapping.txt", "words.txt"), "wordnet.is_a.txt", "LOC_val_solution.csv"

VOC_SYNSETS = {
    "aeroplane": "n02691156",
    "bicycle": "n02834778",
    "bird": "n01503061",
    "boat": "n02858304",
    "bottle": "n02876657",
    "bus": "n02924116",
    "car": "n02958343",
    "cat": "n02121620",
    "chair": "n03001627",
    "cow": "n01887787",
    "diningtable": "n03201208",
    "dog": "n02084071",
    "horse": "n02374451",
    "motorbike": "n03790512",
    "sheep": "n02411705",
    "sofa": "n04256520",
    "train": "n04468005",
    "tvmonitor": "n03211117",
}


def open_imagenet(folder: str | Path, classes: Mapping[str, str] | None = None) -> Collection:
    """The images of a folder, labelled by their synset's name or by the wider class that it lies below.

    Parameters
    ----------
    folder : with all its sub-folders
    classes : name → synset, each with all that ``wordnet.is_a.txt`` has below it, such as ``VOC_SYNSETS``; images of
        other synsets have no label
    """
    root = Path(folder)
    names, _ = scan(root)
    answers = _answers(root)
    synsets = {name: answers.get(Path(name).stem) or _folder_synset(name) for name in names}
    if not any(synsets.values()):
        raise CollectionError(f"{root} has no folder of a synset, such as n02124075, and no table {ANSWERS}")
    said = {s: s for s in synsets.values() if s} | _names(root) if classes is None else _below(root, classes)
    return open_collection(root, labels={name: said.get(s) if s else None for name, s in synsets.items()})


def _folder_synset(name: str) -> str | None:
    parents = Path(name).parts[:-1]
    return next((part for part in reversed(parents) if SYNSET.fullmatch(part)), None)


def _find(root: Path, *names: str) -> Path | None:
    return next((path for name in names for path in sorted(root.rglob(name))), None)


def _answers(root: Path) -> dict[str, str]:
    """Synset of each validation image, by its name without ending."""
    if (table := _find(root, ANSWERS)) is None:
        return {}
    with table.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if not {"ImageId", "PredictionString"} <= set(rows.fieldnames or ()):
            raise CollectionError(f"{table}: expected the columns ImageId,PredictionString, got {rows.fieldnames}")
        return {row["ImageId"]: (row["PredictionString"] or "").split(" ")[0] for row in rows}


def _names(root: Path) -> dict[str, str]:
    """First name of each synset; its number behind it where two have the same (there are two cranes)."""
    if (table := _find(root, *NAMES)) is None:
        return {}
    lines = [line.split(maxsplit=1) for line in table.read_text(encoding="utf-8").splitlines() if line.strip()]
    found = {synset: rest[0].split(",")[0].strip() for synset, *rest in lines if rest}
    counts = Counter(found.values())
    return {synset: name if counts[name] == 1 else f"{name} {synset}" for synset, name in found.items()}


def _below(root: Path, classes: Mapping[str, str]) -> dict[str, str]:
    """Class of each synset at or below one of ``classes``: the nearest one above it."""
    children: dict[str, list[str]] = {}
    if (table := _find(root, CHILDREN)) is not None:
        for line in table.read_text(encoding="utf-8").splitlines():
            parent, _, child = line.strip().partition(" ")
            children.setdefault(parent, []).append(child)
    found = {synset: name for name, synset in classes.items()}
    level = list(found)
    for synset in (level := list(found)):  # it grows by what is below, so that the nearest class comes first
        for child in children.get(synset, ()):
            if child not in found:
                found[child] = found[synset]
                level.append(child)
    return found
