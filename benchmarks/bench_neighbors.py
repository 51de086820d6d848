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


def report_exact_speed(n: int, m: int) -> None:
    for name, draw in DATA.items():
        X, Q = draw(n, m)
        brute = BregmanNeighbors(K, algorithm="brute").fit(X)
        ball = BregmanNeighbors(K, algorithm="ball", random_state=0).fit(X)
        auto = BregmanNeighbors(K, random_state=0).fit(X)
        plain = plain_products(X, Q)
        agree = recall(plain(), brute.kneighbors(Q)[1])
        seconds = in_turn({"plain": plain, "brute": lambda: brute.kneighbors(Q), "auto": lambda: auto.kneighbors(Q)}, 4)
        print(
            f"{name}, exact, batch of {m:,} on {n:,} × 64: NumPy {1e3 * seconds['plain']:.0f} ms; products "
            f"{1e3 * seconds['brute']:.0f} ms, {seconds['brute'] / seconds['plain']:.2f} ×; auto "
            f"{seconds['auto'] / seconds['plain']:.2f} ×  (recall of NumPy's float32 {agree:.4f})"
        )
        singles = Q[:100]

        def one_by_one(model: BregmanNeighbors, singles: np.ndarray = singles) -> Callable[[], None]:
            def run() -> None:
                for i in range(len(singles)):
                    model.kneighbors(singles[i : i + 1])

            return run

        logs = np.log(Form(GENERATORS["kl"], 0.0, SMOOTHING).clean(X)).astype(np.float32)
        vectors = singles.astype(np.float32)

        def matrix_vector(logs: np.ndarray = logs, vectors: np.ndarray = vectors) -> None:
            for q in vectors:
                scores = -(logs @ q)
                some = np.argpartition(scores, K)[:K]
                some[np.argsort(scores[some])]

        seconds = in_turn(
            {
                "plain": matrix_vector,
                "brute": one_by_one(brute),
                "ball": one_by_one(ball),
                "auto": one_by_one(auto),
            },
            3,
        )
        figures = "; ".join(
            f"{key} {1e4 * seconds[key]:.0f} µs, {seconds['plain'] / seconds[key]:.1f} × faster"
            for key in ("brute", "ball", "auto")
        )
        print(f"{name}, exact, single queries: matrix-vector {1e4 * seconds['plain']:.0f} µs; {figures}")
    for key, (X, _) in {name: draw(n, 1) for name, draw in DATA.items()}.items():
        form = Form(GENERATORS["kl"], 0.0, SMOOTHING)
        points = Points.prepare(form, form.clean(X))

        def grow(points: Points = points, **options: Any) -> Callable[[], Any]:
            return lambda: grow_ball_tree(points, random_state=np.random.RandomState(0), **options)

        seconds = in_turn(
            {
                "ours": grow(),
                "seeds": grow(branching=2, relocate=False),
                "lloyd": grow(branching=2, relocate=False, n_iter=10),
            },
            2,
        )
        print(
            f"{key}, ball tree of {n:,}: {seconds['ours']:.2f} s; without relocation, two children: seeds alone "
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


def report_curves(n: int, m: int) -> None:
    """recall@10 and queries per second, batch and single."""
    import nmslib
    import pynndescent

    for name, draw in DATA.items():
        X, Q = draw(n, m)
        exact = BregmanNeighbors(K, algorithm="brute").fit(X)
        true = exact.kneighbors(Q)[1]
        form = Form(GENERATORS["kl"], 0.0, SMOOTHING)
        rows, queries = form.clean(X).astype(np.float32), form.clean(Q).astype(np.float32)
        single = 200

        def show(label: str, batch: Callable[[], Any], one: Callable[[int], Any], found: Any, kind: str = name) -> None:
            batched = in_turn({"b": batch}, 2)["b"]
            ones = in_turn({"s": lambda: [one(i) for i in range(single)]}, 2)["s"]
            print(
                f"{kind:9} {label:34} recall {recall(np.asarray(found), true):.3f}  batch {m / batched:8.0f}/s  "
                f"single {single / ones:8.0f}/s",
                flush=True,
            )

        for label, options in (
            ("ours, products", {"algorithm": "brute"}),
            ("ours, ball tree, exact", {"algorithm": "ball"}),
            *((f"ours, ball tree, {leaves} leaves", {"max_leaves": leaves}) for leaves in (1, 4, 16, 64)),
            ("ours, vantage tree, 16 leaves", {"algorithm": "vantage", "max_leaves": 16}),
        ):
            model = BregmanNeighbors(K, random_state=0, **options).fit(X)
            show(
                label,
                lambda model=model: model.kneighbors(Q),
                lambda i, model=model: model.kneighbors(Q[i : i + 1]),
                model.kneighbors(Q)[1],
            )
        # nmslib's left queries of D(x ‖ y): KL(point ‖ query); the points are given as its "queries" are here
        for method, build, sweeps in (
            ("hnsw", {"M": 16, "efConstruction": 200, "post": 0}, [{"ef": ef} for ef in (20, 50, 100, 400)]),
            ("vptree", {"bucketSize": 50}, [{"alphaLeft": a, "alphaRight": a} for a in (1.0, 2.0, 4.0)]),
        ):
            index = nmslib.init(method=method, space="kldivfastrq" if method == "vptree" else "kldivfast")
            index.addDataPointBatch(rows)
            started = time.perf_counter()
            index.createIndex({**build, **({"indexThreadQty": 1} if method == "hnsw" else {})}, print_progress=False)
            building = time.perf_counter() - started
            for options in sweeps:
                index.setQueryTimeParams(options)
                found = [index.knnQuery(q, K)[0] for q in queries]
                found = np.array([np.pad(f, (0, K - len(f)), constant_values=-1) for f in found])
                show(
                    f"nmslib {method} {options} ({building:.0f} s)",
                    lambda index=index: index.knnQueryBatch(queries, K, num_threads=1),
                    lambda i, index=index: index.knnQuery(queries[i], K),
                    found,
                )
        started = time.perf_counter()
        descent = pynndescent.NNDescent(rows, metric="symmetric_kl", n_neighbors=20, n_jobs=1, random_state=0)
        descent.prepare()
        building = time.perf_counter() - started
        symmetric = BregmanNeighbors(K, side="symmetric", algorithm="brute").fit(X).kneighbors(Q)[1]
        for epsilon in (0.1, 0.3):
            found = descent.query(queries, K, epsilon=epsilon)[0]
            batched = in_turn({"b": lambda e=epsilon: descent.query(queries, K, epsilon=e)}, 2)["b"]
            print(
                f"{name:9} pynndescent symmetric_kl ε = {epsilon} ({building:.0f} s)  recall of symmetric KL "
                f"{recall(found, symmetric):.3f}  batch {m / batched:8.0f}/s",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--exact", type=int, default=0)
    parser.add_argument("--points", type=int, default=60_000)
    arguments = parser.parse_args()
    with threadpool_limits(1):
        if arguments.exact:
            report_exactness(arguments.exact)
        elif arguments.peers:
            report_curves(arguments.points, 1000)
        else:
            report_exact_speed(arguments.points, 1000)
