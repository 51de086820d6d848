# SPDX-License-Identifier: BSD-3-Clause
"""What was done, so that all of it can be undone: every action is a list of changes, each with before and after.

    ("vote", (image, who), before, after)    a label and when it was given; None for none
    ("class", id, before, after)             name, color, key, position; None where there is no such class
    ("kept", image, before, after)           the label that is right although the model disagrees; None for none
    ("file", image, before, after)           its path in the folder
    ("export", name, before, after)          a folder of the output: how, and from where to where

An action, and the changes it makes, are one transaction.  To undo it is to make the changes the other way round, where
things still are as it left them; what somebody has changed since is left alone and counted.
"""

import json
import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, bindparam, func, select, update

from patchbag.page.database import Database, actions, classes, images, kept, votes

Change = tuple[str, Any, Any, Any]
DONE, UNDONE, LEFT_BEHIND = 0, 1, 2


class Action(NamedTuple):
    """An action of somebody; its changes are read when they are needed."""

    id: int
    who: str
    at: float
    text: str
    images: int
    state: int


class Journal:
    """The actions of a database.  Whoever writes is ``Album.editing``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, who: str, text: str, changes: list[Change]) -> int:
        """Make the changes and note them; returns the number of the action when all of it is on disk."""
        row: dict[str, Any] = {"who": who, "at": time.time(), "text": text, "state": DONE}
        row |= {"images": len(touched_images(changes)), "changes": json.dumps(changes)}
        with self._database.writing() as connection:
            row["id"] = connection.execute(select(func.coalesce(func.max(actions.c.id), -1) + 1)).scalar_one()
            _write(connection, changes)
            self._database.tell(connection, {"changes": changes})
            behind = and_(actions.c.who == who, actions.c.state == UNDONE)
            connection.execute(update(actions).where(behind).values(state=LEFT_BEHIND))
            connection.execute(actions.insert().values(row))
        return int(row["id"])

    def apply(self, action: Action, changes: list[Change], state: int) -> None:
        """Make the changes of undoing or redoing an action."""
        with self._database.writing() as connection:
            _write(connection, changes)
            self._database.tell(connection, {"changes": changes})
            connection.execute(update(actions).where(actions.c.id == action.id).values(state=state))

    def last(self, who: str, state: int) -> Action | None:
        """The action that this person would undo (the last one done), or redo (the first one undone)."""
        order = actions.c.id.desc() if state == DONE else actions.c.id
        found = self._list(and_(actions.c.who == who, actions.c.state == state), order, 1)
        return found[0] if found else None

    def latest(self, limit: int) -> list[Action]:
        return self._list(actions.c.state != LEFT_BEHIND, actions.c.id.desc(), limit)

    def _list(self, condition: Any, order: Any, limit: int) -> list[Action]:
        columns = (actions.c[name] for name in Action._fields)
        return [
            Action(*row) for row in self._database.rows(select(*columns).where(condition).order_by(order).limit(limit))
        ]

    def classes(self) -> set[int]:
        """Numbers of classes that some action made or changed."""
        rows = self._database.rows(select(actions.c.changes).where(actions.c.changes.like('%["class", %')))
        return {change[1] for row in rows for change in json.loads(row[0]) if change[0] == "class"}

    def changes(self, action: Action) -> list[Change]:
        """The changes of an action, in the order in which they were made."""
        (row,) = self._database.rows(select(actions.c.changes).where(actions.c.id == action.id))
        return read_changes(json.loads(row[0]))


def read_changes(found: list[Any]) -> list[Change]:
    """Changes out of JSON, which has no tuples."""
    return [(kind, tuple(key) if kind == "vote" else key, before, after) for kind, key, before, after in found]


def touched_images(changes: list[Change]) -> list[int]:
    """Images that changes are of, each once."""
    found = (key[0] if kind == "vote" else key for kind, key, _, _ in changes if kind in ("vote", "kept", "file"))
    return list(dict.fromkeys(found))


def inverse(changes: list[Change]) -> list[Change]:
    """The changes that take back these."""
    return [(kind, key, after, before) for kind, key, before, after in reversed(changes)]


def _write(connection: Connection, changes: list[Change]) -> None:
    said = [(key, after) for kind, key, _, after in changes if kind == "vote"]
    if said:
        mine = and_(votes.c.image == bindparam("i"), votes.c.who == bindparam("w"))
        connection.execute(votes.delete().where(mine), [{"i": image, "w": who} for (image, who), _ in said])
    new = [{"image": i, "who": who, "label": after[0], "at": after[1]} for (i, who), after in said if after is not None]
    if new:
        connection.execute(votes.insert(), new)
    for kind, key, _, after in changes:
        if kind == "class":
            connection.execute(classes.delete().where(classes.c.id == key))
            if after is not None:
                connection.execute(classes.insert().values(id=key, **after))
        elif kind == "kept":
            connection.execute(kept.delete().where(kept.c.image == key))
            if after is not None:
                connection.execute(kept.insert().values(image=key, label=after))
        elif kind == "file":
            connection.execute(update(images).where(images.c.id == key).values(name=name_bytes(after)))


def name_bytes(name: str) -> bytes:
    """The name of a file as it is on disk."""
    return name.encode("utf-8", "surrogateescape")
