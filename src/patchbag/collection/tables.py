# SPDX-License-Identifier: BSD-3-Clause
"""Tables of images and labels, from wherever people keep them, as rows.

CSV (comma, semicolon or tab; a header with one of the usual names, or none; UTF-8, or what spreadsheets write), JSON
(an object image → label, or a list of objects), a mapping, a data frame, or names and labels side by side.
"""

import codecs
import csv
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.collection.folder import CollectionError
from patchbag.records import is_label

# what the columns of images and of labels are called
USUAL = (
    ("image", "file", "filename", "file_name", "path", "filepath", "image_path", "name"),
    ("label", "class", "category", "target"),
)
EXPECTED = f"expected one of the columns {', '.join(USUAL[0])} and one of {', '.join(USUAL[1])}"

JSON_EXAMPLE = '{"1.jpg": "cat", "2.jpg": "dog"}'

FORMULA = re.compile(r"[=+\-@\t\r|]")  # how a cell begins that spreadsheets calculate
NO_UTF8 = re.compile("[\udc80-\udcff]")  # how Python reads such bytes
SEPARATOR = re.compile(r"sep=(.)\r?\n")  # the first line of a table for spreadsheets
NUMBER = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?")

Row = tuple[str, Any, Any, dict[str, str]]  # where it stands, image, label, further columns


class NotLabelsError(CollectionError):
    """A file that holds something else than labels."""


def table_rows(table: Any, root: Path, is_image: Callable[[Any], bool]) -> Iterator[Row]:
    """The rows of a table of any kind."""
    if isinstance(table, str | os.PathLike):
        yield from file_rows(Path(table) if Path(table).exists() else root / table, USUAL, is_image)
        return
    if hasattr(table, "columns"):  # a data frame
        image, label = find_columns(table.columns, USUAL)
        if label is None and len(table.columns) == 1:
            label = table.columns[0]
        if label is None or (image is None and not hasattr(table, "index")):
            raise CollectionError(f"{EXPECTED} (or images as index), got {list(table.columns)}")
        pairs: Iterable[Any] = zip(table.index if image is None else table[image], table[label])
    elif hasattr(table, "items"):  # a dict, or a column with images as index
        pairs = table.items()
    elif isinstance(table, tuple | list) and len(table) == 2 and len(table[0]) == len(table[1]):
        pairs = zip(*table)
    else:
        raise CollectionError(
            "labels must be a file, a dict image → label, a data frame or a pair (names, labels) of one length; got "
            f"{type(table).__name__}"
        )
    yield from ((f"row {i}", image, label, {}) for i, (image, label) in enumerate(pairs, 1))


def file_rows(path: Path, columns: Any, is_image: Callable[[Any], bool] = lambda image: False) -> Iterator[Row]:
    """The rows of a file, each with its path and line; bytes that are no UTF-8 are kept, as in names of files."""
    try:
        text = table_text(path.read_bytes())
        rows = json_rows(text) if path.suffix.lower() == ".json" else csv_rows(text, columns, is_image)
        yield from ((f"{path}, {where}", *row) for where, *row in rows)
    except OSError as error:
        raise CollectionError(f"cannot read {path}: {error.strerror or error}") from error
    except CollectionError as error:
        raise type(error)(f"{path}, {error}") from error
    except (ValueError, csv.Error, RecursionError) as error:
        raise NotLabelsError(f"{path}: {error}") from error


def table_text(data: bytes) -> str:
    """The text of a file: spreadsheets put a byte order mark before it, and some write two bytes per letter."""
    if data.startswith(b"PK\3\4"):
        raise NotLabelsError("it is a workbook of a spreadsheet; save it as CSV")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    return data.decode("utf-8-sig", "surrogateescape")


def western(text: str) -> str:
    """Text that was no UTF-8, decoded as Windows-1252, which spreadsheets write."""
    return text.encode("utf-8", "surrogateescape").decode("cp1252", "replace") if NO_UTF8.search(text) else text


def find_columns(header: Iterable[Any], columns: Any) -> list[Any]:
    """The columns of images and of labels; None for one that is not there."""
    names = {str(name).strip().lower(): name for name in header}
    return [next((names[name] for name in usual if name in names), None) for usual in columns]


def csv_rows(text: str, columns: Any, is_image: Callable[[Any], bool]) -> Iterator[Row]:
    """Rows of separated values with a header, or without one if the first line is that of an image.

    Two columns may be called anything, if the line below the header has an image in one of them.
    A line with too few or too many columns is an error: which of them is the label is then anyone's guess.
    """
    text = text.lstrip("\r\n")
    said = SEPARATOR.match(text)
    delimiter = said[1] if said else max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    if said:
        next(reader)
    header = next(reader, ["image", "label"])
    image, label = find_columns(header, columns)
    rows = numbered(reader)
    first = next(rows, (0, []))
    if len(header) == 2 and (image is None or label is None):
        bare = any(map(is_image, header))
        shown = header if bare else first[1]
        if bare:
            yield "line 1", *(header if is_image(header[0]) else reversed(header)), {}
            header = ["image", "label"] if is_image(header[0]) else ["label", "image"]
        if any(map(is_image, shown)):
            image, label = header if is_image(shown[0]) else reversed(header)
    if image is None or label is None:
        raise NotLabelsError(f"line 1: {EXPECTED}, got {', '.join(header)!r}")
    for line, cells in itertools.chain([first], rows):
        row = dict(zip(header, cells))
        more = any(cells[len(header) :])
        if more or (cells and not {image, label} <= row.keys()):
            raise CollectionError(
                f"line {line}: expected the columns {delimiter.join(header)}, got "
                f"{'more' if more else 'fewer'}; correct that line (an image without a label has a {delimiter!r} and "
                f"nothing behind it, a name with a {delimiter!r} has quotes)"
            )
        if cells:
            yield f"line {line}", cell_text(row.pop(image)), cell_text(row.pop(label)), row


def numbered(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line on which each begins: one with a quote that is never closed ends far from it."""
    begin = reader.line_num + 1
    for cells in reader:
        yield begin, cells
        begin = reader.line_num + 1


def json_rows(text: str) -> Iterator[Row]:
    """Rows of a JSON object image → label, or of a list of objects."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise NotLabelsError(f"it is not JSON ({error}); expected an object image → label, {JSON_EXAMPLE}") from error
    if isinstance(data, dict):
        data = [{"image": image, "label": label} for image, label in data.items()]
    for i, item in enumerate(data if isinstance(data, list) else [data], 1):
        image, label = find_columns(item if isinstance(item, dict) else (), USUAL)
        if image is None or label is None:
            raise NotLabelsError(f"item {i}: {EXPECTED}, or an object image → label; got {item!r:.60}")
        yield f"item {i}", item[image], item[label], {}


def plain_label(label: Any) -> Any:
    """A label as a Python text or number; None for an empty or missing one."""
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, str):
        return label.strip() or None
    if not is_label(label):
        return None
    if not isinstance(label, int | float):
        raise CollectionError(f"a label must be a text or a number, got {label!r:.60}")
    return int(label) if isinstance(label, float) and label.is_integer() else label  # gaps make floats of integers


def plain_cell(text: Any) -> Any:
    """A cell that spreadsheets take for text: one that they would take for a formula gets an apostrophe before it.

    >>> plain_cell("=1+1"), plain_cell("-1"), plain_cell("a")
    ("'=1+1", '-1', 'a')
    """
    return f"'{text}" if isinstance(text, str) and FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def cell_text(text: Any) -> Any:
    """The inverse of :func:`plain_cell`."""
    return text[1:] if isinstance(text, str) and text[:1] == "'" and FORMULA.match(text[1:]) else text
