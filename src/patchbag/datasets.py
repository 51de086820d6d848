# SPDX-License-Identifier: BSD-3-Clause
"""Folders of images, the papers' random splits, and photographs that come with installed packages.

A labelled folder has one sub-folder a class; images may lie in sub-folders of it.  Files whose name does not end like
an image's are passed over and counted; whether a file really is an image shows when it is decoded.  What looks as if it
was meant to be used and is not (images outside the sub-folders, sub-folders without images) is named in ``remarks``.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

EXTENSIONS = (
    *(".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg"),
    *(".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)


class FolderError(ValueError):
    """A folder that does not hold what was expected."""


@dataclass(frozen=True)
class ImageFolder:
    """Paths and labels of the images of a labelled folder, sorted by class and name.

    ``passed_over`` counts the files of the sub-folders that are not named like images, ``remarks`` are lines that tell
    a person what of the folder is not used.
    """

    paths: list[str]
    labels: np.ndarray
    passed_over: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def classes(self) -> list[str]:
        return sorted(set(self.labels.tolist()))

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, index: Any) -> ImageFolder:
        """The images at the given positions, with their labels."""
        index = np.asarray(index, dtype=np.int64)
        return ImageFolder([self.paths[i] for i in index], self.labels[index], self.passed_over, self.remarks)


def is_image_name(name: str) -> bool:
    """Whether a file name ends like an image's; hidden files do not count."""
    return name.lower().endswith(EXTENSIONS) and not name.startswith(".")


def walk_images(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Paths of the images below a folder, in sorted order; hidden folders are left out."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        yield from (os.path.join(here, f) for f in sorted(files) if is_image_name(f))


def open_folder(
    folder: str | os.PathLike[str], min_classes: int = 2, without_class: Collection[str] = ()
) -> ImageFolder:
    """The labelled images below ``folder``: a sub-folder a class.

    Sub-folders named in ``without_class``, in lower case, are none.  Where there are such names, images without a class
    are expected, so nothing is remarked on those that are in no sub-folder.

    Raises
    ------
    FolderError
        when there is no such folder, no sub-folder with images, or fewer than ``min_classes`` of them
    """
    root = Path(folder)
    if not root.is_dir():
        raise FolderError(f"{root} is not a folder" if root.exists() else f"there is no folder {root}")
    paths: list[str] = []
    labels: list[str] = []
    others: Counter[str] = Counter()
    empty: list[str] = []
    passed_over = 0
    entries = sorted(root.iterdir())
    for sub in (
        p for p in entries if p.is_dir() and not p.name.startswith(".") and p.name.lower() not in without_class
    ):
        found = list(walk_images(sub))
        passed = _other_files(sub, found)
        passed_over += passed.total()
        if found:
            others += passed
        else:
            inside = f"none of its {passed.total()} files is named like an image ({_tally(passed)})"
            empty.append(f"the sub-folder {sub.name!r} is no class: {inside if passed else 'it has no files'}")
        paths += found
        labels += [sub.name] * len(found)
    loose = [p.name for p in entries if p.is_file() and is_image_name(p.name)]
    remarks = list(empty)
    if loose and not without_class:
        many = "1 image is" if len(loose) == 1 else f"{len(loose)} images are"
        remarks.append(f"{many} in no sub-folder, so without a class: {shortened(loose)}")
    if others:
        many = "1 file that is" if others.total() == 1 else f"{others.total()} files that are"
        remarks.append(f"passed over {many} not named like an image ({_tally(others)})")
    classes = sorted(set(labels))
    if len(classes) < min_classes:
        have = f"found images in {len(classes)} sub-folder{'' if len(classes) == 1 else 's'}"
        have += f" ({classes[0]})" if classes else ""
        if loose:
            many = "1 image that is" if len(loose) == 1 else f"{len(loose)} images that are"
            have += f" and {many} in no sub-folder ('patchbag active' asks for labels)"
        have += f"; {shortened(empty, 3, '; ')}" if empty else ""
        raise FolderError(
            f"{root} needs at least {min_classes} sub-folders with images, one a class, such as "
            f"{root}/cat/1.jpg and {root}/dog/1.jpg; {have}"
        )
    return ImageFolder(paths, np.array(labels), passed_over, tuple(remarks))


def _other_files(folder: Path, images: Iterable[str]) -> Counter[str]:
    """How many files below a folder are not among its images, by the ending of their names."""
    taken = set(images)
    names = [f for here, _, files in os.walk(folder) for f in files if os.path.join(here, f) not in taken]
    return Counter("hidden" if f.startswith(".") else os.path.splitext(f)[1].lower() or "no ending" for f in names)


def _tally(endings: Counter[str]) -> str:
    return shortened([f"{ending} {count}" for ending, count in sorted(endings.items(), key=lambda e: (-e[1], e[0]))])


def shortened(names: Sequence[str], most: int = 10, between: str = ", ") -> str:
    """A list to read, cut after ``most`` names.

    >>> shortened(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def find_images(arguments: Sequence[str]) -> list[str]:
    """Images named by files, folders and glob patterns, each once, in the order given.

    A file that is named is taken whatever its name ends in; a folder gives the images below it.
    """
    found: dict[str, None] = {}
    for argument in arguments:
        if os.path.isdir(argument):
            images = list(walk_images(argument))
        elif os.path.exists(argument):
            images = [argument]
        else:
            images = sorted(f for f in glob.glob(argument, recursive=True) if os.path.isfile(f))
            if not images and not glob.has_magic(argument):
                raise FolderError(f"there is no file or folder {argument}")
        if not images:
            raise FolderError(f"there are no images in {argument}")
        found.update(dict.fromkeys(images))
    return list(found)


def half_of_smallest(labels: np.ndarray, largest: int = 100) -> int:
    """Training images a class where nobody said how many: half of the smallest class, from 1 to ``largest``."""
    return int(np.clip(np.unique(labels, return_counts=True)[1].min() // 2, 1, largest))


def random_split(
    labels: np.ndarray, train_per_class: int, random_state: Any = None, test_per_class: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The papers' protocol: ``train_per_class`` random images of every class to train, the rest to test.

    Returns
    -------
    sorted indices of the training and of the test images
    """
    generator = check_random_state(random_state)
    train: list[np.ndarray] = []
    test: list[np.ndarray] = []
    for name in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == name))
        if len(members) <= train_per_class:
            raise ValueError(
                f"class {str(name)!r} has {len(members)} images: {train_per_class} for training leave none for testing"
            )
        train.append(members[:train_per_class])
        stop = None if test_per_class is None else train_per_class + test_per_class
        test.append(members[train_per_class:stop])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))
