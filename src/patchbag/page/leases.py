# SPDX-License-Identifier: BSD-3-Clause
"""Who is being asked for which image, so that nobody is asked what another is looking at.

One server keeps this in memory, for it is nothing to remember; servers that share a database keep it there, and none
of them chooses an image while another one does.
"""

import threading
import time
from collections.abc import Callable

from sqlalchemy import func, or_, select, text

from patchbag.page.database import LOCK, Database, leases

LEASE = 120.0  # seconds for which an image that somebody is asked for is nobody else's

Choose = Callable[[int | None, set[int]], int | None]


class Leases:
    """Leases of one server.  ``people`` : how many persons had one at the latest claim."""

    def __init__(self) -> None:
        self.people = 0
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, float]] = {}  # person: image, until when

    def claim(self, who: str, choose: Choose) -> int | None:
        """The image that ``choose(mine, taken)`` names, for this person from now on: ``mine`` is the one so far, of
        which others have ``taken``.
        """
        with self._lock:
            now = time.monotonic()
            self._held = {person: lease for person, lease in self._held.items() if lease[1] > now}
            mine = self._held.pop(who, (None, 0.0))[0]
            image = choose(mine, {taken for taken, _ in self._held.values()})
            if image is not None:
                self._held[who] = (image, now + LEASE)
            self.people = len(self._held)
            return image

    def release(self, who: str) -> None:
        with self._lock:
            self._held.pop(who, None)


class SharedLeases(Leases):
    """Leases of all servers of a Postgres database, by its clock."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    def claim(self, who: str, choose: Choose) -> int | None:
        # one at a time here, too: many that wait would leave no connection for what ``choose`` reads
        with self._lock, self._database.writing() as connection:
            connection.execute(text("SET LOCAL synchronous_commit = off"))  # a lease that is lost does no harm
            connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK + 2})"))
            now = float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
            held = {row.who: row.image for row in connection.execute(select(leases).where(leases.c.until > now))}
            mine = held.pop(who, None)
            image = choose(mine, set(held.values()))
            connection.execute(leases.delete().where(or_(leases.c.until <= now, leases.c.who == who)))
            if image is not None:
                connection.execute(leases.insert().values(who=who, image=image, until=now + LEASE))
            self.people = len(held) + (image is not None)
            return image

    def release(self, who: str) -> None:
        with self._database.writing() as connection:
            connection.execute(leases.delete().where(leases.c.who == who))
