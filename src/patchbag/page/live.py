# SPDX-License-Identifier: BSD-3-Clause
"""The model that learns while people label: every answer is learned at once, and changes the next question.

A thread of its own takes labels in as they come, several at a time where they come faster than it learns.  It knows a
*pool* of described images, all or in a large folder some of them (see pools); the rest is predicted by the classifier
that the pool has taught.  The pool is made anew, in the background, when twice as many images are described, and learns
the labels again when one is taken back: a learner cannot forget.
"""

import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from patchbag.active.pool_learner import PoolLearner
from patchbag.page.album import Album
from patchbag.similarity.graph.choice import soften
from patchbag.similarity.graph.image_graph import ImageGraph

CANDIDATES = 64  # images that people can be asked for at once
BLOCK = 5_000  # images beyond the pool that are predicted before it is looked whether there is a label
QUIET = 0.3  # seconds without a label after which predictions are brought up to date

Update = tuple[int, int, int]  # image, label before and after: -1 for none, -2 for skipped


@dataclass
class Pool:
    """Images that are learned from: their numbers ``ids``, where each is (``at``), and the learner of them."""

    ids: np.ndarray
    learner: PoolLearner
    steps: list[Any] | None = None  # of the recipe, fitted, that made the vectors
    at: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.at = {int(image): row for row, image in enumerate(self.ids)}


class Rest(NamedTuple):
    """Images beyond the pool: their numbers, and vectors as its graph has them."""

    ids: np.ndarray
    vectors: np.ndarray


class Candidate(NamedTuple):
    """What is thought of an image that may be asked for: probabilities of classes, that of a class not seen, how many
    others of its cluster wait, and whether it is asked for because it is unlike all with a label.
    """

    p: dict[int, float]
    new: float
    like: int
    unlike: bool


@dataclass(frozen=True)
class Predictions:
    """What the model thinks: of images ``ids``, probabilities ``p (n, C)`` of ``classes``, and of a class not seen.

    The arrays ``best``, ``probability``, ``doubt`` are by number of the image; -1 where nothing is known.
    """

    version: int
    ids: np.ndarray
    classes: list[int]
    p: np.ndarray
    novelty: np.ndarray
    best: np.ndarray
    probability: np.ndarray
    doubt: np.ndarray


class LiveModel:
    """Learns the labels of an album.

    Parameters
    ----------
    seed : of everything random
    tell : called with each new state of the model, in its thread
    """

    def __init__(self, album: Album, seed: int, tell: Callable[[], None]) -> None:
        self.album = album
        self.seed = seed
        self.lock = threading.RLock()
        self.pool: Pool | None = None
        self.ranking: list[int] = []  # images to ask for, best first
        self.candidates: dict[int, Candidate] = {}  # the first of them; replaced whole, so that to look needs no lock
        self.version = 0
        self.learned = album.version  # that is learned
        self.predictions: Predictions | None = None
        self.rest: Rest | None = None
        self._tell = tell
        self._news = threading.Condition()
        self._inbox: list[tuple[list[Update], int]] = []
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="patchbag-model", daemon=True)
        album.listeners.append(self._hear)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._news:
            self._stopped = True
            self._news.notify_all()
        if self._thread.is_alive():
            self._thread.join(10)

    @property
    def ready(self) -> bool:
        return self.pool is not None

    def _hear(self, updates: list[Update], version: int) -> None:
        with self._news:
            self._inbox.append((updates, version))
            self._news.notify_all()

    def wait_for(self, version: int, seconds: float) -> bool:
        """Whether the model has learned what the album knew in this version, after so many seconds at most."""
        with self._news:
            return self._news.wait_for(lambda: self.learned >= version or self._stopped or not self.ready, seconds)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._news:
                told = self._news.wait_for(lambda: self._inbox or self._stopped, None if self._told() else QUIET)
                if self._stopped:
                    return
                inbox, self._inbox = self._inbox, []
            if inbox:
                with self.lock:
                    if self.pool is not None:
                        try:
                            self._learn(self.pool, [image for updates, _ in inbox for image, _, _ in updates])
                        except Exception:  # what is wrong with one label must not keep it from learning the others
                            traceback.print_exc()
                            self._again(self.pool)
                    with self._news:
                        self.learned = max(self.learned, inbox[-1][1])
                        self._news.notify_all()
            elif not told:
                self._predict()

    def _told(self) -> bool:
        return self.pool is None or (self.predictions is not None and self.predictions.version == self.version)

    def _learn(self, pool: Pool, images: Iterable[int]) -> None:
        """Learn what the album says of images by now; what the learner knows already is left."""
        taught: dict[int, int] = {}
        skipped: list[int] = []
        learner = pool.learner
        with self.album.lock:
            for image in dict.fromkeys(images):
                row = pool.at.get(image)
                if row is None:
                    continue
                label, skip = int(self.album.label[image]), bool(self.album.skipped[image])
                known = learner.labels_.get(row, -1)
                if (known >= 0 and known != label) or (learner.skipped_[row] and not skip and label < 0):
                    self._again(pool)
                    return
                if label >= 0 and known < 0:
                    taught[row] = label
                elif skip and not learner.skipped_[row]:
                    skipped.append(row)
        if taught:
            learner.teach(list(taught), list(taught.values()))
        if skipped:
            learner.skip(skipped)
        if taught or skipped:
            self._rank(pool)

    def _again(self, pool: Pool) -> None:
        """Learn everything anew, for something that was learned is not so any more."""
        self.pool = Pool(pool.ids, self._fit(pool.learner.graph_, pool.ids), pool.steps)
        self._rank(self.pool)

    def _fit(self, graph: ImageGraph, ids: np.ndarray) -> PoolLearner:
        with self.album.lock:
            labels, skipped = self.album.label[ids].tolist(), self.album.skipped[ids] | self.album.gone[ids]
        known = [None if label < 0 else label for label in labels]
        return PoolLearner(random_state=self.seed).fit(graph, known).skip(np.flatnonzero(skipped))

    def take(
        self, graph: ImageGraph, ids: np.ndarray, steps: list[Any] | None = None, rest: Rest | None = None
    ) -> None:
        """Go on with another pool."""
        learner = self._fit(graph, ids)
        with self.lock:
            self.pool, self.rest = Pool(ids, learner, steps), rest
            self._rank(self.pool)
            with self.album.lock:  # what was said while it learned
                self._learn(self.pool, self.album.votes)
        self._predict()
        with self._news:
            self._news.notify_all()

    def _rank(self, pool: Pool) -> None:
        """Which images to ask for: the learner's choice, then the best of other clusters."""
        self.version += 1
        learner = pool.learner
        if not learner.available_.any():
            self.ranking, self.candidates = [], {}
            return
        (best,), (utilities,) = learner.query(return_utilities=True)
        order = np.argsort(-np.nan_to_num(utilities, nan=-np.inf), kind="stable")[: 64 * 32]
        order = order[np.isfinite(utilities[order])]
        clusters = learner.clusters_[order]
        first = np.sort(np.unique(clusters, return_index=True)[1])
        rows = dict.fromkeys([int(best), *order[first].tolist(), *order.tolist()])
        self.candidates = self._candidates(pool, list(rows)[:CANDIDATES])
        self.ranking = [int(pool.ids[row]) for row in rows]

    @staticmethod
    def _candidates(pool: Pool, rows: list[int]) -> dict[int, Candidate]:
        learner, of = pool.learner, pool.learner.clusters_
        waiting = np.bincount(of[learner.available_], minlength=int(of.max()) + 1)
        classes = [int(c) for c in learner.classes_]
        p, new = learner.predict_proba(), learner.novelty()
        return {
            int(pool.ids[row]): Candidate(
                dict(zip(classes, ((1 - new[row]) * p[row]).tolist())),
                float(new[row]),
                int(waiting[of[row]]) - 1,
                learner.seeks_class(row),
            )
            for row in rows
        }

    # --- what it thinks ----------------------------------------------------------------------------------------------

    def _predict(self) -> None:
        with self.lock:
            pool, version = self.pool, self.version
            if pool is None:
                return
            classes = [int(c) for c in pool.learner.classes_]
            novelty, share = pool.learner.novelty(), pool.learner.unseen_share().expected
            p = pool.learner.predict_proba() if classes else np.zeros((len(pool.ids), 0))
            n = len(self.album)
            rest = self.rest if len(pool.learner._columns) > 1 else None
            weights = pool.learner.beliefs_.classifier() if rest is not None else np.empty(0)
            sharpness = float(np.exp(pool.learner.beliefs_.sharpness.log))
            columns = list(pool.learner._columns)
        ids, p = pool.ids, p.astype(np.float32)
        if rest is not None:
            their = np.zeros((len(rest.ids), p.shape[1]), np.float32)
            for start in range(0, len(their), BLOCK):
                if self._inbox:  # whoever has answered waits for that, and these come after it
                    return
                part = slice(start, start + BLOCK)
                their[part, columns] = soften((rest.vectors[part] @ weights).astype(np.float64), sharpness)
            ids, p = np.append(ids, rest.ids), np.vstack([p, their])
            novelty = np.append(novelty, np.full(len(rest.ids), share))
        best, probability = np.full(n, -1, np.int32), np.full(n, -1.0, np.float32)
        doubt = np.full(n, -1.0, np.float32)
        if classes:
            top = p.argmax(axis=1)
            best[ids] = np.array(classes)[top]
            probability[ids] = (1 - novelty) * p[np.arange(len(p)), top]
        doubt[ids] = 1.0 - np.where(probability[ids] >= 0, probability[ids], 0.0)
        self.predictions = Predictions(version, ids, classes, p, novelty, best, probability, doubt)
        self._tell()

    def probabilities(self, image: int) -> tuple[list[dict[str, Any]], float]:
        """Probabilities of the classes of an image, best first, and of a class not seen."""
        candidate, found = self.candidates.get(image), self.predictions
        if candidate is not None:
            listed, new = candidate.p, candidate.new
        elif found is not None and len(where := np.flatnonzero(found.ids == image)):
            new = float(found.novelty[where[0]])
            listed = dict(zip(found.classes, ((1 - new) * found.p[where[0]]).tolist()))
        else:
            return [], 0.0
        rows = [{"label": c, "p": round(p, 4)} for c, p in listed.items() if c in self.album.classes]
        return sorted(rows, key=lambda row: -row["p"]), round(new, 4)

    def accuracy(self) -> dict[str, Any] | None:
        """Expected accuracy on the images without a label, with its interval of 90 %."""
        with self.lock:
            if self.pool is None:
                return None
            error, labels = self.pool.learner.error(), self.pool.learner.n_labels_
        if not error.expected >= 0:
            return None
        return {
            "labels": labels,
            "expected": round(1 - error.expected, 4),
            "low": round(1 - error.high, 4),
            "high": round(1 - error.low, 4),
        }

    def hint(self) -> dict[str, Any]:
        """Whether more labels are likely to change anything."""
        with self.lock:
            if self.pool is None:
                return {"stop": False, "reason": "no image is described yet"}
            hint = self.pool.learner.stopping_hint()
        return {"stop": bool(hint.stop), "reason": hint.reason}
