# SPDX-License-Identifier: BSD-3-Clause
"""Small pictures are made before anybody looks at them, in a process of its own that gives way to all others.

Whoever scrolls to any place of a large folder finds a screen of them made, and gets it in one answer.  What this
process has not come to, or died of, is made when it is looked at (see pictures).
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Ahead:
    """Makes small pictures of a folder in the background; ``stop`` ends it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: subprocess.Popen[str] | None = None
        self._left: list[tuple[str, str]] = []

    def make(self, named: list[tuple[str, str]]) -> None:
        """Make pictures of images (name, where to write it); those that were wanted before stay so."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        else:
            self._left = []
        self._left = [(name, place) for name, place in (*self._left, *named) if not os.path.exists(place)]
        if self._left:
            command = [sys.executable, "-m", "patchbag.page.ahead"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
            assert self._process.stdin
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps([str(self._root), self._left]))
            self._process.stdin.close()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """The child: an order on standard input."""
    from patchbag.images.loading import ImageError
    from patchbag.page.jpegs import SMALL, jpeg, keep

    if hasattr(os, "nice"):
        os.nice(15)
    page = os.getppid()
    order: Any = json.loads(sys.stdin.read() or "[null, []]")
    for name, place in order[1]:
        if os.getppid() != page:  # it has ended
            return
        if not os.path.exists(place):
            with contextlib.suppress(ImageError, OSError, ValueError):
                keep(Path(place), jpeg(Path(order[0]), name, SMALL)[0])


if __name__ == "__main__":
    main()
