# SPDX-License-Identifier: BSD-3-Clause
"""The papers' protocol: random splits, mean per-class accuracy, mean ± standard deviation over splits.

For every split ``train_per_class`` random images of each class train the whole recipe, PCA and universal model
included, and all other images test it.  Besides the accuracy a split records the confusion matrix, how well the stated
probabilities agree with the truth, and where the time went.  Features are taken from the cache after the first split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from patchbag.categorizer import Categorizer
from patchbag.datasets import ImageFolder, random_split
from patchbag.metrics import mean_class_accuracy

MISTAKES_KEPT = 200


@dataclass
class SplitResult:
    """What one split showed; accuracies are fractions."""

    seed: int
    accuracy: float
    per_class: dict[str, float]
    n_train: int
    n_test: int
    confusion: list[list[int]]
    calibration_error: float
    log_loss: float
    seconds: dict[str, float]


@dataclass
class Evaluation:
    """All splits; ``splits`` are in the order of their seeds.

    ``describing`` is the time in seconds that went into the features of all images before the first split.
    """

    recipe: str
    classes: list[str]
    parameters: dict[str, Any]
    protocol: str = ""
    splits: list[SplitResult] = field(default_factory=list)
    mistakes: list[dict[str, Any]] = field(default_factory=list)
    reliability: list[dict[str, float]] = field(default_factory=list)
    describing: float = 0.0

    @property
    def mean_accuracy(self) -> float:
        return float(np.mean([s.accuracy for s in self.splits]))

    @property
    def std_accuracy(self) -> float:
        """Standard deviation over splits (n − 1 in the denominator); 0 for a single split."""
        values = [s.accuracy for s in self.splits]
        return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0

    @property
    def confusion(self) -> np.ndarray:
        """(C, C) counts over all splits, true classes in rows."""
        return np.sum([s.confusion for s in self.splits], axis=0)

    def seconds(self) -> dict[str, float]:
        """Time by step over all splits, that of describing the images first where it is known, and the total."""
        spent = {"describe images": self.describing} if self.describing else {}
        for split in self.splits:
            for name, value in split.seconds.items():
                if name != "total":
                    spent[name] = spent.get(name, 0.0) + value
        return {**spent, "total": sum(spent.values())}

    def images_per_second(self) -> float:
        """Images of a split by the time that they take: to be described, and to train and test once."""
        images = np.mean([s.n_train + s.n_test for s in self.splits])
        once = (self.seconds()["total"] - self.describing) / len(self.splits)
        return float(images / max(self.describing + once, 1e-9))

    def to_json(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "mean_accuracy": self.mean_accuracy,
            "std_accuracy": self.std_accuracy,
            "splits": [asdict(s) for s in self.splits],
            "seconds": self.seconds(),
            "images_per_second": self.images_per_second(),
            "parameters": self.parameters,
            "classes": self.classes,
            "confusion": self.confusion.tolist(),
            "reliability": self.reliability,
            "mistakes": self.mistakes,
        }


def evaluate(
    folder: ImageFolder,
    categorizer: Categorizer,
    *,
    train_per_class: int,
    splits: int = 10,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Evaluation:
    """Run the protocol on a folder whose images can all be read.

    Parameters
    ----------
    categorizer : cloned for every split, with the split's seed as its ``random_state``
    train_per_class, splits, seed : split i uses the seed ``seed + i``
    progress : told what is being done
    """
    many = f"{splits} random splits" if splits > 1 else "one random split"
    protocol = f"{many}, {train_per_class} training images a class"
    result = Evaluation(recipe_name(categorizer), folder.classes, json_parameters(categorizer), protocol)
    confident: list[np.ndarray] = []
    for i in range(splits):
        if progress:
            progress(f"split {i + 1} of {splits}")
        train, test = random_split(folder.labels, train_per_class, seed + i)
        run = evaluate_split(categorizer, folder.take(train), folder.take(test), seed + i)
        result.splits.append(run.split)
        if progress:
            progress(f"split {i + 1} of {splits}: {100 * run.split.accuracy:.2f} %")
        result.mistakes += run.mistakes
        confident.append(run.confidence)
    result.mistakes = sorted(result.mistakes, key=lambda m: -m["probability"])[:MISTAKES_KEPT]
    result.reliability = reliability_table(*np.concatenate(confident).T)
    return result


class SplitRun(NamedTuple):
    """A trained categorizer and what it did on the test images."""

    model: Categorizer
    split: SplitResult
    mistakes: list[dict[str, Any]]
    confidence: np.ndarray


def evaluate_split(categorizer: Categorizer, train: ImageFolder, test: ImageFolder, seed: int) -> SplitRun:
    """Train a clone of the categorizer and test it; ``confidence`` is (n, 2): stated probability, right or not."""
    model = clone(categorizer).set_params(random_state=seed)
    model.fit(train.paths, train.labels)
    spent: dict[str, float] = {}
    probabilities = model.predict_proba(test.paths, seconds=spent)
    seconds = {f"train {k}": v for k, v in model.seconds_.items()} | {f"test {k}": v for k, v in spent.items()}
    seconds["total"] = sum(seconds.values())
    classes = [str(c) for c in model.classes_]
    split, right = score_split(test, classes, probabilities, seconds, seed, len(train))
    confidence = np.stack([probabilities.max(axis=1), right], axis=1)
    return SplitRun(model, split, confident_mistakes(test, classes, probabilities, seed), confidence)


def score_split(
    test: ImageFolder, classes: list[str], probabilities: np.ndarray, seconds: dict[str, float], seed: int, n_train: int
) -> tuple[SplitResult, np.ndarray]:
    """Figures of one split, and which test images were right."""
    truth = np.searchsorted(classes, test.labels)
    guess = probabilities.argmax(axis=1)
    confusion = np.zeros((len(classes), len(classes)), int)
    np.add.at(confusion, (truth, guess), 1)
    right = truth == guess
    table = reliability_table(probabilities.max(axis=1), right)
    ece = sum(row["share"] * abs(row["confidence"] - row["accuracy"]) for row in table)
    likelihood = np.clip(probabilities[np.arange(len(truth)), truth], 1e-12, 1)
    split = SplitResult(
        seed=seed,
        accuracy=float(mean_class_accuracy(truth, guess)),
        per_class={c: float(right[truth == k].mean()) for k, c in enumerate(classes)},
        n_train=n_train,
        n_test=len(truth),
        confusion=confusion.tolist(),
        calibration_error=float(ece),
        log_loss=float(-np.log(likelihood).mean()),
        seconds=seconds,
    )
    return split, right


def reliability_table(confidence: np.ndarray, right: np.ndarray, bins: int = 10) -> list[dict[str, float]]:
    """Images grouped by stated probability: how many were right in each group."""
    group = np.minimum((confidence * bins).astype(int), bins - 1)
    return [
        {
            "confidence": float(confidence[group == b].mean()),
            "accuracy": float(right[group == b].mean()),
            "share": float((group == b).mean()),
        }
        for b in range(bins)
        if (group == b).any()
    ]


def confident_mistakes(
    test: ImageFolder, classes: list[str], probabilities: np.ndarray, seed: int, most: int = MISTAKES_KEPT
) -> list[dict[str, Any]]:
    """The wrong images, surest first."""
    guess = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(np.asarray(classes)[guess] != test.labels)
    wrong = wrong[np.argsort(-probabilities[wrong, guess[wrong]], kind="stable")][:most]
    return [
        {
            "image": test.paths[i],
            "label": str(test.labels[i]),
            "predicted": classes[guess[i]],
            "probability": float(probabilities[i, guess[i]]),
            "seed": seed,
        }
        for i in wrong
    ]


def recipe_name(categorizer: Categorizer) -> str:
    return categorizer.recipe if isinstance(categorizer.recipe, str) else "custom"


def json_parameters(categorizer: Categorizer) -> dict[str, Any]:
    """Parameters that are plain values (or lists of them), by their full name."""

    def plain(value: Any) -> bool:
        if isinstance(value, list | tuple):
            return all(plain(v) for v in value)
        return value is None or isinstance(value, bool | int | float | str)

    skip = ("memory", "verbose", "transform_input", "cache")
    params = categorizer.get_params(deep=True)
    return {k: v for k, v in sorted(params.items()) if plain(v) and k.rsplit("__", 1)[-1] not in skip}
