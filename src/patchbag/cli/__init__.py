# SPDX-License-Identifier: BSD-3-Clause
"""The command line: demo, train, predict, evaluate, active, serve, index, search, duplicates, cluster and others.

Results go to standard output, progress and messages to standard error.  Heavy modules are imported by the command that
needs them, so that ``patchbag --help`` answers at once.

``options`` holds the application and what commands share, ``files`` what they read and write, ``screen`` what they
print; the commands are in ``categorize``, ``prediction``, ``active``, ``serve``, ``search``, ``cluster`` and
``explore``.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from patchbag.cli import active, categorize, cluster, explore, prediction, screen, search, serve
from patchbag.cli.options import app, parse_settings

__all__ = [
    "active",
    "app",
    "categorize",
    "cluster",
    "explore",
    "main",
    "parse_settings",
    "prediction",
    "search",
    "serve",
]

FIRST = ("demo", "train", "predict", "info", "evaluate", "active", "serve", "index", "search", "duplicates", "cluster")
names = {id(command): command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
# as a person meets them; the others after these
app.registered_commands.sort(key=lambda c: FIRST.index(names[id(c)]) if names[id(c)] in FIRST else len(FIRST))


def main() -> None:
    """Entry point: errors of the user are one line, not a traceback."""
    warnings.showwarning = screen.show_warning
    screen.plain_streams()
    try:
        app()
    except (ValueError, OSError) as error:  # bad folders, images and model files are ValueErrors of their own kind
        if os.environ.get("PATCHBAG_DEBUG"):
            raise
        screen.error(error)
        sys.exit(2)


def version_callback(value: bool) -> None:
    if value:
        from patchbag import __version__

        screen.result(f"patchbag {__version__}")
        raise typer.Exit


@app.callback()
def patchbag(
    version: Annotated[
        bool, typer.Option("--version", callback=version_callback, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Categorise and search images by their local features, and say how sure it is."""
