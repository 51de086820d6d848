# SPDX-License-Identifier: BSD-3-Clause
"""The collection: where every use of a folder of images begins.

    collection = open_collection("photos/").labelled()
    bags, kept, failures = collection.describe(DenseSIFT())
    model.fit(bags, collection.labels[kept])

The folder is walked once.  Files are read when they are described, and what the store has of them is not computed again
(:mod:`patchbag.collection.store`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np

from patchbag.channels import Channels
from patchbag.collection.describe import describe, describe_together
from patchbag.collection.folder import CollectionError, find_images, no_images, scan, shortened
from patchbag.collection.labels import LabelFile, find_answers, label_of_folder, read_labels, twins
from patchbag.collection.store import Store
from patchbag.features.channels import FeatureChannels
from patchbag.features.extraction import Extraction, Progress
from patchbag.records import sample_index


@dataclass(frozen=True, eq=False, repr=False)
class Collection:
    """Images of a folder, by class and name; those without a label come last.

    Attributes
    ----------
    root : the folder
    names : paths from there, with slashes
    labels : (n,) labels; where some image has none, of dtype object with None for it
    remarks : lines that tell a person what of the folder is not used
    """

    root: Path
    names: list[str]
    labels: np.ndarray
    remarks: tuple[str, ...] = ()

    @cached_property
    def paths(self) -> list[str]:
        root = "" if self.root == Path() else self.root
        return [os.path.join(root, name) for name in self.names]

    @property
    def classes(self) -> list[Any]:
        return sorted({label for label in self.labels.tolist() if label is not None})

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Collection({str(self.root)!r}, {len(self)} images, {len(self.classes)} classes)"

    def __getitem__(self, key: Any) -> Collection:
        places = np.arange(len(self))[sample_index(key, len(self))]
        labels = _as_array(self.labels[places].tolist())
        return replace(self, names=[self.names[i] for i in places], labels=labels)

    def labelled(self) -> Collection:
        """The images with a label; CollectionError unless there are two classes of them."""
        if len(self.classes) < 2:
            have = f"the only label is {self.classes[0]!r}" if self.classes else "none has a label"
            many = "1 image" if len(self) == 1 else f"{len(self)} images"
            needed = f"one sub-folder per class, such as {self.root}/cat/1.jpg and {self.root}/dog/1.jpg"
            ask = f", or label some: patchbag active {self.root}" if len(self) > 1 and self._bare.any() else ""
            raise CollectionError(
                f"{self.root}: of {many} {have}, two classes are needed; put images into {needed}, or give a table of "
                f"labels (--labels){ask}{''.join(f'; {remark}' for remark in self.remarks)}"
            )
        left = self.unlabelled().names
        if not left:
            return self
        many = "1 image without a label is" if len(left) == 1 else f"{len(left)} images without a label are"
        return replace(self[~self._bare], remarks=(*self.remarks, f"{many} left out: {shortened(left, 3)}"))

    def unlabelled(self) -> Collection:
        """The images without a label."""
        return self[self._bare]

    @property
    def _bare(self) -> np.ndarray:
        return np.array([label is None for label in self.labels.tolist()], dtype=bool)

    def describe(
        self, features: Any, on_error: Literal["raise", "skip"] = "skip", progress: Progress | None = None
    ) -> Extraction:
        """Bags of the images, or ``Channels`` of them by several features; what the store has is not computed again.

        Parameters
        ----------
        features : a feature extractor, or ``FeatureChannels`` of several
        on_error : "skip" leaves out images that cannot be described (by one of the features), "raise" stops at one
        progress : called as ``progress(done, total)``, for one feature after the other

        Returns
        -------
        bags : described images, in order, mapped into memory
        kept : (len(bags),) their positions in the collection
        failures : [(position, path, message)] of the others
        """
        if not isinstance(features, FeatureChannels):
            return describe(features, self.paths, Store(), on_error=on_error, progress=progress)
        chosen = features.chosen()
        describe_together([feature for _, feature in chosen], self.paths, Store(), progress)
        parts = {name: self.describe(feature, on_error, progress) for name, feature in chosen}
        kept = reduce(np.intersect1d, (part.kept for part in parts.values()))
        failures = {failure.index: failure for part in parts.values() for failure in part.failures}
        channels = {
            name: part.bags if len(kept) == len(part.kept) else part.bags[np.searchsorted(part.kept, kept)]
            for name, part in parts.items()
        }
        return Extraction(Channels(channels), kept, [failures[i] for i in sorted(failures)])


def open_collection(folder: str | os.PathLike[str] | Iterable[str], labels: Any = None) -> Collection:
    """The images of a folder with their labels.

    Parameters
    ----------
    folder : walked with all its sub-folders; or several files, folders and patterns, whose images are taken in order
    labels : None for the names of sub-folders and the answers in ``labels.csv`` or ``labels.json`` of the folder; a
        :class:`~patchbag.collection.labels.LabelFile` of answers instead of these; or a table that alone says it: path
        of a CSV or JSON file, dict image → label, data frame with a column of images (or images as index) and one of
        labels, or a pair (names, labels)

    >>> open_collection("photos/", labels="photos/species.csv").labelled()      # doctest: +SKIP
    Collection('photos', 312 images, 7 classes)
    """
    remarks: list[str] = []
    if isinstance(folder, str | os.PathLike):
        root = Path(folder)
        names, remarks = scan(root)
        if not names:
            raise no_images(root)
        by_folder = labels is None or isinstance(labels, LabelFile)
        if labels is None:
            labels, ignored = find_answers(root)
            remarks += ignored
    else:
        root, by_folder = Path(), False
        names, remarks = find_images(list(folder))
        if not names:
            raise CollectionError("the list of images is empty")
    found = [label_of_folder(name) if by_folder else None for name in names]
    if labels is not None:
        remarks += read_labels(labels, root, names, found)
    kinds = {isinstance(label, str): label for label in found if label is not None}
    if len(kinds) > 1:
        raise CollectionError(f"labels must be all texts or all numbers, got {kinds[True]!r} and {kinds[False]!r}")
    remarks += twins(found)
    order = sorted(range(len(names)), key=lambda i: (found[i] is None, 0 if found[i] is None else found[i]))
    return Collection(root, [names[i] for i in order], _as_array([found[i] for i in order]), tuple(remarks))


def _as_array(labels: list[Any]) -> np.ndarray:
    return np.array(labels, dtype=object if not labels or any(label is None for label in labels) else None)
