# SPDX-License-Identifier: BSD-3-Clause
"""Live events: what any thread publishes, every open page gets (server-sent events)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

WAITING = 1000  # events that a page may be behind; then it is cut off, and connects anew
BEAT = 15.0  # seconds after which a silent stream says that it lives


class Events:
    """Where events are published and listened to."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pages: set[asyncio.Queue[str | None]] = set()
        self._closed = False

    def open(self) -> None:
        """Events go to pages by the loop that runs now."""
        self._loop = asyncio.get_running_loop()

    def publish(self, kind: str, data: Any) -> None:
        if self._loop is not None and self._pages and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, f"event: {kind}\ndata: {json.dumps(data)}\n\n")

    def _send(self, line: str) -> None:
        for page in list(self._pages):
            try:
                page.put_nowait(line)
            except asyncio.QueueFull:
                self._pages.discard(page)
                page.get_nowait()
                page.put_nowait(None)

    def close(self) -> None:
        self._closed = True
        for page in list(self._pages):
            if not page.full():
                page.put_nowait(None)

    async def stream(self, first: Callable[[], Any]) -> AsyncIterator[str]:
        """The events for one page, ``first()`` as a state before them."""
        page: asyncio.Queue[str | None] = asyncio.Queue(WAITING)
        self._pages.add(page)
        try:
            state = await asyncio.to_thread(first)
            yield f"retry: 1000\nevent: state\ndata: {json.dumps(state)}\n\n"
            while not self._closed:
                try:
                    line = await asyncio.wait_for(page.get(), BEAT)
                except TimeoutError:
                    line = ": alive\n\n"
                if line is None:
                    return
                yield line
        finally:
            self._pages.discard(page)
