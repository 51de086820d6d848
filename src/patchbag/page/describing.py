# SPDX-License-Identifier: BSD-3-Clause
"""Images are described in a process of their own, block after block, while the page is used already.

The child fills the store of features and says on its standard output what it has done; the page then finds the
descriptions in the store.  A file that kills the child is set aside, and a new child goes on after it.  A child that
is begun early (:func:`prepare`) imports what it needs while the page does the same.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 48  # images described in one go: the page hears of them together


def make_categorizer(recipe: str, features: list[str] | None, settings: dict[str, Any] | None, seed: int) -> Any:
    """A categorizer under a recipe, some of whose parameters are set ("step__parameter")."""
    from patchbag.categorizer import Categorizer

    made = Categorizer(recipe, features=features, random_state=seed)
    return made.set_params(**{f"recipe__{name}": value for name, value in (settings or {}).items()})


def describe_names(root: Path, names: list[str], features: Any) -> Any:
    """``Collection.describe`` of files of a folder."""
    from patchbag.collection.collection import Collection

    return Collection(root, names, np.full(len(names), None, object)).describe(features)


def begin() -> subprocess.Popen[str]:
    """A process that waits for an order."""
    command = [sys.executable, "-m", "patchbag.page.describing"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


_begun: list[subprocess.Popen[str]] = []


def prepare() -> None:
    """Begin the process that the next child will be."""
    _begun.append(begin())


class Child:
    """A process that describes images under a recipe (as ``make_categorizer`` takes it); ``stop`` ends it."""

    def __init__(self, root: Path, recipe: tuple[Any, ...], store: Path, jobs: int) -> None:
        self._order = {"root": str(root), "recipe": recipe, "store": str(store), "jobs": jobs}
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def run(self, named: list[tuple[int, str]], tell: Callable[[dict[str, Any]], None]) -> None:
        """Describe images (number, name); ``tell`` gets {"done": numbers, "failed": {number: message}, "digests"}."""
        left = dict(named)
        alone = False
        while left and not self._stopped:
            before = len(left)
            for report in self._reports(list(left.items()), 1 if alone else BLOCK):
                for number in (*report["done"], *map(int, report["failed"])):
                    left.pop(number, None)
                tell(report)
            if left and not self._stopped and len(left) == before:
                if alone:  # the first of them it was that killed the child
                    number = next(iter(left))
                    del left[number]
                    tell({"done": [], "failed": {number: "reading it ended the process that read it"}, "digests": {}})
                alone = True
            else:
                alone = alone and before - len(left) < BLOCK

    def _reports(self, named: list[tuple[int, str]], block: int) -> Iterator[dict[str, Any]]:
        self._process = _begun.pop() if _begun else begin()
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps({**self._order, "named": named, "block": block}))
            self._process.stdin.close()
            for line in self._process.stdout:
                yield json.loads(line)
        except (BrokenPipeError, json.JSONDecodeError):  # it died while it was written to, or while it wrote
            pass
        finally:
            self._process.stdout.close()
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        self._stopped = True
        if self._process is not None:
            self._process.kill()


def main() -> None:
    """The child: an order on standard input, reports on standard output."""
    import warnings

    from patchbag.collection.store import Store
    from patchbag.page.folder import own_files
    from patchbag.runtime import runtime_context

    warnings.simplefilter("ignore")
    out, sys.stdout = sys.stdout, sys.stderr
    make_categorizer("deep-pool", None, None, 0).pipeline()  # what most orders need is imported before they come
    text = sys.stdin.read()
    if not text:  # the page has ended without one
        return
    order = json.loads(text)
    root, named = Path(order["root"]), order["named"]
    if hasattr(os, "nice"):
        os.nice(5)  # who labels comes first
    with runtime_context(n_jobs=order["jobs"], store=order["store"], seed=0):
        recipe, features, settings = order["recipe"]
        describer = make_categorizer(recipe, features, settings, 0).pipeline()["features"]
        for start in range(0, len(named), order["block"]):
            block = named[start : start + order["block"]]
            own = set(own_files(root, [name for _, name in block]))
            failed = {number: "leads out of the folder" for number, name in block if name not in own}
            block = [(number, name) for number, name in block if name in own]
            found = describe_names(root, [name for _, name in block], describer)
            failed |= {block[f.index][0]: f.message for f in found.failures}
            store = Store()
            with store.opened():
                known = store.digests([os.path.join(root, name) for _, name in block])
            digests = {block[i][0]: digest.hex() for i, (_, digest) in enumerate(known) if digest}
            report = {"done": [block[i][0] for i in found.kept], "failed": failed, "digests": digests}
            print(json.dumps(report), file=out, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # the page has ended
        main()
