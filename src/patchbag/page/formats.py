# SPDX-License-Identifier: BSD-3-Clause
"""Labels in the formats of others, both ways: CSV, Label Studio's JSON, COCO's JSON for classification.

Out: what they read.  In: (image, label) pairs, where images are named as the other program does it; who they are is
found out by :func:`patchbag.collection.labels.read_labels`.
"""

import csv
import io
import json
import posixpath
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from patchbag.collection.folder import CollectionError, is_image_name
from patchbag.collection.tables import USUAL, csv_rows

UPLOADED = re.compile(r"^[0-9a-f]{8}-")  # what Label Studio puts before the names of uploads

Pairs = list[tuple[str, str]]


def to_csv(rows: Iterable[tuple[Any, ...]], head: tuple[str, ...] = ("image", "label")) -> str:
    """A table with a head, as text."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()


def to_label_studio(votes: list[tuple[str, list[tuple[str, str]]]]) -> list[dict[str, Any]]:
    """Tasks with an annotation per person; ``votes`` are (image, [(person, class)])."""
    return [
        {
            "data": {"image": name},
            "annotations": [
                {
                    "completed_by": {"email": who},
                    "result": [
                        {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [label]}}
                    ],
                }
                for who, label in said
            ],
        }
        for name, said in votes
    ]


def to_coco(rows: list[tuple[int, str, int, int | None, int | None]], classes: dict[int, str]) -> dict[str, Any]:
    """``rows`` are (number, image, class, width, height)."""
    images = [
        {"id": i, "file_name": name} | ({"width": width, "height": height} if width else {})
        for i, name, _, width, height in rows
    ]
    return {
        "info": {"description": "labels of images, by patchbag"},
        "images": images,
        "categories": [{"id": i, "name": name} for i, name in classes.items()],
        "annotations": [{"id": k, "image_id": row[0], "category_id": row[2]} for k, row in enumerate(rows, 1)],
    }


def from_csv(text: str) -> Pairs:
    rows = csv_rows(text.removeprefix("\ufeff"), USUAL, lambda name: is_image_name(posixpath.basename(str(name))))
    return [(image, label) for _, image, label, _ in rows if label and label.strip()]


def from_label_studio(text: str) -> Pairs:
    """Of JSON and JSON-MIN exports; of several annotations the last."""
    tasks = _json(text, list, "a list of tasks, as Label Studio exports it")
    pairs: Pairs = []
    for task in tasks:
        if not isinstance(task, dict):
            raise CollectionError(f"a task is an object, got {task!r:.60}")
        data = task["data"] if isinstance(task.get("data"), dict) else task
        image = next((v for v in data.values() if isinstance(v, str) and is_image_name(_their_name(v))), None)
        label = _choice(task)
        if image and label:
            pairs.append((_their_name(image), label))
    return pairs


def _choice(task: dict[str, Any]) -> str | None:
    found = None
    for annotation in task.get("annotations") or task.get("completions") or []:
        for result in annotation.get("result") or [] if not annotation.get("was_cancelled") else []:
            choices = (result.get("value") or {}).get("choices")
            found = choices[0] if choices else found
    if found is None:
        short = task.get("label", task.get("choice"))
        found = short.get("choices", [None])[0] if isinstance(short, dict) else short
    return found if isinstance(found, str) else None


def _their_name(address: str) -> str:
    """The path that an address of Label Studio means."""
    parts = urlsplit(address)
    local = parse_qs(parts.query).get("d")
    path = local[0] if local else unquote(parts.path)
    folder, name = posixpath.split(path)
    if "/upload/" in path or path.startswith("upload/"):
        return UPLOADED.sub("", name)
    return posixpath.join(folder.lstrip("/"), name)


def from_coco(text: str) -> Pairs:
    """The classes of images in a file of COCO's, by their names."""
    data = _json(text, dict, "a COCO file: an object of images, categories and annotations")
    try:
        names = {image["id"]: str(image["file_name"]) for image in data["images"]}
        classes = {entry["id"]: str(entry["name"]) for entry in data["categories"]}
        said = {a["image_id"]: a["category_id"] for a in data["annotations"]}
        return [(names[i], classes[c]) for i, c in said.items() if i in names]
    except (KeyError, TypeError) as error:
        raise CollectionError(f"this is not a COCO file of labels: {error!r} is missing or wrong") from error


def _json(text: str, kind: type, what: str) -> Any:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CollectionError(f"expected {what}; this is no JSON ({error})") from error
    if not isinstance(data, kind):
        raise CollectionError(f"expected {what}")
    return data
