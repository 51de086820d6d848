# SPDX-License-Identifier: BSD-3-Clause
"""Training with descriptors that are kept, streamed, and streamed into stochastic gradients as if vectors were many.

    python benchmarks/bench_stream.py DIR/scene15 [--recipe fisher] [--per-class 100] [--jobs 1] [--cluster local]

Time, memory, disk and accuracy.  Each way runs in a process of its own, with an empty store; 50 other images of each
class are then predicted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from patchbag import Categorizer, open_collection, runtime_context, streaming
from patchbag.protocol import PerClassSplit
from patchbag.streaming import fit_streamed

TESTED = 50


def train(way: str, given: Any, answers: Any) -> None:
    """Put seconds, GB of memory, GB on the disk, accuracy into the queue."""
    images = open_collection(given.folder).labelled()
    splitter = PerClassSplit(given.per_class, TESTED, 1, 0)
    rows, others = next(splitter.split(np.zeros(len(images)), images.labels))
    learned, tested = images[rows], images[others]
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        stack.enter_context(runtime_context(n_jobs=given.jobs, seed=0, store=place))
        if given.cluster:
            from patchbag.cluster import cluster_context

            stack.enter_context(cluster_context(given.cluster, given.jobs))
        model = Categorizer(given.recipe, random_state=0)
        started = time.perf_counter()
        if way != "descriptors kept":
            if way == "stochastic":  # as if there were more than fit into memory
                streaming.IN_MEMORY = 0
            fit_streamed(model, learned.paths, learned.labels, Path(place) / "vectors.npy")
        else:
            described = learned.describe(model.pipeline()["features"], on_error="raise")
            model.fit(described.bags, learned.labels)
        seconds = time.perf_counter() - started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        kept = sum(path.stat().st_size for path in Path(place).rglob("*") if path.is_file()) / 1e9
        answers.put((seconds, memory, kept, 100 * model.score(tested.paths, tested.labels)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recipe", default="fisher")
    parser.add_argument("--per-class", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--cluster", help="local, or the address of a scheduler")
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for way in ("descriptors kept", "streamed", "stochastic"):
        answers = context.Queue()
        process = context.Process(target=train, args=(way, given, answers))
        process.start()
        seconds, memory, kept, accuracy = answers.get()
        process.join()
        print(f"{way}: {seconds:.1f} s, {memory:.2f} GB of memory, {kept:.2f} GB on the disk, {accuracy:.1f} %")


if __name__ == "__main__":
    main()
