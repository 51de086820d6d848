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

``layout = "ukbench"`` or ``"holidays"`` (:mod:`patchbag.datasets.groups`) has groups of the same thing for classes;
``at`` are then cut-offs, and the figure of each is the recall, drawn over 1 - precision (figures 2.5 and 2.6).
``first = 100`` in a run takes as many images of the folder; ``by = "keypoints"`` compares by the
number of matched SIFT keypoints.
``expand = 5`` in a run searches again by the query and the first five results.

``queries = 100`` takes as many random images as queries, the same number per class (seed 0); ``preselected = 150`` in a
run by "smp" ranks in two steps, the first of them by the low-pass alone where ``low_pass = true``.

Figures are percentages, without the query in the list; "with the query" counts it as found at the first rank, as a
search in the collection that holds it does.  The first row of each run is the mean over classes of precision at the
first rank of ``at``; ``per_class`` has it by class, ``seconds`` the processor's time for all queries, images described.
"""

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from patchbag.datasets.groups import open_groups
from patchbag.experiments.experiment import Experiment, Row, file_contents, make_row
from patchbag.experiments.files import study
from patchbag.metrics import mean_average_precision, precision_at, top_four_score
from patchbag.runtime import parallel_map
from patchbag.search.diffusion import CANDIDATES, diffuse
from patchbag.search.encoder import Encoder, describe
from patchbag.search.ranking import compare, expand, nearest
from patchbag.search.representations import find_representation
from patchbag.search.verification import LocalFeatures, local_features, match_features
from patchbag.similarity.smp import ALL, LOW_PASS, divergences_to, two_step_ranking

KEYPOINTS = "keypoints"
BLOCK = 10  # queries that are kept together


def choose_queries(labels: np.ndarray, number: int | None) -> np.ndarray:
    """Rows that are queries: all, or so many, the same number per class."""
    if number is None:
        return np.arange(len(labels))
    rng, classes = np.random.default_rng(0), np.unique(labels.astype(str))
    each = max(1, number // len(classes))
    picked = [rng.permutation(np.flatnonzero(labels.astype(str) == name))[:each] for name in classes]
    return np.sort(np.concatenate(picked))


def rank_vectors(vectors: np.ndarray, query: int, metric: str, diffused: bool, expanded: int = 0) -> np.ndarray:
    """All other images, most alike first; those beyond the reach of diffusion follow."""

    def ranked(vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        distances = compare(vectors, vector, metric)
        distances[query] = np.inf
        return nearest(distances, len(vectors) - 1), distances

    vector = vectors[query]
    rows, distances = ranked(vector)
    if expanded:
        vector = expand(vector, vectors[rows[:expanded]], distances[rows[:expanded]])
        rows, _ = ranked(vector)
    if diffused:
        near, far = rows[:CANDIDATES], rows[CANDIDATES:]
        weights = diffuse(vectors[near], vector)
        rows = np.concatenate([near[np.argsort(-weights, kind="stable")], far])
    return rows


def rank_patches(bags: list[np.ndarray], query: int, preselected: int | None, low_pass: bool = False) -> np.ndarray:
    """The same by multiscale patches, in one step or in two."""
    if preselected is None:
        rows = np.argsort(divergences_to(bags[query], bags), kind="stable")
    else:
        rows = two_step_ranking(bags[query], bags, preselected, scales=LOW_PASS if low_pass else ALL)
    return rows[rows != query]


def rank_keypoints(features: list[LocalFeatures], query: int) -> np.ndarray:
    """The same by the number of keypoints that match, as piro2010 does it for comparison (§2.4.3.3)."""
    numbers = np.array([len(match_features(features[query], other)) for other in features])
    rows = np.argsort(-numbers, kind="stable")
    return rows[rows != query]


def describe_all(by: str, paths: list[str]) -> Any:
    """Vectors, patches or keypoints of all images."""
    if by == KEYPOINTS:
        return list(parallel_map(local_features, paths))
    representation = find_representation(by)
    described = describe(representation, paths)
    if described.failures:
        raise ValueError(f"{described.failures[0][1]}: {described.failures[0][2]}")
    if representation.metric == "smp":
        return list(described.parts[0])
    return Encoder.fit(representation, described.parts)[1]


def rank(run: dict[str, Any], described: Any, query: int) -> np.ndarray:
    """All other images in the order that a run finds them in."""
    if run["by"] == KEYPOINTS:
        return rank_keypoints(described, query)
    metric = find_representation(run["by"]).metric
    if metric == "smp":
        return rank_patches(described, query, run.get("preselected"), run.get("low_pass", False))
    return rank_vectors(described, query, metric, run.get("diffuse", False), run.get("expand", 0))


@study("retrieval", "data at run", each="name by")
def retrieval_table(experiment: Experiment) -> list[Row]:
    """Precision and mean average precision of searches by several representations."""
    spec = experiment.spec
    if layout := spec.get("layout"):
        groups = open_groups(experiment.folder(spec["data"]), layout)
        paths, labels, asked = groups.paths, groups.groups, groups.queries
    else:
        paths, labels = list(experiment.images.paths), experiment.images.labels
        asked = choose_queries(labels, spec.get("queries"))
    contents = file_contents(paths)

    @cache
    def described_by(by: str) -> Any:
        experiment.progress(f"describing {len(paths)} images by {by}")
        return describe_all(by, paths)

    rows: list[Row] = []
    for run in experiment.runs:
        size = run.get("first", len(paths))
        queries = asked[asked < size]
        if layout:
            queries = queries[: spec.get("queries")]
        relevant, seconds = np.zeros((len(queries), size - 1), bool), 0.0
        for start in range(0, len(queries), BLOCK):
            experiment.progress(f"{run['name']}: query {start + 1} of {len(queries)}")
            some = queries[start : start + BLOCK]
            look = partial(_places, described_by)
            places, spent = experiment.recall(look, run, labels[:size], some, origin=contents)
            for i, found in enumerate(places, start):
                relevant[i, found] = True
            seconds += spent
        more = _of_groups(spec, run, relevant) if layout else _of_classes(spec, run, relevant, labels[queries])
        rows += [{**more[0], "seconds": seconds}, *more[1:]]
        rule: Any = "holidays" if layout == "holidays" else "ranks"
        precision = 100 * mean_average_precision(relevant, rule)
        rows.append(make_row(f"{run['name']}: mean average precision", precision))
    return rows


def _places(
    described_by: Callable[[str], Any], run: dict[str, Any], labels: np.ndarray, queries: np.ndarray
) -> tuple[list[list[int]], float]:
    """The ranks of what is relevant to each query, from 0, and the seconds that this took."""
    described = described_by(run["by"])[: len(labels)]
    started = time.process_time()
    found = [np.flatnonzero(labels[rank(run, described, query)] == labels[query]).tolist() for query in queries]
    return found, time.process_time() - started


def _of_groups(spec: dict[str, Any], run: dict[str, Any], relevant: np.ndarray) -> list[Row]:
    rows = []
    total = relevant.sum(axis=1)
    for n in spec["at"]:
        recall = float((relevant[:, :n].sum(axis=1) / total).mean())
        name = f"{run['name']}: recall at {n}"
        away = 100 * (1 - precision_at(relevant, n))
        rows.append(make_row(name, 100 * recall, run.get("published"), series=run["name"], x=away))
    if spec["layout"] == "ukbench":
        rows.append(make_row(f"{run['name']}: of the first four", top_four_score(relevant)))
    return rows


def _of_classes(spec: dict[str, Any], run: dict[str, Any], relevant: np.ndarray, labels: np.ndarray) -> list[Row]:
    rows = []
    for n in spec["at"]:
        per_class = _by_class(relevant, labels, n)
        name = f"{run['name']}: precision at {n}"
        mean = float(np.mean(list(per_class.values())))
        rows.append(make_row(name, mean, run.get("published"), per_class=per_class))
        whole = np.hstack([np.ones((len(relevant), 1), bool), relevant])
        rows.append(make_row(f"{name}, with the query", float(np.mean(list(_by_class(whole, labels, n).values())))))
    return rows


def _by_class(relevant: np.ndarray, labels: np.ndarray, n: int) -> dict[str, float]:
    names = np.unique(labels.astype(str))
    return {str(name): 100 * precision_at(relevant[labels.astype(str) == name], n) for name in names}
