# SPDX-License-Identifier: BSD-3-Clause
"""The page from a notebook or a script; needs nothing but Python.

page = PageClient("http://localhost:8123", person="Ann")
question = page.ask()
while question["image"]:
    question = page.answer(question["image"]["id"], "beach")
"""

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen


class PageError(RuntimeError):
    """What the page refused, and why."""


class PageClient:
    """Everything a page can do is ``get`` and ``post`` of docs/page.md; what is used most has a name here.

    ``address`` is that of the page, with ``?token=…`` where it was printed with one; ``person`` is who labels.
    """

    def __init__(self, address: str = "http://localhost:8123", person: str = "notebook", timeout: float = 60.0) -> None:
        parts = urlsplit(address)
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._headers = {"X-Person": quote(person)}
        if parts.query.startswith("token="):
            self._headers["Authorization"] = f"Bearer {parts.query.removeprefix('token=')}"
        self._timeout = timeout

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """One request; bytes go as they are, all else as JSON."""
        address = f"{self.address}/api/{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")
        raw = isinstance(body, bytes)
        data = body if raw else None if method == "GET" else json.dumps({} if body is None else body).encode()
        kind = "application/octet-stream" if raw else "application/json"
        request = Request(address, data, {**self._headers, "Content-Type": kind}, method=method)
        try:
            with urlopen(request, timeout=self._timeout) as reply:
                content = reply.read()
                return json.loads(content) if "json" in reply.headers.get("Content-Type", "") else content
        except HTTPError as error:
            raise PageError(f"{error.code}: {json.loads(error.read() or b'{}').get('detail', error.reason)}") from None

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, **query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        return self.call("POST", path, body, **query)

    def state(self) -> dict[str, Any]:
        return self.get("state")

    def wait(self, seconds: float = 600.0) -> dict[str, Any]:
        """The state when all images are described and compared."""
        end = time.time() + seconds
        while True:
            state = self.state()
            if not state["describing"] and state["model"]["complete"]:
                return state
            if time.time() > end:
                raise PageError(f"not described in {seconds:g} seconds: {state['described']} of {state['images']}")
            time.sleep(0.1)

    def images(self, **query: Any) -> list[int]:
        return self.get("images", **query)["ids"]

    def details(self, ids: list[int]) -> Iterator[dict[str, Any]]:
        for start in range(0, len(ids), 500):
            yield from self.get("images/details", ids=",".join(map(str, ids[start : start + 500])))["images"]

    def label(self, ids: list[int], name: str) -> dict[str, Any]:
        return self.post("labels", {"ids": ids, "name": name})

    def ask(self) -> dict[str, Any]:
        return self.get("ask")

    def answer(self, image: int, name: str | None, wait: float = 5.0) -> dict[str, Any]:
        """Label an image, None to skip it; the next question."""
        said = {"skip": True} if name is None else {"name": name}
        return self.post("ask/answer", {"id": image, "wait": wait, **said})

    def undo(self) -> dict[str, Any]:
        return self.post("undo")

    def search(self, image: int | bytes, top: int = 10) -> list[dict[str, Any]]:
        if isinstance(image, bytes):
            return self.post("search/upload", image, top=top)["matches"]
        return self.get(f"search/image/{image}", top=top)["matches"]
