# SPDX-License-Identifier: BSD-3-Clause
"""What the page shows of all: counts, classes, how far things are."""

from typing import Any

from patchbag.page.journal import DONE, UNDONE
from patchbag.page.pools import POOL


def state_of(page: Any, who: str | None) -> dict[str, Any]:
    """The state of a ``session.Page``, with what concerns one person unless that is None."""
    album, model = page.album, page.model
    pool = model.pool
    with album.lock:
        here = ~album.gone
        state: dict[str, Any] = {
            "folder": page.root.name,
            "images": int(here.sum()),
            "gone": int(album.gone.sum()),
            "broken": len(album.broken),
            "described": len(page.described),
            "describing": len(page.described) + len(album.broken) < int(here.sum()),
            "stage": page.stage,
            "labelled": int(((album.label >= 0) & here).sum()),
            "skipped": int((album.skipped & here).sum()),
            "disagreements": len(album.disagreements),
            "people": album.people,
            "recipe": page.recipe,
            "remarks": list(page.remarks),
            "version": album.version,
            "classes": album.listed_classes(page.predicted_counts()),
        }
    state["model"] = {
        "version": model.version,
        "n_labels": pool.learner.n_labels_ if pool is not None else 0,
        "pool": len(pool.ids) if pool is not None else 0,
        "ready": pool is not None,
        "complete": pool is not None and len(pool.ids) >= min(POOL, len(page.described)) > 1,
    }
    if who is not None:
        undo, redo = album.journal.last(who, DONE), album.journal.last(who, UNDONE)
        state |= {"me": who, "can_undo": undo is not None, "undo": undo.text if undo else None}
        state |= {"can_redo": redo is not None, "redo": redo.text if redo else None}
    return state
