# SPDX-License-Identifier: BSD-3-Clause
"""Searches for changed versions of the query: do they come before every other image? (piro2010 §2.4.3.1, §2.4.3.2)

    kind = "robustness"
    data = "corel1000"
    queries = 100                                       # the same number per class, seed 0
    versions = ["jpeg-10", "jpeg2000-29.7", "turn-10"]
    [[run]]
    name = "deep, verified"
    by = "deep"
    verify = 20                                         # and diffuse, expand: as ``SearchIndex.search``

The versions of all queries lie in one folder with the whole collection, and are searched as a folder of anybody's.  A
version is a name and a number:

* ``jpeg-Q`` quality, ``jpeg2000-P`` signal-to-noise ratio in decibels;
* ``turn-A`` degrees, ``zoom-F`` the middle enlarged so many times, ``view-P`` from another side, corners moved by P
  percent of the sides; ``dark-F`` gamma.

Figures are percentages of queries: for each version those in which it comes before every image that is no version of
the query, for all versions those in which all do so, and the mean average precision of the versions among the first
``TOP`` results.
"""

import io
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from patchbag.experiments.experiment import Experiment, Row, file_contents, make_row
from patchbag.experiments.files import ExperimentError, study
from patchbag.experiments.retrieval import choose_queries
from patchbag.images.loading import load_image
from patchbag.search.index import SearchIndex

TOP = 100


def compressed(image: np.ndarray, kind: str, **settings: Any) -> np.ndarray:
    """An image as it comes back from a compressed file."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, **settings)
    return np.asarray(Image.open(buffer).convert("RGB"))


def turned(image: np.ndarray, degrees: float, scale: float = 1.0) -> np.ndarray:
    """An image rotated about its centre and enlarged, cropped to its size."""
    height, width = image.shape[:2]
    warp = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, scale)
    return cv2.warpAffine(image, warp, (width, height), flags=cv2.INTER_AREA, borderMode=cv2.BORDER_REFLECT)


def viewed(image: np.ndarray, percent: float, rng: np.random.Generator) -> np.ndarray:
    """An image seen from another side: each corner is moved at random."""
    height, width = image.shape[:2]
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    moved = corners + rng.uniform(-percent / 100, percent / 100, (4, 2)) * [width, height]
    warp = cv2.getPerspectiveTransform(corners, moved.astype(np.float32))
    return cv2.warpPerspective(image, warp, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)


VERSIONS: dict[str, Callable[[np.ndarray, float, np.random.Generator], np.ndarray]] = {
    "jpeg": lambda image, number, rng: compressed(image, "JPEG", quality=int(number)),
    "jpeg2000": lambda image, number, rng: compressed(
        image, "JPEG2000", quality_mode="dB", quality_layers=[number], irreversible=True
    ),
    "turn": lambda image, number, rng: turned(image, number),
    "zoom": lambda image, number, rng: turned(image, 0.0, number),
    "view": viewed,
    "dark": lambda image, number, rng: (255 * (image / 255) ** number).astype(np.uint8),
}


def make_version(image: np.ndarray, version: str, rng: np.random.Generator) -> np.ndarray:
    """The version of an RGB image that a name such as "turn-10" says."""
    kind, _, number = version.rpartition("-")
    try:
        return VERSIONS[kind](image, float(number), rng)
    except (KeyError, ValueError):
        raise ExperimentError(f"no version {version!r}; there are {', '.join(VERSIONS)}, each with -NUMBER") from None


@study("robustness", "data versions run", each="name by")
def robustness_table(experiment: Experiment) -> list[Row]:
    """How many queries find their own versions first, by several representations."""
    images, versions, rows = experiment.images, list(experiment.spec["versions"]), []
    queries = choose_queries(images.labels, experiment.spec.get("queries"))
    origin = (file_contents(images.paths), queries, versions)
    with tempfile.TemporaryDirectory() as place:
        asked = cache(partial(_fill, Path(place), images.paths, queries, versions))
        measure = partial(_measure, Path(place), asked, versions, experiment.progress)
        for run in experiment.runs:
            rows += experiment.recall(measure, run, origin=origin)
    return rows


def _fill(folder: Path, originals: list[str], queries: np.ndarray, versions: list[str]) -> list[Path]:
    """Put the collection and the versions of the queries into a folder; gives the paths of the queries there."""
    paths = []
    for i, path in enumerate(originals):
        paths.append(folder / f"{i}{Path(path).suffix}")
        shutil.copy(path, paths[-1])
    for query in queries:
        image = load_image(paths[query], mode="rgb", max_side=None).array.astype(np.uint8)
        rng = np.random.default_rng(query)
        for version in versions:
            Image.fromarray(make_version(image, version, rng)).save(folder / f"{query}_{version}.png")
    return [paths[query] for query in queries]


def _measure(
    folder: Path,
    asked: Callable[[], list[Path]],
    versions: list[str],
    progress: Callable[[str], None],
    run: dict[str, Any],
) -> list[Row]:
    queries = asked()
    progress(f"{run['name']}: {len(queries)} queries")
    index = SearchIndex(folder, run["by"]).update()
    started = time.perf_counter()
    options = {key: run[key] for key in ("diffuse", "expand", "verify") if key in run}
    first, precisions = np.zeros((len(queries), len(versions)), bool), []
    try:
        for i, query in enumerate(queries):
            own = [f"{query.stem}_{version}.png" for version in versions]
            found = [Path(match.image).name for match in index.search(query, TOP, **options)]
            right = [name in own for name in found]
            leading = found[: right.index(False)] if not all(right) else found
            first[i] = [name in leading for name in own]
            hits = np.flatnonzero(right)
            precisions.append(float((np.arange(1, len(hits) + 1) / (hits + 1)).sum()) / len(own))
    finally:
        index.path.unlink(missing_ok=True)
    seconds = time.perf_counter() - started
    rows = [make_row(f"{run['name']}: all versions first", 100 * float(first.all(axis=1).mean()), seconds=seconds)]
    rows += [make_row(f"{run['name']}: {name} first", 100 * share) for name, share in zip(versions, first.mean(axis=0))]
    return [*rows, make_row(f"{run['name']}: mean average precision", 100 * float(np.mean(precisions)))]
