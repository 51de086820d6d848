# SPDX-License-Identifier: BSD-3-Clause
"""Images that come in, files that go out: both are tried before anything long begins."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchbag.cli import screen

# images that are looked at to see whether a folder is in colour
SAMPLED = 32


@contextlib.contextmanager
def feature_cache(keep: bool) -> Iterator[Any]:
    """The user's cache, or one that lasts as long as the command."""
    if keep:
        yield True
    else:
        with tempfile.TemporaryDirectory(prefix="patchbag-") as folder:
            yield folder


def check_outputs(*paths: Path | None, replaced: bool = False) -> None:
    """Raise unless a file can be written at each of the paths; folders on the way are made.

    An existing file is opened for appending, which leaves it as it is.  Where there is none, or where it is going to be
    ``replaced`` by one that was written beside it, a file is made beside it and removed.
    """
    given = [path for path in paths if path is not None]
    for path in given:
        if path.is_dir():
            raise ValueError(f"{path} is a folder; name a file in it, such as {path / 'result'}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():  # pipes and devices are taken on trust: opening them can have consequences
                path.open("ab").close()
            if replaced or not path.exists():
                probe = path.with_name(f".{path.name}.{os.getpid()}.partial")
                probe.open("xb").close()
                probe.unlink()
        except OSError as error:
            raise ValueError(f"cannot write {path}: {error.strerror or error}") from error
    if len({path.resolve() for path in given}) < len(given):
        raise ValueError(f"{' and '.join(map(str, given))} are one file; the outputs need a name each")


def check_output_folder(folder: Path) -> None:
    """Raise unless files can be written into the folder, which is made if it is not there."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; the output needs a folder")
    check_outputs(folder / ".patchbag")


def describe_images(categorizer: Any, paths: list[str]) -> list[Any]:
    """Describe every image once, filling the cache; returns the failures."""
    from patchbag.steps import extractors

    failures: dict[int, Any] = {}
    pipeline = categorizer.recipe_ if hasattr(categorizer, "recipe_") else categorizer.pipeline()
    for extractor in extractors(pipeline):
        extractor.set_params(n_jobs=categorizer.n_jobs, cache=categorizer.cache)
        with screen.counting("describing images", len(paths)) as step:
            for index, result in enumerate(extractor.stream(paths)):
                if hasattr(result, "message"):
                    failures[index] = result
                step()
    return [failures[i] for i in sorted(failures)]


def colors_of(folder: Path, wanted: bool) -> bool:
    """Whether to train on colours: if that is wanted, and some image of the folder has any."""
    from patchbag.active.folder import open_labelled
    from patchbag.images import ImageError, has_color

    paths = open_labelled(folder).paths if wanted else []
    for path in paths[:: max(1, len(paths) // SAMPLED)]:
        with contextlib.suppress(ImageError):  # listed when all images are described
            if has_color(path):
                return True
    if wanted:
        screen.say("none of these images has colours, so --color adds nothing and is left out", "yellow")
    return False


def readable_folder(folder: Path, categorizer: Any) -> tuple[Any, list[Any]]:
    """The images of a labelled folder that can be described, and the others.

    Says what of the folder is not used: files, sub-folders, images without a label, and classes none of whose images
    can be read.
    """
    from patchbag.active.folder import open_labelled
    from patchbag.datasets import FolderError

    images = open_labelled(folder)
    for remark in images.remarks:
        screen.say(remark, "yellow")
    failures = describe_images(categorizer, images.paths)
    screen.list_failures(failures, len(images))
    broken = {f.index for f in failures}
    kept = images.take([i for i in range(len(images)) if i not in broken])
    for name in images.classes:
        if name not in kept.classes:
            screen.say(f"the class {name!r} is left out: none of its images can be read", "yellow")
    if len(kept.classes) < 2:
        raise FolderError(f"{folder}: fewer than two classes have an image that can be read")
    return kept, failures


def move_answers(folder: Path, book: Any) -> tuple[Any, int]:
    """Move the images that have an answer into the folders of their classes, and say so; returns all images and
    how many were moved.
    """
    from patchbag.active.dialogue import move_answered
    from patchbag.active.folder import open_partly_labelled

    images = open_partly_labelled(folder)
    moved = move_answered(images, book)
    if moved:
        several = f"{moved} images that had a label into the folders of their classes"
        screen.result(f"moved {'an image that had a label into the folder of its class' if moved == 1 else several}")
    return images, moved


def readable_pool(folder: Path, book: Any, categorizer: Any, labelled: bool) -> Any:
    """The images of a partly labelled folder that can be described; all or only the ``labelled`` ones."""
    from patchbag.active.folder import open_partly_labelled, restore

    images = open_partly_labelled(folder)
    restore(images, book)
    images = images.labelled() if labelled else images.with_pool()
    failures = describe_images(categorizer, images.full_paths())
    screen.list_failures(failures, len(images))
    images = images.without({f.index for f in failures})
    return images.labelled() if labelled else images.with_pool()
