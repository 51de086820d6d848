"""The page is killed (SIGKILL) while labels arrive, at random moments, or while it opens: acknowledged labels stay.

All cases of a process have one folder, so that what one kill leaves is what the next one finds.  A case lets two people
label over HTTP for a while, kills the server, starts it again and looks: the page opens; every image has the label that
was acknowledged last, or the one that was under way; nobody's word is there twice; there are as many actions as were
acknowledged, or up to as many as were sent; the database is whole.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent)]

import campaign  # noqa: E402
import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

IMAGES = 12
CLASSES = 4
PEOPLE = ("Ann", "Bo")
LABELS = (0, 1, 3, 10)  # that are acknowledged before a kill, at least
WHILE = 0.03  # seconds then, at most
PATIENCE = 300.0  # seconds for an answer, of a machine that has other things to do
OPENS = 0.1  # share of the kills that come before the page is open


class Server:
    """A page in a process of its own, forked from this one, which has everything imported."""

    def __init__(self, root: Path) -> None:
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        self.port = listening.getsockname()[1]
        alive, self._held = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            os.close(self._held)
            try:
                serve(root, listening, alive)
            finally:
                os._exit(3)
        os.close(alive)
        listening.close()

    def call(self, method: str, path: str, body: object = None, who: str = "") -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            headers = {"content-type": "application/json", "x-person": who}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            reply = connection.getresponse()
            content = reply.read()
            if reply.status != 200:
                raise RuntimeError(f"{path}: {reply.status} {content[:200]!r}")
            return json.loads(content) if path.startswith("/api") else content

    def kill(self) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._held)


def open_page(root: Path) -> Any:
    from patchbag.page.session import Page

    vectors = (np.eye(8)[np.arange(IMAGES) % 3] + 0.1).astype(np.float32)
    return Page(root, vectors=vectors, watch=False, store=root / ".patchbag" / "store", jobs=1)


def serve(root: Path, listening: socket.socket, alive: int) -> None:
    import uvicorn

    from patchbag.page.app import create_app

    # whoever started it may be killed, too
    threading.Thread(target=lambda: os._exit(0 if os.read(alive, 1) else 1), daemon=True).start()
    uvicorn.Server(uvicorn.Config(create_app(open_page(root)), log_level="critical")).run(sockets=[listening])


class Labels:
    """What was sent and acknowledged: ``may (person, image)`` are the classes that may stand there."""

    def __init__(self) -> None:
        self.may: dict[tuple[str, int], set[str | None]] = {(w, i): {None} for w in PEOPLE for i in range(IMAGES)}
        self.sent = self.acknowledged = 0

    def send(self, server: Server, who: str, rng: random.Random) -> None:
        """Label until the server is gone."""
        while True:
            image, label = rng.randrange(IMAGES), f"class {rng.randrange(CLASSES)}"
            if self.may[who, image] == {label}:
                continue
            self.may[who, image] = self.may[who, image] | {label}
            self.sent += 1
            try:
                server.call("POST", "/api/labels", {"ids": [image], "name": label}, who)
            except (OSError, http.client.HTTPException):
                return
            self.may[who, image] = {label}
            self.acknowledged += 1

    def check(self, server: Server, root: Path) -> None:
        assert b"patchbag" in server.call("GET", "/")
        names = {row["id"]: row["name"] for row in server.call("GET", "/api/classes")["classes"]}
        assert len(set(names.values())) == len(names) <= CLASSES, f"classes twice: {names}"
        ids = ",".join(map(str, range(IMAGES)))
        for image in server.call("GET", f"/api/images/details?ids={ids}")["images"]:
            said = [(vote["who"], names[vote["label"]]) for vote in image["votes"]]
            assert len(dict(said)) == len(said), f"twice: {said}"
            for who in PEOPLE:
                found, may = dict(said).get(who), self.may[who, image["id"]]
                assert found in may, f"{who} said one of {may} of image {image['id']}, found {found}"
                self.may[who, image["id"]] = {found}
            assert image["label"] is None or names[image["label"]] in dict(said).values()
        with contextlib.closing(sqlite3.connect(root / ".patchbag" / "page.sqlite")) as database:
            (actions,) = database.execute("SELECT count(*) FROM actions").fetchone()
            (whole,) = database.execute("PRAGMA integrity_check").fetchone()
        assert self.acknowledged <= actions <= self.sent, f"{actions} actions of {self.acknowledged}, {self.sent} sent"
        assert whole == "ok", whole


def prepare() -> campaign.Case:
    import uvicorn

    import patchbag.page.app

    assert uvicorn and patchbag.page.app  # imported before the forks, too
    place = tempfile.TemporaryDirectory()
    root = Path(place.name) / "photos"
    root.mkdir()
    for i in range(IMAGES):
        Image.new("L", (8, 8), 20 * i).save(root / f"{i:03d}.png")
    page = open_page(root)  # what is imported and compiled when it opens is so before the forks
    page.start()
    while not page.model.ready:
        time.sleep(0.01)
    page.stop()
    labels, running = Labels(), [Server(root)]

    def case(seed: int) -> str:
        rng = random.Random(seed)
        assert place  # as long as there are cases
        server, before = running.pop(), labels.acknowledged
        seeds = [random.Random(rng.random()) for _ in PEOPLE]
        people = [threading.Thread(target=labels.send, args=(server, w, r)) for w, r in zip(PEOPLE, seeds)]
        for person in people:
            person.start()
        wanted = before + rng.choice(LABELS)
        while labels.acknowledged < wanted and any(person.is_alive() for person in people):
            time.sleep(0.001)
        time.sleep(rng.random() * WHILE)
        server.kill()
        for person in people:
            person.join()
        early = rng.random() < OPENS
        if early:
            opening = Server(root)
            time.sleep(rng.random() * 0.3)
            opening.kill()
        running.append(Server(root))
        labels.check(running[0], root)
        return (
            f"killed{', then while it opened' if early else ''}{'' if labels.acknowledged > before else ', no label'}"
        )

    return case


if __name__ == "__main__":
    campaign.main(__file__, prepare)
