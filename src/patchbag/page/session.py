# SPDX-License-Identifier: BSD-3-Clause
"""A folder that is served: everything the page stands on, and the threads that keep it going.

model      learns labels as they come                          (live)
describer  describes images in a process of its own            (describing)
workshop   what takes long, one thing after the other: pools, the index, duplicates, the map, training
watcher    follows the folder                                  (folder)
follower   takes up what other servers of the database change  (album)
"""

import contextlib
import queue
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from joblib import parallel_config
from sqlalchemy import select
from threadpoolctl import threadpool_limits

from patchbag.collection.folder import check_folder
from patchbag.page import folder as files
from patchbag.page.album import Album
from patchbag.page.checks import Checks
from patchbag.page.database import Database, DatabaseError, curve
from patchbag.page.describing import Child, describe_names, make_categorizer
from patchbag.page.events import Events
from patchbag.page.finder import Finder
from patchbag.page.gallery import columns_of
from patchbag.page.layout import Map
from patchbag.page.live import LiveModel, Rest
from patchbag.page.pictures import Pictures
from patchbag.page.pools import POOL, choose_pool, is_due, lags
from patchbag.page.questions import Questions
from patchbag.page.state import state_of
from patchbag.runtime import runtime_context, store_folder

FIRST = 96  # described images with which the first question is asked
OFTEN = 0.25  # seconds between two states that are sent to pages
BLOCK = 5000  # images that are looked up at a time beyond the pool
AGAIN = 2.0  # seconds until a database that was lost is tried again
MANY = 1000  # images whose numbers an event names


class Page:
    """What is served.

    Parameters
    ----------
    root : the folder
    database : address, None for a file in the folder
    recipe, features, settings : how images are compared; settings are {"step__parameter": value}
    seed, jobs : of everything random; workers
    store : folder of described features and of thumbnails, None for that of the context
    watch : follow the folder
    vectors : (n, d) of the images by their names in order, in place of describing them; for tests and figures
    """

    def __init__(
        self,
        root: Path,
        database: str | None = None,
        *,
        recipe: str = "deep-pool",
        features: list[str] | None = None,
        settings: dict[str, Any] | None = None,
        seed: int = 0,
        jobs: int = -1,
        store: Path | None = None,
        watch: bool = True,
        vectors: np.ndarray | None = None,
    ) -> None:
        check_folder(Path(root))
        self.root = Path(root).resolve()
        self.recipe, self.seed, self.jobs = recipe, seed, jobs
        self._recipe = (recipe, features, settings)
        self.store = Path(store) if store is not None else store_folder()
        hidden = self.root / files.HIDDEN
        try:
            if database is None:
                hidden.mkdir(exist_ok=True)
            self.database = Database(database or f"sqlite:///{hidden / 'page.sqlite'}")
        except PermissionError as error:
            raise DatabaseError(
                f"cannot write labels to {error.filename}; keep them in a file elsewhere, such as "
                f"--db sqlite:///{self.root.name}.sqlite"
            ) from error
        self.events = Events()
        self.album = Album(self.root, self.database)
        try:
            if database is not None:  # it lies elsewhere
                files.claim(self.album)
            self.remarks = files.take_labels(self.album)
        except BaseException:
            self.database.close()
            raise
        self.model = LiveModel(self.album, seed, self._model_changed)
        self.checks = Checks(self.album, self.model)
        self.finder = Finder(self.album, self.model)
        self.map = Map(self.model)
        self.questions = Questions(self.album, self.model)
        self.pictures = Pictures(self.album, self.store / "thumbnails")
        self.described: set[int] = set()
        self.stage: str | None = None
        self.hint: dict[str, Any] = {"stop": False, "reason": "no image is described yet"}
        self.points: list[dict[str, Any]] = [
            dict(row._mapping) for row in self.database.rows(select(curve).order_by(curve.c.labels))
        ]
        self._vectors = vectors
        self._tasks: queue.Queue[tuple[str, Callable[[], None]] | None] = queue.Queue()
        self._waiting: set[str] = set()
        self._to_describe: queue.Queue[list[int] | None] = queue.Queue()
        self._child: Child | None = None
        self._stop = threading.Event()
        self._state_sent = 0.0
        # draws of the pool of a large folder, and labels at the last one
        self._turn, self._drawn_at = 0, int((self.album.label >= 0).sum())
        work: list[Callable[[], None]] = [self._work, self._describe]
        work += [partial(files.watch, self.album, self._stop, self.files_changed)] if watch else []
        work += [self._follow] if self.database.shared else []
        self._threads = [threading.Thread(target=target, daemon=True) for target in work]
        self.album.listeners.append(self._labels_changed)
        self.album.listeners_of_files.append(self.files_changed)

    def start(self) -> None:
        """Start all threads, and describe what is there."""
        # one thread of BLAS for each answer: two that wait for each other on a busy machine take twenty times as long
        self._limits = threadpool_limits(limits=1, user_api="blas")
        self.model.start()
        for thread in self._threads:
            thread.start()
        here = np.flatnonzero(~self.album.gone)
        if self._vectors is not None:
            self.described = set(here.tolist())
            self.task("comparing images", self._make_pool)
        else:
            self._to_describe.put(np.random.RandomState(self.seed).permutation(here).tolist())

    def stop(self) -> None:
        self._stop.set()
        if self._child is not None:
            self._child.stop()
        self.pictures.stop()
        self._tasks.put(None)
        self._to_describe.put(None)
        self.model.stop()
        self.events.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(5)
        if hasattr(self, "_limits"):
            self._limits.restore_original_limits()
        self.database.close()

    # --- the workshop ------------------------------------------------------------------------------------------------

    def task(self, stage: str, work: Callable[[], None]) -> None:
        """Have something long done; a thing that waits already is not queued twice."""
        if stage not in self._waiting:
            self._waiting.add(stage)
            self._tasks.put((stage, work))

    def _work(self) -> None:
        with runtime_context(seed=self.seed, store=self.store), parallel_config(n_jobs=self.jobs):
            while (task := self._tasks.get()) is not None:
                stage, work = task
                self._waiting.discard(stage)
                try:
                    work()
                except Exception as error:  # a thing that fails must not end the others
                    traceback.print_exc()
                    self.events.publish("notice", {"stage": stage, "text": f"{stage}: {error}"})
                    self.progress(stage, 1, 1)

    def progress(self, stage: str, done: int, total: int) -> None:
        self.stage = stage if done < total else None
        self.events.publish("progress", {"stage": stage, "done": done, "total": total})

    def categorizer(self) -> Any:
        """One of its own for whoever fits it."""
        return make_categorizer(*self._recipe, self.seed)

    def vectors_of(self, ids: np.ndarray, pipeline: Any) -> tuple[np.ndarray, Any]:
        """Described images: their numbers, and what the steps behind the features take."""
        found = describe_names(self.root, [self.album.names[i] for i in ids], pipeline["features"])
        return ids[found.kept], found.bags

    def _make_pool(self) -> None:
        from patchbag.active.pool import pool_graph
        from patchbag.similarity.graph.image_graph import ImageGraph

        ids = self.pool_ids()
        if len(ids) < 2:
            return
        self.progress("comparing images", 0, 1)
        others = np.setdiff1d(np.array(sorted(self.described), int), ids)
        steps = None
        if self._vectors is not None:
            graph = ImageGraph.from_vectors(self._vectors[ids], power=1.0)
            rest = Rest(others, graph.prepare(self._vectors[others])) if len(others) else None
        else:
            pipeline = self.categorizer().pipeline()
            chosen = ids
            ids, bags = self.vectors_of(ids, pipeline)
            self.described -= set(chosen.tolist()) - set(ids.tolist())  # files that have gone meanwhile
            graph = pool_graph(pipeline, bags)
            steps = [step for _, step in pipeline.steps[:-1]]
            rest = self._beyond(others, pipeline, graph)
        self.model.take(graph, ids, steps, rest)
        self.progress("comparing images", 1, 1)
        self.send_state()

    def _beyond(self, others: np.ndarray, pipeline: Any, graph: Any) -> Rest | None:
        """Images beyond the pool; None where there are none, or where a recipe has no vectors for them."""
        found: list[Rest] = []
        for start in range(0, len(others), BLOCK):
            ids, bags = self.vectors_of(others[start : start + BLOCK], pipeline)
            rows = pipeline[:-1].transform(bags)
            if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != len(graph.mean):
                return None
            found.append(Rest(ids, graph.prepare(rows)))
        return Rest(*map(np.concatenate, zip(*found))) if found else None

    def _make_index(self) -> None:
        self.progress("index", 0, 1)
        self.finder.update()
        self.progress("index", 1, 1)

    def pool_ids(self) -> np.ndarray:
        """Numbers of the images that the model is to learn from."""
        with self.album.lock:
            ids = np.array(sorted(i for i in self.described if not self.album.gone[i]), int)
            labelled = self.album.label[ids] >= 0
            doubt = columns_of(self.model, len(self.album))[1]
        return choose_pool(ids, labelled, doubt[ids], self._turn, self.seed, POOL)

    def _draw_pool(self, labels: int, others: bool = True) -> None:
        """Make the pool of a large folder anew, with others by chance or the same."""
        if others:
            self._turn, self._drawn_at = self._turn + 1, labels
        self.task("comparing images", self._make_pool)

    # --- descriptions ------------------------------------------------------------------------------------------------

    def _describe(self) -> None:
        while (ids := self._to_describe.get()) is not None:
            total = len(self.described) + len(self.album.broken) + len(ids)
            self._child = Child(self.root, self._recipe, self.store, self.jobs)
            self._child.run([(i, self.album.names[i]) for i in ids], partial(self._described, total))
            if self._stop.is_set():
                return
            self.pictures.make_ahead(ids)
            self.progress("describing images", total, total)
            self.task("comparing images", self._make_pool)
            self.task("index", self._make_index)
            self.send_state()

    def _described(self, total: int, report: dict[str, Any]) -> None:
        album = self.album
        with album.lock:
            album.broken |= {int(i): message for i, message in report["failed"].items()}
            album.set_files([{"id": int(i), "digest": digest} for i, digest in report["digests"].items()])
        self.described |= set(report["done"])
        pool = len(self.model.pool.ids) if self.model.pool is not None else 0
        if len(self.described) >= max(FIRST, 2 * pool) and pool < POOL:
            self.task("comparing images", self._make_pool)
        self.progress("describing images", len(self.described) + len(album.broken), total)
        self.send_state()

    def _follow(self) -> None:
        """Take up what other servers of the database change."""
        while not self._stop.is_set():
            try:
                for _ in self.database.listen(self._stop):
                    self.album.catch_up()
            except Exception:  # the database is away for a moment
                traceback.print_exc()
                self._stop.wait(AGAIN)

    def files_changed(self, news: dict[str, list[int]]) -> None:
        """What the folder has become."""
        again = [i for i in (*news["added"], *news["changed"]) if not self.album.gone[i]]
        self.described -= {*again, *news["gone"]}
        self.events.publish("images", {**{k: news[k] for k in ("added", "gone", "renamed")}, "total": len(self.album)})
        if again and self._vectors is None:
            self._to_describe.put(again)
        self.send_state()

    # --- news --------------------------------------------------------------------------------------------------------

    def _labels_changed(self, updates: list[tuple[int, int, int]], version: int) -> None:
        labels = {new for _, _, new in updates}
        ids = [i for i, _, _ in updates]
        news: dict[str, Any] = {"ids": ids if len(ids) <= MANY else None, "version": version}
        news["label"] = next(iter(labels)) if len(labels) == 1 and min(labels) >= 0 else None
        latest = {max(said, key=lambda who: said[who][1]) for i in ids if (said := self.album.votes.get(i))}
        news["who"] = next(iter(latest)) if len(latest) == 1 else None
        pool = self.model.pool
        if self.model.rest is not None and pool is not None:
            labelled = (self.album.label >= 0) & ~self.album.gone
            if lags(n := int(labelled.sum()), int(labelled[pool.ids].sum()), POOL):
                self._draw_pool(n, is_due(n, self._drawn_at))
        if updates:
            self.events.publish("labels", news)
        else:
            self.events.publish("classes", {"classes": self.album.listed_classes(self.predicted_counts())})
        self.send_state()

    def _model_changed(self) -> None:
        model, point = self.model, self.model.accuracy()
        labels = model.pool.learner.n_labels_ if model.pool is not None else 0
        now = [] if point is None else [point]
        # points of labels that were taken back, or of an earlier estimate, go
        first = labels + 1 if point is None else point["labels"]
        points = [p for p in self.points if p["labels"] < first] + now
        if points != self.points:
            self.points = points
            with contextlib.suppress(Exception), self.album.lock, self.database.writing() as connection:
                connection.execute(curve.delete().where(curve.c.labels >= first))
                for new in now:
                    connection.execute(curve.insert().values(new))
        due = not model.ranking or is_due(labels, self._drawn_at)
        if due and model.rest is not None and self.album.unanswered(model.rest.ids).any():
            self._draw_pool(labels)
        self.hint = model.hint()
        news = {"version": model.version, "n_labels": labels, "accuracy": point, "hint": self.hint}
        self.events.publish("model", news)
        self.send_state()

    def predicted_counts(self) -> dict[int, int]:
        """How many images the model puts into each class."""
        found = self.model.predictions
        if found is None:
            return {}
        return dict(enumerate(np.bincount(found.best[found.best >= 0]).tolist()))

    def send_state(self) -> None:
        """Send the state to all pages, but not too often."""
        now = time.monotonic()
        if now - self._state_sent > OFTEN:
            self._state_sent = now
            self.events.publish("state", state_of(self, None))
