# SPDX-License-Identifier: BSD-3-Clause
"""A command line, run in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from patchbag.cli import app


def run(*arguments: object, said: str | bytes | None = None):
    """What a command does; ``said`` is its standard input."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=said)
