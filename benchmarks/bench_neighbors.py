# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours under KL against matrix products in NumPy, on one thread, in one process.

    python benchmarks/bench_neighbors.py            # 1,000 queries, batch and single, clustered and iid histograms
    python benchmarks/bench_neighbors.py --auto 3000 20000 60000   # what "auto" loses against the faster algorithm
    python benchmarks/bench_neighbors.py --exact 10000   # neighbours against float64, every divergence, side and width
    python benchmarks/bench_neighbors.py --approximate colors   # or words: histograms of photographs in PATCHBAG_DATA

Clustered: 1,000 centres from a flat Dirichlet distribution in 64 dimensions, points drawn around them with 2,000
counts; iid: points from the flat Dirichlet distribution.  Times are the best of several, ours and the peer's in turn.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from patchbag import BregmanNeighbors
from patchbag.neighbors.ball_tree import grow_ball_tree
from patchbag.neighbors.divergences import GENERATORS
from patchbag.neighbors.forms import Form, Points

K = 10
SMOOTHING = 1e-6


def clustered(n: int, m: int, d: int = 64, counts: float = 2000.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = rng.dirichlet(np.ones(d), 1000)
    X = rng.standard_gamma(np.maximum(counts * centres[rng.integers(1000, size=n + m)], 1e-3)) + 1e-9
    X /= X.sum(axis=1, keepdims=True)
    return X[:n], X[n:]


def iid(n: int, m: int, d: int = 64) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).dirichlet(np.ones(d), n + m)
    return X[:n], X[n:]


DATA = {"clustered": clustered, "iid": iid}


def in_turn(
    functions: dict[str, Callable[[], Any]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Best seconds of each."""
    best = dict.fromkeys(functions, np.inf)
    for _ in range(repeats + 1):  # the first round compiles and warms up
        for name, function in functions.items():
            started = clock()
            function()
            best[name] = min(best[name], clock() - started)
    return best


def plain_products(X: np.ndarray, Q: np.ndarray, block: int = 100) -> Callable[[], np.ndarray]:
    """Blocked matrix products and argpartition, float32; the logarithms of the points are there already."""
    form = Form(GENERATORS["kl"], 0.0, SMOOTHING)
    logs, queries = np.log(form.clean(X)).astype(np.float32).T, form.clean(Q).astype(np.float32)

    def run() -> np.ndarray:
        found = []
        for start in range(0, len(queries), block):
            scores = -(queries[start : start + block] @ logs)
            some = np.argpartition(scores, K, axis=1)[:, :K]
            order = np.take_along_axis(scores, some, axis=1).argsort(axis=1)
            found.append(np.take_along_axis(some, order, axis=1))
        return np.vstack(found)

    return run


def recall(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(found, true)]))


def one_by_one(model: BregmanNeighbors, queries: np.ndarray) -> Callable[[], None]:
    def run() -> None:
        for i in range(len(queries)):
            model.kneighbors(queries[i : i + 1])

    return run


def matrix_vector(X: np.ndarray, Q: np.ndarray) -> Callable[[], None]:
    """The same as ``plain_products`` for one query after the other."""
    form = Form(GENERATORS["kl"], 0.0, SMOOTHING)
    logs, queries = np.log(form.clean(X)).astype(np.float32), form.clean(Q).astype(np.float32)

    def run() -> None:
        for q in queries:
            scores = -(logs @ q)
            some = np.argpartition(scores, K)[:K]
            some[np.argsort(scores[some])]

    return run


def report_exact_speed(name: str, X: np.ndarray, Q: np.ndarray) -> None:
    n, m = len(X), len(Q)
    models = {key: BregmanNeighbors(K, algorithm=key, random_state=0).fit(X) for key in ("brute", "ball", "auto")}
    plain = plain_products(X, Q)
    agree = recall(plain(), models["brute"].kneighbors(Q)[1])
    batch = {key: partial(models[key].kneighbors, Q) for key in models}
    seconds = in_turn({"plain": plain, **batch}, 5)
    figures = "; ".join(f"{key} {1e3 * seconds[key]:.0f} ms, {seconds[key] / seconds['plain']:.2f} ×" for key in batch)
    print(f"{name}, exact, batch of {m:,} on {n:,} × 64: NumPy {1e3 * seconds['plain']:.0f} ms; {figures}")
    print(f"    recall of NumPy's float32 {agree:.4f}")
    some = Q[:100]
    single = {key: one_by_one(model, some) for key, model in models.items()}
    single |= {f"{leaves} leaves": one_by_one(limited(X, leaves), some) for leaves in (1, 4)}
    seconds = in_turn({"plain": matrix_vector(X, some), **single}, 5)
    figures = "; ".join(
        f"{key} {1e4 * seconds[key]:.0f} µs, {seconds['plain'] / seconds[key]:.1f} × faster" for key in single
    )
    print(f"{name}, single queries: matrix-vector {1e4 * seconds['plain']:.0f} µs; {figures}")
    report_building(name, X)


def limited(X: np.ndarray, leaves: int) -> BregmanNeighbors:
    return BregmanNeighbors(K, max_leaves=leaves, random_state=0).fit(X)


def report_building(name: str, X: np.ndarray) -> None:
    form = Form(GENERATORS["kl"], 0.0, SMOOTHING)
    points = Points.prepare(form, form.clean(X))

    def grow(**options: Any) -> Callable[[], Any]:
        return lambda: grow_ball_tree(points, random_state=np.random.RandomState(0), **options)

    bare = {"branching": 2, "relocate": False}
    seconds = in_turn({"ours": grow(), "seeds": grow(**bare), "lloyd": grow(**bare, n_iter=10)}, 3)
    print(
        f"{name}, ball tree of {len(X):,}: {seconds['ours']:.2f} s; without relocation, two children: seeds alone "
        f"{seconds['seeds']:.2f} s, 10 Lloyd iterations {seconds['lloyd'] / seconds['seeds']:.1f} times that"
    )


def report_approximate(features: str) -> None:
    """Number closer, divergences saved, and processor time against products, on the histograms of the experiments."""
    from patchbag.experiments import Experiment
    from patchbag.experiments.neighbors import SMOOTHING, count_closer, histograms

    data = {"colors": "corel1000", "words": "scene15"}[features]
    images = Experiment({"data": data}, Path(os.environ["PATCHBAG_DATA"])).images
    X, Q = histograms(images, features, np.random.default_rng(0))
    Q = Q[:1000]
    form = Form(GENERATORS["kl"], 1.0, SMOOTHING)
    rows, logs = form.clean(X), np.log(form.clean(Q))
    entropy = (rows * np.log(rows)).sum(axis=1)
    exact = entropy - logs @ rows.T
    narrow, narrow_logs, narrow_entropy = (a.astype(np.float32) for a in (rows, logs, entropy))

    def batch() -> None:
        for start in range(0, len(Q), 100):
            np.argpartition(narrow_entropy - narrow_logs[start : start + 100] @ narrow.T, 1, axis=1)

    def single() -> None:
        for q in narrow_logs[:200]:
            np.argpartition(narrow_entropy - narrow @ q, 1)

    common = {"side": "left", "smoothing": SMOOTHING, "random_state": 0}
    models = {"one leaf of the tree": BregmanNeighbors(1, algorithm="ball", max_leaves=1, **common).fit(X)}
    graph = BregmanNeighbors(1, algorithm="graph", **common).fit(X)
    for beam, leaves in ((4, 1), (10, 1), (32, 4)):
        model = models[f"graph, beam {beam}, from {leaves}"] = copy(graph)
        model.index_ = copy(graph.index_)  # less what is compiled for one setting
        model.index_.plan = replace(graph.index_.plan, beam=beam, max_leaves=leaves)
    clock = time.process_time
    many = in_turn({"products": batch} | {name: partial(m.kneighbors, Q) for name, m in models.items()}, 5, clock)
    ones = {"products": single} | {name: one_by_one(m, Q[:200]) for name, m in models.items()}
    ones = in_turn(ones, 10, clock)
    for name, model in models.items():
        reached = np.take_along_axis(exact, model.kneighbors(Q)[1], axis=1)
        fewer = len(X) / model.query_stats(Q)["divergences"].mean()
        print(
            f"{features}, {name}: number closer {count_closer(exact, reached):.1f} at {fewer:.0f} × fewer divergences; "
            f"batch {many['products'] / many[name]:.1f} ×, single {ones['products'] / ones[name]:.1f} × faster "
            f"({5e3 * ones[name]:.1f} against {5e3 * ones['products']:.0f} µs)"
        )


def report_exactness(m: int, names: list[str]) -> None:
    """Neighbours of m queries per divergence and side against float64, direct formulas, stable order."""
    from patchbag.neighbors.brute import plain_divergences

    for name in names:
        rng = np.random.default_rng(0)
        generator = GENERATORS[name]
        wrong = total = 0
        for side in ("right", "left", "symmetric", "mixed"):
            for d, n, share in ((2, 1000, 0.4), (17, 1000, 0.3), (64, 1000, 0.25), (1111, 300, 0.05)):
                X = rng.normal(size=(n, d))
                X = np.exp(X) if generator.lower == 0 else X
                X[n // 2 : n // 2 + n // 8] = X[: n // 8]  # ties
                asked = round(share * m)
                Q = X[rng.integers(n, size=asked)]
                Q[asked // 8 :] *= rng.uniform(0.9, 1.1, (asked - asked // 8, d))  # the others are points, with ties
                found = {}
                for algorithm in ("brute", "ball", "vantage"):
                    model = BregmanNeighbors(
                        K, divergence=name, side=side, mixing=0.3, algorithm=algorithm, leaf_size=20, random_state=0
                    )
                    found[algorithm] = model.fit(X).kneighbors(Q)[1]
                points = model.index_.points
                rows = points.form.clean(Q)
                queries = points.ask(rows, rows)
                everything = np.arange(n)
                for i in range(len(Q)):
                    true = np.argsort(plain_divergences(points, queries, i, everything), kind="stable")[:K]
                    for indices in found.values():
                        wrong += not np.array_equal(indices[i], true)
                        total += 1
        print(f"{name}: {wrong} of {total:,} lists differ", flush=True)


def report_auto(sizes: list[int]) -> None:
    """Time of ``auto`` over that of the faster one of products and tree, on a grid; processor time, best of several."""
    worst = 0.0
    for name, draw in DATA.items():
        for n in sizes:
            for d in (8, 64, 256):
                X, Q = draw(n, 300, d)
                models = {a: BregmanNeighbors(K, algorithm=a, random_state=0).fit(X) for a in ("brute", "ball", "auto")}
                for m in (1, 3, 10, 300):
                    blocks = [Q[start : start + m] for start in range(0, 300, max(m, 15))]
                    seconds = {key: np.full(len(blocks), np.inf) for key in models}
                    for turn in range(9):
                        for i, block in enumerate(blocks):
                            for key in np.roll(list(models), turn):  # each finds what another left in the cache
                                started = time.process_time()
                                models[key].kneighbors(block)
                                seconds[key][i] = min(seconds[key][i], time.process_time() - started)
                    best = {key: float(values.mean()) for key, values in seconds.items()}
                    ratio = best["auto"] / min(best["brute"], best["ball"])
                    worst = max(worst, ratio)
                    times = ", ".join(f"{key} {1e6 * best[key] / m:.0f} µs" for key in models)
                    print(f"{name}, {n:,} × {d}, {m} queries: {times} per query; auto {ratio:.2f} ×", flush=True)
    print(f"auto takes at most {worst:.2f} times as long as the faster one")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exact", type=int, default=0)
    parser.add_argument("--divergences", choices=GENERATORS, nargs="+", default=list(GENERATORS))
    parser.add_argument("--approximate", choices=("colors", "words"))
    parser.add_argument("--auto", type=int, nargs="+", metavar="POINTS")
    parser.add_argument("--points", type=int, default=60_000)
    arguments = parser.parse_args()
    with threadpool_limits(1):
        if arguments.exact:
            report_exactness(arguments.exact, arguments.divergences)
        elif arguments.approximate:
            report_approximate(arguments.approximate)
        elif arguments.auto:
            report_auto(arguments.auto)
        else:
            for name, draw in DATA.items():
                report_exact_speed(name, *draw(arguments.points, 1000))
