# SPDX-License-Identifier: BSD-3-Clause
"""Bregman trees on histograms of images: piro2010 chapter 3, its tables and its curves of number closer and speed-up.

The paper's histograms are of 66,616 COREL photographs and of VOC 2007, which are not at hand.  Here they are of parts
of the photographs of ``data``, queries from images that no point comes from:

* ``features = "colors"``: 64 bins, 4 levels each of red, green and blue, of the cells of an 8 × 8 grid; 60,000 points,
  2,000 queries.  Cells do not overlap: of overlapping windows of one image many would be closer at once.
* ``features = "words"``: 1,111 bins, dense SIFT and k-means, of random windows; 10,000 points, 1,000 queries.

A run's ``figure`` says what is measured: ``leaves``, ``depth`` (mean), ``branching`` or ``seconds`` of the tree;
``exact``, how many times fewer divergences an exact best-first search computes than there are points; ``closer``, how
many points are closer than the nearest one found, as a mean over the queries, for each number of leaves in ``at`` (of
a sample, for each share, of a graph for each beam), over the speed-up in divergences.  ``settings`` are those of
``grow_ball_tree`` (``tree = "ball"`` or ``"graph"``) or ``grow_vantage_tree`` (``"vantage"``), and ``side``.
"""

import time
from functools import cache
from typing import Any

import numpy as np
from sklearn.cluster import MiniBatchKMeans

from patchbag.collection import Collection
from patchbag.experiments.experiment import Experiment, Row, file_contents, make_row
from patchbag.experiments.files import study
from patchbag.features.dense_sift import DenseSIFT
from patchbag.images.loading import load_image
from patchbag.neighbors.ball_tree import grow_ball_tree
from patchbag.neighbors.brute import search_brute
from patchbag.neighbors.divergences import GENERATORS
from patchbag.neighbors.forms import Form, Points
from patchbag.neighbors.graph import link_points
from patchbag.neighbors.graph_search import search_graph
from patchbag.neighbors.leaf_search import gather_leaves
from patchbag.neighbors.sampling import draw_sample
from patchbag.neighbors.tree_search import search_tree
from patchbag.neighbors.vantage_tree import grow_vantage_tree

SIZES = {"colors": (60_000, 2_000), "words": (10_000, 1_000)}
MIXING = {"right": 0.0, "left": 1.0, "symmetric": 0.5}
SMOOTHING = 1e-3
N_WORDS = 1111
GRID = 8


@study("neighbors", "data features run", each="name figure")
def neighbor_study(experiment: Experiment) -> list[Row]:
    """Rows of one experiment; trees and searches use one thread."""
    images, features = experiment.images, experiment.spec["features"]

    @cache
    def drawn() -> tuple[np.ndarray, np.ndarray]:
        experiment.progress("histograms")
        return histograms(images, features, np.random.default_rng(experiment.seed))

    def figures(run: dict[str, Any]) -> list[Row]:
        return _figures(run, *drawn())

    origin = (file_contents(images.paths), features, experiment.seed)
    rows: list[Row] = []
    for run in experiment.runs:
        experiment.progress(run["name"])
        rows += experiment.recall(figures, run, origin=origin)
    return rows


def histograms(collection: Collection, features: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, d) and queries (m, d), those of a twentieth of the images."""
    n, m = SIZES[features]
    order = rng.permutation(len(collection))
    held = max(len(order) // 20, 1)
    parts = (order[held:], n), (order[:held], m)
    if features == "colors":
        found = []
        for images, count in parts:
            cells = [
                h for i in images for h in _colors(load_image(collection.paths[i], mode="rgb", max_side=384).array)
            ]
            found.append(np.array(cells)[rng.permutation(len(cells))[:count]])
    else:
        bags, kept, _ = collection.describe(DenseSIFT(step=8, max_side=256))
        place = {int(image): at for at, image in enumerate(np.asarray(kept))}
        sample = np.asarray(bags.values)[rng.permutation(len(bags.values))[:60_000]].astype(np.float32)
        words = MiniBatchKMeans(N_WORDS, random_state=0, n_init=1, max_iter=20).fit(sample)
        form = Form(GENERATORS["squared_euclidean"])
        centres = Points.prepare(form, words.cluster_centers_.astype(np.float64))
        named = []
        for start in range(0, len(bags.values), 100_000):
            some = np.asarray(bags.values[start : start + 100_000], dtype=np.float64)
            named.append(search_brute(centres, centres.ask(some, some), 1)[1][:, 0])
        word = np.concatenate(named)
        found = []
        for images, count in parts:
            usable = np.array([i for i in images if int(i) in place])
            found.append(np.array([_words(bags, word, place[int(i)], rng) for i in np.resize(usable, count)]))
    return found[0], found[1]


def _window(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Upper left and lower right corner of a window of a quarter to all of the image, in [0, 1]."""
    side = rng.uniform(0.5, 1.0, 2)
    corner = rng.uniform(0, 1 - side)
    return corner, corner + side


def _colors(pixels: np.ndarray) -> list[np.ndarray]:
    """Histograms of the cells of an 8 × 8 grid."""
    bins = (np.clip(pixels, 0, 255).astype(int) // 64) @ [16, 4, 1]
    cells = [cell for band in np.array_split(bins, GRID) for cell in np.array_split(band, GRID, axis=1)]
    return [np.bincount(cell.ravel(), minlength=64).astype(float) for cell in cells]


def _words(bags: Any, word: np.ndarray, image: int, rng: np.random.Generator) -> np.ndarray:
    rows = slice(int(bags.offsets[image]), int(bags.offsets[image + 1]))
    low, high = _window(rng)
    positions = np.asarray(bags.positions[rows])
    inside = np.all((positions >= low) & (positions <= high), axis=1)
    counts = np.bincount(word[rows][inside], minlength=N_WORDS)
    return (counts if counts.sum() else np.bincount(word[rows], minlength=N_WORDS)).astype(float)


def _figures(run: dict[str, Any], X: np.ndarray, Q: np.ndarray) -> list[Row]:
    settings = dict(run.get("settings", {}))
    form = Form(GENERATORS["kl"], MIXING[settings.pop("side", "right")], SMOOTHING)
    points = Points.prepare(form, form.clean(X))
    rows = form.clean(Q)
    queries = points.ask(rows, rows)
    random_state = np.random.RandomState(0)
    kind, published = run.get("tree", "ball"), run.get("published")
    if kind == "sample":
        exact = _divergences(points, queries)
        found = []
        for share in run["at"]:
            some = draw_sample(len(points), share, 1, random_state)
            closer = count_closer(exact, exact[:, some].min(axis=1, keepdims=True))
            row = make_row(f"{run['name']}, share {share:g}", closer, None)
            found.append(row | {"x": len(points) / len(some), "series": run["name"], "unit": "number closer"})
        return found
    grow = grow_vantage_tree if kind == "vantage" else grow_ball_tree
    grow(points.part(np.arange(min(300, len(points)))), **settings, random_state=random_state)  # compiles
    started = time.perf_counter()
    tree = grow(points, **settings, random_state=random_state)
    seconds = time.perf_counter() - started
    plain = {"leaves": tree.n_leaves, "depth": tree.depths().mean(), "branching": tree.mean_branching()}
    if run["figure"] in (*plain, "seconds"):
        return [make_row(run["name"], {**plain, "seconds": seconds}[run["figure"]], published)]
    if run["figure"] == "exact":
        stats = search_tree(points, tree, queries, 1)[2]
        return [make_row(run["name"], len(points) / stats[:, 0].mean(), published, leaves=stats[:, 1].mean())]
    exact = _divergences(points, queries)
    graph = link_points(points, tree, gather_leaves(points, tree)) if kind == "graph" else None
    found = []
    for at, budget in enumerate(run["at"]):
        if graph is None:
            _, indices, stats = search_tree(points, tree, queries, 1, max_leaves=budget)
        else:
            _, indices, stats = search_graph(points, tree, graph, queries, 1, beam=budget, max_leaves=1)
        reached = np.take_along_axis(exact, indices, axis=1)
        row = make_row(f"{run['name']}, {budget} {'leaves' if graph is None else 'kept'}", count_closer(exact, reached))
        row["published"] = published[at] if published else None
        found.append(row | {"x": len(points) / stats[:, 0].mean(), "series": run["name"], "unit": "number closer"})
    return found


def count_closer(exact: np.ndarray, reached: np.ndarray) -> float:
    """Points closer than what was reached (m, 1), mean; equal histograms differ by rounding and are not closer."""
    return float((exact < reached - 1e-9 * (1 + reached)).sum(axis=1).mean())


def _divergences(points: Points, queries: Any) -> np.ndarray:
    """(m, n) in float64."""
    psi, conjugate = points.form.points(points.rows)
    return queries.constant[:, None] + conjugate - queries.phi @ psi.T
