# SPDX-License-Identifier: BSD-3-Clause
"""Training on a Dask cluster of two processes, beside one process with two threads; one worker is killed on the way.

    python benchmarks/bench_cluster.py DIR/corel1000 [--recipe fisher] [--per-class 30]

Target: the same bits, and at most 25 % more time.  Features are described anew each time.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from descriptors import verdict

from patchbag import Categorizer, open_collection, runtime_context
from patchbag.cluster import cluster_context

WORKERS = 2


def train(images: Any, recipe: str, where: str, out: Path, kills: tuple[float, ...] = ()) -> tuple[float, float, bytes]:
    """Seconds, those of all processors, and the model as a file; ``kills`` are moments at which a worker is killed."""
    with ExitStack() as stack:
        store = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(runtime_context(n_jobs=WORKERS, seed=0, store=store))
        client = stack.enter_context(cluster_context(where, WORKERS)) if where != "threads" else None
        if client is not None:
            client.run(warm_up)  # a cluster that stands has imported what it needs
        started, before = time.perf_counter(), processors(client)
        timers = [threading.Timer(moment, kill_one, [client]) for moment in kills]
        for timer in timers:
            timer.start()
        model = Categorizer(recipe, random_state=0)
        described = images.describe(model.pipeline()["features"], on_error="raise")
        model.fit(described.bags, images.labels)
        seconds, busy = time.perf_counter() - started, processors(client) - before
        for timer in timers:
            timer.join()
    return seconds, busy, model.save(out).read_bytes()


def processors(client: Any) -> float:
    """Seconds of all processors so far, of this process, the scheduler in it, and the workers."""
    return time.process_time() + (sum(client.run(time.process_time).values()) if client is not None else 0.0)


def warm_up() -> int:
    import patchbag.recipes  # noqa: F401

    return os.getpid()


def kill_one(client: Any) -> None:
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recipe", default="fisher")
    parser.add_argument("--per-class", type=int, default=30)
    given = parser.parse_args()
    images = open_collection(given.folder).labelled()
    chosen = [np.flatnonzero(images.labels == c)[: given.per_class] for c in np.unique(images.labels)]
    images = images[np.concatenate(chosen)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "model.patchbag"
        runs = [train(images, given.recipe, where, out) for where in ("threads", "local", "threads", "local")]
        here, there = min(runs[0], runs[2]), min(runs[1], runs[3])
        print(f"{len(images)} images, {given.recipe}: threads {here[0]:.1f} s, cluster {there[0]:.1f} s")
        print(f"overhead {verdict(100 * (there[0] / here[0] - 1), 25)} %; same model: {here[2] == there[2]}")
        busy = [min(runs[i][1], runs[i + 2][1]) for i in (0, 1)]
        print(f"of all processors {busy[0]:.1f} and {busy[1]:.1f} s: {100 * (busy[1] / busy[0] - 1):.0f} % more")
        lost = train(images, given.recipe, "local", out, (0.3 * there[0], 0.7 * there[0]))
        print(f"two workers killed on the way: {lost[0]:.1f} s; same model: {here[2] == lost[2]}")


if __name__ == "__main__":
    main()
