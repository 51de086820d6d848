# SPDX-License-Identifier: BSD-3-Clause
"""Out and in: labels in several formats, images by class.  Files are written into the folder that is served."""

from typing import Any

import numpy as np

from patchbag.collection.labels import LabelFile, read_labels
from patchbag.page import formats, sorting
from patchbag.page.album import Album
from patchbag.page.gallery import columns_of, shown
from patchbag.page.live import LiveModel


def labelled(album: Album) -> list[int]:
    return np.flatnonzero((album.label >= 0) & ~album.gone).tolist()


def pairs(album: Album) -> formats.Pairs:
    """(image, class) of all images with a label."""
    return [(shown(album.names[i]), album.classes[int(album.label[i])]["name"]) for i in labelled(album)]


def guesses(album: Album, model: LiveModel) -> str:
    """All images as CSV: the label that people gave, else the class that the model expects and its probability."""
    with album.lock:
        best, _, probability = columns_of(model, len(album))
        rows: list[tuple[Any, ...]] = []
        for i in np.flatnonzero(~album.gone).tolist():
            given = int(album.label[i])
            label = given if given >= 0 else int(best[i])
            if label in album.classes:
                said = ("person", "") if given >= 0 else ("model", f"{probability[i]:.4f}")
                rows.append((shown(album.names[i]), album.classes[label]["name"], *said))
    return formats.to_csv(rows, ("image", "label", "by", "probability"))


def label_studio(album: Album) -> list[dict[str, Any]]:
    with album.lock:
        votes = [
            (shown(album.names[i]), [(w, album.classes[c]["name"]) for w, (c, _) in said.items() if c is not None])
            for i in labelled(album)
            if (said := album.votes[i])
        ]
    return formats.to_label_studio(votes)


def coco(album: Album) -> dict[str, Any]:
    with album.lock:
        rows = [
            (i, shown(album.names[i]), int(album.label[i]), *album.shape.get(i, (None, None))) for i in labelled(album)
        ]
        return formats.to_coco(rows, {i: entry["name"] for i, entry in album.classes.items()})


def write_labels(album: Album) -> int:
    """Write ``labels.csv`` into the folder, over the labels of the same images in it; returns how many."""
    given = {album.names[i]: album.classes[int(album.label[i])]["name"] for i in labelled(album)}
    skipped = {album.names[i]: None for i in np.flatnonzero(album.skipped & ~album.gone).tolist()}
    LabelFile.open(album.root / "labels.csv").put_all({**given, **skipped})
    return len(given)


def take_in(album: Album, who: str, found: formats.Pairs, source: str) -> tuple[int, int, int | None]:
    """Labels from elsewhere become this person's: how many, how many images are not here, number of the action."""
    with album.editing():
        labels: list[Any] = [None] * len(album)
        last = dict(found)  # the last word on an image counts
        read_labels((list(last), list(last.values())), album.root, [shown(name) for name in album.names], labels)
        number = {entry["name"]: i for i, entry in album.classes.items()}
        said: dict[int, int | None] = {}
        for image, name in enumerate(labels):
            if name is not None:
                if str(name) not in number:
                    number[str(name)], opened = album.class_named(str(name))
                    album.change(who, f"class {str(name)!r} of {source}", opened)
                said[image] = number[str(name)]
        text = f"labels of {len(said)} images from {source}"
        return len(said), len(last) - len(said), album.change(who, text, album.say(who, said.items()))


def sort_files(album: Album, who: str, how: str) -> tuple[str, int, int | None]:
    """Images with a label by class: moved in the folder, or copied or linked to a new one; where, how many, action.

    Links that lead nowhere stay where they are.
    """
    with album.editing():
        classes = {i: album.classes[int(album.label[i])]["name"] for i in labelled(album)}
        names = {i: album.names[i] for i in classes if (album.root / album.names[i]).is_file()}
        if how == "move":
            names = {i: name for i, name in names.items() if name.split("/")[0] != classes[i] or "/" not in name}
            where = sorting.targets(names, classes, set(album.names))
            changes = album.make_files([("file", i, names[i], target) for i, target in where.items()])
            text = f"move {len(changes)} images into the folders of their classes"
            return ".", len(changes), album.change(who, text, changes)
        place = next(f"sorted-{k}" for k in range(1, 10_000) if not sorting.output(album.root, f"sorted-{k}").exists())
        where = sorting.targets(names, classes, set())
        files = [how, [[names[i], target] for i, target in where.items()]]
        changes = album.make_files([("export", place, None, files)])
        action = album.change(who, f"{how} {len(where)} images into {place}", changes)
        return f"{sorting.OUT}/{place}", len(where), action
