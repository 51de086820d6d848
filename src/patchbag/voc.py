# SPDX-License-Identifier: BSD-3-Clause
"""PASCAL VOC classification: the devkit's folders, and average precision of linear classifiers on them.

The layout is that of the devkit::

    VOCdevkit/VOC2007/JPEGImages/000005.jpg
    VOCdevkit/VOC2007/ImageSets/Main/chair_trainval.txt      # "000005  1": 1 there, -1 not there, 0 difficult

An image has any number of classes.  One classifier a class is trained without that class's difficult images, and its
ranking of the test images is scored without them (``metrics.average_precision``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.classifiers.linear import C_GRID, svm_dual
from patchbag.datasets import FolderError
from patchbag.metrics import average_precision

CHUNK = 256


@dataclass(frozen=True)
class VOCImages:
    """Paths of n images and ``truth (n, C)``: 1 shows the class, -1 does not, 0 shows it but is difficult."""

    paths: list[str]
    classes: list[str]
    truth: np.ndarray

    def __len__(self) -> int:
        return len(self.paths)


def open_voc(folder: str | Path, part: str = "trainval") -> VOCImages:
    """The images of a part (train, val, trainval, test) of a VOC folder.

    Parameters
    ----------
    folder : ``VOCdevkit/VOC2007``, or a folder that holds it
    part : one of the devkit's image sets
    """
    root = Path(folder)
    sets = next((p for p in sorted(root.glob("**/ImageSets/Main")) if p.is_dir()), None)
    if sets is None:
        raise FolderError(f"{root} holds no ImageSets/Main: it is not a VOCdevkit folder")
    files = sorted(sets.glob(f"*_{part}.txt"))
    if not files:
        raise FolderError(f"{sets} has no files *_{part}.txt: is that part of the devkit unpacked?")
    columns = [_read_set(path) for path in files]
    names = list(columns[0])
    for path, column in zip(files, columns):
        if list(column) != names:
            raise FolderError(f"{path} lists other images than {files[0]}")
    images = sets.parents[1] / "JPEGImages"
    truth = np.array([[column[name] for column in columns] for name in names], dtype=np.int8)
    classes = [path.name.removesuffix(f"_{part}.txt") for path in files]
    return VOCImages([str(images / f"{name}.jpg") for name in names], classes, truth.reshape(len(names), len(classes)))


def _read_set(path: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or fields[1] not in ("-1", "0", "1"):
            raise FolderError(f'{path}, line {number}: expected an image and 1, -1 or 0, got "{line}"')
        found[fields[0]] = int(fields[1])
    return found


def mean_average_precision(truth: np.ndarray, scores: np.ndarray, rule: Any = "11-point") -> tuple[float, list[float]]:
    """The mean over classes and every class's average precision; ``truth`` and ``scores`` are (n, C)."""
    values = [average_precision(t == 1, s, t == 0, rule) for t, s in zip(truth.T, scores.T)]
    return float(np.mean(values)), values


def train_machines(gram: np.ndarray, truth: np.ndarray, C: float) -> tuple[np.ndarray, np.ndarray]:
    """Dual coefficients (n, classes) and intercepts of a linear SVM a class, difficult images left out."""
    dual, intercept = np.zeros(truth.shape), np.zeros(truth.shape[1])
    for k, column in enumerate(truth.T):
        rows = np.flatnonzero(column)
        if len(np.unique(column[rows])) < 2:
            raise ValueError(f"class {k} has no positive or no negative training image")
        coefficients, shift = svm_dual(gram[np.ix_(rows, rows)], column[rows, None].astype(float), C)
        dual[rows, k], intercept[k] = coefficients[:, 0], shift[0]
    return dual, intercept


def choose_C(gram: np.ndarray, truth: np.ndarray, train: np.ndarray, val: np.ndarray) -> float:
    """Of ``C_GRID`` the one whose machines, trained on ``train``, rank ``val`` best."""

    def quality(C: float) -> float:
        dual, intercept = train_machines(gram[np.ix_(train, train)], truth[train], C)
        return mean_average_precision(truth[val], gram[np.ix_(val, train)] @ dual + intercept)[0]

    return max(C_GRID, key=quality)


def evaluate_voc(encoders: list[Any], folder: str | Path, C: float | None = None) -> dict[str, Any]:
    """Train on trainval, score on test by the rules of VOC 2007.

    Parameters
    ----------
    encoders : images → vectors, recipes without their classifiers; the scores of several are averaged
    C : of the SVMs; by default chosen on train and val, for each encoder

    Returns
    -------
    {"mean": in percent, "classes": {name: percent}, "C": one an encoder}
    """
    testing = open_voc(folder, "test")
    scores, chosen = zip(*(_scores(encoder, folder, testing.paths, C) for encoder in encoders))
    mean, values = mean_average_precision(testing.truth, np.mean(scores, axis=0))
    return {"mean": 100 * mean, "classes": dict(zip(testing.classes, (100 * np.array(values)).tolist())), "C": chosen}


def _scores(encoder: Any, folder: str | Path, images: list[str], C: float | None) -> tuple[np.ndarray, float]:
    """(n, classes) scores of the images by machines on the encoder's vectors, and their C."""
    training = open_voc(folder, "trainval")
    vectors = np.asarray(encoder.fit_transform(training.paths))
    gram = (vectors @ vectors.T).astype(np.float64)
    if C is None:
        place = {path: i for i, path in enumerate(training.paths)}
        train, val = (np.array([place[p] for p in open_voc(folder, part).paths]) for part in ("train", "val"))
        C = choose_C(gram, training.truth, train, val)
    dual, intercept = train_machines(gram, training.truth, C)
    coefficients = vectors.T @ dual.astype(vectors.dtype)
    parts = []
    for start in range(0, len(images), CHUNK):
        parts.append(np.asarray(encoder.transform(images[start : start + CHUNK])) @ coefficients + intercept)
    return np.concatenate(parts), C
