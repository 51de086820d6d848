# SPDX-License-Identifier: BSD-3-Clause
"""What a person sees: results on standard output, progress and messages on standard error.

Names of files and classes may hold anything: they are printed literally, never read as rich's markup, and results are
never broken into lines, so that the next program in a pipe gets whole ones.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MANY_COLUMNS = 10_000
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tabs and new lines


class Screen:
    """A console of rich's, made when something is printed to it: to import rich takes a while."""

    def __init__(self, stderr: bool = False) -> None:
        self._stderr = stderr

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        return Console(stderr=self._stderr)

    @property
    def is_terminal(self) -> bool:
        stream = sys.stderr if self._stderr else sys.stdout
        forced = any(name in os.environ for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))  # rich knows what they mean
        return self.console.is_terminal if forced or stream.isatty() else False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.console, name)


warned: set[str] = set()
out: Any = Screen()
err: Any = Screen(stderr=True)


def visible(text: Any) -> str:
    """A text whose control characters are written out: those in the name of a file must not move the cursor.

    >>> visible("cat\x1b[2J")
    'cat\\\\x1b[2J'
    """
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", str(text))


def literal(text: Any) -> str:
    """A text that rich prints as it is."""
    return escape(visible(text))


def escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def result(text: Any) -> None:
    """A line of the result, as it is; what another program reads keeps its control characters."""
    out.print(literal(text) if out.is_terminal else escape(str(text)), highlight=False, soft_wrap=True)


def say(text: Any, style: str = "") -> None:
    """A line to the person, as it is, on standard error."""
    err.print(literal(text), style=style, highlight=False, soft_wrap=True)


def error(text: Any) -> None:
    err.print(f"[bold red]error:[/] {literal(text)}", highlight=False, soft_wrap=True)


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning of the library as one line, without the place in the code; stands in for ``warnings.showwarning``.

    What was said before, from another place, is not said again.
    """
    if str(message) not in warned:
        warned.add(str(message))
        err.print(f"[yellow]warning:[/] {literal(message)}", highlight=False, soft_wrap=True)


def print_table(table: Table, console: Console | None = None) -> None:
    """A table, as wide as the terminal; where there is none, as wide as it is and without blanks behind its lines."""
    from rich.console import Console

    console = console or out
    if console.is_terminal:
        console.print(table)
        return
    text = io.StringIO()
    Console(file=text, width=MANY_COLUMNS).print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines()))


def plain_streams() -> None:
    """Let names of files that are no text in the terminal's encoding go out as the bytes that they are."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="surrogateescape" if stream is sys.stdout else "backslashreplace")


@contextlib.contextmanager
def working(first: str) -> Iterator[Callable[[str], None]]:
    """A spinner; the function it gives shows what is being done now, in a log file as a line each."""
    with err.status(literal(first)) as status:

        def tell(text: str) -> None:
            status.update(literal(text))
            if not err.is_terminal:  # a log file shows no spinner
                say(text)

        yield tell


@contextlib.contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar; the function it gives moves it on by one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=getattr(err, "console", err),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # results that go to a file or a pipe are not for the screen
        disable=not err.is_terminal,
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.update(task, advance=1)


@contextlib.contextmanager
def reporting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar that appears with the first report, ``report(done, total)``: what is fast shows none."""
    with contextlib.ExitStack() as stack:
        steps: list[Callable[[], None]] = []

        def report(done: int, total: int) -> None:
            if done <= 1 or not steps:
                steps[:] = [stack.enter_context(counting(what, total))]
            steps[-1]()

        yield report


def list_failures(failures: list[tuple[Any, str]], total: int, small: str = "") -> None:
    """Say which files were left out, and why; long lists are cut, never silently.

    ``small`` is what else can be done where there are images too small for the features.
    """
    if not failures:
        return
    say(f"left out {len(failures)} of {count(total, 'file')}:", "yellow")
    for name, message in failures[:20]:
        say(f"  {name}: {message}")
    if len(failures) > 20:
        say(f"  and {len(failures) - 20} more")
    if small and any(is_small(message) for _, message in failures):
        say(small)


def is_small(message: str) -> bool:
    """Whether an image was left out because it is smaller than what the features look at."""
    return "enlarge it" in message


def count(number: int, what: str) -> str:
    """ "1 image", "2 images"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
