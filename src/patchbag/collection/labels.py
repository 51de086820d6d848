# SPDX-License-Identifier: BSD-3-Clause
"""Labels of images, from wherever people keep them.

* The sub-folder that an image lies in, unless that is called ``unlabelled``.
* A file of answers beside the images, ``labels.csv`` or ``labels.json``: :class:`LabelFile`, which is also written.
* Tables (:mod:`patchbag.collection.tables`).

Images are named by their path in the folder, or any other path that leads to them.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchbag.collection.folder import UNLABELLED, CollectionError, is_image_name, shortened
from patchbag.collection.tables import (
    NotLabelsError,
    Row,
    cell_text,
    file_rows,
    plain_cell,
    plain_label,
    table_rows,
    western,
)
from patchbag.storage.replacing import locked, replacing

# where answers are looked for beside the images
LABEL_FILES = ("labels.csv", "labels.json")
# what their columns are called
OURS = (("image",), ("label",))


def label_of_folder(name: str) -> str | None:
    """The sub-folder that an image lies in, if that is its class."""
    folder, _, inside = name.partition("/")
    return folder if inside and folder.lower() not in UNLABELLED else None


def read_labels(table: Any, root: Path, names: Sequence[str], labels: list[Any]) -> list[str]:
    """Put the labels of a table into ``labels``, those of the images so far; returns remarks.

    Labels for images that are not there are only remarked on, unless all are: then it is the table of another folder.
    """
    # files by their names alone, and both with and without ending, where only one has it; paths come first
    files = [posixpath.basename(name) for name in names]
    position: dict[str, int] = {}
    for short in (
        [posixpath.splitext(path)[0] for path in files],
        files,
        [posixpath.splitext(path)[0] for path in names],
    ):
        counts = Counter(short)
        position |= {name: i for i, name in enumerate(short) if counts[name] == 1}
    position |= {name: i for i, name in enumerate(names)}
    prefix = os.path.abspath(root) + os.sep

    def locate(image: Any) -> int | None:
        text = os.fspath(image) if isinstance(image, str | os.PathLike) else str(image)
        full = os.path.abspath(text).removeprefix(prefix).replace(os.sep, "/")
        spellings = (text, posixpath.normpath(text.replace("\\", "/")), full, western(text), text.strip())
        return next((position[name] for name in spellings if name in position), None)

    found, lost, book = 0, [], isinstance(table, LabelFile)  # answers name classes as the folders beside them
    rows = table.rows() if book else table_rows(table, root, lambda image: locate(image) is not None)
    for where, image, given, _ in rows:
        try:
            label = plain_label(given)
        except CollectionError as error:
            raise CollectionError(f"{where}, {image}: {error}") from error
        if label is None:
            continue
        label = western(label) if isinstance(label, str) and not book else label
        place = locate(image)
        if place is None:
            lost.append(str(image))
        elif labels[place] not in (None, label):
            raise CollectionError(
                f"{names[place]} has two labels, {labels[place]!r} and {label!r} ({where}); delete one of them"
            )
        else:
            labels[place] = label
            found += 1
    if not found and not lost and not book:
        of_file = isinstance(table, str | os.PathLike)
        raise CollectionError(f"there are no labels in {table if of_file else 'the table of labels'}")
    remarks = like_measurements([label for label in labels if label is not None])
    if not lost:
        return remarks
    if not found and not book:  # in a file of answers images that were moved are left behind
        raise CollectionError(
            f"none of the {len(lost)} images with a label is in {root}, first {lost[0]!r}; their paths must begin "
            "there, or lead there"
        )
    several = f"{len(lost)} images with a label are" if len(lost) > 1 else "an image with a label is"
    return [*remarks, f"{several} not in {root}, first {lost[0]!r}"]


def like_measurements(labels: Sequence[Any]) -> list[str]:
    """A remark where most labels are numbers with a fraction, nearly each another one."""
    fractions = [label for label in labels if re.fullmatch(r"[+-]?\d*[.,]\d*[1-9]\d*(e[+-]?\d+)?", str(label), re.I)]
    classes = len(set(labels))
    if 2 * len(fractions) <= len(labels) or 2 * classes <= len(labels):
        return []
    return [
        f"labels such as {str(fractions[0])!r} look like measurements: every other number is a class of its own, "
        f"{classes} classes for {len(labels)} images"
    ]


def twins(labels: Sequence[Any]) -> list[str]:
    """A remark where classes differ in capitals alone, as after typing."""
    spellings: dict[str, list[str]] = defaultdict(list)
    for name in sorted({label for label in labels if isinstance(label, str)}):
        spellings[name.casefold()].append(name)
    pairs = [" and ".join(map(repr, names)) for names in spellings.values() if len(names) > 1]
    return [f"classes that differ in capitals alone are several: {shortened(pairs, 3)}"] if pairs else []


@dataclass
class LabelFile:
    """Answers on disk: image → label, None for an image that was skipped.

    The file is written whole after every answer, over what is in it by then: answers of another run and a person's own
    edits stay.  ``others`` holds what further columns say of an image.
    """

    path: Path
    answers: dict[str, str | None] = field(default_factory=dict)
    others: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> LabelFile:
        """The answers of earlier runs, if there were any."""
        book = cls(Path(path))
        try:
            for _, image, label, further in file_rows(book.path, OURS) if book.path.exists() else ():
                image, label = cell_text(image), cell_text(label)
                book.answers[image] = None if label in (None, "") else str(label)
                if further:
                    book.others[image] = further
        except NotLabelsError as error:
            raise NotLabelsError(
                f"{path} is not a file of labels: expected the columns image and label (or a JSON object of them); "
                "correct it or name another file"
            ) from error
        return book

    def rows(self) -> Iterator[Row]:
        """The answers as those of a table."""
        yield from ((f"{self.path}, answer {i}", *pair, {}) for i, pair in enumerate(self.answers.items(), 1))

    def put(self, image: str, label: str | None) -> None:
        """Record one answer."""
        with self._rewritten():
            self.answers[image] = label

    def put_all(self, answers: dict[str, str | None]) -> None:
        """Record many answers at once."""
        with self._rewritten():
            self.answers |= answers

    def drop(self, image: str) -> None:
        """Forget the answer to an image."""
        with self._rewritten():
            self.answers.pop(image, None)

    @contextlib.contextmanager
    def renaming(self, paths: dict[str, str]) -> Iterator[None]:
        """A context for moving images, before → after: meanwhile the file has their answers under both names.

        Whoever is killed on the way leaves an answer to an image that is not there any more, or not yet there; none is
        lost.  The block takes out of ``paths`` what it did not move.
        """
        planned = dict(paths)
        with self._rewritten():
            self.answers |= {after: self.answers[before] for before, after in planned.items() if before in self.answers}
            self.others |= {after: self.others[before] for before, after in planned.items() if before in self.others}
        try:
            yield
        finally:
            with self._rewritten():
                for image in planned.keys() - paths.keys():  # was not moved
                    self.answers.pop(planned[image], None)
                    self.others.pop(planned[image], None)
                self.answers = {paths.get(image, image): label for image, label in self.answers.items()}
                self.others = {paths.get(image, image): values for image, values in self.others.items()}

    @contextlib.contextmanager
    def _rewritten(self) -> Iterator[None]:
        """A context to change the answers: read anew from the disk at its start, written at its end."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.parent):
            now = LabelFile.open(self.path)
            self.answers, self.others = now.answers, now.others
            yield
            with replacing(self.path, text=True) as file:
                self._write(file)

    def _write(self, file: Any) -> None:
        if self.path.suffix.lower() == ".json":
            json.dump(self.answers, file, indent=1, ensure_ascii=False)
            return
        further = list(dict.fromkeys(name for values in self.others.values() for name in values))
        writer = csv.DictWriter(file, ["image", "label", *further], restval="")
        writer.writeheader()
        for image, label in self.answers.items():
            row = {"image": image, "label": label or "", **self.others.get(image, {})}
            writer.writerow({name: plain_cell(text) for name, text in row.items()})


def find_answers(root: Path) -> tuple[LabelFile | None, list[str]]:
    """The file of answers in a folder, and remarks on files that are only named like one.

    Such names are common: the columns may be others, and a JSON object may number the classes.
    """
    books: list[LabelFile] = []
    ignored: list[str] = []
    for path in (root / name for name in LABEL_FILES if (root / name).is_file()):
        try:
            books.append(LabelFile.open(path))
            if not all(is_image_name(posixpath.basename(image)) for image in books[-1].answers):
                books.pop()
                ignored.append(f"{path} is not read: not all of its keys are named like images")
        except NotLabelsError:
            ignored.append(
                f"{path} is not read: it has not the columns image and label (or a JSON object of them); if these are "
                f"labels, name the file (--labels {path})"
            )
    if len(books) > 1:
        raise CollectionError(
            f"{books[0].path} and {books[1].path} both have labels; put them into one and delete the other"
        )
    return (books[0] if books else None), ignored


def open_answers(root: Path) -> LabelFile:
    """The file of answers in a folder, to be added to; a new one where there is none."""
    book, _ = find_answers(root)
    return LabelFile.open(root / LABEL_FILES[0]) if book is None else book
