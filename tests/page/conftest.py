"""Pages for tests: real servers, on a port of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from page.pages import made_page, make_folder, settled
from patchbag.page.app import create_app


def schema_check(app):
    """A hook of a client: every JSON answer is what the document of the API says."""
    routes = [(route.path_regex, route) for route in api_routes(app)]

    def check(reply):
        if reply.is_success and reply.headers.get("content-type") == "application/json":
            path = reply.request.url.path
            found = [r for pattern, r in routes if pattern.match(path) and reply.request.method in r.methods]
            if found and found[0].response_model is not None:
                TypeAdapter(found[0].response_model).validate_json(reply.read(), strict=True)

    return check


def api_routes(app):
    return [route for route in app.routes if isinstance(route, APIRoute) and route.include_in_schema]


@contextmanager
def opened(page, **options):
    """A client of a page that is served in this process."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    app = create_app(page, **options)
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    port = listening.getsockname()[1]
    try:
        hooks = {"response": [schema_check(app)]}
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False, event_hooks=hooks
        ) as client:
            end = time.time() + 30
            while not (server.started and page.model.ready):
                assert time.time() < end
                time.sleep(0.005)
            client.page, client.port = page, port
            yield client
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "photos")


@pytest.fixture
def client(folder):
    with opened(made_page(folder)) as client:
        yield client


@pytest.fixture
def taught(client):
    """A page on which half of the images have a label."""
    for c, name in enumerate(("beach", "coast", "forest")):
        client.post("/api/labels", json={"ids": list(range(c, 30, 3)), "name": name})
    assert settled(client.page)
    return client


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """A server of its own, where one is installed."""
    pytest.importorskip("psycopg")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    tools = found[-1].parent if found else Path(shutil.which("initdb") or "").parent
    if not (tools / "initdb").is_file() or not (tools / "postgres").is_file():
        pytest.skip("there is no Postgres on this machine")
    place = tmp_path_factory.mktemp("postgres")
    user = []
    if os.getuid() == 0:  # Postgres does not run as root
        if shutil.which("runuser") is None or shutil.which("postgres") is None:
            pytest.skip("Postgres does not run as root")
        shutil.chown(place, "postgres")
        for above in place.parents[:3]:
            above.chmod(0o755)
        user = ["runuser", "-u", "postgres", "--"]
    run = {"cwd": place, "check": True, "capture_output": True}
    subprocess.run([*user, tools / "initdb", "-D", place / "data", "-U", "patchbag", "-A", "trust", "--no-sync"], **run)
    options = ["-k", str(place), "-c", "listen_addresses=", "-c", "fsync=off"]
    server = subprocess.Popen(
        [*user, tools / "postgres", "-D", place / "data", *options], cwd=place, stderr=subprocess.DEVNULL
    )
    try:
        end = time.time() + 30
        while not (place / ".s.PGSQL.5432").exists():
            assert time.time() < end and server.poll() is None
            time.sleep(0.05)
        time.sleep(0.3)
        yield f"postgresql://patchbag@/postgres?host={place}"
    finally:
        server.terminate()
        server.wait(20)
