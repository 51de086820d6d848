# SPDX-License-Identifier: BSD-3-Clause
"""recall@10 against queries per second under KL(point ‖ query): ours, nmslib, hnswlib and pynndescent, on one thread.

    python benchmarks/bench_neighbors_peers.py --plot docs/neighbors.png

nmslib has the divergence itself (``kldivfast``); hnswlib has squared distances between √x (Hellinger), and its 40
nearest are ranked again by the divergence; pynndescent has the symmetrised divergence, and is compared with that.  Data
are those of ``bench_neighbors``.  Time is processor time, so that other work on the machine does not count; the best of
three, batch and one query at a time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from bench_neighbors import DATA, SMOOTHING, K, recall
from threadpoolctl import threadpool_limits

from patchbag import BregmanNeighbors
from patchbag.neighbors.divergences import GENERATORS
from patchbag.neighbors.forms import Form

SINGLES = 200
# family, setting, answer to a batch of queries (m, d), answer to one (1, d), what is compared with
Contender = tuple[str, str, Callable[[np.ndarray], Any], Callable[[np.ndarray], Any], str]


def seconds(function: Callable[[], Any], repeats: int = 3) -> float:
    best = np.inf
    for _ in range(repeats):
        started = time.process_time()
        function()
        best = min(best, time.process_time() - started)
    return best


def ours(X: np.ndarray) -> Iterator[Contender]:
    def ask(model: BregmanNeighbors) -> Callable[[np.ndarray], np.ndarray]:
        return partial(model.kneighbors, return_distance=False)

    for family, settings in {
        "products, exact": [{"algorithm": "brute"}],
        "ball tree, exact": [{"algorithm": "ball"}],
        "ball tree": [{"algorithm": "ball", "max_leaves": leaves} for leaves in (1, 4, 16, 64)],
        "vantage tree": [{"algorithm": "vantage", "max_leaves": leaves} for leaves in (4, 16, 64)],
    }.items():
        for options in settings:
            model = BregmanNeighbors(K, side="left", random_state=0, **options).fit(X)
            yield family, str(options.get("max_leaves", "")), ask(model), ask(model), "left"
    model = BregmanNeighbors(K, side="left", algorithm="graph", random_state=0)
    print(f"graph built in {seconds(lambda: model.fit(X), 1):.1f} s", flush=True)
    for leaves, beam in ((1, 10), (4, 10), (4, 16), (8, 20), (8, 40), (8, 80), (8, 160), (8, 320)):
        variant = copy(model)
        variant.index_ = copy(model.index_)
        variant.index_.plan = replace(model.index_.plan, beam=beam, max_leaves=leaves)
        yield "graph", f"{beam} from {leaves}", ask(variant), ask(variant), "left"


def nmslib_(X: np.ndarray) -> Iterator[Contender]:
    import nmslib

    rows = np.asarray(X, np.float32)
    for method, build, sweeps in (
        ("hnsw", {"M": 16, "efConstruction": 200, "indexThreadQty": 1}, [{"ef": ef} for ef in (10, 20, 50, 200)]),
        ("vptree", {"bucketSize": 50}, [{"alphaLeft": a, "alphaRight": a} for a in (0.25, 0.5, 1.0, 2.0)]),
    ):
        index = nmslib.init(method=method, space="kldivfast")
        index.addDataPointBatch(rows)
        took = seconds(lambda index=index, build=build: index.createIndex(build, print_progress=False), 1)
        print(f"nmslib {method} built in {took:.1f} s", flush=True)
        for options in sweeps:
            index.setQueryTimeParams(options)

            def many(Q: np.ndarray, index: Any = index) -> list[np.ndarray]:
                return [found[0] for found in index.knnQueryBatch(Q.astype(np.float32), K, num_threads=1)]

            def one(q: np.ndarray, index: Any = index) -> Any:
                return index.knnQuery(q[0].astype(np.float32), K)

            yield f"nmslib {method}", str(next(iter(options.values()))), many, one, "left"


def hnswlib_(X: np.ndarray) -> Iterator[Contender]:
    import hnswlib

    index = hnswlib.Index("l2", X.shape[1])
    index.init_index(len(X), M=16, ef_construction=200, random_seed=0)
    index.set_num_threads(1)
    took = seconds(lambda: index.add_items(np.sqrt(X).astype(np.float32), num_threads=1), 1)
    print(f"hnswlib built in {took:.1f} s", flush=True)
    rows, entropy = X.astype(np.float32), (X * np.log(X)).sum(axis=1).astype(np.float32)

    def ask(Q: np.ndarray) -> np.ndarray:
        near = index.knn_query(np.sqrt(Q).astype(np.float32), 4 * K, num_threads=1)[0].astype(np.int64)
        scores = entropy[near] - np.matmul(rows[near], np.log(Q).astype(np.float32)[:, :, None])[:, :, 0]
        return np.take_along_axis(near, np.argsort(scores, axis=1)[:, :K], axis=1)

    for ef in (40, 80, 200):
        index.set_ef(ef)
        yield "hnswlib, √x, ranked again", f"ef {ef}", ask, ask, "left"


def pynndescent_(X: np.ndarray) -> Iterator[Contender]:
    import pynndescent

    def build() -> Any:
        index = pynndescent.NNDescent(X.astype(np.float32), "symmetric_kl", n_neighbors=20, n_jobs=1, random_state=0)
        index.prepare()
        return index

    made: list[Any] = []
    print(f"pynndescent built in {seconds(lambda: made.append(build()), 1):.1f} s, compilation included", flush=True)
    for epsilon in (0.0, 0.1, 0.3):

        def ask(Q: np.ndarray, epsilon: float = epsilon) -> np.ndarray:
            return made[0].query(Q.astype(np.float32), k=K, epsilon=epsilon)[0]

        yield "pynndescent, symmetrised", f"ε {epsilon}", ask, ask, "symmetric"


PACKAGES = {"ours": ours, "nmslib": nmslib_, "hnswlib": hnswlib_, "pynndescent": pynndescent_}


def curves(
    X: np.ndarray, Q: np.ndarray, some: list[Callable[[np.ndarray], Iterator[Contender]]]
) -> list[tuple[str, str, float, float, float]]:
    """Family, setting, recall@10, queries per second in a batch and one by one."""
    form = Form(GENERATORS["kl"], 1.0, SMOOTHING)
    X, Q = form.clean(X), form.clean(Q)
    true = {
        side: BregmanNeighbors(K, side=side, algorithm="brute").fit(X).kneighbors(Q)[1]
        for side in ("left", "symmetric")
    }
    found = []
    for contenders in some:
        try:
            for family, setting, many, one, side in contenders(X):
                answer = many(Q)
                reached = recall(np.array([np.resize(a, K) if len(a) else [-1] * K for a in answer]), true[side])
                one(Q[:1])
                batch = len(Q) / seconds(partial(many, Q))
                single = SINGLES / seconds(lambda one=one: [one(Q[i : i + 1]) for i in range(SINGLES)])
                found.append((family, setting, reached, batch, single))
                print(
                    f"{family:28} {setting:9} recall {reached:.3f}  batch {batch:7.0f}/s  single {single:7.0f}/s",
                    flush=True,
                )
        except ImportError as error:
            print(f"left out: {error}")
    return found


def plot(found: dict[str, list[tuple[str, str, float, float, float]]], path: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(found), figsize=(5.5 * len(found), 8), sharex=True, squeeze=False)
    for column, (name, rows) in enumerate(found.items()):
        families = list(dict.fromkeys(row[0] for row in rows))
        for at, (kind, place) in enumerate((("batch", 3), ("single", 4))):
            axis = axes[at, column]
            for family in families:
                points = sorted((row[2], row[place]) for row in rows if row[0] == family)
                axis.plot(*zip(*points), "s" if len(points) == 1 else "o-", label=family, markersize=4)
            axis.set(yscale="log", title=f"{name}, {kind}", ylabel="queries per second")
            axis.grid(alpha=0.3)
        axes[1, column].set_xlabel("recall@10")
    axes[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=60_000)
    parser.add_argument("--data", choices=DATA, nargs="+", default=list(DATA))
    parser.add_argument("--packages", choices=PACKAGES, nargs="+", default=list(PACKAGES))
    parser.add_argument("--plot")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        results = {}
        for name in arguments.data:
            print(name, flush=True)
            results[name] = curves(*DATA[name](arguments.points, 1000), [PACKAGES[p] for p in arguments.packages])
    if arguments.plot:
        plot(results, arguments.plot)
