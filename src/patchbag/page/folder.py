# SPDX-License-Identifier: BSD-3-Clause
"""The album keeps up with its folder: new files, files that are gone, files that were moved (known by their content).

No image outside of the folder is ever read: a link that leads out of it is left out when the folder is looked at, and
where an image leads is looked at again whenever it is opened.
"""

import contextlib
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from patchbag.collection import open_collection
from patchbag.collection.files import content_digest, file_status
from patchbag.collection.folder import is_image_name, is_within, scan
from patchbag.images.loading import ImageError
from patchbag.page.album import NOBODY, Album
from patchbag.page.database import DatabaseError

HIDDEN = ".patchbag"  # what the page writes into the folder
MARK = "folder"  # of that, what tells the folder from others: its own number, wherever it is mounted


def inside(root: Path, name: str) -> Path:
    """The file of an image; ImageError where it leads out of the folder."""
    path = os.path.join(root, name)
    if not is_within(root, path):
        raise ImageError(f"{name}: leads out of the folder")
    return Path(os.path.realpath(path))


def own_files(root: Path, names: list[str]) -> list[str]:
    """The names that do not lead out of the folder."""
    folders: dict[str, bool] = {}

    def stays(name: str) -> bool:
        path = os.path.join(root, name)
        folder = os.path.dirname(path)
        if folder not in folders:
            folders[folder] = is_within(root, folder)
        return folders[folder] and (not os.path.islink(path) or is_within(root, path))

    return [name for name in names if stays(name)]


def claim(album: Album) -> None:
    """Make sure that a database, which may be anywhere, is the one of this folder; DatabaseError if it is another's.

    The folder keeps a number of its own.  One that has none, such as a copy out of a backup, is known by its files: at
    least half of the images that the database has, by name and size.
    """
    mark = album.root / HIDDEN / MARK
    number = mark.read_text().strip() if mark.is_file() else None
    theirs = album.database.fact(MARK)
    here = [i for i, gone in enumerate(album.gone) if not gone]
    if theirs is not None and number != theirs and here:
        found = [file_status(os.path.join(album.root, album.names[i])) for i in here]
        same = sum(now is not None and now[0] == album.size[i] for i, now in zip(here, found))
        if number is not None or 2 * same < len(here):
            raise DatabaseError(
                f"the database has the labels of another folder: {same} of its {len(here)} images are in {album.root}; "
                "give each folder a database of its own (--db)"
            )
        number = theirs
    number = number or secrets.token_hex(8)
    album.database.set_fact(MARK, number)
    with contextlib.suppress(OSError):  # a folder that cannot be written to is known by its files
        mark.parent.mkdir(exist_ok=True)
        mark.write_text(f"{number}\n")


def keep_up(album: Album, names: list[str] | None = None) -> dict[str, list[int]]:
    """Bring the album up to what is in the folder now; returns which images were added, renamed, are gone, changed."""
    names = own_files(album.root, scan(album.root)[0] if names is None else names)
    with album.editing():
        known = {name: i for i, name in enumerate(album.names)}
        present = set(names)
        lost = {i for name, i in known.items() if name not in present}
        status = {name: file_status(os.path.join(album.root, name)) or (0, 0) for name in names}
        new = [name for name in names if name not in known]
        renamed = _find_moved(album, new, lost)
        album.set_files([{"id": i, "name": name, "gone": False} for name, i in renamed.items()])
        back = [i for name, i in known.items() if name in present and album.gone[i]]
        gone = [i for i in sorted(lost - set(renamed.values())) if not album.gone[i]]
        album.set_files([{"id": i, "gone": False} for i in back])
        album.set_files([{"id": i, "gone": True} for i in gone])
        changed = [
            i for name, i in known.items() if name in present and (album.size[i], album.modified[i]) != status[name]
        ]
        album.set_files(
            [
                {"id": i, "size": status[n][0], "modified": status[n][1], "digest": None}
                for i in changed
                if (n := album.names[i])
            ]
        )
        for i in changed:
            album.broken.pop(i, None)
            album.shape.pop(i, None)
        fresh = [name for name in new if name not in renamed]
        added = album.add_images(fresh, [status[name] for name in fresh])
        news = {"added": added + back, "renamed": sorted(renamed.values()), "gone": gone, "changed": changed}
        album.tell_files(news)
    return news


def _find_moved(album: Album, new: list[str], lost: set[int]) -> dict[str, int]:
    """New names of images that are not where they were: by content, or by size and time where it was not read yet."""
    wanted: dict[str | tuple[int, int], list[int]] = {}
    for i in sorted(lost):
        status = int(album.size[i]), int(album.modified[i])
        wanted.setdefault(album.digests[i] or status, []).append(i)
    sizes = {int(album.size[i]) for i in lost}
    moved: dict[str, int] = {}
    for name in new if wanted else ():
        path = os.path.join(album.root, name)
        now = file_status(path)
        if now is None or now[0] not in sizes:
            continue
        digest = content_digest(path)
        places = (wanted.get(digest.hex()) if digest else None) or wanted.get(now)
        if places:
            moved[name] = places.pop(0)
    return moved


def take_labels(album: Album) -> tuple[str, ...]:
    """The folder as it is now, and the labels that it has itself (sub-folders, labels.csv), for images that nobody has
    said anything of; returns remarks on what is not used.
    """
    collection = open_collection(album.root)
    keep_up(album, sorted(collection.names))
    place = {name: i for i, name in enumerate(album.names)}
    with album.editing():
        given = {
            place[name]: str(label)
            for name, label in zip(collection.names, collection.labels.tolist())
            if label is not None and name in place and place[name] not in album.votes
        }
        number = {entry["name"]: i for i, entry in album.classes.items()}
        for name in sorted(set(given.values()) - number.keys()):
            number[name], opened = album.new_class(name)
            album.change(NOBODY[0], f"class {name!r} of the folder", opened)
        said = album.say(NOBODY[0], ((image, number[name]) for image, name in given.items()))
        album.change(NOBODY[0], f"labels of {len(said)} images from the folder", said)
    return collection.remarks


def watch(album: Album, stop: threading.Event, tell: Callable[[dict[str, list[int]]], None]) -> None:
    """Follow the folder until ``stop`` is set."""
    from watchfiles import watch as changes_of

    hidden = str(album.root / HIDDEN)

    def ours(_: object, path: str) -> bool:
        return not path.startswith(hidden) and (is_image_name(os.path.basename(path)) or not os.path.splitext(path)[1])

    for _ in changes_of(album.root, watch_filter=ours, stop_event=stop, debounce=400, step=100, rust_timeout=1000):
        if stop.is_set():
            return
        try:
            news = keep_up(album)
        except ValueError:  # the folder itself is gone for a moment
            continue
        if any(news.values()):
            tell(news)
