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


def rank_all(vectors: np.ndarray, metric: str, diffused: bool) -> np.ndarray:
    """For every image all others, most alike first, (n, n - 1); those beyond the reach of diffusion follow."""
    n = len(vectors)
    order = np.empty((n, n - 1), np.int64)
    for i in range(n):
        distances = compare(vectors, vectors[i], metric)
        distances[i] = np.inf
        rows = nearest(distances, n - 1)
        if diffused:
            near, far = rows[:CANDIDATES], rows[CANDIDATES:]
            weights = diffuse(vectors[near], vectors[i])
            rows = np.concatenate([near[np.argsort(-weights, kind="stable")], far])
        order[i] = rows
    return order


def retrieval_table(spec: dict[str, Any], data: Path | None, progress: Tell, journal: Journal) -> list[Row]:
    """Precision and mean average precision of searches by several representations."""
    collection = open_data(spec, data)
    vectors: dict[str, np.ndarray] = {}
    rows: list[Row] = []
    for run in spec["run"]:
        started = time.perf_counter()
        representation = find_representation(run["by"])
        if run["by"] not in vectors:
            progress(f"describing {len(collection)} images by {run['by']}")
            described = describe(representation, collection.paths)
            if described.failures:
                raise ValueError(f"{described.failures[0][1]}: {described.failures[0][2]}")
            vectors[run["by"]] = Encoder.fit(representation, described.parts)[1]
        progress(f"searching: {run['name']}")
        order = rank_all(vectors[run["by"]], representation.metric, run.get("diffuse", False))
        labels = collection.labels
        relevant = labels[order] == labels[:, None]
        seconds = time.perf_counter() - started
        for n in spec["at"]:
            per_class = {str(c): 100 * precision_at(relevant[labels == c], n) for c in collection.classes}
            mean = float(np.mean(list(per_class.values())))
            name = f"{run['name']}: precision at {n}"
            rows.append(make_row(name, mean, run.get("published"), per_class=per_class, seconds=seconds))
            seconds = 0.0
            whole = np.hstack([np.ones((len(labels), 1), bool), relevant])
            per_class = {str(c): 100 * precision_at(whole[labels == c], n) for c in collection.classes}
            rows.append(make_row(f"{name}, with the query", float(np.mean(list(per_class.values())))))
        rows.append(make_row(f"{run['name']}: mean average precision", 100 * mean_average_precision(relevant)))
    return rows
