# SPDX-License-Identifier: BSD-3-Clause
"""Which files of a folder are images, and what of it is not used.

Files whose name does not end like an image's are passed over and counted; whether a file really is an image shows when
it is decoded.  Hidden files and folders are left out.  Links to folders are followed, unless they lead to one that was
entered before.  Names that are not UTF-8 are kept as Python reads them (surrogate escapes).
"""

import glob
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from patchbag.collection.files import Status, entry_status
from patchbag.images.decoders import EXTENSIONS

# sub-folders of images that have no label yet, in lower case
UNLABELLED = ("unlabelled", "unlabeled")


class CollectionError(ValueError):
    """A folder, or labels, that do not hold what was expected."""


def is_image_name(name: str) -> bool:
    """Whether a file name ends like an image's; hidden files do not count."""
    return name.lower().endswith(EXTENSIONS) and not name.startswith(".")


def is_class_name(name: str) -> bool:
    """Whether a name may be that of a class: it may become the name of a folder."""
    return not (name.startswith(".") or name.lower() in UNLABELLED or any(c in '/\\:*?"<>|' or c < " " for c in name))


def free_name(path: str, is_taken: Callable[[str], bool]) -> str:
    """A path with slashes, under a new name where it is taken.

    >>> free_name("cat/a.jpg", {"cat/a.jpg", "cat/a-1.jpg"}.__contains__)
    'cat/a-2.jpg'
    """
    stem, ending = os.path.splitext(path)
    found, number = path, 0
    while is_taken(found):
        number += 1
        found = f"{stem}-{number}{ending}"
    return found


def is_within(root: str | os.PathLike[str], path: str) -> bool:
    """Whether a path leads to a place in a folder, links followed."""
    real = os.path.realpath(root)
    return os.path.commonpath([real, os.path.realpath(path)]) == real


def shortened(names: Sequence[str], most: int = 10) -> str:
    """Names in a sentence, at most ``most`` of them.

    >>> shortened(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def walk(
    root: str | os.PathLike[str], onerror: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """(path from the root with a slash behind it, its files by name) of the root and of every folder below."""
    top = os.fspath(root)
    entered = set()

    def enter(path: str) -> bool:
        try:
            found = os.stat(path)
        except OSError:  # it is gone
            return False
        again = (found.st_dev, found.st_ino) in entered and (os.path.islink(path) or os.path.samefile(path, top))
        entered.add((found.st_dev, found.st_ino))
        return not again

    enter(top)
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        try:
            with os.scandir(os.path.join(root, inside[:-1]) if inside else root) as found:
                entries = sorted(found, key=attrgetter("name"))
        except OSError as error:
            if onerror is not None:
                onerror(error)
            continue
        folders: list[os.DirEntry[str]] = []
        files: list[os.DirEntry[str]] = []
        for entry in entries:
            (folders if _is_folder(entry) else files).append(entry)
        yield inside, files
        below = [f"{inside}{e.name}/" for e in folders if not e.name.startswith(".") and enter(e.path)]
        waiting += reversed(below)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def scan(root: Path) -> tuple[list[str], list[str]]:
    """Names of the images below a folder, with slashes, and remarks on what of its sub-folders is not used."""
    files, unreadable, others = _scan(root)
    if files:  # nobody expects what lies beside the classes to be used
        others.pop("", None)
    used = {name.split("/")[0] for name in files}
    remarks = unreadable
    for folder in sorted(others.keys() - used - {""}):
        if folder.lower() not in UNLABELLED:
            passed = others.pop(folder)
            inside = f"none of its {passed.total()} files is named like an image ({_tally(passed)})"
            remarks.append(f"the sub-folder {folder!r} is no class: {inside if passed else 'it has no files'}")
    if passed := sum(others.values(), Counter()):
        many = "1 file that is" if passed.total() == 1 else f"{passed.total()} files that are"
        remarks.append(f"passed over {many} not named like an image ({_tally(passed)})")
    return sorted(files), remarks


def scan_status(root: Path) -> tuple[dict[str, Status], list[str]]:
    """Names of the images with the status of each file, in order, and remarks on folders that cannot be read."""
    files, unreadable, _ = _scan(root)
    return {name: entry_status(files[name]) for name in sorted(files)}, unreadable


def check_folder(root: Path) -> None:
    """Raise CollectionError unless there is such a folder."""
    if not root.is_dir():
        raise CollectionError(f"{root} is not a folder" if root.exists() else f"there is no folder {root}")


def no_images(root: Path) -> CollectionError:
    """The error of a folder without images, which says what is in it."""
    return CollectionError(f"{root} has no images{''.join(f'; {remark}' for remark in scan(root)[1])}")


def _scan(root: Path) -> tuple[dict[str, os.DirEntry[str]], list[str], dict[str, Counter[str]]]:
    """Images by name, remarks on folders that cannot be read, and how the other files end, by sub-folder."""
    check_folder(root)
    unreadable: list[OSError] = []
    names: dict[str, os.DirEntry[str]] = {}
    others: dict[str, Counter[str]] = defaultdict(Counter)
    for inside, files in walk(root, unreadable.append):
        tally = others[inside.split("/")[0]]
        for file in files:
            if is_image_name(file.name):
                names[inside + file.name] = file
            else:
                hidden = file.name.startswith(".")
                tally["hidden" if hidden else os.path.splitext(file.name)[1].lower() or "no ending"] += 1
    return names, [_unreadable(error) for error in unreadable], others


def _unreadable(error: OSError) -> str:
    return f"{error.filename} cannot be read ({error.strerror})"


def _tally(endings: Counter[str]) -> str:
    return shortened([f"{ending} {count}" for ending, count in sorted(endings.items(), key=lambda e: (-e[1], e[0]))])


def find_images(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Images named by files, folders and glob patterns, each once, in the order given; and what could not be read.

    A file that is named is taken whatever its name ends in; a folder gives the images below it.
    """
    found: dict[str, None] = {}
    unreadable: list[OSError] = []
    for argument in map(os.fspath, arguments):
        if os.path.isdir(argument):
            walked = walk(argument, unreadable.append)
            images = [f.path for _, files in walked for f in files if is_image_name(f.name)]
        elif os.path.exists(argument):
            images = [argument]
        else:
            images = sorted(f for f in glob.glob(argument, recursive=True) if os.path.isfile(f))
            if not images and not glob.has_magic(argument):
                raise CollectionError(f"there is no file or folder {argument}")
        if not images:
            wrong = "".join(f"; {_unreadable(error)}" for error in unreadable)
            raise CollectionError(f"there are no images in {argument}{wrong}")
        found.update(dict.fromkeys(images))
    return list(found), list(map(_unreadable, unreadable))
