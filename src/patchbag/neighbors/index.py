# SPDX-License-Identifier: BSD-3-Clause
"""Points with whatever makes them fast to search: a tree, its leaves, a sample, and what each way costs here.

Which algorithm answers is a matter of speed alone, except for those that are approximate:

* ``brute``: matrix products (``brute``), exact;
* ``ball``: a ball tree, exact (``leaf_search``) or, with ``max_leaves``, approximate (``tree_search``);
* ``vantage``: a vantage-point tree, exact or with ``max_leaves`` approximate;
* ``graph``: a ball tree and edges between near points, approximate (``graph_search``): the fastest way to almost all;
* ``sample``: a random sample, approximate (``sampling``);
* ``auto``: ``ball`` where ``max_leaves`` is given; else ``brute`` or the exact ball tree, whichever is faster for as
  many queries as are asked.  Both are timed when the index is made, on points of its own, because how much a tree can
  leave out depends on the data: products cost a + b·m for m queries, a tree s + t·m; one query alone goes another
  way (``row_search``) and is timed by itself.  Both find the same neighbours, so that a choice by the clock changes no
  result.

Points can be added and taken out.  Points that are in no tree yet are searched by products, until they are a tenth of
all; then the tree is made anew.  Points keep their numbers when others are taken out.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from patchbag.neighbors.ball_tree import grow_ball_tree
from patchbag.neighbors.brute import ROWS, Within, search_brute, search_radius
from patchbag.neighbors.divergences import GENERATORS, find_generator, mahalanobis
from patchbag.neighbors.forms import Form, Points, Queries
from patchbag.neighbors.graph import Graph, is_coarse, link_points
from patchbag.neighbors.graph_search import search_graph
from patchbag.neighbors.index_files import open_index, save_index
from patchbag.neighbors.leaf_search import Leaves, gather_leaves, search_leaves
from patchbag.neighbors.radius_search import search_radius_in_leaves
from patchbag.neighbors.row_search import RowSearch
from patchbag.neighbors.sampling import draw_sample
from patchbag.neighbors.tree_search import Found, search_tree
from patchbag.neighbors.trees import Tree
from patchbag.neighbors.vantage_tree import grow_vantage_tree

# fewer points than these are always searched by products
FEW = 2000
# share of points outside of the tree at which it is made anew
OUTSIDE = 0.1
# queries that are timed as a batch and one by one, and how often
PROBES = 24
SINGLES = 12
ROUNDS = 5


@dataclass(frozen=True)
class Plan:
    """How points are to be searched; parameters are those of ``BregmanNeighbors``."""

    n_neighbors: int
    algorithm: str
    leaf_size: int
    branching: int
    n_iter: int
    max_leaves: int | None
    sample: float
    beam: int


class NeighborIndex:
    """Points and their tree or sample.

    Attributes
    ----------
    points : all points, in the order that they came
    algorithm : what ``Plan.algorithm`` comes to: "brute", "ball", "vantage", "graph" or "sample"
    covered : points from this one on are in no tree
    removed : number of points that were taken out
    tree, leaves, graph, sample : None where the algorithm has none
    costs : (a, b, s, t) and those of one query in seconds, None where nothing was timed
    """

    def __init__(self, points: Points, plan: Plan, random_state: np.random.RandomState) -> None:
        self.points, self.plan, self.removed = points, plan, 0
        self._grow(random_state)

    def _grow(self, random_state: np.random.RandomState) -> None:
        points, plan = self.points, self.plan
        self.covered = len(points)
        self._row_searches: dict[str, RowSearch] = {}
        self.tree: Tree | None = None
        self.leaves: Leaves | None = None
        self.graph: Graph | None = None
        self.sample: np.ndarray | None = None
        self.costs: tuple[float, ...] | None = None
        self.algorithm = plan.algorithm
        if plan.algorithm == "auto":
            small = plan.max_leaves is None and len(points) < FEW
            self.algorithm = "brute" if small or points.form.inner.code is None else "ball"
        live = np.flatnonzero(np.isfinite(points.bias))
        if self.algorithm == "graph" and len(live) and points.vectors.dtype == np.float32 and is_coarse(points):
            fine = Points.prepare(points.form, points.rows, dtype=np.float64)
            points = self.points = replace(fine, bias=np.where(np.isfinite(points.bias), fine.bias, np.inf))
        if self.algorithm == "sample":
            self.sample = live[draw_sample(len(live), plan.sample, plan.n_neighbors, random_state)]
        elif self.algorithm in ("ball", "vantage", "graph") and len(live):
            some = points if len(live) == len(points) else points.part(live)
            if self.algorithm != "vantage":
                tree = grow_ball_tree(
                    some,
                    leaf_size=plan.leaf_size,
                    branching=plan.branching,
                    n_iter=plan.n_iter,
                    random_state=random_state,
                )
            else:
                tree = grow_vantage_tree(some, leaf_size=plan.leaf_size, random_state=random_state)
            self.tree = tree._replace(order=live[tree.order])
            if self.algorithm != "vantage":
                self.leaves = gather_leaves(points, self.tree)
                if self.algorithm == "graph":
                    self.graph = link_points(points, self.tree, self.leaves)
                elif plan.algorithm == "auto" and plan.max_leaves is None:
                    self.costs = self._time(live)

    def _time(self, live: np.ndarray) -> tuple[float, ...]:
        """Seconds of products, then of the tree: for no query and per query of a batch; and for one query of both."""
        # a point is its own nearest one, which no query has
        k = min(self.plan.n_neighbors + 1, len(live))
        rows = self.points.rows[live[:: max(len(live) // ROWS, 1)][:ROWS]]
        ones, pairs = ([rows[i : i + m] for i in range(0, min(SINGLES, len(rows)), m)] for m in (1, 2))

        def answer(algorithm: str, some: np.ndarray) -> None:
            if len(some) > 1 or self.search_row(some, k, algorithm) is None:
                clean = self.points.form.clean(some)  # which they are, but no query is
                self._search(self.points.ask(clean, clean), k, algorithm, 1)

        def clock(algorithm: str, batches: list[np.ndarray]) -> float:
            """Mean over the batches of the best of some rounds, as the machine may be busy with others."""
            seconds = np.empty((ROUNDS, len(batches)))
            for at in np.ndindex(seconds.shape):
                started = time.process_time()
                answer(algorithm, batches[at[1]])
                seconds[at] = time.process_time() - started
            return float(seconds.min(axis=0).mean())

        costs, alone = [], []
        for algorithm, size in (("brute", ROWS), ("ball", PROBES)):
            pair, batch = clock(algorithm, pairs), clock(algorithm, [rows[:size]])
            slope = max(batch - pair, 0.0) / max(len(rows[:size]) - 2, 1)
            costs += [pair - 2 * slope, slope]
            alone.append(clock(algorithm, ones))
        return (*costs, *alone)

    def add(self, rows: np.ndarray, random_state: np.random.RandomState) -> None:
        """Take in cleaned rows, which get the next numbers."""
        self.points = self.points.joined(Points.prepare(self.points.form, rows, like=self.points))
        self._row_searches = {}
        many = len(self.points) - self.covered > OUTSIDE * len(self.points)
        if self.algorithm == "sample" or (self.plan.algorithm != "brute" and many):
            self._grow(random_state)

    def remove(self, indices: np.ndarray) -> None:
        """Take points out."""
        bias = np.array(self.points.bias)
        bias[indices] = np.inf
        self.removed = int(np.isinf(bias).sum())
        self.points, self._row_searches = replace(self.points, bias=bias), {}
        if self.tree is not None:
            self.tree = self.tree._replace(bias=bias[self.tree.order])
        if self.sample is not None:
            self.sample = np.setdiff1d(self.sample, indices)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_row_searches": {}}  # compiled here

    def n_live(self) -> int:
        """Points that can be found."""
        return len(self.points) - self.removed if self.sample is None else len(self.sample)

    def choose(self, m: int) -> str:
        """The algorithm for m queries."""
        if self.costs is None:
            return self.algorithm
        fixed, product, start, tree, *alone = self.costs
        products, leaves = alone if m == 1 else (fixed + product * m, start + tree * m)
        return "ball" if leaves < products else "brute"

    def search_row(self, X: np.ndarray, k: int, algorithm: str | None = None) -> Found | None:
        """The answer to one row X (1, d), contiguous float64, not cleaned; None where :meth:`search` has to answer."""
        form, plan = self.points.form, self.plan
        if self.sample is not None or form.inner.code is None or form.generator.root is not None:
            return None
        algorithm = self.choose(1) if algorithm is None else algorithm
        if algorithm not in self._row_searches:
            plain = algorithm == "brute" or self.tree is None
            others = () if plain else (self.tree, self.leaves, self.graph, plan.max_leaves, self.covered)
            self._row_searches[algorithm] = RowSearch(self.points, *others)
        return self._row_searches[algorithm](X, k, plan.beam)

    def search(self, queries: Queries, k: int, n_jobs: int | None) -> Found:
        """Divergences (m, k), indices (m, k) and statistics (m, 2): divergences computed and leaves opened."""
        return self._search(queries, k, self.choose(queries.size), n_jobs)

    def _search(self, queries: Queries, k: int, algorithm: str, n_jobs: int | None) -> Found:
        points, tree, covered = self.points, self.tree, self.covered
        if self.sample is not None:
            some = points.part(self.sample)
            distances, indices = search_brute(some, queries, k, n_jobs)
            return distances, self.sample[indices], np.tile([len(some), 0], (queries.size, 1))
        if algorithm == "brute" or tree is None:
            distances, indices = search_brute(points, queries, k, n_jobs)
            return distances, indices, np.tile([len(points), 0], (queries.size, 1))
        limit, common = self.plan.max_leaves, {"covered": covered, "n_jobs": n_jobs}
        if self.graph is not None:
            return search_graph(points, tree, self.graph, queries, k, beam=self.plan.beam, max_leaves=limit, **common)
        if self.leaves is not None and limit is None:
            return search_leaves(points, tree, self.leaves, queries, k, **common)
        return search_tree(points, tree, queries, k, max_leaves=limit, **common)

    def search_radius(self, queries: Queries, radius: float, n_jobs: int | None) -> Within:
        """All points within ``radius`` of each query, exactly: divergences and indices, in the order of the points."""
        if self.tree is None or self.choose(queries.size) == "brute":
            return search_radius(self.points, queries, radius, n_jobs)
        return search_radius_in_leaves(
            self.points, self.tree, self.leaves, queries, radius, covered=self.covered, n_jobs=n_jobs
        )

    # --- on disk -------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], about: dict[str, Any]) -> None:
        """Write everything to a folder; ``about`` are JSON values that :meth:`open` returns."""
        points, generator = self.points, self.points.form.generator
        if GENERATORS.get(generator.name) is not generator and generator.root is None:
            raise TypeError(f"{generator.name} is made of functions, which a file cannot hold; named divergences can")
        named = ("rows", "vectors", "bias", "mu", "nu", "largest")
        arrays = {f"points.{name}": getattr(points, name) for name in named}
        for kind, some in (("tree", self.tree), ("leaves", self.leaves), ("graph", self.graph)):
            arrays |= {} if some is None else {f"{kind}.{name}": array for name, array in some._asdict().items()}
        if self.sample is not None:
            arrays["sample"] = self.sample
        if generator.root is not None:
            arrays["precision"] = generator.root @ generator.root.T
        state = {"covered": self.covered, "algorithm": self.algorithm, "costs": self.costs, "scale": points.scale}
        form = {"generator": generator.name, "mixing": points.form.mixing, "smoothing": points.form.smoothing}
        save_index(path, arrays, {"plan": asdict(self.plan), "state": state, "form": form, "about": about})

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> tuple[NeighborIndex, dict[str, Any]]:
        """An index that was saved, its arrays mapped from disk, and what was said about it."""
        arrays, manifest = open_index(path)
        try:
            form, state = manifest["form"], manifest["state"]
            precision = arrays.get("precision")
            generator = find_generator(form["generator"]) if precision is None else mahalanobis(precision)
            rows = arrays["points.rows"]
            if rows.size and not (generator.lower < rows.min() and rows.max() < generator.upper):
                raise ValueError(f"{path} is damaged: points.rows has entries that {generator.name} is not defined for")
            index = cls.__new__(cls)

            def some(kind: str) -> dict[str, np.ndarray]:
                return {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{kind}.")}

            index.points = Points(
                Form(generator, form["mixing"], form["smoothing"]), scale=tuple(state["scale"]), **some("points")
            )
            index.plan = Plan(**manifest["plan"])
            index.removed = int(np.isinf(index.points.bias).sum())
            index.tree = Tree(**some("tree")) if some("tree") else None
            index.leaves = Leaves(**some("leaves")) if some("leaves") else None
            index.graph = Graph(**some("graph")) if some("graph") else None
            index.sample = arrays.get("sample")
            index._row_searches = {}
            index.covered, index.algorithm = state["covered"], state["algorithm"]
            index.costs = None if state["costs"] is None else tuple(state["costs"])
            return index, manifest["about"]
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"{path} is damaged: its manifest does not describe an index ({error})") from error
