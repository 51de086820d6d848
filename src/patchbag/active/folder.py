# SPDX-License-Identifier: BSD-3-Clause
"""A folder of images of which some have labels, and the file in which new labels are kept.

Images in a sub-folder carry its name as their label; images that lie directly in the folder, or in a sub-folder named
``unlabelled`` or ``unlabeled``, have none yet.  Answers are kept with paths relative to the folder, as CSV with the
columns image and label, or as JSON where the file's name says so; an image that was skipped stands there without a
label.
"""

from __future__ import annotations

import csv
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from patchbag.datasets import FolderError, is_image_name, walk_images

UNLABELLED = ("unlabelled", "unlabeled")


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
                f"{self.root}: of {len(self)} images {have}; a simulation needs two classes, a sub-folder each"
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
    """Answers on disk: image → label, None for an image that was skipped.  Written whole after every answer."""

    path: Path
    answers: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> LabelFile:
        """The answers of earlier runs, if there were any."""
        path = Path(path)
        if not path.exists():
            return cls(path)
        try:
            # spreadsheets write a byte order mark, which would become part of the name of the first column
            text = path.read_text(encoding="utf-8-sig")
            if path.suffix.lower() == ".json":
                answers = {str(k): None if v is None else str(v) for k, v in json.loads(text).items()}
            else:
                rows = list(csv.DictReader(text.splitlines()))
                answers = {row["image"]: row["label"] or None for row in rows}
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(
                f"{path} is not a file of labels: expected the columns image and label (or a JSON object of them); "
                "name another file with --labels"
            ) from error
        return cls(path, answers)

    def put(self, image: str, label: str | None) -> None:
        """Record one answer and write the file."""
        self.answers[image] = label
        self._write()

    def drop(self, image: str) -> None:
        """Forget the answer to an image and write the file."""
        del self.answers[image]
        self._write()

    def _write(self) -> None:
        """The file is replaced only when the new one is complete."""
        partial = self.path.with_name(f".{self.path.name}.partial")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8", newline="") as file:
            if self.path.suffix.lower() == ".json":
                json.dump(self.answers, file, indent=1, ensure_ascii=False)
            else:
                writer = csv.writer(file)
                writer.writerow(["image", "label"])
                writer.writerows([image, label or ""] for image, label in self.answers.items())
        partial.replace(self.path)


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
            "to that folder: name the folder it belongs to or, with --labels, another file, or delete these lines"
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
