# SPDX-License-Identifier: BSD-3-Clause
"""Images that come in, files that go out: both are tried before anything long begins."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from patchbag.cli import screen

TEMPORARY = "patchbag-run-"
SAID = 1 << 14  # bytes at either end of a file in which it says whose it is
OURS = re.compile(
    rb'.{8}\{"__metadata__":\{"patchbag-model"|\{\s*"patchbag": |<!doctype html>.*? \xc2\xb7 patchbag</title>'
    rb"|\x89PNG.*?Software\0patchbag|image,label,probability,typicality,unlike_anything_seen",
    re.DOTALL,
)


def remove_forgotten() -> None:
    """Delete temporary stores that commands of this user left behind when they were killed."""
    for place in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        number = place.name.removeprefix(TEMPORARY).partition("-")[0]
        with contextlib.suppress(OSError):
            mine = not hasattr(os, "getuid") or place.lstat().st_uid == os.getuid()
            if (
                mine
                and number.isdecimal()
                and place.is_dir()
                and not place.is_symlink()
                and not is_running(int(number))
            ):
                shutil.rmtree(place, ignore_errors=True)


def is_running(process: int) -> bool:
    """Whether a process with that number is running; True where the system cannot say."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


@contextlib.contextmanager
def machine(
    jobs: int,
    keep: bool,
    seed: int | None = None,
    device: str = "cpu",
    cluster: str | None = None,
) -> Iterator[None]:
    """Workers (of a cluster), seed, device, and the store of features: the user's, or one for this command."""
    from patchbag.runtime import runtime_context

    remove_forgotten()
    with contextlib.ExitStack() as stack:
        prefix = f"{TEMPORARY}{os.getpid()}-"
        folder = None if keep else stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix))
        stack.enter_context(runtime_context(n_jobs=jobs, seed=seed, store=folder, device=device))
        if cluster is not None:
            from patchbag.cluster import cluster_context

            stack.enter_context(cluster_context(cluster, None if jobs == -1 else jobs))
        yield


def check_outputs(*paths: Path | None, replaced: bool = False, force: bool = False) -> None:
    """Raise unless a file can be written at each of the paths; folders on the way are made.

    What is there already must have been written by patchbag, unless it is replaced by ``force``.

    An existing file is opened for appending, which leaves it as it is.  Where there is none, or where it is going to be
    ``replaced`` by one that was written beside it, a file is made beside it and removed.
    """
    given = [path for path in paths if path is not None]
    for path in given:
        if path.is_dir():
            raise ValueError(f"{path} is a folder; name a file in it, such as {path / 'result'}")
        if not force and path.is_file() and not is_ours(path):
            raise ValueError(
                f"{path} is there, and was not written by patchbag; name another file, or replace it with --force"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():  # pipes and devices are taken on trust: opening them can have consequences
                path.open("ab").close()
            if replaced or not path.exists():
                with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".patchbag-", suffix=".partial"):
                    pass
        except OSError as error:
            raise ValueError(f"cannot write {path}: {error.strerror or error}") from error
    if len({path.resolve() for path in given}) < len(given):
        raise ValueError(f"{' and '.join(map(str, given))} are one file; the outputs need a name each")


def is_ours(path: Path) -> bool:
    """Whether a file is empty, or begins like one that patchbag writes."""
    try:
        with path.open("rb") as file:
            head = file.read(SAID)
            file.seek(max(0, path.stat().st_size - SAID))  # a table in Parquet has its columns there
            tail = file.read(SAID)
    except OSError:
        return False
    table = head.startswith((b'{"image": ', b"PAR1")) and b"unlike_anything_seen" in tail
    return not head or table or OURS.match(head) is not None


def check_output_folder(folder: Path) -> None:
    """Raise unless files can be written into the folder, which is made if it is not there."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; the output needs a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".patchbag-", suffix=".partial"):
            pass
    except OSError as error:
        raise ValueError(f"cannot write into {folder}: {error.strerror or error}; name another folder") from error


def free_path(folder: Path, path: str, taken: Iterable[str] = ()) -> str:
    """A path in a folder, under a new name where a file has it, or where it is among those ``taken``."""
    from patchbag.collection.folder import free_name

    taken = set(taken)
    return free_name(Path(path).as_posix(), lambda name: (folder / name).exists() or name in taken)


def describe_images(images: Any, features: Any) -> Any:
    """``Collection.describe`` with a progress bar; says which images could not be read."""
    with screen.counting("describing images", len(images)) as step:
        described = images.describe(features, progress=lambda done, total: step())
    small = "recipes on pooled vectors of a network, such as deep-linear, take images of any size"
    screen.list_failures([(f.name, f.message) for f in described.failures], len(images), small)
    say_how_read(images.paths)
    flat = without_contrast(described.bags)
    if flat:
        screen.say(
            f"{flat} of {min(len(described.bags), SAMPLE)} images that were looked at have hardly any contrast: most "
            "of their patches show nothing; look at their range of brightness",
            "yellow",
        )
    return described


SAMPLE = 50


def say_how_read(paths: Any, page: int = 0) -> None:
    """Say of files with several pages which one is read, and of images of 16 bits what becomes of their levels.

    The page is the one that a model reads, unless the person asks for another.
    """
    from patchbag.images.decoders import FORMATS, pages_and_depth
    from patchbag.runtime import current_runtime

    looked = [path for path in paths if path.lower().endswith((*FORMATS["TIFF"], *FORMATS["PNG"]))][:SAMPLE]
    found = [pages_and_depth(path) for path in looked]
    several, deep = sum(pages > 1 for pages, _ in found), sum(bits == 16 for _, bits in found)
    of = f"of {len(looked)} PNG and TIFF files that were looked at"
    if several:
        have, asked = "has" if several == 1 else "have", current_runtime().frame
        read = page if asked is None else asked
        screen.say(f"{several} {of} {have} several pages: page {read} of each is read (--frame)", "yellow")
    if deep:
        have = "has" if deep == 1 else "have"
        screen.say(f"{deep} {of} {have} 16 bits per level: the range that an image uses is read as black to white")


def without_contrast(bags: Any) -> int:
    """Of a sample of images, how many have mostly zero descriptors: those of patches without contrast."""
    import numpy as np

    from patchbag.bags import Bags

    if not isinstance(bags, Bags) or not len(bags):
        return 0
    some = np.linspace(0, len(bags) - 1, min(len(bags), SAMPLE)).astype(int)
    return sum(bool(np.mean(np.any(bags[int(i)], axis=1)) < 0.5) for i in some)


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
