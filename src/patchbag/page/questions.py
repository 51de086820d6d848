# SPDX-License-Identifier: BSD-3-Clause
"""Ask me: the image that helps most, why it is this one, and nobody is asked what another is looking at."""

from typing import Any

import numpy as np

from patchbag.page.album import Album
from patchbag.page.gallery import details
from patchbag.page.leases import Leases, SharedLeases
from patchbag.page.live import LiveModel

AHEAD = 3  # images that a page may fetch before they are asked for
FEW, SHORT = 4, 0.02  # people up to whom each waits for the model; seconds that one of more waits
NEW = 0.3  # probability of a class not seen from which on that is the reason
WAVERS = 0.25  # difference of the two leading probabilities below which that is
SURE = 0.9  # probability of the first class from which a model is not in doubt


class Questions:
    """Hands out images."""

    def __init__(self, album: Album, model: LiveModel) -> None:
        self._album = album
        self._model = model
        self._leases = SharedLeases(album.database) if album.database.shared else Leases()
        self.release = self._leases.release

    def lease(self, who: str) -> tuple[int | None, list[int]]:
        """The image for this person, and those that probably come after it."""
        free: list[int] = []

        def choose(mine: int | None, taken: set[int]) -> int | None:
            self._album.catch_up()  # what has a label by now is not asked for
            free[:] = [i for i in self._model.ranking[:200] if i not in taken and self._album.unanswered(i)]
            if mine is not None and self._album.unanswered(mine) and mine not in taken:
                return mine
            return free[0] if free else self._any(taken)

        chosen = self._leases.claim(who, choose)
        return chosen, [i for i in free[: AHEAD + 1] if i != chosen][:AHEAD]

    def _any(self, taken: set[int]) -> int | None:
        """An image without a label that the ranking does not have."""
        pool = self._model.pool
        ids = pool.ids if pool is not None else np.empty(0, int)
        return next((int(i) for i in ids[self._album.unanswered(ids)] if i not in taken), None)

    def patience(self, seconds: float) -> float:
        """How long somebody waits for the model to learn an answer: among many it learns theirs together, later."""
        return seconds if self._leases.people <= FEW else min(seconds, SHORT)

    def question(self, who: str) -> dict[str, Any]:
        """What the page shows; see docs/page.md."""
        model, album = self._model, self._album
        image, after = self.lease(who) if model.ready else (None, [])
        labels = int((album.label >= 0).sum())
        waiting = album.unanswered()
        waiting[list(album.broken)] = False  # nobody is asked for what cannot be shown
        answer: dict[str, Any] = {
            "image": None,
            "probabilities": [],
            "new": 0.0,
            "why": "",
            "reason": None,
            "next": details(album, model, after),
            "labels": labels,
            "left": int(waiting.sum()),
            "model": model.version,
            "ready": model.ready,
        }
        if image is not None:
            p, new = model.probabilities(image)
            reason, why = self._why(image, p, new)
            answer |= {"image": details(album, model, [image])[0], "probabilities": p, "new": new}
            answer |= {"reason": reason, "why": why}
        return answer

    def _why(self, image: int, p: list[dict[str, Any]], new: float) -> tuple[str, str]:
        model, album = self._model, self._album
        candidate = model.candidates.get(image)
        like = candidate.like if candidate is not None else 0
        crowd = f"{like} images like it wait" if like > 1 else "one image like it waits" if like == 1 else ""
        leading = [album.classes[entry["label"]]["name"] for entry in p[:2]]
        if new >= NEW or not p:
            text = "It is unlike anything that has a label" if p else "Nothing has a label yet, and it is a typical one"
            return "unlike" if p else "stands", f"{text}; {crowd} for the answer." if crowd else f"{text}."
        if candidate is not None and candidate.unlike:
            return "unlike", "Of all images it is the least like those with a label: perhaps a class that has none yet."
        if len(p) > 1 and p[0]["p"] - p[1]["p"] < WAVERS:
            text = f"The model wavers between {leading[0]} and {leading[1]}"
            return "doubt", f"{text}, and {crowd} for the answer." if crowd else f"{text}."
        if crowd:
            return "stands", f"It stands for others: {crowd} for the answer. The model thinks of {leading[0]}."
        if p[0]["p"] >= SURE:
            return "doubt", f"The model is rather sure of {leading[0]}; nothing is in more doubt."
        return "doubt", f"The model thinks of {leading[0]}, but not surely."
