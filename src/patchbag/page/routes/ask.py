# SPDX-License-Identifier: BSD-3-Clause
"""Ask me: a question, an answer, the next question."""

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, Field

from patchbag.page import schemas
from patchbag.page.routes.requests import Reply, ThePage, Who, check_class, check_ids

router = APIRouter(prefix="/ask", tags=["ask"])


class Answer(BaseModel):
    id: int
    label: int | None = None
    name: str | None = None
    skip: bool = False
    wait: Annotated[float, Field(ge=0, le=5)] = 0.25


def _question(page: ThePage, who: str) -> dict[str, Any]:
    point = page.points[-1] if page.points else None
    return {**page.questions.question(who), "accuracy": point, "hint": page.hint, "stage": page.stage}


@router.get("", response_model=schemas.Question)
def ask(page: ThePage, who: Who) -> Reply:
    """The image whose label helps most; mine until I answer, release it, or two minutes have passed."""
    return Reply(_question(page, who))


@router.post("/answer", response_model=schemas.Answered)
def answer(page: ThePage, who: Who, answer: Answer) -> Reply:
    """Label an image, or skip it; the next question comes when the answer is on disk and, if that is soon, learned."""
    album = page.album
    (image,) = check_ids(page, [answer.id])
    with album.editing():
        changes: list[Any] = []
        number: int | None = None
        if answer.name is not None:
            number, changes = album.class_named(answer.name)
        elif answer.label is not None:
            number = check_class(page, answer.label)
        elif not answer.skip:
            raise HTTPException(422, "an answer has a label, a name or skip")
        name = answer.name if number is None or changes else album.classes[number]["name"]
        text = "skip 1 image" if number is None else f"label 1 image {name!r}"
        album.change(who, text, [*changes, *album.say(who, [(image, number)])])
        version = album.version
    page.model.wait_for(version, page.questions.patience(answer.wait))
    return Reply({**_question(page, who), "acknowledged": True, "version": version})


@router.post("/release", response_model=schemas.Nothing)
def release(page: ThePage, who: Who) -> Reply:
    """I am not looking at it any more."""
    page.questions.release(who)
    return Reply({})


@router.get("/curve", response_model=schemas.Curve)
def get_curve(page: ThePage) -> Reply:
    """Expected accuracy over the number of labels."""
    return Reply({"points": page.points})
