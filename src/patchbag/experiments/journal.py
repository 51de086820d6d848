# SPDX-License-Identifier: BSD-3-Clause
"""Figures that a long experiment has found so far, so that one that was stopped goes on where it was.

A line of JSON for every figure: the digest of all that the figure depends on (data set and its size, split, every
parameter of the run, version of the package) and the figure.  A parameter that is changed in between gives another
digest, and the figure is found anew.  A last line that was cut off is ignored.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from patchbag import __version__


class Journal:
    """Figures by what they depend on, in a file; without a path, nowhere."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.known: dict[str, Any] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    self.known[entry["key"]] = entry["value"]
                except (json.JSONDecodeError, KeyError, TypeError):
                    continue

    def __len__(self) -> int:
        return len(self.known)

    @staticmethod
    def key(*origin: Any) -> str:
        """Digest of what a figure depends on."""
        spelled = json.dumps([__version__, *origin], sort_keys=True, default=str)
        spelled = re.sub(r" at 0x[0-9a-f]+", "", spelled)  # where a function lies in memory
        return hashlib.blake2b(spelled.encode(), digest_size=16).hexdigest()

    def get(self, key: str) -> Any:
        return self.known.get(key)

    def put(self, key: str, value: Any) -> None:
        self.known[key] = value
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                # a newline before as well: the last line may have been cut off
                file.write("\n" + json.dumps({"key": key, "value": value}) + "\n")

    def remove(self) -> None:
        """The experiment is complete: its figures are in its results."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
