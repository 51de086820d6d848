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
from importlib import import_module
from typing import Annotated, Any

import typer

from patchbag.cli import options, screen

MODULES = ("active", "categorize", "cluster", "explore", "prediction", "search", "serve")
FIRST = ("demo", "train", "predict", "info", "evaluate", "active", "serve", "index", "search", "duplicates", "cluster")
ALONE = {"search": "search"}  # commands that are so fast that importing the others would be noticed


def load_commands(*modules: str) -> typer.Typer:
    """The application with the commands of some modules, as a person meets them; those not in FIRST after these."""
    for module in modules:
        import_module(f"patchbag.cli.{module}")
    names = {id(c): c.name or getattr(c.callback, "__name__", "") for c in options.app.registered_commands}
    place = {name: i for i, name in enumerate(FIRST)}
    options.app.registered_commands.sort(key=lambda command: place.get(names[id(command)], len(FIRST)))
    return options.app


def __getattr__(name: str) -> Any:
    if name == "app":
        return load_commands(*MODULES)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Entry point: errors of the user are one line, not a traceback."""
    warnings.showwarning = screen.show_warning
    screen.plain_streams()
    alone = ALONE.get(sys.argv[1]) if len(sys.argv) > 1 else None
    try:
        load_commands(*MODULES if alone is None else [alone])()
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


@options.app.callback()
def patchbag(
    version: Annotated[
        bool, typer.Option("--version", callback=version_callback, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Categorise and search images by their local features, and say how sure it is."""
