# SPDX-License-Identifier: BSD-3-Clause
"""Check: labels that a model taught without them disagrees with, classes that are confused, images that stand alone.

Labels are left out in eight parts, each predicted by what the rest has taught (:mod:`patchbag.classifiers.beliefs`).
"""

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from patchbag.page.album import Album
from patchbag.page.live import LiveModel
from patchbag.similarity.graph.choice import soften


@dataclass(frozen=True)
class LeftOut:
    """Images whose labels were left out, those ``labels``, and probabilities ``p (n, C)`` of ``classes``."""

    version: int
    images: np.ndarray
    labels: np.ndarray
    classes: np.ndarray
    p: np.ndarray

    @property
    def predicted(self) -> np.ndarray:
        return self.classes[self.p.argmax(axis=1)]


NOTHING = LeftOut(-1, np.empty(0, int), np.empty(0, int), np.empty(0, int), np.empty((0, 1)))


class Checks:
    """What looks wrong in an album."""

    def __init__(self, album: Album, model: LiveModel) -> None:
        self._album = album
        self._model = model
        self._lock = threading.Lock()
        self._known = NOTHING

    def left_out(self) -> LeftOut:
        """What the model says of labels that it was taught without, found anew when it has learned."""
        model = self._model
        with self._lock, model.lock:
            if self._known.version == model.version or model.pool is None:
                return self._known
            learner, beliefs = model.pool.learner, model.pool.learner.beliefs_
            columns = np.array([int(learner.classes_[c]) for c in learner._columns], int)
            if len(columns) < 2:
                self._known = replace(NOTHING, version=model.version)
                return self._known
            codes, scores = beliefs.left_out_scores()
            images = model.pool.ids[beliefs.images[beliefs.left_out()]]
            p = soften(scores[beliefs.trust].copy(), float(np.exp(beliefs.sharpness.log)))
            self._known = LeftOut(model.version, images, columns[codes], columns, p)
            return self._known

    def wrong(self, wait: bool = True) -> np.ndarray:
        """Images whose label the model disagrees with."""
        found = self.left_out() if wait else self._known
        return found.images[self._suspect(found)]

    def _suspect(self, found: LeftOut) -> np.ndarray:
        """Which labels the model disagrees with, but for those that somebody has looked at and kept."""
        kept = self._album.kept
        right = [kept.get(i) == label for i, label in zip(found.images.tolist(), found.labels.tolist())]
        return np.flatnonzero((found.predicted != found.labels) & ~np.array(right, bool))

    def errors(self, limit: int) -> dict[str, Any]:
        """Labels that the model disagrees with, worst first, and how many it was asked about."""
        found = self.left_out()
        rows = np.arange(len(found.images))
        of = {c: k for k, c in enumerate(found.classes.tolist())}
        own, best = found.p[rows, [of[c] for c in found.labels.tolist()]], found.p.max(axis=1)
        bad = self._suspect(found)
        bad = bad[np.argsort(own[bad] - best[bad], kind="stable")][:limit]
        items = [
            {
                "id": int(found.images[i]),
                "label": int(found.labels[i]),
                "predicted": int(found.predicted[i]),
                "p_label": round(float(own[i]), 4),
                "p_predicted": round(float(best[i]), 4),
            }
            for i in bad
        ]
        return {"items": items, "labels": len(rows)}

    def confusions(self, limit: int) -> dict[str, Any]:
        """Pairs of classes that are taken for one another, most often first, and the matrix behind them."""
        from sklearn.metrics import confusion_matrix

        found = self.left_out()
        listed = [row["id"] for row in self._album.listed_classes() if row["id"] in set(found.classes.tolist())]
        if len(listed) < 2:
            return {"pairs": [], "matrix": [], "classes": [], "labels": 0}
        matrix = confusion_matrix(found.labels, found.predicted, labels=listed)
        both = np.triu(matrix + matrix.T, 1)
        pairs = []
        for a, b in zip(*np.nonzero(both)):
            pair = {listed[a], listed[b]}
            mixed = [
                found.labels[i] != found.predicted[i] and {found.labels[i], found.predicted[i]} == pair
                for i in range(len(found.labels))
            ]
            share = both[a, b] / max(matrix[[a, b]].sum(), 1)
            pairs.append(
                {
                    "a": listed[a],
                    "b": listed[b],
                    "count": int(both[a, b]),
                    "share": round(float(share), 4),
                    "ids": found.images[np.array(mixed, bool)].tolist(),
                }
            )
        pairs.sort(key=lambda pair: (-pair["count"], -pair["share"]))
        return {"pairs": pairs[:limit], "matrix": matrix.tolist(), "classes": listed, "labels": len(found.labels)}

    def lonely(self, limit: int) -> list[dict[str, Any]]:
        """Images least like any other: the mean cosine to their nearest neighbours is small."""
        with self._model.lock:
            pool = self._model.pool
            if pool is None:
                return []
            hub = pool.learner.graph_.hub
            rows = np.argsort(hub, kind="stable")
            ids = pool.ids[rows]
        keep = ~self._album.gone[ids] & ~self._album.skipped[ids]
        return [{"id": int(i), "similarity": round(float(hub[r]), 4)} for i, r in zip(ids[keep], rows[keep])][:limit]

    def disagreements(self) -> list[dict[str, Any]]:
        """Images of which people say different things, with what each of them says."""
        from patchbag.page.gallery import stamp

        album = self._album
        with album.lock:
            found = sorted(album.disagreements)
            return [
                {"id": i, "votes": [{"who": w, "label": c, "when": stamp(at)} for w, (c, at) in album.votes[i].items()]}
                for i in found
            ]
