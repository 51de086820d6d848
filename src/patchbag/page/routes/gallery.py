# SPDX-License-Identifier: BSD-3-Clause
"""The gallery: which images, what is known of them, and their pictures."""

import base64
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from patchbag.page import gallery, schemas
from patchbag.page.routes.requests import Reply, ThePage, check_ids

router = APIRouter(tags=["gallery"])
DETAILS = 500
KEPT = "private, max-age=31536000, immutable"


@router.get("/images", response_model=schemas.Listed)
def list_images(
    page: ThePage,
    label: Annotated[list[int], Query()] = [],  # noqa: B006 - FastAPI copies it
    predicted: Annotated[list[int], Query()] = [],  # noqa: B006
    filter: Annotated[list[Literal[gallery.FILTERS]], Query()] = [],  # type: ignore[valid-type]  # noqa: B006
    text: Annotated[str, Query(max_length=200)] = "",
    sort: Literal[gallery.SORTS] = "name",  # type: ignore[valid-type]
    order: Literal["asc", "desc"] | None = None,
    group: Literal["predicted", "label"] | None = None,
    to: int | None = None,
) -> Reply:
    """Numbers of all images that match, in order."""
    distances = wrong = None
    if sort == "similarity":
        if to is None:
            raise HTTPException(422, "sort=similarity needs to=, the number of an image")
        distances = page.finder.distances(check_ids(page, [to])[0])
    if "wrong" in filter:
        wrong = page.checks.wrong()
    ids, groups = gallery.select(
        page.album,
        page.model,
        labels=label,
        predicted=predicted,
        filters=filter,
        text=text,
        sort=sort,
        order=order,
        group=group,
        distances=distances,
        wrong=wrong,
    )
    answer = {"ids": ids.tolist(), "total": len(ids), "groups": groups}
    return Reply({**answer, "version": page.album.version, "model": page.model.version})


@router.get("/images/details", response_model=schemas.Details)
def get_details(page: ThePage, ids: str, thumbs: bool = False) -> Reply:
    """What is known of images, by their numbers with commas; with those small pictures that are made already, in
    base64: a screen of them in one answer.
    """
    try:
        numbers = [int(part) for part in ids.split(",")] if ids else []
    except ValueError:
        raise HTTPException(422, "ids are numbers with commas between them") from None
    if len(numbers) > DETAILS:
        raise HTTPException(422, f"at most {DETAILS} images at a time")
    numbers = check_ids(page, numbers)
    made = {i: picture for i in numbers if thumbs and (picture := page.pictures.made(i)) is not None}
    texts = {str(i): base64.b64encode(picture).decode() for i, picture in made.items()}
    return Reply({"images": gallery.details(page.album, page.model, numbers), "thumbs": texts})


@router.get("/images/{image}", response_model=schemas.ImageInFull)
def get_image(page: ThePage, image: int) -> Reply:
    """What is known of an image, with the probabilities of all classes."""
    (found,) = gallery.details(page.album, page.model, check_ids(page, [image]))
    p, new = page.model.probabilities(image)
    return Reply({**found, "probabilities": p, "new": new})


@router.get("/columns", response_model=schemas.Columns)
def get_columns(page: ThePage) -> Reply:
    """Labels, predictions and doubt of all images, as arrays."""
    return Reply(gallery.columns(page.album, page.model, page.checks.wrong(wait=False)))


@router.get("/images/{image}/thumb", response_class=Response)
def get_thumb(page: ThePage, request: Request, image: int, v: str = "") -> Response:
    """A small JPEG."""
    check_ids(page, [image])
    return _picture(request, gallery.content_version(page.album, image), v, lambda: page.pictures.small(image))


@router.get("/images/{image}/picture", response_class=Response)
def get_picture(
    page: ThePage, request: Request, image: int, side: Annotated[int, Query(ge=64, le=4096)] = 1600, v: str = ""
) -> Response:
    """A JPEG with sides of at most so many pixels."""
    check_ids(page, [image])
    return _picture(request, gallery.content_version(page.album, image), v, lambda: page.pictures.large(image, side))


def _picture(request: Request, version: str, asked: str, make) -> Response:  # type: ignore[no-untyped-def]
    headers = {"etag": f'"{version}"', "cache-control": KEPT if asked == version else "private, no-cache"}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(make(), media_type="image/jpeg", headers=headers)
