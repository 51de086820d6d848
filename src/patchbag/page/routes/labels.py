# SPDX-License-Identifier: BSD-3-Clause
"""Labels of one image or many, and classes."""

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, Field

from patchbag.page import classes as editing
from patchbag.page import schemas
from patchbag.page.routes.requests import Reply, ThePage, Who, changed, check_class, check_ids

router = APIRouter(tags=["labels"])
Ids = Annotated[list[int], Field(min_length=1, max_length=1_000_000)]
Color = Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")]
Key = Annotated[str, Field(max_length=1)]


class Images(BaseModel):
    ids: Ids


class Label(Images):
    label: int | None = None
    name: str | None = None


class NewClass(BaseModel):
    name: str
    color: Color | None = None
    key: Key | None = None


class ClassChange(BaseModel):
    name: str | None = None
    color: Color | None = None
    key: Key | None = None
    position: int | None = None


class Merge(BaseModel):
    into: int


class Split(BaseModel):
    name: str = ""
    ids: list[int] | None = None
    parts: Annotated[int, Field(ge=2, le=20)] = 2


def images_text(n: int) -> str:
    return "1 image" if n == 1 else f"{n} images"


@router.post("/labels", response_model=schemas.Changed)
def label_images(page: ThePage, who: Who, label: Label) -> Reply:
    """Give images a label, or take theirs away; answered when it is on disk."""
    album = page.album
    ids = check_ids(page, label.ids)
    with album.editing():
        number: int | None
        if label.name is not None:
            number, changes = album.class_named(label.name)
        else:
            number, changes = (None if label.label is None else check_class(page, label.label)), []
        if number is None:
            said, text = album.unsay(ids), f"take the label from {images_text(len(ids))}"
        else:
            said = album.say(who, ((i, number) for i in ids))
            name = label.name if changes else album.classes[number]["name"]
            text = f"label {images_text(len(ids))} {name!r}"
        return changed(page, who, text, [*changes, *said], len(said), number)


@router.post("/labels/accept", response_model=schemas.Changed)
def accept(page: ThePage, who: Who, images: Images) -> Reply:
    """Give images the class that the model puts them in."""
    album, found = page.album, page.model.predictions
    ids = check_ids(page, images.ids)
    with album.editing():
        best = {i: int(found.best[i]) for i in ids if found is not None and i < len(found.best)}
        said = album.say(who, ((i, c) for i, c in best.items() if c in album.classes))
        return changed(page, who, f"accept the class of {images_text(len(said))}", said, len(said))


@router.post("/skip", response_model=schemas.Changed)
def skip(page: ThePage, who: Who, images: Images) -> Reply:
    """Do not ask for these images again."""
    ids = check_ids(page, images.ids)
    with page.album.editing():
        said = page.album.say(who, ((i, None) for i in ids))
        return changed(page, who, f"skip {images_text(len(ids))}", said, len(said))


def _classes(page: ThePage) -> dict[str, Any]:
    return {"classes": page.album.listed_classes(page.predicted_counts()), "version": page.album.version}


@router.get("/classes", response_model=schemas.Classes)
def list_classes(page: ThePage) -> Reply:
    return Reply(_classes(page))


@router.post("/classes", response_model=schemas.ClassOpened)
def open_class(page: ThePage, who: Who, given: NewClass) -> Reply:
    number = editing.open_class(page.album, who, given.name, given.color, given.key)
    return Reply({**_classes(page), "id": number})


@router.patch("/classes/{number}", response_model=schemas.Classes)
def change_class(page: ThePage, who: Who, number: int, given: ClassChange) -> Reply:
    """Another name, colour, key or place; the key "" takes it away."""
    check_class(page, number)
    editing.change_class(page.album, who, number, given.model_dump(exclude_none=True))
    return Reply(_classes(page))


@router.delete("/classes/{number}", response_model=schemas.Classes)
def remove_class(page: ThePage, who: Who, number: int) -> Reply:
    """Remove a class; its images have no label then."""
    editing.remove_class(page.album, who, check_class(page, number))
    return Reply(_classes(page))


@router.post("/classes/{number}/merge", response_model=schemas.Classes)
def merge_class(page: ThePage, who: Who, number: int, merge: Merge) -> Reply:
    """Make the images of a class those of another one."""
    if merge.into == number:
        raise HTTPException(422, "a class cannot be merged into itself")
    editing.merge_classes(page.album, who, check_class(page, number), check_class(page, merge.into))
    return Reply(_classes(page))


@router.post("/classes/{number}/split", response_model=schemas.ClassSplit)
def split_class(page: ThePage, who: Who, number: int, split: Split) -> Reply:
    """Make some images of a class those of a new one; without ids, propose parts."""
    check_class(page, number)
    if split.ids is None:
        return Reply({**_classes(page), "parts": editing.propose_parts(page.album, page.model, number, split.parts)})
    new = editing.split_class(page.album, who, number, split.name, check_ids(page, split.ids))
    return Reply({**_classes(page), "id": new})
