# SPDX-License-Identifier: BSD-3-Clause
"""What requests have in common: the page they are for, the person who sends them, replies."""

import json
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, HTTPException, Request
from fastapi.responses import Response

from patchbag.page.journal import Change
from patchbag.page.session import Page

PERSON = "patchbag_person"
ME = "me"


def _page(request: Request) -> Page:
    page: Page = request.app.state.page
    return page


def _who(request: Request) -> str:
    return check_person(unquote(request.headers.get("x-person") or request.cookies.get(PERSON) or "")) or ME


def check_person(name: str) -> str:
    """The name of a person as it is kept: one line, not too long."""
    return " ".join(name.split())[:60]


ThePage = Annotated[Page, Depends(_page)]
Who = Annotated[str, Depends(_who)]


class Reply(Response):
    """JSON; long lists of numbers are written at once."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


def changed(page: Page, who: str, text: str, changes: list[Change], number: int, label: int | None = None) -> Reply:
    """Make changes as one action of a person, and answer how many images it changed; ``label`` is what they got."""
    action = page.album.change(who, text, changes)
    return Reply({"version": page.album.version, "changed": number, "action": action, "label": label})


def check_ids(page: Page, ids: list[int]) -> list[int]:
    """Numbers of images, each once; 404 for one that is none."""
    n = len(page.album)
    bad = next((i for i in ids if not 0 <= i < n), None)
    if bad is not None:
        raise HTTPException(404, f"there is no image {bad}")
    return list(dict.fromkeys(ids))


def check_class(page: Page, number: int) -> int:
    if number not in page.album.classes:
        raise HTTPException(404, f"there is no class {number}")
    return number
