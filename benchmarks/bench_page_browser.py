# SPDX-License-Identifier: BSD-3-Clause
"""The page in a browser: a gallery of 100,000 images, and the time from an answer to the next question.

    python benchmarks/bench_page_browser.py gallery
    python benchmarks/bench_page_browser.py ask [--images 5000] [--labels 600]      # and --images 100000

``gallery`` serves the front end with made-up answers, so that it is the browser that is measured: first thumbnails,
jumps to any place until all thumbnails there are shown, memory of the tab.  ``ask`` runs the real page, in a process of
its own, on images with made vectors (see bench_page) and answers 100 questions: from the click to the next picture,
decoded and shown.  Chromium is the system's.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import numpy as np
from bench_page import HOLDER, cpu_seconds, made
from PIL import Image, ImageDraw
from playwright.sync_api import Page, sync_playwright

from patchbag.page import PageClient
from patchbag.page.app import STATIC

TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
SHOWN = """() => {
  const box = document.querySelector('.grid').getBoundingClientRect();
  const seen = [...document.querySelectorAll('.grid .tile')].filter((tile) => {
    const at = tile.getBoundingClientRect();
    return at.bottom > box.top && at.top < box.bottom;
  });
  return seen.length > 5 && seen.every((tile) => tile.firstChild.classList.contains('ready'));
}"""

JUMP = """(place) => new Promise((done) => {
  const begun = performance.now(), shown = SHOWN;
  document.querySelector('.grid').scrollTo(0, place);
  const look = () => (shown() ? done(performance.now() - begun) : requestAnimationFrame(look));
  requestAnimationFrame(() => requestAnimationFrame(look));
})""".replace("SHOWN", SHOWN)

FRAMES = """() => new Promise((done) => {
  const grid = document.querySelector('.grid'), took = [];
  let last = performance.now(), left = 180;
  const step = (now) => {
    took.push(now - last);
    last = now;
    grid.scrollTop += 60;
    if (left--) requestAnimationFrame(step);
    else done(took);
  };
  requestAnimationFrame(step);
})"""


def spread(times: list[float], unit: str = "ms") -> str:
    return f"median {statistics.median(times):.0f} {unit}, 95 % {sorted(times)[int(0.95 * len(times))]:.0f} {unit}"


class MadeUp(BaseHTTPRequestHandler):
    """As many images as asked for, of a few colours."""

    protocol_version = "HTTP/1.1"
    total = 100_000
    thumbs: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if url.path.startswith("/static") or url.path == "/":
            path = STATIC / (url.path.removeprefix("/static/") if url.path != "/" else "index.html")
            self.reply(path.read_bytes(), TYPES[path.suffix])
        elif url.path.endswith("/thumb"):
            self.reply(self.thumbs[int(url.path.split("/")[3]) % len(self.thumbs)], "image/jpeg", "max-age=31536000")
        else:
            self.reply(json.dumps(self.answer(url.path.removeprefix("/api"), query)).encode(), "application/json")

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        if path == "/images":
            return {"ids": list(range(self.total)), "total": self.total, "groups": None, "version": 1, "model": 1}
        if path == "/images/details":
            ids = [int(i) for i in query["ids"][0].split(",")]
            some = {str(i): base64.b64encode(self.thumbs[i % len(self.thumbs)]).decode() for i in ids}
            return {"images": [self.image(i) for i in ids], "thumbs": some if "thumbs" in query else {}}
        kinds = [{"id": i, "name": f"class {i}", "color": "#2b66b1", "key": str(i + 1), "count": 9} for i in range(9)]
        return {"images": self.total, "labelled": 9, "broken": 0, "me": "me", "folder": "made up", "classes": kinds}

    def image(self, i: int) -> dict[str, Any]:
        empty = dict.fromkeys(("label", "doubt", "width", "height", "broken"))
        said = {"skipped": False, "votes": [], "disagreement": False, "gone": False, "predicted": i % 9}
        return {"id": i, "name": f"{i:06d}.jpg", "v": str(i), "probability": 0.9, **empty, **said}

    def reply(self, body: bytes, kind: str, cache: str = "no-store") -> None:
        self.send_response(200)
        for name, value in (("content-type", kind), ("content-length", str(len(body))), ("cache-control", cache)):
            self.send_header(name, value)
        with contextlib.suppress(ConnectionError):  # a picture that scrolled away is not waited for
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """A picture that scrolled away is not waited for: connections that end early are no errors."""

    def handle_error(self, *_: Any) -> None:
        pass


def make_pictures(n: int, size: tuple[int, int]) -> list[bytes]:
    """JPEGs with some detail, about as large as those of photographs."""
    draw_from, made = random.Random(0), []
    for _ in range(n):
        image = Image.effect_noise(size, 40).convert("RGB")
        pen = ImageDraw.Draw(image)
        for _ in range(6):
            corner = draw_from.randrange(size[0]), draw_from.randrange(size[1])
            pen.ellipse((*corner, corner[0] + 90, corner[1] + 70), fill=tuple(draw_from.choices(range(256), k=3)))
        file = io.BytesIO()
        image.save(file, "JPEG", quality=75)
        made.append(file.getvalue())
    return made


def until(page: Page, expression: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        if time.monotonic() > end:
            raise TimeoutError(expression)
        page.wait_for_timeout(15)


def gallery(page: Page, jumps: int = 100) -> None:
    MadeUp.thumbs = make_pictures(400, (256, 192))
    server = Server(("127.0.0.1", 0), MadeUp)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page.goto(f"http://127.0.0.1:{server.server_port}/static/icon.svg")  # the browser itself is warm
    start = time.perf_counter()
    page.goto(f"http://127.0.0.1:{server.server_port}/#/gallery", wait_until="commit")
    page.wait_for_selector(".tile img.ready")
    first = time.perf_counter() - start
    until(page, SHOWN)
    whole = time.perf_counter() - start
    height = page.evaluate("document.querySelector('.grid').scrollHeight")
    times: list[float] = []
    before = tab(page)[1]
    for _ in range(jumps):
        times.append(page.evaluate(JUMP, random.Random(len(times)).random() * height))
        page.wait_for_timeout(300)  # a person looks at them
    work = (tab(page)[1] - before) / jumps
    frames = page.evaluate(FRAMES)
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable")
    heap = {m["name"]: m["value"] for m in client.send("Performance.getMetrics")["metrics"]}
    print(f"gallery of {MadeUp.total:,}: first thumbnail {first * 1e3:.0f} ms, first screen {whole * 1e3:.0f} ms")
    print(f"jump to any place: {spread(times)}; {1e3 * work:.0f} ms of a processor in the tab")
    print(f"frames while scrolling: {spread(frames)}")
    print(f"memory: JavaScript {heap['JSHeapUsedSize'] / 2**20:.0f} MiB, tab {tab(page)[0]:.0f} MiB")
    server.shutdown()


def tab(page: Page) -> tuple[float, float]:
    """Private memory in MiB and seconds of processor time of the largest renderer."""
    browser = page.context.browser
    assert browser is not None
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    found = [(0.0, 0.0)]
    for process in processes:
        if process["type"] == "renderer":
            status = Path(f"/proc/{process['id']}/status").read_text()
            line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
            found.append((int(line.split()[1]) / 1024, process["cpuTime"]))
    return max(found)


def ask(page: Page, n_images: int, n_labels: int, questions: int = 100, port: int = 8197) -> None:
    X, y = made(n_images)
    with tempfile.TemporaryDirectory() as root:
        for i, picture in enumerate(make_pictures(50, (640, 480))):
            Path(f"{root}/first{i}").write_bytes(picture)
        for i in range(n_images):
            os.link(f"{root}/first{i % 50}", f"{root}/{i:06d}.jpg")
        os.makedirs(f"{root}/.patchbag")
        np.save(f"{root}/.patchbag/vectors.npy", X)
        del X
        server = subprocess.Popen([sys.executable, "-c", HOLDER, root, f"{root}/.patchbag/vectors.npy", str(port)])
        try:
            answer_all(page, port, y, n_labels, questions, server.pid)
        finally:
            server.kill()
            server.wait()


def answer_all(page: Page, port: int, y: np.ndarray, n_labels: int, questions: int, server: int) -> None:
    client = PageClient(f"http://127.0.0.1:{port}")
    while True:
        try:
            client.wait()
            break
        except OSError:
            time.sleep(0.2)
    first = np.random.default_rng(1).permutation(len(y))[:n_labels]
    labels = "".join(f"{i:06d}.jpg,class {y[i]:02d}\n" for i in first)  # in one go: the pool is made anew for them once
    client.post("import/csv", f"image,label\n{labels}".encode())
    settled(client)
    page.goto(f"http://127.0.0.1:{port}/#/ask")
    before = cpu_seconds(server)
    for _ in range(questions):
        page.wait_for_selector(".asked[data-id]")
        image = int(page.locator(".asked").get_attribute("data-id") or -1)
        page.locator(".pick", has_text=f"class {y[image]:02d}").evaluate("one => one.click()")
        page.wait_for_selector(f'.asked[data-id]:not([data-id="{image}"])')
        page.wait_for_timeout(700)  # a person looks at the image
    times = page.evaluate("performance.getEntriesByName('answer to next question').map(one => one.duration)")
    work = (cpu_seconds(server) - before) / questions
    print(f"{len(y):,} images, {n_labels} labels, answer to next question in the browser: {spread(times)}")
    print(f"{1e3 * work:.0f} ms of processors in the server per answer, all that comes after it included")


def settled(client: PageClient) -> None:
    """Wait until labels are learned and predicted, and nothing is under way."""
    while client.get("columns")["model"] != client.get("images")["model"] or client.state()["stage"]:
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["gallery", "ask"])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--labels", type=int, default=600)
    given = parser.parse_args()
    with sync_playwright() as driver:
        path = shutil.which("chromium")
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        if given.what == "gallery":
            gallery(page)
        else:
            ask(page, given.images, given.labels)
        browser.close()


if __name__ == "__main__":
    main()
