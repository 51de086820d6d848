# SPDX-License-Identifier: BSD-3-Clause
"""Which images to ask for: our rule beside those of scikit-activeml (1.0), the same learner and the same answers.

    python benchmarks/bench_rules.py FOLDER [--runs 20] [--labels 15 30 60 100] [--rare 5]

FOLDER has a sub-folder per class.  Every rule starts from nothing: no label, no list of classes.  Whatever asks, the
pool's :class:`PoolLearner` learns from the answers and is scored on all images that have no label.  Ours, "margin" and
"random" are asked for one image at a time; the peers for all up to the next number of labels, as they are meant to be
(core-set, TypiClust, ProbCover, BADGE with logistic regression).  They see the pooled vectors' 128 leading principal
components.  ``--rare N`` keeps N images of every second class: are all classes found?

Without scikit-activeml only our own rules run.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from patchbag import PoolLearner, open_collection, runtime_context
from patchbag.active.pool import pool_graph
from patchbag.recipes import make_recipe

try:
    from skactiveml import pool as peers
    from skactiveml.classifier import SklearnClassifier
except ImportError:
    peers = None


def peer(strategy: Any, with_classifier: bool = False) -> Callable[..., np.ndarray]:
    def ask(X: np.ndarray, y: np.ndarray, batch: int) -> np.ndarray:
        more = {}
        if with_classifier:
            classes = np.unique(y[np.isfinite(y)])
            if len(classes) < 2:  # nothing to be unsure about
                return peers.RandomSampling(random_state=strategy.random_state).query(X, y, batch_size=batch)
            more = {"clf": SklearnClassifier(LogisticRegression(max_iter=200), classes=classes)}
        return strategy.query(X, y, batch_size=batch, **more)

    return ask


def by_peers(seed: int) -> dict[str, Callable[..., np.ndarray]]:
    if peers is None:
        return {}
    return {
        "TypiClust": peer(peers.TypiClust(random_state=seed)),
        "core-set": peer(peers.CoreSet(random_state=seed)),
        "ProbCover": peer(peers.ProbCover(random_state=seed)),
        "BADGE": peer(peers.Badge(random_state=seed), with_classifier=True),
    }


def learn(graph: Any, truth: np.ndarray, numbers: list[int], seed: int, rule: str, ask: Any, X: np.ndarray) -> Any:
    """Mean per-class accuracy and number of classes found at every number of labels."""
    learner = PoolLearner(rule if ask is None else "random", random_state=seed).fit(graph)
    known = np.full(len(truth), np.nan)
    found = []
    for number in numbers:
        while len(learner.labels_) < number:
            batch = 1 if ask is None else number - len(learner.labels_)
            images = learner.query() if ask is None else ask(X, known, batch)
            learner.teach(images, truth[images])
            known[images] = truth[images]
        left = np.isnan(known)
        right = balanced_accuracy_score(truth[left], learner.predict()[left])
        found.append((100 * right, len(np.unique(known[~left]))))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--labels", type=int, nargs="+", default=[15, 30, 60, 100])
    parser.add_argument("--rare", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    images = open_collection(options.folder).labelled()
    with runtime_context(n_jobs=-1, seed=0):
        pipeline = make_recipe("deep-pool")
        described = images.describe(pipeline["features"])
        names, truth = np.unique(images[described.kept].labels.astype(str), return_inverse=True)
        kept = np.arange(len(truth))
        if options.rare:
            few = [np.flatnonzero(truth == k)[options.rare :] for k in range(1, len(names), 2)]
            kept = np.setdiff1d(kept, np.concatenate(few))
        truth, graph = truth[kept], pool_graph(pipeline, described.bags[kept])
        X = PCA(min(128, len(truth) - 1), random_state=0).fit_transform(graph.vectors)
        results: dict[str, list[Any]] = {}
        seconds: dict[str, float] = {}
        for seed in range(options.runs):
            rules: dict[str, Any] = dict.fromkeys(("representative", "margin", "random"))
            for rule, ask in {**rules, **by_peers(seed)}.items():
                started = time.perf_counter()
                results.setdefault(rule, []).append(learn(graph, truth, options.labels, seed, rule, ask, X))
                seconds[rule] = seconds.get(rule, 0.0) + time.perf_counter() - started
    print(
        f"{len(truth)} images, {len(names)} classes, {options.runs} runs; mean per-class accuracy ± deviation [found]"
    )
    for rule, runs in results.items():
        mean, deviation = np.mean(runs, axis=0), np.std(runs, axis=0)
        cells = (f"{n}: {m[0]:.1f} ± {d[0]:.1f} [{m[1]:.1f}]" for n, m, d in zip(options.labels, mean, deviation))
        print(f"{rule:>15}  {'   '.join(cells)}   {seconds[rule] / options.runs:.1f} s per run")


if __name__ == "__main__":
    main()
