# SPDX-License-Identifier: BSD-3-Clause
"""Search among many long vectors: codes of four bits with exact re-ranking, beside exact products (and faiss).

    python benchmarks/bench_compressed.py FOLDER --images 1000000

FOLDER needs 8 kB per image for the float16 file of vectors, which is removed at the end.  The vectors are made: 2,000
clusters of uneven sizes, half of the variance between them, a spectrum that falls as i^-DECAY in 4,096 dimensions, all
of it rotated at random; queries are drawn in the same way and are no vectors of the collection.  Times are medians over
queries, one at a time; "cold" has the file dropped from the system's memory before every query.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.fft import dct

from patchbag.runtime import runtime_context
from patchbag.search.compressed import CANDIDATES, CompressedVectors

WIDTH, CLUSTERS, QUERIES, TOP, CHUNK = 4096, 2000, 50, 10, 8192


class Maker:
    """Draws vectors of unit length."""

    def __init__(self, decay: float) -> None:
        rng = np.random.default_rng(0)
        self.deviations = np.sqrt(0.5 * np.arange(1, WIDTH + 1) ** -decay).astype(np.float32)
        self.centres = rng.standard_normal((CLUSTERS, WIDTH), np.float32) * self.deviations
        weights = 1 / np.arange(1, CLUSTERS + 1)
        self.weights = weights / weights.sum()
        self.signs = rng.choice(np.array([-1, 1], np.float32), WIDTH)

    def draw(self, n: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, WIDTH), np.float32) * self.deviations
        x += self.centres[rng.choice(CLUSTERS, n, p=self.weights)]
        # the signs make of the cosine transform a rotation that knows nothing of the spectrum
        x = dct(dct(x * self.signs, norm="ortho", axis=1, overwrite_x=True) * self.signs, norm="ortho", axis=1)
        return x / np.linalg.norm(x, axis=1, keepdims=True)


def forget(path: Path) -> None:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def exact(vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The TOP nearest of every query by all products."""
    values, rows = np.full((len(queries), TOP), -np.inf, np.float32), np.zeros((len(queries), TOP), np.int64)
    for start in range(0, len(vectors), CHUNK):
        products = queries @ np.asarray(vectors[start : start + CHUNK], np.float32).T
        values = np.hstack([values, products])
        rows = np.hstack([rows, np.broadcast_to(np.arange(start, start + products.shape[1]), products.shape)])
        best = np.argpartition(-values, TOP - 1, axis=1)[:, :TOP]
        values, rows = np.take_along_axis(values, best, 1), np.take_along_axis(rows, best, 1)
    return rows


def measure(search: Callable[[np.ndarray], np.ndarray], queries: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Median seconds per query, and the share of the nearest ones that is found."""
    search(queries[0])
    times, found = [], []
    for query, right in zip(queries, truth):
        started = time.perf_counter()
        rows = search(query)
        times.append(time.perf_counter() - started)
        found.append(len(set(rows.tolist()) & set(right.tolist())) / TOP)
    return float(np.median(times)), float(np.mean(found))


def peers(vectors: np.ndarray, rotation: np.ndarray) -> dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]]:
    """faiss's codes of as many bytes, on the same axes, and the same re-ranking, where it is installed."""
    try:
        import faiss
    except ImportError:
        return {}
    faiss.omp_set_num_threads(1)
    found = {}
    some = np.linspace(0, len(vectors) - 1, min(len(vectors), 16_384)).astype(int)
    for name in ("SQ4", f"PQ{rotation.shape[1] // 2}x4fs"):
        index = faiss.index_factory(rotation.shape[1], name, faiss.METRIC_INNER_PRODUCT)
        index.train(np.asarray(vectors[some], np.float32) @ rotation)
        for start in range(0, len(vectors), CHUNK):
            index.add(np.asarray(vectors[start : start + CHUNK], np.float32) @ rotation)

        def search(query: np.ndarray, index: Any = index) -> np.ndarray:
            rows = np.sort(index.search((query @ rotation)[None], CANDIDATES)[1][0])
            return np.asarray(rows[np.argsort(-(np.asarray(vectors[rows], np.float32) @ query))[:TOP]])

        found[f"faiss {name}, same axes"] = search, index.sa_code_size() * len(vectors) / 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--decay", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--peers", action="store_true", help="measure faiss, too")
    options = parser.parse_args()
    maker, path = Maker(options.decay), options.folder / "vectors.f16"
    try:
        vectors = np.memmap(path, np.float16, "w+", shape=(options.images, WIDTH))
        for start in range(0, len(vectors), CHUNK):
            vectors[start : start + CHUNK] = maker.draw(min(CHUNK, len(vectors) - start), 10 + start)
        vectors.flush()
        vectors = np.memmap(path, np.float16, "r", shape=(options.images, WIDTH))
        queries = maker.draw(QUERIES, 1)
        print(f"{len(vectors):,} × {WIDTH} made, {path.stat().st_size / 1e9:.1f} GB", flush=True)
        with runtime_context(n_jobs=options.jobs):
            truth = exact(vectors, queries)
            started = time.perf_counter()
            codes = CompressedVectors.fit(vectors)
            print(f"{codes.nbytes / 1e6:.1f} MB of codes, built in {time.perf_counter() - started:.0f} s", flush=True)
            rows: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
                "codes": (lambda query: codes.search(query, vectors, TOP)[0], codes.nbytes / 1e6),
            }
            if options.peers:
                rows |= peers(vectors, codes.rotation)
            for name, (search, size) in rows.items():
                seconds, recall = measure(search, queries, truth)
                print(f"{name:28s} {size:8.1f} MB {1e3 * seconds:8.1f} ms   recall@{TOP} {recall:.3f}", flush=True)
            estimates = [np.argsort(-codes.estimate(query))[:TOP] for query in queries]
            alone = np.mean([len(set(a) & set(b)) / TOP for a, b in zip(estimates, truth.tolist())])
            print(f"without re-ranking: recall@{TOP} {alone:.3f}")
            times = []
            for query in queries[:20]:
                forget(path)
                started = time.perf_counter()
                codes.search(query, vectors, TOP)
                times.append(time.perf_counter() - started)
            print(f"cold: {1e3 * float(np.median(times)):.1f} ms")
            few = vectors[: min(len(vectors), 50_000)]
            seconds, _ = measure(lambda query: exact(few, query[None])[0], queries[:5], truth)
            scaled = 1e3 * seconds * len(vectors) / len(few)
            print(f"exact products, float16 from the file: {scaled:.0f} ms (scaled from {len(few):,})")
    finally:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
