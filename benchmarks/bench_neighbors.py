# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours under KL against matrix products in NumPy, nmslib and pynndescent, on one thread, in one process.

    python benchmarks/bench_neighbors.py            # 1,000 queries, batch and single, clustered and iid histograms
    python benchmarks/bench_neighbors.py --peers    # recall@10 against queries per second, with nmslib and pynndescent
    python benchmarks/bench_neighbors.py --exact 1000   # neighbours against float64, every divergence, side and width

Clustered: 1,000 centres from a flat Dirichlet distribution in 64 dimensions, points drawn around them with 2,000
counts; iid: points from the flat Dirichlet distribution.  Times are the best of several, ours and the peer's in turn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
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


def in_turn(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Best seconds of each."""
    best = dict.fromkeys(functions, np.inf)
    for _ in range(repeats + 1):  # the first round compiles and warms up
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - started)
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


def report_exactness(m: int) -> None:
    """Neighbours of m queries per divergence, side and width against float64, direct formulas, stable order."""
    from patchbag.neighbors.brute import plain_divergences

    rng = np.random.default_rng(0)
    wrong = total = 0
    for name, generator in GENERATORS.items():
        for side in ("right", "left", "symmetric", "mixed"):
            for d in (2, 17, 64, 1111):
                n = 2000 if d < 1000 else 400
                X = rng.normal(size=(n, d))
                X = np.exp(X) if generator.lower == 0 else X
                X[n // 2 : n // 2 + n // 8] = X[: n // 8]  # ties
                share = m // 4 if d < 1000 else min(m // 4, 100)
                Q = np.vstack([X[: share // 2], X[rng.integers(n, size=share - share // 2)] * rng.uniform(0.9, 1.1)])
                found = {}
                for algorithm in ("brute", "ball", "vantage"):
                    model = BregmanNeighbors(
                        K, divergence=name, side=side, mixing=0.3, algorithm=algorithm, random_state=0
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
        print(f"{name}: {wrong} of {total:,} lists differ so far", flush=True)


def show(name: str, label: str, true: np.ndarray, found: Any, m: int, batch: Any, one: Any, singles: int = 200) -> None:
    batched = in_turn({"batch": batch}, 2)["batch"]
    single = in_turn({"single": lambda: [one(i) for i in range(singles)]}, 2)["single"]
    print(
        f"{name:9} {label:52} recall {recall(np.asarray(found), true):.3f}  batch {m / batched:7.0f}/s  "
        f"single {singles / single:7.0f}/s",
        flush=True,
    )


def report_curves(name: str, X: np.ndarray, Q: np.ndarray) -> None:
    """recall@10 and queries per second, batch and single; KL(point ‖ query), as nmslib's ``kldivfast`` has it."""
    import nmslib
    import pynndescent

    m = len(Q)
    true = BregmanNeighbors(K, side="left", algorithm="brute").fit(X).kneighbors(Q)[1]
    form = Form(GENERATORS["kl"], 1.0, SMOOTHING)
    rows, queries = form.clean(X).astype(np.float32), form.clean(Q).astype(np.float32)
    ours: list[tuple[str, dict[str, Any]]] = [
        ("products, exact", {"algorithm": "brute"}),
        ("ball tree, exact", {"algorithm": "ball"}),
        *((f"ball tree, {leaves} leaves", {"max_leaves": leaves}) for leaves in (1, 4, 16, 64)),
        ("vantage tree, 16 leaves", {"algorithm": "vantage", "max_leaves": 16}),
    ]
    for label, options in ours:
        model = BregmanNeighbors(K, side="left", random_state=0, **options).fit(X)
        found = model.kneighbors(Q)[1]
        ask = partial(model.kneighbors, Q)
        show(name, label, true, found, m, ask, lambda i, model=model: model.kneighbors(Q[i : i + 1]))
    for method, build, sweeps in (
        ("hnsw", {"M": 16, "efConstruction": 200, "indexThreadQty": 1}, [{"ef": ef} for ef in (20, 50, 200)]),
        ("vptree", {"bucketSize": 50}, [{"alphaLeft": a, "alphaRight": a} for a in (0.5, 1.0, 2.0)]),
    ):
        index = nmslib.init(method=method, space="kldivfast")
        index.addDataPointBatch(rows)
        started = time.perf_counter()
        index.createIndex(build, print_progress=False)
        label = f"nmslib {method}, built in {time.perf_counter() - started:.0f} s"
        for options in sweeps:
            index.setQueryTimeParams(options)
            found = [index.knnQuery(q, K)[0] for q in queries]
            found = np.array([np.pad(f, (0, K - len(f)), constant_values=-1) for f in found])
            batch = partial(index.knnQueryBatch, queries, K, num_threads=1)
            one = partial(_ask_nmslib, index, queries)
            show(name, f"{label}, {next(iter(options.values()))}", true, found, m, batch, one)
    started = time.perf_counter()
    descent = pynndescent.NNDescent(rows, metric="symmetric_kl", n_neighbors=20, n_jobs=1, random_state=0)
    descent.prepare()
    label = f"pynndescent, symmetrised KL, built in {time.perf_counter() - started:.0f} s"
    true = BregmanNeighbors(K, side="symmetric", algorithm="brute").fit(X).kneighbors(Q)[1]
    for epsilon in (0.1, 0.3):
        ask = partial(descent.query, k=K, epsilon=epsilon)
        found = ask(queries)[0]
        show(name, f"{label}, {epsilon}", true, found, m, partial(ask, queries), lambda i, a=ask: a(queries[i : i + 1]))


def _ask_nmslib(index: Any, queries: np.ndarray, i: int) -> Any:
    return index.knnQuery(queries[i], K)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--exact", type=int, default=0)
    parser.add_argument("--points", type=int, default=60_000)
    arguments = parser.parse_args()
    with threadpool_limits(1):
        if arguments.exact:
            report_exactness(arguments.exact)
        else:
            for name, draw in DATA.items():
                report = report_curves if arguments.peers else report_exact_speed
                report(name, *draw(arguments.points, 1000))
