# SPDX-License-Identifier: BSD-3-Clause
"""Which images a gallery shows, in which order, and what is said of each."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from patchbag.page.album import NOBODY, Album
from patchbag.page.live import LiveModel

FILTERS = ("unlabelled", "labelled", "skipped", "doubtful", "wrong", "disagree", "broken", "gone")
SORTS = ("name", "doubt", "similarity", "date", "confidence", "predicted", "label")
DOUBTFUL = 0.5


def shown(name: str) -> str:
    """The name of a file as text, whatever bytes it has."""
    return os.fsencode(name).decode("utf-8", "replace")


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def content_version(album: Album, image: int) -> str:
    """Changes whenever the content of a file does."""
    return f"{int(album.modified[image]) & 0xFFFFFFFFFFFF:x}{int(album.size[image]):x}"


def details(album: Album, model: LiveModel, ids: Sequence[int]) -> list[dict[str, Any]]:
    """What is said of images."""
    rows = []
    with album.lock:
        best, doubt, probability = columns_of(model, len(album))
        for i in ids:
            width, height = album.shape.get(i, (None, None))
            votes = [(w, v) for w, v in album.votes.get(i, {}).items() if v[0] is not None or w not in NOBODY]
            rows.append(
                {
                    "id": i,
                    "name": shown(album.names[i]),
                    "v": content_version(album, i),
                    "label": int(album.label[i]) if album.label[i] >= 0 else None,
                    "skipped": bool(album.skipped[i]),
                    "votes": [{"who": who, "label": label, "when": stamp(at)} for who, (label, at) in votes],
                    "disagreement": i in album.disagreements,
                    "predicted": int(best[i]) if int(best[i]) in album.classes else None,
                    "probability": _number(probability[i]),
                    "doubt": _number(doubt[i]),
                    "width": width,
                    "height": height,
                    "modified": stamp(album.modified[i] / 1e9),
                    "size": int(album.size[i]),
                    "broken": album.broken.get(i),
                    "gone": bool(album.gone[i]),
                }
            )
    return rows


def _number(value: Any) -> float | None:
    return round(float(value), 4) if value >= 0 else None


def select(
    album: Album,
    model: LiveModel,
    *,
    labels: Sequence[int] = (),
    predicted: Sequence[int] = (),
    filters: Sequence[str] = (),
    text: str = "",
    sort: str = "name",
    order: str | None = None,
    group: str | None = None,
    distances: np.ndarray | None = None,
    wrong: np.ndarray | None = None,
) -> tuple[np.ndarray, list[dict[str, Any]] | None]:
    """Numbers of the images to show, in order, and groups of them.

    Parameters
    ----------
    distances : (n,) to the image that "similarity" means
    wrong : images that the model, taught without their label, disagrees with
    """
    with album.lock:
        n = len(album)
        label, skipped, gone = album.label.copy(), album.skipped.copy(), album.gone.copy()
        broken = np.isin(np.arange(n), list(album.broken))
        disagree = list(album.disagreements)
        names = album.names
    best, doubt, probability = columns_of(model, n)
    keep = np.ones(n, bool)
    masks = {
        "unlabelled": (label < 0) & ~skipped,
        "labelled": label >= 0,
        "skipped": skipped,
        "doubtful": doubt > DOUBTFUL,
        "wrong": np.isin(np.arange(n), [] if wrong is None else wrong),
        "disagree": np.isin(np.arange(n), disagree),
        "broken": broken,
        "gone": gone,
    }
    for name in filters:
        keep &= masks[name]
    keep &= ~gone if "gone" not in filters else True
    keep &= ~broken if "broken" not in filters else True
    if labels:
        keep &= np.isin(label, labels)
    if predicted:
        keep &= np.isin(best, predicted)
    if text:
        wanted = text.casefold()
        keep &= np.fromiter((wanted in name.casefold() for name in names[:n]), bool, n)
    ids = np.flatnonzero(keep)
    if sort == "name":
        ids = np.array(sorted(ids.tolist(), key=names.__getitem__), int)
        keys = np.arange(len(ids))
    else:
        far = np.full(n, np.inf) if distances is None else distances
        values = {
            "doubt": -doubt,
            "similarity": far,
            "date": -album.modified[:n],
            "confidence": -probability,
            "predicted": best,
            "label": label,
        }
        keys = values[sort][ids]
    if order is not None and (order == "desc") == (sort in ("name", "similarity", "predicted", "label")):
        keys = -keys
    rows = np.argsort(keys, kind="stable")
    if group is None:
        return ids[rows], None
    of = (best if group == "predicted" else label)[ids]
    position = {c: k for k, c in enumerate(row["id"] for row in album.listed_classes())}
    places = np.array([position.get(int(c), len(position)) for c in of], int)
    rows = rows[np.argsort(places[rows], kind="stable")]
    ids, of = ids[rows], of[rows]
    starts = np.flatnonzero(np.r_[True, of[1:] != of[:-1]]) if len(of) else np.empty(0, int)
    ends = np.append(starts[1:], len(of))
    groups = [
        {"label": int(of[s]) if of[s] >= 0 else None, "start": int(s), "count": int(e - s)}
        for s, e in zip(starts, ends)
    ]
    return ids, groups


def columns_of(model: LiveModel, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predicted class, doubt and probability of n images, -1 where nothing is known."""
    found = model.predictions
    if found is None:
        return np.full(n, -1, np.int32), np.full(n, -1.0, np.float32), np.full(n, -1.0, np.float32)
    more = n - len(found.best)
    return tuple(
        np.pad(a[:n], (0, max(more, 0)), constant_values=-1) for a in (found.best, found.doubt, found.probability)
    )  # type: ignore[return-value]


def columns(album: Album, model: LiveModel, wrong: np.ndarray) -> dict[str, Any]:
    """Compact arrays of all images that are there."""
    n = len(album)
    ids = np.flatnonzero(~album.gone[:n])
    best, doubt, _ = columns_of(model, n)
    return {
        "model": model.predictions.version if model.predictions is not None else 0,
        "ids": ids.tolist(),
        "label": album.label[ids].tolist(),
        "predicted": best[ids].tolist(),
        "doubt": np.round(doubt[ids].astype(float), 3).tolist(),
        "wrong": np.isin(ids, wrong).astype(int).tolist(),
    }
