# SPDX-License-Identifier: BSD-3-Clause
"""A bounded store of extracted features on disk, so that the second run over a folder is instant.

**Key.**  An entry is found by what it was computed from, never by a file's name or date::

    key = blake2b( blake2b(bytes of the image file or array) + JSON of {feature, parameters, loader, version} )

so a renamed file is a hit, and an edited file or a changed parameter is a miss.  ``FORMAT_VERSION`` is part of it.

**Entry.**  One file per image, in 256 sub-folders by the first two digits of the key: a magic word, a JSON line with
the shapes and dtypes, the raw arrays and a CRC-32 over everything before it.  Nothing in it is executed on reading.  It
is written to a temporary name and renamed, so that any number of processes may share a folder: a reader sees all of an
entry or none.  An entry that is cut off, changed or foreign is a miss; it is removed and written anew.

**Bound.**  Reading an entry renews its modification time.  When the store outgrows ``max_bytes`` the entries unused for
longest are deleted until it is a tenth below.  Counting what is there takes a walk over the folder, so it is done at
a process's first write and then only after this process has written a quarter of the room that was left (and at least
1/64 of ``max_bytes``): a handful of walks in all.  Between walks each writing process can overshoot by that 1/64.

The folder is ``$PATCHBAG_CACHE``, else ``$XDG_CACHE_HOME/patchbag``, else ``~/.cache/patchbag`` (macOS:
``~/Library/Caches/patchbag``, Windows: ``%LOCALAPPDATA%\\patchbag\\cache``).  The bound is ``$PATCHBAG_CACHE_SIZE``
("500M", "4G", "0" to store nothing), else 4 GB.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MAGIC = b"patchbag-features\n"
FORMAT_VERSION = 1
DEFAULT_BYTES = 4 * 10**9
SUFFIX = ".features"
_DTYPES = ("uint8", "float16", "float32", "float64")


class CacheInfo(NamedTuple):
    """What a cache folder holds."""

    folder: Path
    entries: int
    bytes: int
    max_bytes: int


def default_folder() -> Path:
    """Where features are kept unless a folder is named."""
    if named := os.environ.get("PATCHBAG_CACHE"):
        return Path(named).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "patchbag"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "patchbag"
    if sys.platform == "win32" and (base := os.environ.get("LOCALAPPDATA")):
        return Path(base) / "patchbag" / "cache"
    return Path.home() / ".cache" / "patchbag"


def default_bytes() -> int:
    """The bound on the size of the store: ``$PATCHBAG_CACHE_SIZE`` or 4 GB."""
    text = os.environ.get("PATCHBAG_CACHE_SIZE")
    return DEFAULT_BYTES if not text else parse_bytes(text)


def parse_bytes(text: str) -> int:
    """A number of bytes from "500M", "4G", "1.5 GB" or "123456".

    >>> parse_bytes("1.5 GB")
    1500000000
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?)B?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f'a cache size is a number with an optional k, M, G or T, such as "4G"; got {text!r}')
    return int(float(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " "))


def content_digest(source: Any) -> bytes:
    """Digest of what an image is made of: the bytes of a file, or dtype, shape and values of an array."""
    if isinstance(source, str | os.PathLike):
        digest = hashlib.blake2b(digest_size=20)
        with open(source, "rb", buffering=0) as file:
            while piece := file.read(2**22):
                digest.update(piece)
        return digest.digest()
    if isinstance(source, bytes | bytearray | memoryview):
        return hashlib.blake2b(source, digest_size=20).digest()
    array = np.ascontiguousarray(source)
    digest = hashlib.blake2b(f"{array.dtype.str}{array.shape}".encode(), digest_size=20)
    digest.update(array.data)
    return digest.digest()


def canonical(signature: dict[str, Any]) -> bytes:
    """The one spelling of a signature as JSON: sorted keys, NumPy scalars and dtypes as plain values."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, np.dtype | type):
            return np.dtype(value).name
        raise TypeError(f"a parameter of a cached feature must be a plain value, got {value!r} in {signature!r}")

    return json.dumps(signature, sort_keys=True, separators=(",", ":"), default=plain).encode()


def _pack(values: np.ndarray, positions: np.ndarray) -> list[bytes]:
    header: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "arrays": [(a.dtype.name, a.shape) for a in (values, positions)],
    }
    parts = [MAGIC, json.dumps(header).encode() + b"\n", values.tobytes(), positions.tobytes()]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return [*parts, checksum.to_bytes(4, "little")]


def _unpack(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The arrays of an entry; ValueError if it is not exactly what :func:`_pack` wrote."""
    if not data.startswith(MAGIC) or zlib.crc32(memoryview(data)[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ValueError("not an entry, or a damaged one")
    start = data.index(b"\n", len(MAGIC)) + 1
    header = json.loads(data[len(MAGIC) : start])
    arrays = []
    for dtype, shape in header["arrays"]:
        if header["version"] != FORMAT_VERSION or dtype not in _DTYPES:
            raise ValueError("an entry of another version")
        array = np.frombuffer(data, dtype, int(np.prod(shape)), start).reshape(shape)
        start += array.nbytes
        arrays.append(array)
    values, positions = arrays
    if start != len(data) - 4 or values.ndim != 2 or positions.shape != (len(values), 2):
        raise ValueError("an entry whose arrays do not fit together")
    return values, positions


class FeatureCache:
    """Features of images in a folder on disk.

    Parameters
    ----------
    folder : where, by default :func:`default_folder`; made on the first write
    max_bytes : bound on its size, by default :func:`default_bytes`
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, max_bytes: int | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_folder()
        self.max_bytes = default_bytes() if max_bytes is None else int(max_bytes)
        self._room: float | None = None  # bytes to write until the folder is walked again; None: never walked

    def key(self, content: bytes, signature: dict[str, Any]) -> str:
        """Name of the entry for an image with this :func:`content_digest` under these parameters."""
        return hashlib.blake2b(content + canonical({**signature, "format": FORMAT_VERSION}), digest_size=20).hexdigest()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / (key[2:] + SUFFIX)

    def get(self, key: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Values and positions stored under ``key`` (read-only arrays), or None."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        try:
            entry = _unpack(data)
        except (ValueError, KeyError, TypeError, OverflowError):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return entry

    def put(self, key: str, values: np.ndarray, positions: np.ndarray) -> bool:
        """Store an entry; False if it could not be (a full disk must not end an extraction that works without it)."""
        parts = _pack(values, positions)
        size = sum(len(part) for part in parts)
        if size > self.max_bytes:
            return False
        path = self._path(key)
        temporary = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(suffix=".part", dir=path.parent)
            with open(handle, "wb") as file:
                file.writelines(parts)
            os.replace(temporary, path)
        except OSError:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            return False
        if self._room is not None:
            self._room -= size
        if self._room is None or self._room < 0:
            self._trim()
        return True

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """(last use, size, path) of every file of ours; others in the folder are left alone."""
        for shard in _scan(self.folder):
            if re.fullmatch("[0-9a-f]{2}", shard.name) and shard.is_dir(follow_symlinks=False):
                for file in _scan(shard.path):
                    if file.name.endswith((SUFFIX, ".part")):
                        with contextlib.suppress(OSError):  # another process may have removed it meanwhile
                            status = file.stat(follow_symlinks=False)
                            yield status.st_mtime_ns, status.st_size, file.path

    def _trim(self) -> None:
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        if total > self.max_bytes:
            for _, size, path in files:
                if total <= 0.9 * self.max_bytes:
                    break
                with contextlib.suppress(OSError):
                    os.unlink(path)
                total -= size
        self._room = max(self.max_bytes / 64, (self.max_bytes - total) / 4)

    def info(self) -> CacheInfo:
        """Count what is stored."""
        sizes = [size for _, size, path in self._files() if path.endswith(SUFFIX)]
        return CacheInfo(self.folder, len(sizes), sum(sizes), self.max_bytes)

    def clear(self) -> int:
        """Delete every entry and report how many; nothing else in the folder is touched."""
        removed = 0
        for _, _, path in list(self._files()):
            with contextlib.suppress(OSError):
                os.unlink(path)
                removed += path.endswith(SUFFIX)
        for shard in _scan(self.folder):
            with contextlib.suppress(OSError):  # not empty, or not a folder: not ours
                os.rmdir(shard.path)
        self._room = None
        return removed


def _scan(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def open_cache(cache: bool | str | os.PathLike[str] | FeatureCache | None) -> FeatureCache | None:
    """What an extractor's ``cache`` parameter means: None or False, True for the default folder, a folder."""
    if cache is None or cache is False:
        return None
    if cache is True:
        return _shared(default_folder(), default_bytes())
    return cache if isinstance(cache, FeatureCache) else _shared(Path(cache), default_bytes())


@functools.lru_cache(maxsize=16)
def _shared(folder: Path, max_bytes: int) -> FeatureCache:
    # one per folder and process: it remembers how much room there was when it last looked
    return FeatureCache(folder, max_bytes)


def info(folder: str | os.PathLike[str] | None = None) -> CacheInfo:
    """What the default cache (or the one in ``folder``) holds."""
    return FeatureCache(folder).info()


def clear(folder: str | os.PathLike[str] | None = None) -> int:
    """Empty the default cache (or the one in ``folder``); the number of entries removed."""
    return FeatureCache(folder).clear()
