# SPDX-License-Identifier: BSD-3-Clause
"""Figures that a long experiment has found so far, so that one that was stopped goes on where it was.

A line of JSON for every figure: the digest of all that the figure depends on (code, data, split, every parameter of the
run) and the figure.  What is changed in between gives another digest, and the figure is found anew.  A last line that
was cut off is ignored.  Where the file cannot be written, which a warning says, figures are kept in memory.
"""

import json
import warnings
from collections import UserDict
from pathlib import Path
from typing import Any


class Journal(UserDict[str, Any]):
    """Figures by what they depend on, kept in a file; without a path, nowhere."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        self.path = path
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    self.data[entry["key"]] = entry["value"]
                except (json.JSONDecodeError, KeyError, TypeError):
                    continue

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                # a newline before as well: the last line may have been cut off
                file.write("\n" + json.dumps({"key": key, "value": value}) + "\n")
        except OSError as error:  # a full disk is no reason to stop
            warnings.warn(f"figures are not kept in {self.path}: {error.strerror or error}", stacklevel=2)
            self.path = None

    def remove(self) -> None:
        """The experiment is complete: its figures are in its results."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
