# SPDX-License-Identifier: BSD-3-Clause
"""How sure classifiers are of few labels, and whether they notice classes never seen: many draws, on fixed vectors.

    python benchmarks/measure_confidence.py FOLDER [--features sift] [--labels 2 3 5 10 50] [--half] [--keep FILE]

FOLDER has a sub-folder per class.  Images are described once, at most ``--images`` per class: pooled vectors of a
network, or Fisher vectors of gradients (64 Gaussians, learned from 500 images without their labels).  Every draw takes
training images and test images anew; with ``--half`` a random half of the classes is unknown and only tested.
``--keep`` writes the vectors to a file, or reads them from there.

Percent, means over draws: right; mean stated probability of the predicted class; the draw in which they are furthest
apart; logarithmic loss, and how much of it the best single temperature, known afterwards, would take away; how often
sets that promise 90 % hold the class, and their size; known images and images of unknown classes with a typicality of
5 % at most; area under the curve of typicality.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline

from patchbag import BagPCA, FisherVector, GaussianProcessClassifier, LinearClassifier, Normalizer, open_collection
from patchbag.classifiers.pool import PoolClassifier
from patchbag.mixture.gaussian import UniversalMixture
from patchbag.mixture.universal import UniversalStatistics
from patchbag.recipes import FEATURES
from patchbag.runtime import runtime_context
from patchbag.stages import PYRAMID, pooled, prototypes

POWERS = np.geomspace(0.25, 4.0, 41)  # 1 in the middle
CLASSIFIERS = {
    "linear": lambda: LinearClassifier(random_state=0),
    "process": lambda: GaussianProcessClassifier(random_state=0),
    "pool": lambda: PoolClassifier(random_state=0),
    "prototypes": lambda: prototypes("similarity", "similarity")[0][1].set_params(random_state=0),
}


def describe(folder: Path, features: str, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors (n, d) before centring, and labels."""
    images, random = open_collection(folder).labelled(), np.random.RandomState(7)
    labels = images.labels.astype(str)
    some = [random.permutation(np.flatnonzero(labels == c))[:most] for c in np.unique(labels)]
    kept = np.concatenate([np.sort(part) for part in some])
    bags = images[kept].describe(FEATURES[features](), on_error="raise").bags
    if features == "deep-pooled":
        return np.asarray(Pipeline(pooled()[:2]).fit_transform(bags), np.float32), labels[kept]
    statistics = UniversalStatistics(UniversalMixture(64), BagPCA(64), PYRAMID)
    encode = make_pipeline(statistics, FisherVector(), Normalizer(["power", "l2"]))
    encode.fit(bags[np.sort(random.permutation(len(bags))[:500])])
    parts = [np.asarray(encode.transform(bags[i : i + 200])) for i in range(0, len(bags), 200)]
    rows = np.concatenate(parts).astype(np.float32)
    values, axes = np.linalg.eigh((rows @ rows.T).astype(float))  # the same inner products in few columns
    return (axes * np.sqrt(np.maximum(values, 0))).astype(np.float32), labels[kept]


def draw(labels: np.ndarray, per_class: int, most: int, half: bool, seed: int) -> tuple[np.ndarray, ...]:
    """Images to train with, to test with, and of unknown classes."""
    random, classes = np.random.RandomState(seed), np.unique(labels)
    order = random.permutation(classes)
    known = order[: (len(order) + 1) // 2] if half else order
    parts: tuple[list[int], ...] = ([], [], [])
    for c in order:
        members = random.permutation(np.flatnonzero(labels == c)).tolist()
        if c in known:
            parts[0].extend(members[:per_class])
            parts[1].extend(members[per_class:][:most])
        else:
            parts[2].extend(members[:most])
    return tuple(np.array(part, dtype=int) for part in parts)


def judge(kind: str, rows: list[np.ndarray], labels: list[np.ndarray]) -> tuple[dict[str, float], list[float]]:
    """Figures of one draw, and the log loss at every power of the probabilities."""
    train, test, new = rows
    if kind in ("process", "prototypes"):
        train, test, new = (part @ rows[0].T for part in rows)
    if kind == "pool":  # sees all images, and the labels of some
        unlabelled = [None] * (len(test) + len(new))
        model = CLASSIFIERS[kind]().fit(np.vstack([train, test, new]), [*labels[0], *unlabelled])
    else:
        model = CLASSIFIERS[kind]().fit(train, labels[0])
    p, own = model.predict_proba(test), np.searchsorted(model.classes_, labels[1])
    sets, typical = model.predict_set(test), model.typicality(test)
    raised = p ** POWERS[:, None, None]
    raised /= raised.sum(axis=2, keepdims=True)
    figures = {
        "right": 100 * np.mean(p.argmax(axis=1) == own),
        "stated": 100 * p.max(axis=1).mean(),
        "coverage": 100 * sets[np.arange(len(own)), own].mean(),
        "size": sets.sum(axis=1).mean(),
        "flagged": 100 * np.mean(typical <= 0.05),
    }
    if len(new):
        strange = model.typicality(new)
        figures["noticed"] = 100 * np.mean(strange <= 0.05)
        figures["area"] = 100 * roc_auc_score(np.repeat([1, 0], [len(test), len(new)]), np.append(typical, strange))
    return figures, [log_loss(labels[1], q, labels=model.classes_) for q in raised]


def centred(vectors: np.ndarray, parts: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """What all training images have in common is taken away; unit length."""
    mean = unit(vectors[parts[0]]).mean(axis=0)
    return [unit(unit(vectors[part]) - mean) for part in parts]


def unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--features", default="deep-pooled", choices=["deep-pooled", "sift"])
    parser.add_argument("--classifiers", nargs="+", default=list(CLASSIFIERS), choices=list(CLASSIFIERS))
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 3, 5, 10, 50])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=150)
    parser.add_argument("--test", type=int, default=50)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with runtime_context(n_jobs=1, seed=0):
        if given.keep is not None and given.keep.exists():
            stored = np.load(given.keep)
            vectors, labels = stored["vectors"], stored["labels"]
        else:
            vectors, labels = describe(given.folder, given.features, given.images)
            if given.keep is not None:
                np.savez(given.keep, vectors=vectors, labels=labels)
        print(f"{given.folder.name}, {given.features}, {given.draws} draws from seed {given.seed}, half={given.half}")
        for kind in given.classifiers:
            for n in given.labels:
                report(kind, n, vectors, labels, given)


def report(kind: str, n: int, vectors: np.ndarray, labels: np.ndarray, given: Any) -> None:
    found, losses = [], []
    for seed in range(given.seed, given.seed + given.draws):
        parts = draw(labels, n, given.test, given.half, seed)
        rows = centred(vectors, parts) if given.features == "deep-pooled" else [vectors[part] for part in parts]
        figures, loss = judge(kind, rows, [labels[part] for part in parts])
        found.append(figures)
        losses.append(loss)
    mean = {what: np.mean([one[what] for one in found]) for what in found[0]}
    apart = max(abs(one["stated"] - one["right"]) for one in found)
    loss = np.mean(losses, axis=0)
    more = loss[len(POWERS) // 2] - loss.min()
    text = " ".join(f"{what} {value:.1f}" if what != "size" else f"size {value:.2f}" for what, value in mean.items())
    print(
        f"{kind:10s} {n:3d} per class: {text} apart {apart:.1f} loss {loss[len(POWERS) // 2]:.3f} +{more:.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
