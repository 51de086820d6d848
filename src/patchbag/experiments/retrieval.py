# SPDX-License-Identifier: BSD-3-Clause
"""Searches over labelled images: every image is a query, those of its class are relevant.

A file names representations of :mod:`patchbag.search.representations`::

    kind = "retrieval"
    data = "corel1000"
    at = [100]                  # precision at these ranks
    [[run]]
    name = "deep, diffusion"
    by = "deep"
    diffuse = true

``queries = 100`` takes as many random images as queries, the same number per class (seed 0); ``preselected = 200`` in a
run by "smp" ranks in two steps.

Figures are percentages, without the query in the list; "with the query" counts it as found at the first rank, as a
search in the collection that holds it does.  The first row of each run is the mean over classes of precision at the
first rank of ``at``; ``per_class`` has it by class.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.experiments.runs import open_data
from patchbag.experiments.tables import Journal, Row, Tell, make_row
from patchbag.metrics import mean_average_precision, precision_at
from patchbag.search.diffusion import CANDIDATES, diffuse
from patchbag.search.encoder import Encoder, describe
from patchbag.search.ranking import compare, nearest
from patchbag.search.representations import find_representation
from patchbag.similarity.smp import two_step_ranking


def choose_queries(labels: np.ndarray, number: int | None) -> np.ndarray:
    """Rows that are queries: all, or so many, the same number per class."""
    if number is None:
        return np.arange(len(labels))
    rng, classes = np.random.default_rng(0), np.unique(labels.astype(str))
    each = max(1, number // len(classes))
    picked = [rng.permutation(np.flatnonzero(labels.astype(str) == name))[:each] for name in classes]
    return np.sort(np.concatenate(picked))


def rank_vectors(vectors: np.ndarray, query: int, metric: str, diffused: bool) -> np.ndarray:
    """All other images, most alike first; those beyond the reach of diffusion follow."""
    distances = compare(vectors, vectors[query], metric)
    distances[query] = np.inf
    rows = nearest(distances, len(vectors) - 1)
    if diffused:
        near, far = rows[:CANDIDATES], rows[CANDIDATES:]
        weights = diffuse(vectors[near], vectors[query])
        rows = np.concatenate([near[np.argsort(-weights, kind="stable")], far])
    return rows


def rank_patches(bags: list[np.ndarray], query: int, preselected: int | None) -> np.ndarray:
    """The same by multiscale patches, in one step or in two."""
    rows = two_step_ranking(bags[query], bags, len(bags) if preselected is None else preselected)
    return rows[rows != query]


def retrieval_table(spec: dict[str, Any], data: Path | None, progress: Tell, journal: Journal) -> list[Row]:
    """Precision and mean average precision of searches by several representations."""
    collection = open_data(spec, data)
    labels = collection.labels
    queries = choose_queries(labels, spec.get("queries"))
    described_by: dict[str, Any] = {}
    rows: list[Row] = []
    for run in spec["run"]:
        started = time.perf_counter()
        representation = find_representation(run["by"])
        sets = representation.metric == "smp"
        if run["by"] not in described_by:
            progress(f"describing {len(collection)} images by {run['by']}")
            described = describe(representation, collection.paths)
            if described.failures:
                raise ValueError(f"{described.failures[0][1]}: {described.failures[0][2]}")
            found = list(described.parts[0]) if sets else Encoder.fit(representation, described.parts)[1]
            described_by[run["by"]] = found
        relevant = np.empty((len(queries), len(labels) - 1), bool)
        for i, query in enumerate(queries):
            if i % 10 == 0:
                progress(f"{run['name']}: query {i + 1} of {len(queries)}")
            if sets:
                order = rank_patches(described_by[run["by"]], query, run.get("preselected"))
            else:
                order = rank_vectors(described_by[run["by"]], query, representation.metric, run.get("diffuse", False))
            relevant[i] = labels[order] == labels[query]
        seconds = time.perf_counter() - started
        for n in spec["at"]:
            per_class = _by_class(relevant, labels[queries], n)
            mean = float(np.mean(list(per_class.values())))
            name = f"{run['name']}: precision at {n}"
            rows.append(make_row(name, mean, run.get("published"), per_class=per_class, seconds=seconds))
            seconds = 0.0
            whole = np.hstack([np.ones((len(queries), 1), bool), relevant])
            per_class = _by_class(whole, labels[queries], n)
            rows.append(make_row(f"{name}, with the query", float(np.mean(list(per_class.values())))))
        rows.append(make_row(f"{run['name']}: mean average precision", 100 * mean_average_precision(relevant)))
    return rows


def _by_class(relevant: np.ndarray, labels: np.ndarray, n: int) -> dict[str, float]:
    names = np.unique(labels.astype(str))
    return {str(name): 100 * precision_at(relevant[labels.astype(str) == name], n) for name in names}
