# SPDX-License-Identifier: BSD-3-Clause
"""Files that are replaced in one step: whoever is killed, or runs out of disk, leaves the old one or the new one.

A file is written beside the one whose place it takes, under a name that nobody can know beforehand and that must not
exist (a link that was planted there is not followed), brought to the disk, and renamed.  Errors name the file.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], text: bool = False) -> Iterator[IO[Any]]:
    """A file to write to, which takes the place of ``path`` when the block ends without an error.

    ``text`` is UTF-8 in which bytes of file names that are none stay as they are.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name[:80]}.{secrets.token_hex(6)}.partial")
    options: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape", "newline": ""} if text else {}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("x" if text else "xb", **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        if error.errno is None or error.filename not in (None, os.fspath(partial)):
            raise
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """A text; names of files in it need not be text in any encoding, and what is not is shown by its code."""
    with replacing(path) as file:
        file.write(text.encode(errors="backslashreplace"))
    return Path(path)


def write_json(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """An object of these values, which says that patchbag wrote it."""
    from patchbag import __version__

    with replacing(path) as file:
        file.write(json.dumps({"patchbag": __version__, **values}, indent=1).encode())


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of the system that name no file, such as that of a full disk, name this one."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from error


def _sync_folder(folder: Path) -> None:
    """Flush a rename to the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time, where the system can lock a folder."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):  # Windows, some network file systems
            import fcntl

            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
