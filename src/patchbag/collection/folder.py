# SPDX-License-Identifier: BSD-3-Clause
"""Which files of a folder are images, and what of it is not used.

Files whose name does not end like an image's are passed over and counted; whether a file really is an image shows when
it is decoded.  Hidden files and folders are left out.  Links to folders are followed, unless they lead to one that was
entered before.  Names that are not UTF-8 are kept as Python reads them (surrogate escapes).
"""

from __future__ import annotations

import glob
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from patchbag.decoders import EXTENSIONS

# sub-folders of images that have no label yet, in lower case
UNLABELLED = ("unlabelled", "unlabeled")


class CollectionError(ValueError):
    """A folder, or labels, that do not hold what was expected."""


def is_image_name(name: str) -> bool:
    """Whether a file name ends like an image's; hidden files do not count."""
    return name.lower().endswith(EXTENSIONS) and not name.startswith(".")


def is_class_name(name: str) -> bool:
    """Whether a class may be called so: its name may become that of a folder."""
    return not (name.startswith(".") or name.lower() in UNLABELLED or any(c in '/\\:*?"<>|' or c < " " for c in name))


def shortened(names: Sequence[str], most: int = 10) -> str:
    """A list to read, cut after ``most`` names.

    >>> shortened(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def walk(
    root: str | os.PathLike[str], onerror: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """(path from the root with a slash behind it, names of the files) of the root and of every folder below."""
    entered = set()

    def enter(path: str) -> bool:
        try:
            found = os.stat(path)
        except OSError:  # a link to nowhere
            return False
        again = (found.st_dev, found.st_ino) in entered and os.path.islink(path)
        entered.add((found.st_dev, found.st_ino))
        return not again

    enter(os.fspath(root))
    for here, folders, files in os.walk(root, onerror=onerror, followlinks=True):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and enter(os.path.join(here, f)))
        inside = os.path.relpath(here, root).replace(os.sep, "/")
        yield ("" if inside == "." else f"{inside}/"), sorted(files)


def scan(root: Path) -> tuple[list[str], list[str]]:
    """Names of the images below a folder, with slashes, and remarks on what of its sub-folders is not used."""
    if not root.is_dir():
        raise CollectionError(f"{root} is not a folder" if root.exists() else f"there is no folder {root}")
    unreadable: list[OSError] = []
    names: list[str] = []
    others: dict[str, Counter[str]] = defaultdict(Counter)
    for inside, files in walk(root, unreadable.append):
        names += [inside + f for f in files if is_image_name(f)]
        endings = ("hidden" if f.startswith(".") else os.path.splitext(f)[1].lower() for f in files)
        others[inside.split("/")[0]].update(e or "no ending" for f, e in zip(files, endings) if not is_image_name(f))
    remarks = [f"{error.filename} cannot be read ({error.strerror})" for error in unreadable]
    others.pop("", None)
    used = {name.split("/")[0] for name in names}
    for folder in sorted(others.keys() - used):
        if folder.lower() not in UNLABELLED:
            passed = others.pop(folder)
            inside = f"none of its {passed.total()} files is named like an image ({_tally(passed)})"
            remarks.append(f"the sub-folder {folder!r} is no class: {inside if passed else 'it has no files'}")
    if passed := sum(others.values(), Counter()):
        many = "1 file that is" if passed.total() == 1 else f"{passed.total()} files that are"
        remarks.append(f"passed over {many} not named like an image ({_tally(passed)})")
    return sorted(names), remarks


def _tally(endings: Counter[str]) -> str:
    return shortened([f"{ending} {count}" for ending, count in sorted(endings.items(), key=lambda e: (-e[1], e[0]))])


def find_images(arguments: Sequence[str]) -> list[str]:
    """Images named by files, folders and glob patterns, each once, in the order given.

    A file that is named is taken whatever its name ends in; a folder gives the images below it.
    """
    found: dict[str, None] = {}
    for argument in map(os.fspath, arguments):
        if os.path.isdir(argument):
            images = [os.path.join(argument, inside, f) for inside, files in walk(argument) for f in files]
            images = [path for path in images if is_image_name(os.path.basename(path))]
        elif os.path.exists(argument):
            images = [argument]
        else:
            images = sorted(f for f in glob.glob(argument, recursive=True) if os.path.isfile(f))
            if not images and not glob.has_magic(argument):
                raise CollectionError(f"there is no file or folder {argument}")
        if not images:
            raise CollectionError(f"there are no images in {argument}")
        found.update(dict.fromkeys(images))
    return list(found)
