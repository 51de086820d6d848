# SPDX-License-Identifier: BSD-3-Clause
"""The command line: demo, train, predict, evaluate, active, serve, index, search, duplicates, cluster and others.

Results go to standard output, progress and messages to standard error.  Heavy modules are imported by the command that
needs them, so that ``patchbag --help`` answers at once.

``options`` holds the application and what commands share, ``files`` what they read and write, ``screen`` what they
print, ``advice`` what they say of recipes; the commands are in ``categorize``, ``prediction``, ``active``, ``serve``,
``search`` and ``explore``.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from patchbag.cli import screen

if TYPE_CHECKING:
    import typer

MODULES = ("active", "categorize", "explore", "prediction", "search", "serve")


def load_commands() -> typer.Typer:
    """The application with all commands."""
    from patchbag.cli import options

    for module in MODULES:
        import_module(f"patchbag.cli.{module}")
    return options.app


def __getattr__(name: str) -> Any:
    if name == "app":
        return load_commands()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Entry point: errors of the user are one line, not a traceback."""
    from patchbag.cli.finding import find, plain_search

    warnings.showwarning = screen.show_warning
    screen.plain_streams()
    try:
        if (plain := plain_search(sys.argv[1:])) is None:
            load_commands()()
        elif not find(**plain):
            sys.exit(1)
    except KeyboardInterrupt:
        screen.say("stopped")
        sys.exit(130)
    except (ValueError, OSError) as error:  # bad folders, images and model files are ValueErrors of their own kind
        if os.environ.get("PATCHBAG_DEBUG"):
            raise
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            screen.error(f"{screen.visible(error.filename)}: {error.strerror}")
        else:
            screen.error(error)
        sys.exit(2)
