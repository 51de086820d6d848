# SPDX-License-Identifier: BSD-3-Clause
"""The images of a folder as files, numbered from 0 on, for good; in memory, and in the database."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from sqlalchemy import bindparam, select, update

from patchbag.page.database import Database, images
from patchbag.page.journal import name_bytes


class Inventory:
    """Files of a folder.

    Attributes
    ----------
    names : paths in the folder ; digests : of their contents, None where not known yet
    size, modified : of the files ; gone (n,) : which files are not there now ; broken : {image: what is wrong with it}
    shape : {image: width and height} where they are known
    listeners_of_files : called with what became of files that another server has found
    """

    def __init__(self, root: Path, database: Database) -> None:
        self.root = root
        self.database = database
        self.lock = threading.RLock()
        self.broken: dict[int, str] = {}
        self.shape: dict[int, tuple[int, int]] = {}
        self.listeners_of_files: list[Callable[[dict[str, list[int]]], None]] = []
        self._empty()

    def __len__(self) -> int:
        return len(self.names)

    def _empty(self) -> None:
        self.names: list[str] = []
        self.digests: list[str | None] = []
        self.size, self.modified = np.empty(0, np.int64), np.empty(0, np.int64)
        self.gone = np.empty(0, bool)

    def _load_files(self) -> None:
        self._empty()
        self._append(self.database.rows(select(images).order_by(images.c.id)))

    def _append(self, rows: Sequence[Any]) -> None:
        """Images more, as they are in the database."""
        self.names += [row.name.decode("utf-8", "surrogateescape") for row in rows]
        self.digests += [row.digest for row in rows]
        self.size = np.append(self.size, np.array([row.size or 0 for row in rows], np.int64))
        self.modified = np.append(self.modified, np.array([row.modified or 0 for row in rows], np.int64))
        self.gone = np.append(self.gone, np.array([row.gone for row in rows], bool))

    def add_images(self, names: Sequence[str], status: Sequence[tuple[int, int]]) -> list[int]:
        """New files, numbered on."""
        with self.lock:
            first = len(self.names)
            rows = [
                {
                    "id": first + i,
                    "name": name_bytes(name),
                    "digest": None,
                    "size": now[0],
                    "modified": now[1],
                    "gone": False,
                }
                for i, (name, now) in enumerate(zip(names, status))
            ]
            if not rows:
                return []
            with self.database.writing() as connection:
                connection.execute(images.insert(), rows)
            self._append([SimpleNamespace(**row) for row in rows])
            return list(range(first, first + len(names)))

    def set_files(self, rows: list[dict[str, Any]]) -> None:
        """What became of files: dicts of id and any of name, digest, size, modified, gone, alike in all of them."""
        if not rows:
            return
        with self.lock:
            columns = [name for name in rows[0] if name != "id"]
            values: dict[Any, Any] = {name: bindparam(f"new_{name}") for name in columns}
            bound = [
                {"row": r["id"]} | {f"new_{c}": name_bytes(r[c]) if c == "name" else r[c] for c in columns}
                for r in rows
            ]
            with self.database.writing() as connection:
                connection.execute(update(images).where(images.c.id == bindparam("row")).values(values), bound)
            for row in rows:
                for name in columns:
                    getattr(self, {"name": "names", "digest": "digests"}.get(name, name))[row["id"]] = row[name]

    def tell_files(self, news: dict[str, list[int]]) -> None:
        """Tell other servers what became of files."""
        if self.database.shared and any(news.values()):
            with self.database.writing() as connection:
                self.database.tell(connection, {"files": news})

    def _files_from_elsewhere(self, news: dict[str, list[int]]) -> None:
        ids = sorted({i for part in news.values() for i in part})
        rows = self.database.rows(select(images).where(images.c.id.in_(ids)).order_by(images.c.id))
        known = len(self)
        self._append([row for row in rows if row.id >= known])
        for row in rows:
            self.names[row.id], self.digests[row.id] = row.name.decode("utf-8", "surrogateescape"), row.digest
            self.size[row.id], self.modified[row.id], self.gone[row.id] = row.size or 0, row.modified or 0, row.gone
        for listener in self.listeners_of_files:
            listener(news)
