"""A server on a small folder, and a browser that is driven as a person would: keys, mouse, drops.

Chromium is the one of the system; where continuous integration has none the tests fail instead of being skipped.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import httpx
import pytest
import uvicorn
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from patchbag.page import create_app

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
expect.set_options(timeout=30_000)  # of a machine that has other things to do
BROKEN = "zz <img src=x onerror=alert(1)>.png"


@pytest.fixture(scope="module")
def chromium():
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        message = f"no browser among {', '.join(NAMES)}: apt-get install chromium"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Site:
    """A page that is being served: its address, its folder, and its API."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = uvicorn.Config(create_app(folder), host="127.0.0.1", port=0, log_level="error", ws="none")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive(), "the server did not start"
            time.sleep(0.02)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.api = httpx.Client(base_url=f"{self.url}/api", headers={"Content-Type": "application/json"}, timeout=60)
        self.wait(lambda: self.state()["described"] == self.state()["images"] - self.state()["broken"])
        self.wait(lambda: self.api.get("/ask").json()["image"])
        self.api.post("/ask/release", json={})
        self.names = {image["id"]: image["name"] for image in self.details(self.ids(filter="broken") + self.ids())}

    def wait(self, done, seconds=180):
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, f"not done after {seconds} s: {self.state()}"
            time.sleep(0.05)

    def state(self):
        return self.api.get("/state").json()

    def ids(self, **query):
        return self.api.get("/images", params=query).json()["ids"]

    def details(self, ids):
        return self.api.get("/images/details", params={"ids": ",".join(map(str, ids))}).json()["images"]

    def label_of(self, image):
        return self.details([image])[0]["label"]

    def labels(self):
        """Name of an image → name of its class."""
        images = self.details(list(self.names))  # first: a class is there before its images
        classes = {one["id"]: one["name"] for one in self.state()["classes"]}
        return {d["name"]: classes.get(d["label"]) for d in images if d["label"] is not None}

    def truth(self, image):
        return self.names[image].split("_")[0]

    def teach(self, per_class=4):
        """Labels for the first images of each class, and a model that has learned them."""
        for name in sorted({self.truth(i) for i in self.ids()}):
            ids = [i for i in self.ids() if self.truth(i) == name][:per_class]
            self.api.post("/labels", json={"ids": ids, "name": name}).raise_for_status()
        known = self.state()["labelled"]
        self.wait(lambda: self.state()["model"]["n_labels"] == known)
        self.wait(self.settled)

    def settled(self):
        """Whether everything that is learned is predicted, too."""
        return self.api.get("/columns").json()["model"] == self.api.get("/images").json()["model"]

    def forget(self):
        """No labels, no classes, nothing set aside."""
        for one in self.state()["classes"]:
            self.api.delete(f"/classes/{one['id']}").raise_for_status()
        if skipped := self.ids(filter="skipped"):
            self.api.post("/labels", json={"ids": skipped, "name": "x"})
            self.api.delete(f"/classes/{self.state()['classes'][0]['id']}")

    def stop(self):
        self.api.close()
        self.server.should_exit = True
        self.thread.join(20)


@pytest.fixture(scope="module")
def site(tmp_path_factory, textures):
    folder = tmp_path_factory.mktemp("page") / "pictures"
    folder.mkdir()
    for i, (image, label) in enumerate(zip(*textures)):
        Image.fromarray(image).resize((144, 96)).save(folder / f"{label}_{i:02d}.png")
    (folder / BROKEN).write_bytes(b"no picture")
    site = Site(folder)
    yield site
    site.stop()


@pytest.fixture(params=["light", "dark"])
def page(request, chromium, site):
    """An empty tab in light or dark colours; what goes wrong in it fails the test."""
    site.forget()
    context = chromium.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme=request.param, accept_downloads=True
    )
    tab = context.new_page()
    tab.set_default_timeout(30_000)
    wrong = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    tab.on("dialog", lambda dialog: (wrong.append(f"a script ran: {dialog.message}"), dialog.dismiss()))
    tab.on("request", lambda sent: wrong.append(sent.url) if not sent.url.startswith((site.url, "blob:")) else None)
    yield tab
    context.close()
    assert not wrong


@pytest.fixture
def until(page):
    """Wait until an expression holds in the page (its policy forbids the driver's own way, which is eval)."""

    def wait(expression, argument=None, seconds=30):
        end = time.monotonic() + seconds
        while not page.evaluate(expression, argument):
            assert time.monotonic() < end, f"never true: {expression}"
            page.wait_for_timeout(20)

    return wait


@pytest.fixture
def visit(page, site):
    """Open a view and wait until it is there."""

    def go(view):
        page.goto(f"{site.url}/#/{view}")
        page.wait_for_selector(f"main.view-{view.split('/')[0].split('?')[0]}")
        return page

    return go
