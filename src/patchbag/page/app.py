# SPDX-License-Identifier: BSD-3-Clause
"""The application: routes around a :class:`~patchbag.page.session.Page`, behind :mod:`~patchbag.page.safety`."""

import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles

from patchbag import __version__
from patchbag.images.loading import ImageError
from patchbag.page.finder import NotReadyError
from patchbag.page.products import Products
from patchbag.page.routes import routers
from patchbag.page.safety import Safety
from patchbag.page.schemas import Problem
from patchbag.page.session import Page

STATIC = Path(__file__).parent / "static"


def create_app(
    folder: str | Path | Page, *, hosts: Iterable[str] = (), token: str | None = None, **options: Any
) -> FastAPI:
    """The page of a folder, for any ASGI server.

    Parameters
    ----------
    folder : a folder of images, or a ``Page`` of one
    hosts : names that the page goes by, beside those of this machine
    token : hash of the token that strangers must bring (``safety.new_token``), None for none
    options : of ``Page``
    """
    page = folder if isinstance(folder, Page) else Page(Path(folder), **options)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        page.events.open()
        page.start()
        try:
            yield
        finally:
            page.stop()

    app = FastAPI(
        title="patchbag",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.page = page
    app.state.products = Products(page)
    app.add_middleware(Safety, hosts=tuple(hosts), token=token)

    @app.exception_handler(ValueError)
    @app.exception_handler(LookupError)
    async def refuse(_: Request, error: Exception) -> JSONResponse:
        status = 422 if isinstance(error, ImageError) else 409 if isinstance(error, LookupError) else 400
        return JSONResponse({"detail": _text(error)}, status)

    @app.exception_handler(OSError)
    async def fail(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": _text(error)}, 500)

    @app.exception_handler(NotReadyError)
    async def not_ready(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503, {"retry-after": "1"})

    for router in routers():
        app.include_router(router, prefix="/api", responses={"4XX": {"model": Problem}})

    @app.get("/", include_in_schema=False)
    def index() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _text(error: Exception) -> str:
    """The message of an error as text; names of files in it may hold any bytes."""
    said = str(error.args[0]) if isinstance(error, LookupError) and error.args else str(error)
    return said.encode("utf-8", "backslashreplace").decode()
