# SPDX-License-Identifier: BSD-3-Clause
"""A folder of images of which some have labels, and the file in which new labels are kept.

Images in a sub-folder carry its name as their label; images that lie directly in the folder, or in a sub-folder named
``unlabelled`` or ``unlabeled``, have none yet.  Answers are kept with paths relative to the folder, as CSV with the
columns image and label, or as JSON where the file's name says so; an image that was skipped stands there without a
label.

``open_labelled`` reads such a folder for training: the images that have a label by now, the others left out.
"""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from patchbag.datasets import FolderError, ImageFolder, is_image_name, open_folder, walk_images

UNLABELLED = ("unlabelled", "unlabeled")
# where training looks for answers; the first is where they are kept unless another file is named
LABEL_FILES = ("labels.csv", "labels.json")

# under what a row keeps its values beyond the header; no column can be called so
BEYOND = "\n"


class NotLabelsError(ValueError):
    """A file that holds something else than answers."""


@dataclass
class PartlyLabelled:
    """Images of a folder: ``paths`` relative to ``root``, and ``labels`` with None where there is none yet."""

    root: Path
    paths: list[str]
    labels: list[str | None]

    def __len__(self) -> int:
        return len(self.paths)

    def full_paths(self) -> list[str]:
        return [str(self.root / p) for p in self.paths]

    def without(self, broken: set[int]) -> PartlyLabelled:
        """The images whose positions are not in ``broken``."""
        keep = [i for i in range(len(self)) if i not in broken]
        return PartlyLabelled(self.root, [self.paths[i] for i in keep], [self.labels[i] for i in keep])

    def labelled(self) -> PartlyLabelled:
        """The images with a label; FolderError unless there are two classes of them."""
        kept = self.without({i for i, label in enumerate(self.labels) if label is None})
        classes = sorted({str(label) for label in kept.labels})
        if len(classes) < 2:
            have = f"all have the label {classes[0]!r}" if classes else "none has a label"
            raise FolderError(
                f"{self.root}: of {len(self)} images {have}; two classes are needed: put images into a sub-folder a "
                f"class, or label them with 'patchbag active {self.root}'"
            )
        return kept

    def with_pool(self) -> PartlyLabelled:
        """All images; FolderError unless there is one to label, and another to compare it with."""
        if not any(label is None for label in self.labels):
            raise FolderError(
                f"{self.root}: every image has a label, there is nothing to ask for; put new images into it or into "
                f"{self.root / UNLABELLED[0]}, or see with --simulate what active learning would have saved"
            )
        if len(self) < 2:
            raise FolderError(f"{self.root} has a single image; active learning chooses among several")
        return self


def open_partly_labelled(folder: str | os.PathLike[str]) -> PartlyLabelled:
    """The images below ``folder``, labelled by their sub-folder or not at all."""
    root = Path(folder)
    if not root.is_dir():
        raise FolderError(f"{root} is not a folder" if root.exists() else f"there is no folder {root}")
    paths: list[str] = []
    labels: list[str | None] = []
    for sub in sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")):
        found = [os.path.relpath(p, root) for p in walk_images(sub)]
        paths += found
        labels += [None if sub.name.lower() in UNLABELLED else sub.name] * len(found)
    loose = sorted(p.name for p in root.iterdir() if p.is_file() and is_image_name(p.name))
    paths += loose
    labels += [None] * len(loose)
    if not paths:
        raise FolderError(
            f"{root} has no images; put those to label into it, and those with a label into a sub-folder a class"
        )
    return PartlyLabelled(root, paths, labels)


@dataclass
class LabelFile:
    """Answers on disk: image → label, None for an image that was skipped.  Written whole after every answer.

    ``others`` holds what further columns say of an image: a person's notes, say, which stay.
    """

    path: Path
    answers: dict[str, str | None] = field(default_factory=dict)
    others: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> LabelFile:
        """The answers of earlier runs, if there were any."""
        path = Path(path)
        if not path.exists():
            return cls(path)
        try:
            # spreadsheets write a byte order mark, which would become part of the name of the first column
            text = path.read_text(encoding="utf-8-sig")
            return cls(path, parse_json(text)) if path.suffix.lower() == ".json" else cls(path, *parse_csv(text))
        except FolderError as error:
            raise FolderError(f"{path}, {error}") from error
        except OSError as error:
            raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, csv.Error) as error:
            raise NotLabelsError(
                f"{path} is not a file of labels: expected the columns image and label (or a JSON object of them); "
                "correct it or, for 'patchbag active', name another file with --labels"
            ) from error

    def put(self, image: str, label: str | None) -> None:
        """Record one answer and write the file."""
        self.answers[image] = label
        self._write()

    def drop(self, image: str) -> None:
        """Forget the answer to an image and write the file."""
        del self.answers[image]
        self._write()

    def rename(self, paths: dict[str, str]) -> None:
        """Keep the answers to images that were moved, before → after, and write the file."""
        self.answers = {paths.get(image, image): label for image, label in self.answers.items()}
        self.others = {paths.get(image, image): values for image, values in self.others.items()}
        self._write()

    def _write(self) -> None:
        """The file is replaced only when the new one is complete."""
        partial = self.path.with_name(f".{self.path.name}.partial")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8", newline="") as file:
            if self.path.suffix.lower() == ".json":
                json.dump(self.answers, file, indent=1, ensure_ascii=False)
            else:
                further = list(dict.fromkeys(name for values in self.others.values() for name in values))
                writer = csv.DictWriter(file, ["image", "label", *further], restval="")
                writer.writeheader()
                for image, label in self.answers.items():
                    writer.writerow({"image": image, "label": label or "", **self.others.get(image, {})})
        partial.replace(self.path)


def parse_csv(text: str) -> tuple[dict[str, str | None], dict[str, dict[str, str]]]:
    """Answers, and what further columns say, from comma-separated values with a header; an empty text has none.

    Raises
    ------
    ValueError
        when the header lacks the columns image and label, so that the lines mean something else
    FolderError
        when a line has too few or too many columns: which of them is the label is then anyone's guess
    """
    if not text.strip():
        return {}, {}
    reader = csv.DictReader(io.StringIO(text), restkey=BEYOND)
    if not {"image", "label"} <= set(reader.fieldnames or ()):
        raise ValueError(f"the header is {reader.fieldnames}")
    answers: dict[str, str | None] = {}
    others: dict[str, dict[str, str]] = {}
    for row in reader:
        extra = row.pop(BEYOND, None)
        if row["image"] is None or row["label"] is None or any(extra or ()):
            columns = ",".join(reader.fieldnames or ())
            raise FolderError(
                f"line {reader.line_num}: expected the columns {columns}, got {'more' if extra else 'fewer'}; correct "
                "that line (an image that was skipped has a comma and no label, a name with a comma has quotes)"
            )
        image = row.pop("image")
        answers[image] = row.pop("label") or None
        if row:
            others[image] = {name: value or "" for name, value in row.items()}
    return answers, others


def parse_json(text: str) -> dict[str, str | None]:
    """Answers from a JSON object of image → label; ValueError where it is something else."""
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError(f"a JSON {type(data).__name__}")
    return {image: None if label is None else str(label) for image, label in data.items()}


def restore(images: PartlyLabelled, book: LabelFile) -> list[int]:
    """Put the answers of earlier runs into ``images.labels``; returns the positions of the images that were skipped.

    A label for a file that is not there is an error: most likely the file of labels belongs to another folder.  One for
    an image that is there but cannot be read is none, nor is an image without a label that is gone.
    """
    here = set(images.paths)
    lost = [
        path
        for path, answer in book.answers.items()
        if answer is not None and path not in here and not (images.root / path).is_file()
    ]
    if lost:
        several = f"{len(lost)} images that are" if len(lost) > 1 else "an image that is"
        raise FolderError(
            f"{book.path} has labels for {several} not in {images.root}, first {lost[0]!r}; its paths must be relative "
            "to that folder: name the folder it belongs to, delete these lines or, for 'patchbag active', name another "
            "file with --labels"
        )
    skipped = []
    for i, path in enumerate(images.paths):
        if path not in book.answers:
            continue
        answer, label = book.answers[path], images.labels[i]
        if label is None and answer is None:
            skipped.append(i)
        elif label is not None and answer is not None and answer != label:
            raise FolderError(
                f"{path} lies in the folder {label!r} but {book.path} calls it {answer!r}; move it or delete that line"
            )
        elif label is None:
            images.labels[i] = answer
    return skipped


def open_labelled(folder: str | os.PathLike[str]) -> ImageFolder:
    """The images to train on: those in a sub-folder of their class, and those that have an answer in a file of labels.

    A folder with neither a sub-folder ``unlabelled`` nor answers (``labels.csv`` or ``labels.json``) is read by
    ``open_folder``.  In others the images without a label are left out, which ``remarks`` says.
    """
    root = Path(folder)
    book, ignored = find_answers(root)
    pool = root.is_dir() and any(p.is_dir() and p.name.lower() in UNLABELLED for p in root.iterdir())
    if book is None and not pool:
        try:
            images = open_folder(root)
        except FolderError as error:
            raise FolderError("; ".join([str(error), *ignored])) from error
        return replace(images, remarks=(*images.remarks, *ignored))
    partly = open_partly_labelled(root)
    if book is not None:
        restore(partly, book)
    known = partly.labelled()
    remarks = list(ignored)
    left = len(partly) - len(known)
    if left:
        remarks.append(f"{left} image{' without a label is' if left == 1 else 's without a label are'} left out")
    by_class = sorted((str(label), path) for label, path in zip(known.labels, known.full_paths()))
    rest = open_folder(root, min_classes=0, without_class=UNLABELLED)
    labels = np.array([label for label, _ in by_class])
    return ImageFolder([path for _, path in by_class], labels, rest.passed_over, (*rest.remarks, *remarks))


def find_answers(root: Path) -> tuple[LabelFile | None, list[str]]:
    """The answers that ``patchbag active`` left in a folder, and what is said of files that are only named like them.

    Such names are common: the columns may be others, and a JSON object may number the classes.
    """
    books: list[LabelFile] = []
    ignored: list[str] = []
    for path in (root / name for name in LABEL_FILES if (root / name).is_file()):
        try:
            book = LabelFile.open(path)
        except NotLabelsError:
            ignored.append(f"{path} is not read: it has not the columns image and label (or a JSON object of them)")
            continue
        if path.suffix != ".json" or all(is_image_name(os.path.basename(image)) for image in book.answers):
            books.append(book)
        else:
            ignored.append(f"{path} is not read: not all of its keys are named like images")
    if len(books) > 1:
        raise FolderError(
            f"{books[0].path} and {books[1].path} both have labels; put them into one and delete the other"
        )
    return (books[0] if books else None), ignored
