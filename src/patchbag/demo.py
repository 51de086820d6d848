# SPDX-License-Identifier: BSD-3-Clause
"""The demonstration: the whole path on photographs that come with scikit-image and scikit-learn.

Every photograph is a class and is cut into tiles that do not overlap.  Of its columns of tiles every third one tests
and the others train: what the recipe has to learn is the textures and shapes of a scene, not its pixels.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from patchbag.categorizer import Categorizer
from patchbag.datasets import ImageFolder, open_folder
from patchbag.evaluation import Evaluation, evaluate_split, json_parameters, recipe_name, reliability_table
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


@dataclass
class DemoResult:
    """What the demonstration showed and where it is."""

    evaluation: Evaluation
    report: Path
    model: Path

    def summary(self) -> str:
        split = self.evaluation.splits[0]
        return (
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


def cut_tiles(folder: Path) -> tuple[ImageFolder, ImageFolder]:
    """Write the tiles below ``folder`` and return the training and the test folder."""
    for name in PHOTOGRAPHS:
        image = photograph(name)
        # one scale for all, so that the size of the picture does not give the class away
        image.thumbnail((640, 640))
        for row in range(image.height // TILE):
            for column in range(image.width // TILE):
                part = "test" if column % 3 == 2 else "train"
                target = folder / part / name
                target.mkdir(parents=True, exist_ok=True)
                x, y = column * TILE, row * TILE
                image.crop((x, y, x + TILE, y + TILE)).save(target / f"row{row}-column{column}.png")
    return open_folder(folder / "train"), open_folder(folder / "test")


def run_demo(categorizer: Categorizer, output: Path, progress: Callable[[str], None] = lambda _: None) -> DemoResult:
    """Cut tiles, train, test, write the model and the report."""
    tiles = output / "tiles"
    if tiles.exists():
        shutil.rmtree(tiles)
    train, test = cut_tiles(tiles)
    progress(f"training on {len(train)} tiles, testing on {len(test)}")
    result = Evaluation(
        recipe_name(categorizer),
        train.classes,
        json_parameters(categorizer),
        protocol="every third column of tiles tests",
    )
    run = evaluate_split(categorizer, train, test, seed=0)
    result.splits.append(run.split)
    result.mistakes = run.mistakes
    result.reliability = reliability_table(*run.confidence.T)
    model_path = run.model.save(output / "model.patchbag")
    # a model that is read back must say the same: the demonstration of saving is not an empty one
    again = Categorizer.load(model_path).predict(test.paths[:20])
    assert np.array_equal(again, run.model.predict(test.paths[:20]))
    progress("writing the report")
    return DemoResult(result, write_report(result, output / "report.html", "patchbag demo"), model_path)
