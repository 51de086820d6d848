# SPDX-License-Identifier: BSD-3-Clause
"""PASCAL VOC classification: the devkit's folders.

The layout is that of the devkit::

    VOCdevkit/VOC2007/JPEGImages/000005.jpg
    VOCdevkit/VOC2007/ImageSets/Main/chair_train.txt      # "000005  1": 1 there, -1 not there, 0 difficult

An image has any number of classes; ``MultilabelSVM`` trains on such labels and ``evaluate`` scores them.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from patchbag.collection import CollectionError


@dataclass(frozen=True)
class VOCImages:
    """Paths of n images, ``truth (n, C)``: 1 shows the class, -1 does not, 0 shows it but is difficult; and ``parts``,
    the image set (train, val, test) that each belongs to.
    """

    paths: list[str]
    classes: list[str]
    truth: np.ndarray
    parts: np.ndarray

    def __len__(self) -> int:
        return len(self.paths)


def open_voc(folder: str | Path, parts: tuple[str, ...] = ("train", "val", "test")) -> VOCImages:
    """The images of a VOC folder: ``VOCdevkit/VOC2007``, or a folder that holds it."""
    root = Path(folder)
    sets = next((p for p in sorted(root.glob("**/ImageSets/Main")) if p.is_dir()), None)
    if sets is None:
        raise CollectionError(f"{root} holds no ImageSets/Main: it is not a VOCdevkit folder")
    found = [_open_part(sets, part) for part in parts]
    for part, other in zip(parts[1:], found[1:]):
        if other.classes != found[0].classes:
            raise CollectionError(f"{sets}: the part {part} has other classes than {parts[0]}")
    truth, named = (np.concatenate([getattr(f, field) for f in found]) for field in ("truth", "parts"))
    return VOCImages([path for f in found for path in f.paths], found[0].classes, truth, named)


def _open_part(sets: Path, part: str) -> VOCImages:
    files = sorted(sets.glob(f"*_{part}.txt"))
    if not files:
        raise CollectionError(f"{sets} has no files *_{part}.txt: is that part of the devkit unpacked?")
    columns = [_read_set(path) for path in files]
    names = list(columns[0])
    for path, column in zip(files, columns):
        if list(column) != names:
            raise CollectionError(f"{path} lists other images than {files[0]}")
    images = sets.parents[1] / "JPEGImages"
    truth = np.array([[column[name] for column in columns] for name in names], dtype=np.int8)
    classes = [path.name.removesuffix(f"_{part}.txt") for path in files]
    paths = [str(images / f"{name}.jpg") for name in names]
    return VOCImages(paths, classes, truth.reshape(len(names), len(classes)), np.full(len(names), part))


def _read_set(path: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or fields[1] not in ("-1", "0", "1"):
            raise CollectionError(f'{path}, line {number}: expected an image and 1, -1 or 0, got "{line}"')
        found[fields[0]] = int(fields[1])
    return found
