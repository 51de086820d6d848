# SPDX-License-Identifier: BSD-3-Clause
"""The HTTP API, one file per view of the page; docs/page.md is its description."""

from fastapi import APIRouter


def routers() -> list[APIRouter]:
    from patchbag.page.routes import ask, check, gallery, labels, out, state

    return [state.router, gallery.router, labels.router, ask.router, check.router, out.router]
