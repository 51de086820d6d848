# SPDX-License-Identifier: BSD-3-Clause
"""Check and search."""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel

from patchbag.page import decoder, schemas
from patchbag.page.finder import BY
from patchbag.page.journal import Change
from patchbag.page.routes.labels import Ids, Images, images_text
from patchbag.page.routes.requests import Reply, ThePage, Who, changed, check_ids

router = APIRouter(tags=["check and search"])
Limit = Annotated[int, Query(ge=1, le=10_000)]
Top = Annotated[int, Query(ge=1, le=1000)]
Share = Annotated[float | None, Query(ge=0, le=1)]


class Keep(BaseModel):
    keep: int
    ids: Ids


@router.get("/check/errors", response_model=schemas.Suspects)
def errors(page: ThePage, limit: Limit = 100) -> Reply:
    """Labels that a model taught without them disagrees with, worst first."""
    return Reply(page.checks.errors(limit))


@router.post("/check/confirm", response_model=schemas.Changed)
def confirm(page: ThePage, who: Who, images: Images) -> Reply:
    """The labels of these images are right, whatever the model thinks; they are not listed again."""
    album = page.album
    with album.editing():
        right = {i: int(album.label[i]) for i in check_ids(page, images.ids) if album.label[i] >= 0}
        changes: list[Change] = [("kept", i, album.kept.get(i), c) for i, c in right.items() if album.kept.get(i) != c]
        return changed(page, who, f"keep the label of {images_text(len(changes))}", changes, len(changes))


@router.get("/check/confusions", response_model=schemas.Confusions)
def confusions(page: ThePage, limit: Limit = 20) -> Reply:
    """Pairs of classes that are confused."""
    return Reply(page.checks.confusions(limit))


@router.get("/check/lonely", response_model=schemas.LonelyOnes)
def lonely(page: ThePage, limit: Limit = 100) -> Reply:
    """Images that stand alone."""
    return Reply({"items": page.checks.lonely(limit)})


@router.get("/check/disagreements", response_model=schemas.Disagreements)
def disagreements(page: ThePage) -> Reply:
    """Images of which people say different things."""
    return Reply({"items": page.checks.disagreements()})


@router.get("/check/duplicates", response_model=schemas.Duplicates)
def duplicates(page: ThePage) -> Reply:
    """Groups of near-duplicates, those across classes first."""
    return Reply(page.finder.duplicates())


@router.post("/check/duplicates", response_model=schemas.Duplicates, status_code=202)
def find_duplicates(page: ThePage) -> Reply:
    """Look for near-duplicates in the background."""
    page.finder.searching = True

    def look() -> None:
        page.finder.find_duplicates(lambda done, of: page.progress("duplicates", done, of + 1))
        page.progress("duplicates", 1, 1)  # it is not under way any more, whoever asks now

    page.task("duplicates", look)
    return Reply({"ready": False, "running": True}, 202)


@router.post("/check/keep", response_model=schemas.Changed)
def keep_one(page: ThePage, who: Who, keep: Keep) -> Reply:
    """Of a group of near-duplicates keep one; the others are set aside, not deleted."""
    album = page.album
    ids = [i for i in check_ids(page, [keep.keep, *keep.ids]) if i != keep.keep]
    with album.editing():
        at = album.now()
        others = [change for change in album.unsay(ids) if change[1][1] != who]
        mine = {i: album.votes.get(i, {}).get(who) for i in ids}
        changes = [*others, *(("vote", (i, who), before, (None, at)) for i, before in mine.items())]
        return changed(page, who, f"set {images_text(len(ids))} aside as copies", changes, len(ids))


def _crop(left: Share = None, top_: Share = None, right: Share = None, bottom: Share = None) -> list[float] | None:
    given = [share for share in (left, top_, right, bottom) if share is not None]
    if given and len(given) < 4:
        raise HTTPException(422, "a rectangle is left, top_, right and bottom, all four")
    return given or None


Crop = Annotated[list[float] | None, Depends(_crop)]


@router.get("/search/image/{image}", response_model=schemas.Matches)
def search_image(page: ThePage, image: int, crop: Crop, top: Top = 60) -> Reply:
    """The images most like one of the folder, or like a rectangle of it."""
    check_ids(page, [image])
    found = page.finder.by_image(image, top) if crop is None else page.finder.by_part(image, crop, top)
    return Reply({"matches": found, "by": BY})


@router.post("/search/upload", response_model=schemas.Matches)
async def search_upload(page: ThePage, request: Request, crop: Crop, top: Top = 60) -> Reply:
    """The images most like a picture, whose bytes are the body."""
    body = await read_body(request, decoder.MOST_BYTES)

    def search() -> Reply:
        return Reply({"matches": page.finder.by_picture(decoder.decode(body), top, crop), "by": BY})

    return await run_in_threadpool(search)


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request; 413 as soon as it is too long."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(413, f"that is more than {most:,} bytes")
    return bytes(body)
