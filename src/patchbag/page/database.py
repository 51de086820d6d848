# SPDX-License-Identifier: BSD-3-Clause
"""Tables of the page: images, classes, what people said, and every change of it.

SQLite (write-ahead log, every commit flushed to the disk) in the folder, or Postgres by its address.

A file of SQLite is that of one server; a second one is refused, for each keeps what it knows in memory.  Servers of the
same folder can share a Postgres database: every transaction leaves a row of ``news`` with what it changed, which the
others read when they are notified, and again before they change anything themselves, one at a time.
"""

import contextlib
import json
import re
import secrets
import threading
from collections.abc import Iterator
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
    func,
    select,
    text,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

VERSION = 2
LOCK = 0x70617463  # of Postgres: while a server runs; + 1 while one changes something, + 2 while one asks
CHANNEL = "patchbag"
NEWS = 2000  # rows of news that are kept; who is further behind reads everything anew
WAIT = 1.0  # seconds after which a server looks for news that it was not told of

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
kept = Table(  # labels that the model disagrees with and that are right all the same
    "kept",
    metadata,
    Column("image", Integer, primary_key=True, autoincrement=False),
    Column("label", Integer, nullable=False),
)
leases = Table(
    "leases",
    metadata,
    Column("who", Text, primary_key=True),
    Column("image", Integer, nullable=False),
    Column("until", Float(53), nullable=False),
)
news = Table(
    "news",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("server", String(16), nullable=False),
    Column("what", Text, nullable=False),
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
        self._alone = 0
        self.server = secrets.token_hex(8)
        if not re.match(r"(sqlite|postgresql)(\+\w+)?://", address):
            raise DatabaseError(
                f"a database is given as sqlite:///FILE or postgresql://SERVER/NAME, got {self.engine_name(address)}"
            )
        address = address.replace("postgresql://", "postgresql+psycopg://", 1)
        file = address.startswith("sqlite")
        options: dict[str, Any] = {"connect_args": {"check_same_thread": False}} if file else {"pool_pre_ping": True}
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
                elif int(found) < VERSION:
                    connection.execute(update(facts).where(facts.c.name == "version").values(value=str(VERSION)))
        except (SQLAlchemyError, ImportError) as error:
            self.close()
            reason = getattr(error, "orig", error)
            if isinstance(error, ImportError):
                reason = f"{error}; pip install 'patchbag[postgres]'"
            raise DatabaseError(f"cannot open the database {self.engine_name(address)}: {reason}") from error
        except DatabaseError:
            self.close()
            raise

    @staticmethod
    def engine_name(address: str) -> str:
        """The address without a password."""
        scheme = address[: address.find("://") + 3] if "://" in address else ""
        return scheme + address.removeprefix(scheme).rpartition("@")[2]

    @property
    def shared(self) -> bool:
        """Whether other servers may write to it."""
        return self.engine.dialect.name == "postgresql"

    def _hold(self) -> None:
        """Be the only server of a file; of Postgres, one of those that share it."""
        busy = "another patchbag serve has this database open; use its page, or give --db"
        if self.shared:  # beside others of its kind, but not beside one that holds the lock alone
            connection = self._held.enter_context(self.engine.connect())
            if not connection.execute(text(f"SELECT pg_try_advisory_lock_shared({LOCK})")).scalar():
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

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """No other server changes anything meanwhile; whoever calls holds the lock of the album.  True where it begins
        to be so, and there may be news.
        """
        if not self.shared or self._alone:
            yield False
            return
        with self.engine.connect() as connection:
            connection.execute(text(f"SELECT pg_advisory_lock({LOCK + 1})"))
            self._alone += 1
            try:
                yield True
            finally:
                self._alone -= 1
                connection.execute(text(f"SELECT pg_advisory_unlock({LOCK + 1})"))

    def tell(self, connection: Connection, what: dict[str, Any]) -> None:
        """Leave news for other servers, in a transaction of :meth:`alone`."""
        if self.shared:
            number = connection.execute(select(func.coalesce(func.max(news.c.id), 0) + 1)).scalar_one()
            connection.execute(news.insert().values(id=number, server=self.server, what=json.dumps(what)))
            connection.execute(news.delete().where(news.c.id <= number - NEWS))
            connection.execute(select(func.pg_notify(CHANNEL, self.server)))

    def latest(self) -> int:
        """Number of the latest news."""
        return int(self.rows(select(func.coalesce(func.max(news.c.id), 0)))[0][0])

    def news(self, seen: int) -> tuple[int, list[dict[str, Any]] | None]:
        """What other servers changed after the news with the number ``seen``, None where that is not known any more;
        and the number of the latest.
        """
        rows = self.rows(select(news).where(news.c.id > seen).order_by(news.c.id))
        if not rows:
            return seen, []
        if rows[0].id != seen + 1:
            return int(rows[-1].id), None
        return int(rows[-1].id), [json.loads(row.what) for row in rows if row.server != self.server]

    def listen(self, stop: threading.Event) -> Iterator[None]:
        """A turn whenever another server may have changed something."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.detach()  # it is not for anybody else, and closed at the end
            connection.execute(text(f"LISTEN {CHANNEL}"))
            driver: Any = connection.connection.dbapi_connection
            while not stop.is_set():
                yield
                for _ in driver.notifies(timeout=WAIT, stop_after=1):
                    pass

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
