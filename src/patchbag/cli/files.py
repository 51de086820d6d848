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

# JPEG, PNG, GIF, WebP (and other RIFF), TIFF, BMP
IMAGES = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"II*\0", b"MM\0*", b"BM")


@contextlib.contextmanager
def machine(
    jobs: int, keep: bool, seed: int | None = None, device: str = "cpu", cluster: str | None = None
) -> Iterator[None]:
    """Workers (of a cluster), seed, device, and the user's store of features or one for the time of the command."""
    from patchbag.runtime import runtime_context

    with contextlib.ExitStack() as stack:
        folder = None if keep else stack.enter_context(tempfile.TemporaryDirectory(prefix="patchbag-"))
        stack.enter_context(runtime_context(n_jobs=jobs, seed=seed, store=folder, device=device))
        if cluster is not None:
            from patchbag.cluster import cluster_context

            stack.enter_context(cluster_context(cluster, None if jobs == -1 else jobs))
        yield


def check_outputs(*paths: Path | None, replaced: bool = False) -> None:
    """Raise unless a file can be written at each of the paths; folders on the way are made.

    An existing file is opened for appending, which leaves it as it is.  Where there is none, or where it is going to be
    ``replaced`` by one that was written beside it, a file is made beside it and removed.
    """
    given = [path for path in paths if path is not None]
    for path in given:
        if path.is_dir():
            raise ValueError(f"{path} is a folder; name a file in it, such as {path / 'result'}")
        if path.is_file() and is_photograph(path):
            raise ValueError(f"{path} is an image, which would be replaced; name another file")
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


def is_photograph(path: Path) -> bool:
    """Whether a file is an image, by its first bytes, and not a plot of ours."""
    try:
        with path.open("rb") as file:
            head = file.read(2048)
    except OSError:
        return False
    return head.startswith(IMAGES) and b"Matplotlib" not in head


def check_output_folder(folder: Path) -> None:
    """Raise unless files can be written into the folder, which is made if it is not there."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; the output needs a folder")
    check_outputs(folder / ".patchbag")


def describe_images(images: Any, features: Any) -> Any:
    """The images described, as ``Collection.describe`` has it, with a progress bar; says which could not be read."""
    with screen.counting("describing images", len(images)) as step:
        described = images.describe(features, progress=lambda done, total: step())
    screen.list_failures(described.failures, len(images))
    return described


def describe_labelled(images: Any, features: Any, *, unlabelled: bool = False) -> tuple[Any, Any]:
    """The labelled images of a collection that can be described, or all, and their description.

    Says what of the folder is not used: files, sub-folders, images without a label, and classes none of whose images
    can be read.
    """
    from patchbag.collection import CollectionError

    labelled = images.labelled()
    images = images if unlabelled else labelled
    for remark in images.remarks:
        screen.say(remark, "yellow")
    described = describe_images(images, features)
    kept = images[described.kept]
    for name in images.classes:
        if name not in kept.classes:
            screen.say(f"the class {name!r} is left out: none of its images can be read", "yellow")
    if len(kept.classes) < 2:
        raise CollectionError(f"{images.root}: fewer than two classes have an image that can be read")
    return kept, described
