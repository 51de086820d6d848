# SPDX-License-Identifier: BSD-3-Clause
"""Files go into folders by class: copied or linked into a folder of the output, or moved where they lie."""

import contextlib
import os
import shutil
from pathlib import Path

from patchbag.collection.folder import free_name, is_within

OUT = ".patchbag/out"


def move_file(root: Path, source: str, target: str) -> bool:
    """Move a file of the folder to where no other is; whether that was possible."""
    before, after = os.path.join(root, source), os.path.join(root, target)
    if not os.path.lexists(before) or os.path.lexists(after) or not is_within(root, os.path.dirname(after)):
        return False
    try:
        os.makedirs(os.path.dirname(after), exist_ok=True)
        shutil.move(before, after)
        with contextlib.suppress(OSError):  # a folder that has become empty is no class any more
            if os.path.dirname(before) != os.path.realpath(root):
                os.rmdir(os.path.dirname(before))
    except OSError:
        return False
    return True


def targets(names: dict[int, str], classes: dict[int, str], taken: set[str]) -> dict[int, str]:
    """Where each image goes: the folder of its class, under a new name where the old one is taken."""
    found: dict[int, str] = {}
    for image, name in names.items():
        found[image] = free_name(f"{classes[image]}/{os.path.basename(name)}", taken.__contains__)
        taken.add(found[image])
    return found


def write_folder(root: Path, name: str, how: str, pairs: list[tuple[str, str]]) -> bool:
    """Copy or link files (source, target) into a new folder of the output; all of them or none."""
    place = output(root, name)
    if place.exists():
        return False
    try:
        for source, target in pairs:
            (place / target).parent.mkdir(parents=True, exist_ok=True)
            if how == "link":
                try:
                    os.link(os.path.realpath(root / source), place / target)
                except OSError:  # another file system
                    os.symlink(os.path.realpath(root / source), place / target)
            else:
                shutil.copy2(root / source, place / target)
    except OSError:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return True


def remove_folder(root: Path, name: str) -> bool:
    """Take back ``write_folder``."""
    place = output(root, name)
    if not place.is_dir():
        return False
    shutil.rmtree(place, ignore_errors=True)
    return True


def output(root: Path, name: str) -> Path:
    if os.path.basename(name) != name or name.startswith("."):
        raise ValueError(f"{name!r} is no name of a folder of the output")
    return root / OUT / name
