# SPDX-License-Identifier: BSD-3-Clause
"""Why, the map, and everything that goes out or comes in."""

import json
from typing import Literal

from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel

from patchbag.page import formats, outputs, schemas, why
from patchbag.page.routes.check import read_body
from patchbag.page.routes.requests import Reply, ThePage, Who, check_ids

router = APIRouter(tags=["why, map, out"])
IMPORTED = 50_000_000  # bytes
READERS = {"csv": formats.from_csv, "labelstudio": formats.from_label_studio, "coco": formats.from_coco}


class How(BaseModel):
    how: Literal["copy", "link", "move"]


@router.get("/images/{image}/why", response_model=schemas.Why)
def get_why(page: ThePage, image: int, label: int | None = None) -> Reply:
    """Which patches spoke for and against a class, and which labels decided."""
    check_ids(page, [image])
    return Reply(why.explain(page, image, label))


@router.get("/map", response_model=schemas.Places)
def get_map(page: ThePage) -> Reply:
    """The images in two dimensions."""
    if page.map.outdated() and not page.map.running:
        _make_map(page)
    return Reply({**(page.map.made or {"ready": False}), "running": page.map.running})


@router.post("/map", response_model=schemas.Places, status_code=202)
def make_map(page: ThePage) -> Reply:
    """Make the map anew."""
    _make_map(page)
    return Reply({"ready": page.map.made is not None, "running": True}, 202)


def _make_map(page: ThePage) -> None:
    page.map.running = True
    page.task("map", lambda: page.map.make(lambda done, of: page.progress("map", done, of)))


def _download(text: str, kind: str, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8", "surrogateescape"), media_type=kind, headers=headers)


@router.get("/export/labels.csv", response_class=Response)
def labels_csv(page: ThePage) -> Response:
    return _download(formats.to_csv(outputs.pairs(page.album)), "text/csv", "labels.csv")


@router.get("/export/predictions.csv", response_class=Response)
def predictions_csv(page: ThePage) -> Response:
    """All images: labels of people, and the model's guesses for the others."""
    return _download(outputs.guesses(page.album, page.model), "text/csv", "predictions.csv")


@router.get("/export/labelstudio.json", response_class=Response)
def label_studio_json(page: ThePage) -> Response:
    text = json.dumps(outputs.label_studio(page.album), indent=1, ensure_ascii=False)
    return _download(text, "application/json", "labelstudio.json")


@router.get("/export/coco.json", response_class=Response)
def coco_json(page: ThePage) -> Response:
    text = json.dumps(outputs.coco(page.album), indent=1, ensure_ascii=False)
    return _download(text, "application/json", "coco.json")


@router.post("/export/labels", response_model=schemas.Written)
def write_labels(page: ThePage) -> Reply:
    """Write labels.csv into the folder."""
    return Reply({"path": "labels.csv", "labels": outputs.write_labels(page.album)})


@router.post("/export/folder", response_model=schemas.Sorted)
def sort_files(page: ThePage, who: Who, how: How) -> Reply:
    """Images with a label into folders by class; undo takes it back."""
    path, files, action = outputs.sort_files(page.album, who, how.how)
    return Reply({"path": path, "files": files, "action": action})


@router.get("/export", response_model=schemas.Products)
def products(request: Request) -> Reply:
    """Whether a model and a report are there, or being made."""
    return Reply(request.app.state.products.status())


@router.post("/export/{what}", response_model=schemas.Products, status_code=202)
def make_product(request: Request, what: Literal["model", "report"]) -> Reply:
    """Train a model on the labels, or evaluate the recipe on them and write the report; in the background."""
    request.app.state.products.start(what)
    return Reply(request.app.state.products.status(), 202)


@router.get("/export/{what}", response_class=FileResponse)
def get_product(request: Request, what: Literal["model", "report"]) -> FileResponse:
    path = request.app.state.products.path(what)
    if not path.is_file():
        raise HTTPException(404, f"there is no {what} yet; POST /api/export/{what} makes one")
    kind = "text/html" if what == "report" else "application/octet-stream"
    return FileResponse(path, media_type=kind, filename=path.name)


@router.post("/import/{kind}", response_model=schemas.TakenIn)
async def take_in(page: ThePage, who: Who, request: Request, kind: Literal["csv", "labelstudio", "coco"]) -> Reply:
    """Labels from elsewhere; the body is the file."""
    body = await read_body(request, IMPORTED)

    def take() -> Reply:
        found = READERS[kind](body.decode("utf-8-sig", "surrogateescape"))
        labels, unknown, action = outputs.take_in(page.album, who, found, kind)
        return Reply({"labels": labels, "unknown": unknown, "action": action})

    return await run_in_threadpool(take)
