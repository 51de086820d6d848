# SPDX-License-Identifier: BSD-3-Clause
"""Classes are opened, renamed, given colours and keys, merged, split and removed; all of it can be undone."""

from typing import Any

import numpy as np

from patchbag.collection.folder import CollectionError
from patchbag.page.album import Album, check_name
from patchbag.page.journal import Change
from patchbag.page.live import LiveModel


def open_class(album: Album, who: str, name: str, color: str | None = None, key: str | None = None) -> int:
    """Open a class; returns its number."""
    with album.editing():
        name = _free_name(album, name)
        number, changes = album.new_class(name, color, key)
        album.change(who, f"open the class {name!r}", changes + _without_key(album, number, key))
        return number


def change_class(album: Album, who: str, number: int, given: dict[str, Any]) -> None:
    """Give a class what is ``given``: another name, colour, key or place."""
    with album.editing():
        before = album.classes[number]
        if "name" in given:
            given["name"] = _free_name(album, given["name"], number)
        if "key" in given:
            given["key"] = given["key"] or None
        changes: list[Change] = [("class", number, before, {**before, **given})]
        if {**before, **given} != before:
            what = (
                f"rename {before['name']!r} to {given['name']!r}" if "name" in given else f"change {before['name']!r}"
            )
            album.change(who, what, changes + _without_key(album, number, given.get("key")))


def remove_class(album: Album, who: str, number: int) -> None:
    """Remove a class; its images have no label then."""
    with album.editing():
        before = album.classes[number]
        said = [album.without(key) for key, _ in _votes(album, number)]
        album.change(who, f"remove the class {before['name']!r}", [*said, ("class", number, before, None)])


def merge_classes(album: Album, who: str, number: int, into: int) -> None:
    """Make the images of a class those of another one."""
    with album.editing():
        before, name = album.classes[number], album.classes[into]["name"]
        said: list[Change] = [("vote", key, vote, (into, vote[1])) for key, vote in _votes(album, number)]
        album.change(who, f"merge {before['name']!r} into {name!r}", [*said, ("class", number, before, None)])


def split_class(album: Album, who: str, number: int, name: str, ids: list[int]) -> int:
    """Make those of the images that are of this class a class of their own; returns its number."""
    with album.editing():
        name, old = _free_name(album, name), album.classes[number]["name"]
        new, changes = album.new_class(name)
        chosen = set(ids)
        said: list[Change] = [
            ("vote", key, vote, (new, vote[1])) for key, vote in _votes(album, number) if key[0] in chosen
        ]
        album.change(who, f"split {name!r} off {old!r}", changes + said)
        return new


def propose_parts(album: Album, model: LiveModel, number: int, parts: int) -> list[list[int]]:
    """The images of a class in clusters of their vectors, largest first."""
    from sklearn.cluster import KMeans

    with model.lock:
        pool = model.pool
        ids = [i for i in np.flatnonzero((album.label == number) & ~album.gone).tolist() if pool and i in pool.at]
        if pool is None or len(ids) < parts:
            return [ids]
        vectors = pool.learner.graph_.vectors[[pool.at[i] for i in ids]]
    of = KMeans(parts, n_init=4, random_state=0).fit_predict(vectors)
    return sorted(([i for i, c in zip(ids, of) if c == part] for part in range(parts)), key=len, reverse=True)


def _votes(album: Album, number: int) -> list[tuple[tuple[int, str], tuple[int | None, float]]]:
    return [((i, who), vote) for i, said in album.votes.items() for who, vote in said.items() if vote[0] == number]


def _free_name(album: Album, name: str, number: int | None = None) -> str:
    name = check_name(name)
    if any(entry["name"] == name for i, entry in album.classes.items() if i != number):
        raise CollectionError(f"there is a class {name!r} already; merge the two instead")
    return name


def _without_key(album: Album, number: int, key: str | None) -> list[Change]:
    """A key is that of one class: the one that had it loses it."""
    others = [(i, e) for i, e in album.classes.items() if key and e["key"] == key and i != number]
    return [("class", i, entry, {**entry, "key": None}) for i, entry in others]
