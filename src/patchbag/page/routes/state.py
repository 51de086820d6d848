# SPDX-License-Identifier: BSD-3-Clause
"""State, live events, history, undo and redo."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from patchbag.page import schemas
from patchbag.page.gallery import stamp
from patchbag.page.journal import UNDONE, Action, Change, touched_images
from patchbag.page.routes.requests import PERSON, Reply, ThePage, Who, check_person
from patchbag.page.state import state_of

router = APIRouter(tags=["state"])


class Name(BaseModel):
    name: str


@router.get("/state", response_model=schemas.State)
def get_state(page: ThePage, who: Who) -> Reply:
    """Counts, classes, and how far the description of the folder and the model are."""
    return Reply(state_of(page, who))


@router.put("/me", response_model=schemas.State)
def set_person(page: ThePage, name: Name) -> Reply:
    """Who labels; kept in a cookie."""
    person = check_person(name.name)
    if not person:
        raise HTTPException(422, "a name has at least one letter")
    reply = Reply(state_of(page, person))
    reply.set_cookie(PERSON, quote(person), max_age=365 * 86400, httponly=True, samesite="strict", path="/")
    return reply


@router.get("/events", response_class=StreamingResponse)
def get_events(page: ThePage, who: Who) -> StreamingResponse:
    """Live events (server-sent)."""
    stream = page.events.stream(lambda: state_of(page, who))
    return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


@router.post("/undo", response_model=schemas.Turned)
def undo(page: ThePage, who: Who) -> Reply:
    """Take back my last action, whatever it was."""
    return _turned(page, *page.album.undo(who))


@router.post("/redo", response_model=schemas.Turned)
def redo(page: ThePage, who: Who) -> Reply:
    """Do again what I have taken back."""
    return _turned(page, *page.album.redo(who))


def _turned(page: ThePage, action: Action, changes: list[Change], conflicts: int) -> Reply:
    said = {"text": action.text, "ids": touched_images(changes), "conflicts": conflicts}
    return Reply({"version": page.album.version, **said})


@router.get("/history", response_model=schemas.History)
def get_history(page: ThePage, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Reply:
    """The latest actions of everybody."""
    rows = [
        {"id": a.id, "who": a.who, "when": stamp(a.at), "text": a.text, "undone": a.state == UNDONE, "images": a.images}
        for a in page.album.journal.latest(limit)
    ]
    return Reply({"actions": rows})
