# SPDX-License-Identifier: BSD-3-Clause
"""Tables of the page: images, classes, what people said, and every change of it.

SQLite (write-ahead log, every commit flushed to the disk) in the folder, or Postgres by its address.  One server has a
database at a time; a second one is refused, for each keeps what it knows in memory.
"""

from __future__ import annotations

import contextlib
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError

VERSION = 1
LOCK = 0x70617463  # of Postgres, for as long as a server runs

metadata = MetaData()
images = Table(
    "images",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", LargeBinary, nullable=False),  # names of files need not be text
    Column("digest", String(40)),
    Column("size", BigInteger),
    Column("modified", BigInteger),
    Column("gone", Boolean, nullable=False),
)
classes = Table(
    "classes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("color", String(7), nullable=False),
    Column("key", Text),
    Column("position", Integer, nullable=False),
)
votes = Table(
    "votes",
    metadata,
    Column("image", Integer, primary_key=True, autoincrement=False),
    Column("who", Text, primary_key=True),
    Column("label", Integer),  # none: skipped
    Column("at", Float(53), nullable=False),
)
actions = Table(
    "actions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("who", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("text", Text, nullable=False),
    Column("images", Integer, nullable=False),
    Column("changes", Text, nullable=False),
    Column("state", Integer, nullable=False),  # 0 done, 1 undone, 2 undone and left behind
    Index("actions_by_person", "who", "state", "id"),
)
curve = Table(
    "curve",
    metadata,
    Column("labels", Integer, primary_key=True, autoincrement=False),
    Column("expected", Float(53)),
    Column("low", Float(53)),
    Column("high", Float(53)),
)
facts = Table("facts", metadata, Column("name", String(40), primary_key=True), Column("value", Text, nullable=False))


class DatabaseError(ValueError):
    """A database that cannot be used."""


class Database:
    """The open database; ``writing()`` is a transaction that is on disk when it ends.

    Parameters
    ----------
    address : of SQLAlchemy, such as sqlite:///labels.sqlite or postgresql://localhost/pictures
    """

    def __init__(self, address: str) -> None:
        self._held = contextlib.ExitStack()
        address = address.replace("postgresql://", "postgresql+psycopg://", 1)
        options = {"connect_args": {"check_same_thread": False}} if address.startswith("sqlite") else {}
        try:
            self.engine: Engine = create_engine(address, **options)
            if self.engine.dialect.name == "sqlite":
                event.listen(self.engine, "connect", _prepare_sqlite)
            self._hold()
            with self.engine.begin() as connection:
                metadata.create_all(connection)
                found = connection.execute(select(facts.c.value).where(facts.c.name == "version")).scalar()
                if found is None:
                    connection.execute(facts.insert().values(name="version", value=str(VERSION)))
                elif int(found) > VERSION:
                    raise DatabaseError(f"{address} was written by a newer patchbag; update this one")
        except (DBAPIError, ImportError) as error:
            self.close()
            reason = error.orig if isinstance(error, DBAPIError) else f"{error}; pip install 'patchbag[postgres]'"
            raise DatabaseError(f"cannot open the database {self.engine_name(address)}: {reason}") from error
        except DatabaseError:
            self.close()
            raise

    @staticmethod
    def engine_name(address: str) -> str:
        """The address without a password."""
        scheme, _, rest = address.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    def _hold(self) -> None:
        """Be the only server of this database."""
        busy = "another patchbag serve has this database open; use its page, or give --db"
        if self.engine.dialect.name == "postgresql":
            connection = self._held.enter_context(self.engine.connect())
            if not connection.execute(text(f"SELECT pg_try_advisory_lock({LOCK})")).scalar():
                raise DatabaseError(busy)
            connection.commit()
            return
        place = self.engine.url.database
        if place and place != ":memory:":
            with contextlib.suppress(ImportError):  # Windows
                import fcntl

                file = self._held.enter_context(open(f"{place}.lock", "w"))  # noqa: SIM115
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    raise DatabaseError(busy) from error

    def writing(self) -> contextlib.AbstractContextManager[Connection]:
        return self.engine.begin()

    def rows(self, statement: Any) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(statement))

    def fact(self, name: str) -> str | None:
        rows = self.rows(select(facts.c.value).where(facts.c.name == name))
        return rows[0][0] if rows else None

    def set_fact(self, name: str, value: str) -> None:
        with self.writing() as connection:
            connection.execute(facts.delete().where(facts.c.name == name))
            connection.execute(facts.insert().values(name=name, value=value))

    def close(self) -> None:
        self._held.close()
        if hasattr(self, "engine"):  # its driver may not be installed
            self.engine.dispose()


def _prepare_sqlite(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # an answer is acknowledged only when it is on disk
    cursor.execute("PRAGMA busy_timeout=30000")
    cursor.close()
