# SPDX-License-Identifier: BSD-3-Clause
"""The defaults on data that nobody tuned them for: is `auto` as good as its best part, and is what it states true?

    python benchmarks/measure_defaults.py [FOLDER ...] [--labels 3 10] [--draws 3] [--recipes auto deep-linear ...]
    python benchmarks/measure_defaults.py [FOLDER ...] --active [--draws 5] [--asked 20 40 80] [--rules representative]

Without folders the sets of ``made_sets.py`` are made and measured.  A folder has a sub-folder per class.  Every draw
takes so many training images per class, but at most half of a class, and tests on the others; all recipes see the same
draws.  Percent, means over draws: mean accuracy per class and its standard error; share right and mean stated
probability; how often sets that promise 90 % hold the class, and their size; test images with a typicality of 5 % at
most; the same of 7 blank, flat and noise images, and of tiles of other photographs.

``--active``: with ``--asked`` labels, by default as many, 2 and 4 times as many as there are classes, asked for by
each rule: accuracy on all other images, classes found, the share that is wrong, the expected one, its interval of 90 %,
and in how many draws it holds the share that is wrong.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import made_sets
import numpy as np
from sklearn.metrics import balanced_accuracy_score

from patchbag import Categorizer, PoolLearner, open_collection, runtime_context
from patchbag.active.pool import pool_graph
from patchbag.recipes import make_recipe

RECIPES = ("auto", "deep-linear", "deep-gp", "deep-fisher", "fisher", "gp-fisher", "deep-pool")


def draw(labels: np.ndarray, per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images that train and images that test."""
    random = np.random.RandomState(seed)
    train = []
    for c in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == c))
        train.extend(members[: min(per_class, max(len(members) // 2, 1))])
    return np.sort(train), np.setdiff1d(np.arange(len(labels)), train)


def strangers() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Blank, flat and noise images; tiles of photographs."""
    random = np.random.RandomState(0)
    flat = [np.full((96, 96, 3), c, np.uint8) for c in ((0, 0, 0), (255, 255, 255), (128, 128, 128), (200, 30, 30))]
    ramp = np.repeat(np.repeat(np.linspace(0, 255, 96)[None, :, None], 96, 0), 3, 2).astype(np.uint8)
    noise = [random.randint(0, 256, (96, 96, 3)).astype(np.uint8)]
    noise += [np.clip(random.normal(128, 30, (96, 96, 1)).repeat(3, 2), 0, 255).astype(np.uint8)]
    pictures = [np.asarray(p.convert("RGB")) for _, p in list(made_sets.tiles(np.random.RandomState(1)))[::8]]
    return [*flat, ramp, *noise], pictures


def measure(folder: Path, recipes: list[str], per_class: list[int], draws: int) -> None:
    images = open_collection(folder).labelled()
    blank, foreign = strangers()
    labels = images.labels.astype(str)
    print(f"\n{folder.name}: {len(labels)} images, {len(set(labels))} classes", flush=True)
    for recipe in recipes:
        described = images.describe(Categorizer(recipe).pipeline()["features"], on_error="raise").bags
        for number in per_class:
            figures, started = [], time.process_time()
            for seed in range(draws):
                train, test = draw(labels, number, seed)
                model = Categorizer(recipe, random_state=seed).fit(described[train], labels[train])
                said = model.judge(described[test])
                true = labels[test][:, None] == model.classes_
                best = said.probabilities.argmax(axis=1)
                figures.append(
                    [
                        balanced_accuracy_score(labels[test], model.classes_[best]),
                        true[np.arange(len(test)), best].mean(),
                        said.probabilities.max(axis=1).mean(),
                        (said.sets & true).any(axis=1).mean(),
                        said.sets.sum(axis=1).mean() / 100,
                        (said.typicality <= 0.05).mean(),
                        *(
                            (model.typicality(some) <= 0.05).mean() if seed == 0 else np.nan
                            for some in (blank, foreign)
                        ),
                    ]
                )
            mean = 100 * np.nanmean(figures, axis=0)
            error = 100 * np.std([f[0] for f in figures]) / max(draws - 1, 1) ** 0.5
            cells = (
                f"{mean[0]:5.1f} ± {error:3.1f}   right {mean[1]:5.1f} stated {mean[2]:5.1f}",
                f"sets {mean[3]:5.1f} of {mean[4]:4.2f}",
                f"flagged {mean[5]:4.1f}, blank {mean[6]:3.0f}, foreign {mean[7]:3.0f}",
                f"{(time.process_time() - started) / draws:.1f} s",
            )
            print(f"{recipe:>12} {number:3d} per class  {'   '.join(cells)}", flush=True)


def ask(folder: Path, draws: int, asked_for: list[int], rules: list[str]) -> None:
    images = open_collection(folder).labelled()
    truth = images.labels.astype(str)
    pipeline = make_recipe("deep-pool")
    graph = pool_graph(pipeline, images.describe(pipeline["features"], on_error="raise").bags)
    n_classes = len(set(truth))
    numbers = [n for n in asked_for or (n_classes, 2 * n_classes, 4 * n_classes) if n < 0.7 * len(truth)]
    print(f"\n{folder.name}: {len(truth)} images, {n_classes} classes", flush=True)
    for rule in rules:
        found: list[list[list[float]]] = []
        started = time.process_time()
        for seed in range(draws):
            learner = PoolLearner(rule, random_state=seed).fit(graph)
            found.append([])
            for number in numbers:
                while len(learner.labels_) < number:
                    asked = learner.query()
                    learner.teach(asked, truth[asked])
                left = np.setdiff1d(np.arange(len(truth)), list(learner.labels_))
                predicted, error = learner.predict()[left], learner.error()
                wrong = np.mean(predicted != truth[left])
                said = [wrong, error.expected, error.low, error.high, error.low <= wrong <= error.high]
                accuracy = balanced_accuracy_score(truth[left], predicted)
                found[-1].append([100 * accuracy, len(learner.classes_), *(100.0 * np.array(said))])
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0)[:, 0] / max(draws - 1, 1) ** 0.5
        print(f"{rule}   {(time.process_time() - started) / draws:.1f} s", flush=True)
        for n, m, e in zip(numbers, mean, spread):
            told = f"wrong {m[2]:5.1f}, expected {m[3]:5.1f} [{m[4]:5.1f}, {m[5]:5.1f}], inside {m[6]:3.0f}"
            print(f"  {n:4d} labels: {m[0]:5.1f} ± {e:3.1f}, {m[1]:5.1f} classes   {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--labels", type=int, nargs="+", default=[3, 10])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--active", action="store_true")
    parser.add_argument("--asked", type=int, nargs="+", default=[])
    parser.add_argument("--rules", nargs="+", default=["representative", "random", "margin"])
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    with TemporaryDirectory() as made, runtime_context(n_jobs=options.jobs, seed=0):
        for folder in options.folders or [made_sets.write(name, Path(made)) for name in made_sets.MAKERS]:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                if options.active:
                    ask(folder, options.draws, options.asked, options.rules)
                else:
                    measure(folder, options.recipes, options.labels, options.draws)
            for message in sorted({str(w.message).splitlines()[0] for w in told}):
                print(f"warned: {message[:160]}")


if __name__ == "__main__":
    main()
