# SPDX-License-Identifier: BSD-3-Clause
"""What the page knows of a folder: its images, their labels, its classes; in memory, and on disk before it is told.

**Labels.**  Everybody has a say on every image.  The label of an image is the one that was given last; where people
said different things they disagree, which stays known.  A skip is to have said that there is no label to give.

All changes go through :meth:`Album.change`: first the database, then memory, then whoever listens.  What other servers
of the database change comes in by :meth:`Album.catch_up`, at the latest before anything is changed here.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import select

from patchbag.collection.folder import CollectionError, is_class_name
from patchbag.page import sorting
from patchbag.page.database import Database, classes, kept, votes
from patchbag.page.inventory import Inventory
from patchbag.page.journal import DONE, UNDONE, Action, Change, Journal, inverse, read_changes

NOBODY = ("folder", "labels.csv")  # labels that no person gave: they disagree with nobody
COLORS = (
    "#2b66b1", "#c2571a", "#1f7a5c", "#8e3fa8", "#b3402f", "#0e7c86", "#8a6d00", "#c2377e",
    "#4f5bd5", "#5f7d1f", "#a0522d", "#3f6f8f", "#7a5195", "#d1495b", "#2f855a", "#6b7280",
)  # fmt: skip
KEYS = "123456789"

Vote = tuple[int | None, float]
Listener = Callable[[list[tuple[int, int, int]], int], None]


class Album(Inventory):
    """Images are numbered from 0 on, for good; so are classes.

    Attributes
    ----------
    label (n,) : class of each image, -1 for none ; skipped (n,)
    votes : {image: {person: (class or None, when)}}
    kept : {image: class} of labels that are right although the model disagrees
    disagreements : images of which people say different things
    classes : {id: {"name", "color", "key", "position"}}
    version : number of changes so far
    """

    def __init__(self, root: Path, database: Database) -> None:
        super().__init__(root, database)
        self.journal = Journal(database)
        self.listeners: list[Listener] = []
        self.version = 0
        self._at = 0.0
        self._next_class = 0
        self._load()

    def _load(self) -> None:
        self._seen = self.database.latest() if self.database.shared else 0
        self.label, self.skipped = np.empty(0, np.int32), np.empty(0, bool)
        self._load_files()
        self.classes: dict[int, dict[str, Any]] = {
            row.id: {"name": row.name, "color": row.color, "key": row.key, "position": row.position}
            for row in self.database.rows(select(classes).order_by(classes.c.id))
        }
        self.votes: dict[int, dict[str, Vote]] = {}
        self.kept: dict[int, int] = {row.image: row.label for row in self.database.rows(select(kept))}
        self.disagreements: set[int] = set()
        self._people: set[str] = set()
        for row in self.database.rows(select(votes).order_by(votes.c.at)):
            self.votes.setdefault(row.image, {})[row.who] = (row.label, row.at)
            self._at = max(self._at, row.at)
        for image in self.votes:
            self._judge(image)
        # a class keeps its number for good, for it may come back by undo
        self._next_class = max(self._next_class, 1 + max([-1, *self.classes, *self.journal.classes()]))

    def _append(self, rows: Sequence[Any]) -> None:
        super()._append(rows)
        self.label = np.append(self.label, np.full(len(rows), -1, np.int32))
        self.skipped = np.append(self.skipped, np.zeros(len(rows), bool))

    def _judge(self, image: int) -> None:
        said = self.votes.get(image, {})
        given = [(at, label) for label, at in said.values() if label is not None]
        self.label[image] = max(given)[1] if given else -1
        self.skipped[image] = bool(said.keys() - set(NOBODY)) and not given
        people = {label for who, (label, _) in said.items() if label is not None and who not in NOBODY}
        (self.disagreements.add if len(people) > 1 else self.disagreements.discard)(image)
        self._people |= said.keys()

    def now(self) -> float:
        """The time, later than any vote before."""
        self._at = max(time.time(), self._at + 1e-6)
        return self._at

    @property
    def people(self) -> list[str]:
        return sorted(self._people - set(NOBODY))

    def unanswered(self, ids: Any = slice(None)) -> Any:
        """Which images, or which of some, can be asked for: they are there, have no label and were not skipped."""
        return (self.label[ids] < 0) & ~self.skipped[ids] & ~self.gone[ids]

    # --- changes -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def editing(self) -> Iterator[None]:
        """Whoever changes something does it in here: all that other threads and servers have done is known, and none of
        them does anything meanwhile.
        """
        with self.lock, self.database.alone() as begun:
            if begun:
                self.catch_up()
            yield

    def catch_up(self) -> None:
        """Take up what other servers have changed."""
        if not self.database.shared:
            return
        with self.lock:
            self._seen, news = self.database.news(self._seen)
            if news is None:
                self._reload()
            for what in news or []:
                if "files" in what:
                    self._files_from_elsewhere(what["files"])
                else:
                    self._take_up(read_changes(what["changes"]))

    def _reload(self) -> None:
        """Read everything anew: there is too much that is not known here."""
        labels, n = np.where(self.skipped, -2, self.label), len(self)
        self._load()
        now = np.where(self.skipped, -2, self.label)[:n]
        self._publish([(int(i), int(labels[i]), int(now[i])) for i in np.flatnonzero(labels != now)])
        for listener in self.listeners_of_files:
            listener({"added": list(range(n, len(self))), "renamed": [], "gone": [], "changed": []})

    def change(self, who: str, text: str, changes: list[Change]) -> int | None:
        """Make changes known by name and number of the action, or None where there is nothing to change."""
        with self.editing():
            if not changes:
                return None
            action = self.journal.add(who, text, changes)
            self._take_up(changes)
            return action

    def undo(self, who: str) -> tuple[Action, list[Change], int]:
        """Take back the last action of this person: the action, the changes made, how many could not be."""
        return self._turn(who, DONE)

    def redo(self, who: str) -> tuple[Action, list[Change], int]:
        return self._turn(who, UNDONE)

    def _turn(self, who: str, state: int) -> tuple[Action, list[Change], int]:
        with self.editing():
            action = self.journal.last(who, state)
            if action is None:
                raise LookupError("there is nothing to undo" if state == DONE else "there is nothing to redo")
            wanted = self.journal.changes(action)
            wanted = inverse(wanted) if state == DONE else wanted
            kept: set[int | None] = set()
            if any(kind == "class" and after is None for kind, _, _, after in wanted):  # that others use it, too
                turned = {key for kind, key, before, _ in wanted if kind == "vote" and before is not None}
                kept = {c for i, said in self.votes.items() for who, (c, _) in said.items() if (i, who) not in turned}
            changes = [c for c in wanted if self._is(c) and not (c[0] == "class" and c[3] is None and c[1] in kept)]
            changes = self.make_files(changes)
            self.journal.apply(action, changes, UNDONE if state == DONE else DONE)
            self._take_up(changes)
            return action, changes, len(wanted) - len(changes)

    def make_files(self, changes: list[Change]) -> list[Change]:
        """Move, copy or remove the files that changes tell of; what cannot be done is left out."""

        def made(kind: str, key: Any, before: Any, after: Any) -> bool:
            if kind == "file":
                return sorting.move_file(self.root, before, after)
            if kind == "export":
                return (
                    sorting.remove_folder(self.root, key)
                    if after is None
                    else sorting.write_folder(self.root, key, *after)
                )
            return True

        return [change for change in changes if made(*change)]

    def _is(self, change: Change) -> bool:
        """Whether things are as they were before a change."""
        kind, key, before, _ = change
        if kind == "vote":
            found = self.votes.get(key[0], {}).get(key[1])
            return found == before if found is None or before is None else found[0] == before[0]
        if kind == "export":
            return sorting.output(self.root, key).exists() == (before is not None)
        now: dict[str, Callable[[Any], Any]] = {
            "class": self.classes.get,
            "kept": self.kept.get,
            "file": self.names.__getitem__,
        }
        return bool(now[kind](key) == before)

    def _take_up(self, changes: list[Change]) -> None:
        touched: dict[int, int] = {}
        for kind, key, _, after in changes:
            if kind == "vote":
                image, who = key
                touched.setdefault(image, int(self.label[image]) if not self.skipped[image] else -2)
                said = self.votes.setdefault(image, {})
                said.pop(who, None)
                if after is not None:
                    said[who] = (after[0], after[1])
                    self._at = max(self._at, after[1])
                if not said:
                    del self.votes[image]
            elif kind == "class":
                self.classes.pop(key, None)
                if after is not None:
                    self.classes[key] = dict(after)
                self._next_class = max(self._next_class, key + 1)
            elif kind == "kept":
                self.kept.pop(key, None)
                if after is not None:
                    self.kept[key] = after
            elif kind == "file":
                self.names[key] = after
        for image in touched:
            self._judge(image)
        news = [(i, old, -2 if self.skipped[i] else int(self.label[i])) for i, old in touched.items()]
        self._publish([(i, old, new) for i, old, new in news if old != new])

    def _publish(self, updates: list[tuple[int, int, int]]) -> None:
        self.version += 1
        for listener in self.listeners:
            listener(updates, self.version)

    # --- labels ------------------------------------------------------------------------------------------------------

    def say(self, who: str, said: Iterable[tuple[int, int | None]]) -> list[Change]:
        """Changes by which a person gives images labels, None to skip them; what stands so already is left."""
        at = self.now()
        changes: list[Change] = []
        for image, label in said:
            before = self.votes.get(image, {}).get(who)
            stands = self.skipped[image] if label is None else self.label[image] == label
            if before is None or before[0] != label or not stands:
                changes.append(("vote", (image, who), before, (label, at)))
        return changes

    def unsay(self, ids: Iterable[int]) -> list[Change]:
        """Changes that take all labels from images."""
        keys = [(image, who) for image in ids for who in self.votes.get(image, {})]
        return [change for key in keys if (change := self.without(key))[2] != change[3]]

    def without(self, key: tuple[int, str]) -> Change:
        """The change that takes a vote back; of a label of the folder it stays known that it was taken back."""
        before = self.votes[key[0]][key[1]]
        after = (None, before[1]) if key[1] in NOBODY else None
        return ("vote", key, before, after)

    # --- classes -----------------------------------------------------------------------------------------------------

    def class_named(self, name: str) -> tuple[int, list[Change]]:
        """The class of this name, and the changes that open it where there is none."""
        name = check_name(name)
        for number, entry in self.classes.items():
            if entry["name"] == name:
                return number, []
        return self.new_class(name)

    def new_class(self, name: str, color: str | None = None, key: str | None = None) -> tuple[int, list[Change]]:
        """Number of a new class, and the change that opens it; its colour and key are free ones unless given."""
        number, self._next_class = self._next_class, self._next_class + 1
        taken = {entry["key"] for entry in self.classes.values()}
        used = [entry["color"] for entry in self.classes.values()]
        entry = {
            "name": name,
            "color": color or min(COLORS, key=used.count),
            "key": key if key is not None else next((k for k in KEYS if k not in taken), None),
            "position": max((e["position"] for e in self.classes.values()), default=-1) + 1,
        }
        return number, [("class", number, None, entry)]

    def listed_classes(self, predicted: dict[int, int] | None = None) -> list[dict[str, Any]]:
        """The classes in their order, each with how many images have it and how many are ``predicted`` to."""
        counts = np.bincount(self.label[(self.label >= 0) & ~self.gone], minlength=1)
        rows = [
            {
                "id": i,
                **entry,
                "count": int(counts[i]) if i < len(counts) else 0,
                "predicted": (predicted or {}).get(i, 0),
            }
            for i, entry in self.classes.items()
        ]
        return sorted(rows, key=lambda row: (row["position"], row["id"]))


def check_name(name: str) -> str:
    """A name that a class may have; it may become a folder."""
    name = " ".join(name.split())
    if not name or len(name) > 100 or not is_class_name(name):
        raise CollectionError(
            f"{name!r} cannot be the name of a class, which may become a folder: at most 100 letters, digits and spaces"
        )
    return name
