# SPDX-License-Identifier: BSD-3-Clause
"""A trained model and an HTML report of the labels so far, made in the background."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.page import sorting
from patchbag.page.gallery import shown
from patchbag.page.outputs import labelled
from patchbag.page.session import Page


class Products:
    """What takes long to make, and is then there to be fetched: a model, a report."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._running: set[str] = set()
        self._error: dict[str, str] = {}

    def path(self, what: str) -> Path:
        return self._page.root / sorting.OUT / {"model": "model.patchbag", "report": "report.html"}[what]

    def status(self) -> dict[str, Any]:
        """Of model and report: whether they are there, being made, and what went wrong."""
        return {
            what: {"ready": self.path(what).is_file(), "running": what in self._running, "error": self._error.get(what)}
            for what in ("model", "report")
        }

    def start(self, what: str) -> None:
        """Have a model or a report made."""
        self._running.add(what)
        self._error.pop(what, None)
        work = {"model": self._train, "report": self._report}[what]
        self._page.task(f"making the {what}", lambda: self._make(what, work))

    def _make(self, what: str, work: Callable[[Path], None]) -> None:
        self._page.progress("training", 0, 1)
        try:
            self.path(what).parent.mkdir(parents=True, exist_ok=True)
            work(self.path(what))
        except Exception as error:
            self._error[what] = shown(str(error))
        finally:
            self._running.discard(what)
            self._page.progress("training", 1, 1)

    def _described(self, ids: np.ndarray) -> tuple[np.ndarray, Any, list[Any], Any]:
        page = self._page
        categorizer = page.categorizer()
        kept, bags = page.vectors_of(ids, categorizer.pipeline())
        with page.album.lock:
            names = {i: entry["name"] for i, entry in page.album.classes.items()}
            labels = [names.get(int(label)) for label in page.album.label[kept]]
        if len({label for label in labels if label is not None}) < 2:
            raise ValueError("two classes must have labels first")
        return kept, bags, labels, categorizer

    def _train(self, path: Path) -> None:
        page = self._page
        known = page.categorizer().takes_unlabelled
        ids = page.pool_ids() if known else np.array(labelled(page.album), int)
        _, bags, labels, categorizer = self._described(ids)
        categorizer.fit(bags, labels).save(path)

    def _report(self, path: Path) -> None:
        from patchbag.evaluation import evaluate
        from patchbag.protocol import PerClassSplit, half_of_smallest
        from patchbag.report import write_report

        page = self._page
        kept, bags, labels, categorizer = self._described(np.array(labelled(page.album), int))
        truth = np.array(labels)
        names, counts = np.unique(truth, return_counts=True)
        chosen = np.flatnonzero(np.isin(truth, names[counts > 1]))  # one to train on and one to test
        if len(np.unique(truth[chosen])) < 2:
            raise ValueError("two classes must have two labels each first")
        truth = truth[chosen]
        cv = PerClassSplit(half_of_smallest(truth), n_splits=3, random_state=page.seed)
        paths = [page.album.names[i] for i in kept[chosen]]
        result = evaluate(
            categorizer, bags[chosen], truth, cv=cv, seed=page.seed, names=[str(page.root / n) for n in paths]
        )
        result.recipe = page.recipe
        write_report(result, path, page.root.name)
