# SPDX-License-Identifier: BSD-3-Clause
"""Labels of images, from wherever people keep them.

* The sub-folder that an image lies in, unless that is called ``unlabelled``.
* A file of answers beside the images, ``labels.csv`` or ``labels.json``: :class:`LabelFile`, which is also written.
* Tables: CSV (comma, semicolon or tab; a header with one of the usual names, or none), JSON (an object image → label,
  or a list of objects), a mapping, a data frame, or names and labels side by side.

Images are named by their path in the folder, or any other path that leads to them.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.collection.folder import UNLABELLED, CollectionError, is_image_name
from patchbag.replacing import locked, replacing

# where answers are looked for beside the images
LABEL_FILES = ("labels.csv", "labels.json")
# what the columns of images and of labels are called, in answers and elsewhere
OURS = (("image",), ("label",))
USUAL = (
    ("image", "file", "filename", "file_name", "path", "filepath", "image_path", "name"),
    ("label", "class", "category", "target"),
)
EXPECTED = f"expected one of the columns {', '.join(USUAL[0])} and one of {', '.join(USUAL[1])}"

FORMULA = re.compile(r"[=+\-@\t\r|]")  # how a cell begins that spreadsheets calculate
NUMBER = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?")

Row = tuple[str, Any, Any, dict[str, str]]  # where it stands, image, label, further columns


class NotLabelsError(CollectionError):
    """A file that holds something else than labels."""


# --- tables ----------------------------------------------------------------------------------------------------------


def table_rows(table: Any, root: Path, is_image: Callable[[Any], bool]) -> Iterator[Row]:
    """The rows of a table of any kind."""
    if isinstance(table, str | os.PathLike):
        yield from file_rows(Path(table) if Path(table).exists() else root / table, USUAL, is_image)
        return
    if isinstance(table, LabelFile):
        pairs: Iterable[Any] = table.answers.items()
    elif hasattr(table, "columns"):  # a data frame
        image, label = find_columns(table.columns, USUAL)
        if label is None and len(table.columns) == 1:
            label = table.columns[0]
        if label is None or (image is None and not hasattr(table, "index")):
            raise CollectionError(f"{EXPECTED} (or images as index), got {list(table.columns)}")
        pairs = zip(table.index if image is None else table[image], table[label])
    elif hasattr(table, "items"):  # a dict, or a column with images as index
        pairs = table.items()
    elif isinstance(table, tuple | list) and len(table) == 2 and len(table[0]) == len(table[1]):
        pairs = zip(*table)
    else:
        raise CollectionError(
            "labels must be a file, a dict image → label, a data frame or a pair (names, labels) of one length; got "
            f"{type(table).__name__}"
        )
    place = f"{table.path}, answer" if isinstance(table, LabelFile) else "row"
    yield from ((f"{place} {i}", image, label, {}) for i, (image, label) in enumerate(pairs, 1))


def file_rows(path: Path, columns: Any, is_image: Callable[[Any], bool] = lambda image: False) -> Iterator[Row]:
    """The rows of a file, each with its path and line; bytes that are no UTF-8 are kept, as in names of files."""
    try:
        # spreadsheets write a byte order mark, which would become part of the name of the first column
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
        rows = json_rows(text) if path.suffix.lower() == ".json" else csv_rows(text, columns, is_image)
        yield from ((f"{path}, {where}", *row) for where, *row in rows)
    except OSError as error:
        raise CollectionError(f"cannot read {path}: {error.strerror or error}") from error
    except CollectionError as error:
        raise type(error)(f"{path}, {error}") from error
    except (ValueError, csv.Error, RecursionError) as error:
        raise NotLabelsError(f"{path}: {error}") from error


def find_columns(header: Iterable[Any], columns: Any) -> list[Any]:
    """The columns of images and of labels; None for one that is not there."""
    names = {str(name).strip().lower(): name for name in header}
    return [next((names[name] for name in usual if name in names), None) for usual in columns]


def csv_rows(text: str, columns: Any, is_image: Callable[[Any], bool]) -> Iterator[Row]:
    """Rows of separated values with a header, or without one if the first line is that of an image.

    A line with too few or too many columns is an error: which of them is the label is then anyone's guess.
    """
    text = text.lstrip("\r\n")
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header = next(reader, ["image", "label"])
    if len(header) == 2 and is_image(header[0]):
        yield "line 1", *header, {}  # type: ignore[misc]
        header = ["image", "label"]
    image, label = find_columns(header, columns)
    if image is None or label is None:
        raise NotLabelsError(f"line 1: {EXPECTED}, got {', '.join(header)!r}")
    for cells in reader:
        row = dict(zip(header, cells))
        more = any(cells[len(header) :])
        if more or (cells and not {image, label} <= row.keys()):
            raise CollectionError(
                f"line {reader.line_num}: expected the columns {delimiter.join(header)}, got "
                f"{'more' if more else 'fewer'}; correct that line (an image without a label has a {delimiter!r} and "
                f"nothing behind it, a name with a {delimiter!r} has quotes)"
            )
        if cells:
            yield f"line {reader.line_num}", cell_text(row.pop(image)), cell_text(row.pop(label)), row


def json_rows(text: str) -> Iterator[Row]:
    """Rows of a JSON object image → label, or of a list of objects."""
    data = json.loads(text)
    if isinstance(data, dict):
        data = [{"image": image, "label": label} for image, label in data.items()]
    for i, item in enumerate(data if isinstance(data, list) else [data], 1):
        image, label = find_columns(item if isinstance(item, dict) else (), USUAL)
        if image is None or label is None:
            raise NotLabelsError(f"item {i}: {EXPECTED}, or an object image → label; got {item!r:.60}")
        yield f"item {i}", item[image], item[label], {}


def plain_label(label: Any) -> Any:
    """A text or number as it is in Python; None for what says that there is no label."""
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, str):
        return label.strip() or None
    if label is None or type(label).__name__ in ("NAType", "NaTType") or label != label:
        return None
    if not isinstance(label, int | float):
        raise CollectionError(f"a label must be a text or a number, got {label!r:.60}")
    return int(label) if isinstance(label, float) and label.is_integer() else label  # gaps make floats of integers


def label_of_folder(name: str) -> str | None:
    """The sub-folder that an image lies in, if that is its class."""
    folder, _, inside = name.partition("/")
    return folder if inside and folder.lower() not in UNLABELLED else None


def read_labels(table: Any, root: Path, names: Sequence[str], labels: list[Any]) -> list[str]:
    """Put the labels of a table into ``labels``, those of the images so far; returns remarks.

    Labels for images that are not there are only remarked on, unless all are: then it is the table of another folder.
    """
    # files by their names alone, where only one has it; paths come first
    counts = Counter(posixpath.basename(name) for name in names)
    position = {file: i for i, name in enumerate(names) if counts[file := posixpath.basename(name)] == 1}
    position |= {name: i for i, name in enumerate(names)}
    prefix = os.path.abspath(root) + os.sep

    def locate(image: Any) -> int | None:
        text = os.fspath(image) if isinstance(image, str | os.PathLike) else str(image)
        full = os.path.abspath(text).removeprefix(prefix).replace(os.sep, "/")
        spellings = (text, posixpath.normpath(text.replace("\\", "/")), full)
        return next((position[name] for name in spellings if name in position), None)

    found, lost = 0, []
    for where, image, given, _ in table_rows(table, root, lambda image: locate(image) is not None):
        try:
            label = plain_label(given)
        except CollectionError as error:
            raise CollectionError(f"{where}, {image}: {error}") from error
        if label is None:
            continue
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
    if not lost:
        return []
    if not found and not isinstance(table, LabelFile):  # in a file of answers images that were moved are left behind
        raise CollectionError(
            f"none of the {len(lost)} images with a label is in {root}, first {lost[0]!r}; their paths must begin "
            "there, or lead there"
        )
    several = f"{len(lost)} images with a label are" if len(lost) > 1 else "an image with a label is"
    return [f"{several} not in {root}, first {lost[0]!r}"]


# --- answers ---------------------------------------------------------------------------------------------------------


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
        """Around the moving of images, before → after: their answers are there under both names meanwhile.

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
        """The answers as they are on disk by now, which are written when the block ends."""
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


def plain_cell(text: Any) -> Any:
    """A cell that spreadsheets take for text: one that they would take for a formula gets an apostrophe before it.

    >>> plain_cell("=1+1"), plain_cell("-1"), plain_cell("a")
    ("'=1+1", '-1', 'a')
    """
    return f"'{text}" if isinstance(text, str) and FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def cell_text(text: Any) -> Any:
    """What :func:`plain_cell` was given."""
    return text[1:] if isinstance(text, str) and text[:1] == "'" and FORMULA.match(text[1:]) else text


def find_answers(root: Path) -> tuple[LabelFile | None, list[str]]:
    """The file of answers in a folder, and what is said of files that are only named like one.

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
            ignored.append(f"{path} is not read: it has not the columns image and label (or a JSON object of them)")
    if len(books) > 1:
        raise CollectionError(
            f"{books[0].path} and {books[1].path} both have labels; put them into one and delete the other"
        )
    return (books[0] if books else None), ignored
