"""Labels arrive, the server is killed (-9) at a random moment and started again; what was acknowledged must be there.

    python tests/page/kills.py 1000

Every round starts a server (a fork of this process, which has everything imported), looks whether each image has the
label that was acknowledged last, sends labels from two threads, and kills.  A label that was under way may be there or
not.  At the end there are as many actions in the database as were acknowledged, or a few more that were under way.
"""

from __future__ import annotations

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

sys.path[:0] = [str(Path(__file__).parents[1])]

import uvicorn  # noqa: E402

from page.pages import made_page, make_folder  # noqa: E402
from patchbag.page.app import create_app  # noqa: E402

IMAGES = 24
CLASSES = 4


def serve(root: Path, listening: socket.socket) -> None:
    """The child: serves until it is killed."""
    page = made_page(root, IMAGES)
    uvicorn.Server(uvicorn.Config(create_app(page), log_level="error")).run(sockets=[listening])


def call(port: int, method: str, path: str, body: object = None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        headers = {"content-type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        reply = connection.getresponse()
        content = reply.read()
        return json.loads(content) if reply.status == 200 else None
    finally:
        connection.close()


class Sender(threading.Thread):
    """Labels its own share of the images, one after the other."""

    def __init__(self, port: int, share: range, expected: dict[int, set], rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.port, self.share, self.expected, self.rng = port, share, expected, rng
        self.acknowledged = self.sent = 0

    def run(self) -> None:
        while True:
            image, label = self.rng.choice(self.share), f"class {self.rng.randrange(CLASSES)}"
            if self.expected[image] == {label}:
                continue
            self.expected[image] = self.expected[image] | {label}
            self.sent += 1
            try:
                if call(self.port, "POST", "/api/labels", {"ids": [image], "name": label}) is None:
                    return
            except (OSError, http.client.HTTPException):
                return
            self.expected[image] = {label}
            self.acknowledged += 1


def main(rounds: int, seed: int = 0) -> None:
    rng = random.Random(seed)
    expected: dict[int, set] = {i: {None} for i in range(IMAGES)}
    acknowledged = sent = 0
    started = time.time()
    with tempfile.TemporaryDirectory() as folder:
        root = make_folder(Path(folder) / "photos", IMAGES)
        for number in range(rounds + 1):
            listening = socket.socket()
            listening.bind(("127.0.0.1", 0))
            listening.listen(16)
            port = listening.getsockname()[1]
            child = os.fork()
            if child == 0:
                serve(root, listening)
                os._exit(0)
            listening.close()
            try:
                images = call(port, "GET", "/api/images/details?ids=" + ",".join(map(str, range(IMAGES))))["images"]
                names = {row["id"]: row["name"] for row in call(port, "GET", "/api/classes")["classes"]}
                for image in images:
                    assert names.get(image["label"]) in expected[image["id"]], (number, image, expected[image["id"]])
                    assert len(image["votes"]) <= 1
                    expected[image["id"]] = {names.get(image["label"])}
                if number == rounds:
                    break
                half = IMAGES // 2
                shares = (range(half), range(half, IMAGES))
                senders = [Sender(port, share, expected, random.Random(rng.random())) for share in shares]
                for sender in senders:
                    sender.start()
                time.sleep(rng.uniform(0, 0.25))
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            for sender in senders:
                sender.join()
            acknowledged += sum(sender.acknowledged for sender in senders)
            sent += sum(sender.sent for sender in senders)
            if number % 100 == 99:
                print(
                    f"{number + 1} kills, {acknowledged} labels acknowledged, {time.time() - started:.0f} s", flush=True
                )
        with sqlite3.connect(root / ".patchbag" / "page.sqlite") as database:
            (actions,) = database.execute("SELECT count(*) FROM actions WHERE who = 'me'").fetchone()
            (check,) = database.execute("PRAGMA integrity_check").fetchone()
    assert acknowledged <= actions <= sent and check == "ok", (acknowledged, actions, sent, check)
    print(
        f"{rounds} kills: {acknowledged} acknowledged labels, all there; {actions - acknowledged} more were under way"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
