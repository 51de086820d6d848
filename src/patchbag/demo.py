# SPDX-License-Identifier: BSD-3-Clause
"""The demonstration: the whole path on photographs that come with scikit-image and scikit-learn.

Every photograph is a class and is cut into tiles that do not overlap.  First nothing is known of the tiles: as many
questions are asked as there are photographs, which tiles are asked for is chosen, and the answers sort all of them.
Then, of its columns of tiles every third one tests and the others train: what the recipe has to learn is the textures
and shapes of a scene, not its pixels.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from patchbag.active.pool import pool_graph
from patchbag.active.pool_learner import PoolLearner
from patchbag.active.stopping import ErrorEstimate
from patchbag.categorizer import Categorizer
from patchbag.collection import Collection, open_collection
from patchbag.evaluation import Evaluation, evaluate
from patchbag.recipes import make_recipe
from patchbag.report import write_report

# class -> file in the folder of scikit-image's data, or a photograph of scikit-learn's
PHOTOGRAPHS = {
    "astronaut": "astronaut.png",
    "bricks": "brick.png",
    "cat": "chelsea.png",
    "city": "china.jpg",
    "coffee": "coffee.png",
    "coins": "coins.png",
    "flower": "flower.jpg",
    "galaxies": "hubble_deep_field.jpg",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "motorcycle": "motorcycle_left.png",
    "page": "page.png",
    "retina": "retina.jpg",
    "tissue": "ihc.png",
}
TILE = 80
MODEL, REPORT = "model.patchbag", "report.html"


@dataclass
class DemoResult:
    """What the demonstration showed and where it is."""

    evaluation: Evaluation
    report: Path
    model: Path
    n_answers: int
    n_tiles: int
    right: float
    error: ErrorEstimate

    def summary(self) -> str:
        split = self.evaluation.splits[0]
        return (
            f"few labels: {self.n_answers} answers sorted {self.n_tiles} tiles, {100 * self.right:.1f} % of the others "
            f"right (it said: {self.error})\n"
            f"{self.evaluation.recipe}: {100 * split.accuracy:.1f} % of {split.n_test} test tiles right "
            f"(mean over {len(split.per_class)} photographs, {split.n_train} training tiles; "
            f"chance would be {100 / len(split.per_class):.0f} %)"
        )


def photograph(name: str) -> Image.Image:
    """A photograph of ``PHOTOGRAPHS``, in colour."""
    import skimage.data
    import sklearn.datasets

    folders = (Path(skimage.data.__file__).parent, Path(sklearn.datasets.__file__).parent / "images")
    for folder in folders:
        if (folder / PHOTOGRAPHS[name]).is_file():
            return Image.open(folder / PHOTOGRAPHS[name]).convert("RGB")
    raise FileNotFoundError(f"the photograph {PHOTOGRAPHS[name]} did not come with this scikit-image or scikit-learn")


def tile_path(folder: Path, name: str, row: int, column: int) -> Path:
    """Where a tile goes: every third column tests."""
    return folder / ("test" if column % 3 == 2 else "train") / name / f"row{row}-column{column}.png"


def cut_tiles(folder: Path) -> list[Path]:
    """Write the tiles below ``folder`` and return them, those that test after those that train.

    Other files that lie there are neither touched nor used.
    """
    written: list[Path] = []
    for name in PHOTOGRAPHS:
        image = photograph(name)
        # one scale for all, so that the size of the picture does not give the class away
        image.thumbnail((640, 640))
        for row in range(image.height // TILE):
            for column in range(image.width // TILE):
                target = tile_path(folder, name, row, column)
                target.parent.mkdir(parents=True, exist_ok=True)
                x, y = column * TILE, row * TILE
                image.crop((x, y, x + TILE, y + TILE)).save(target)
                written.append(target)
    return sorted(written, key=lambda path: (path.parts[-3] == "test", path.parent.name, path.name))


def cut_unsorted(folder: Path) -> None:
    """Write the tiles of all photographs side by side, under numbers that do not tell which is which; for the page."""
    with TemporaryDirectory() as scratch:
        tiles = cut_tiles(Path(scratch))
        folder.mkdir(parents=True, exist_ok=True)
        for number, place in enumerate(np.random.RandomState(0).permutation(len(tiles))):
            shutil.copyfile(tiles[place], folder / f"{number:04d}.png")


def check_own(output: Path) -> None:
    """Refuse a folder whose model or report is not an earlier demonstration's: both would be replaced."""
    if tile_path(output / "tiles", next(iter(PHOTOGRAPHS)), 0, 0).is_file():
        return
    for name in (MODEL, REPORT):
        if (output / name).exists():
            raise FileExistsError(
                f"{output / name} was not written by the demo, which would replace it; "
                "give the demo a folder of its own with --output"
            )


def ask(images: Collection, labels: np.ndarray, n: int) -> tuple[float, ErrorEstimate]:
    """Share of images that are sorted rightly after n questions about them, and what is said of the errors."""
    pipeline = make_recipe("deep-pool")
    bags = images.describe(pipeline["features"], on_error="raise").bags
    learner = PoolLearner(random_state=0).fit(pool_graph(pipeline, bags))
    for _ in range(n):
        image = learner.query()
        learner.teach(image, labels[image])
    rest = np.setdiff1d(np.arange(len(labels)), list(learner.labels_))
    return float(np.mean(learner.predict()[rest] == labels[rest])), learner.error()


def run_demo(categorizer: Categorizer, output: Path, progress: Callable[[str], None] = lambda _: None) -> DemoResult:
    """Cut tiles, train, test, write the model and the report."""
    check_own(output)
    tiles = cut_tiles(output / "tiles")
    paths, labels = [str(path) for path in tiles], np.array([path.parent.name for path in tiles])
    progress(f"describing {len(tiles)} tiles")
    images = open_collection(paths)
    bags = images.describe(categorizer.pipeline()["features"], on_error="raise").bags
    progress(f"asking for {len(PHOTOGRAPHS)} of {len(tiles)} tiles")
    right, error = ask(images, labels, len(PHOTOGRAPHS))
    tests = np.array([path.parts[-3] == "test" for path in tiles])
    train, test = np.flatnonzero(~tests), np.flatnonzero(tests)
    progress(f"training on {len(train)} tiles, testing on {len(test)}")
    result = evaluate(categorizer, bags, labels, cv=[(train, test)], names=paths)
    result.protocol = "every third column of tiles tests"
    model_path = categorizer.fit(bags[train], labels[train]).save(output / MODEL)
    # a model that is read back must say the same: the demonstration of saving is not an empty one
    again = Categorizer.load(model_path).predict([paths[i] for i in test[:20]])
    assert np.array_equal(again, categorizer.predict(bags[test[:20]]))
    progress("writing the report")
    report = write_report(result, output / REPORT, "patchbag demo")
    return DemoResult(result, report, model_path, len(PHOTOGRAPHS), len(tiles), right, error)
