# SPDX-License-Identifier: BSD-3-Clause
"""The demonstration: the whole path on photographs that come with scikit-image and scikit-learn.

Every photograph is a class.  Overlapping tiles from its left part train, tiles from its right part
test; no pixel is in both.  What the recipe has
to learn is the texture and the shapes of a scene, not its pixels.
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
from patchbag.evaluation import Evaluation, evaluate_split, recipe_name, reliability_table
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
TILE = 96
TRAIN_SHARE = 0.6


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
        border = int(image.width * TRAIN_SHARE)
        for part, left, right, stride in (("train", 0, border, TILE // 2), ("test", border, image.width, TILE)):
            target = folder / part / name
            target.mkdir(parents=True, exist_ok=True)
            corners = [
                (x, y) for y in range(0, image.height - TILE + 1, stride) for x in range(left, right - TILE + 1, stride)
            ]
            for x, y in corners:
                image.crop((x, y, x + TILE, y + TILE)).save(target / f"{y:03d}-{x:03d}.png")
    return open_folder(folder / "train"), open_folder(folder / "test")


def run_demo(categorizer: Categorizer, output: Path, progress: Callable[[str], None] = lambda _: None) -> DemoResult:
    """Cut tiles, train, test, write the model and the report."""
    tiles = output / "tiles"
    if tiles.exists():
        shutil.rmtree(tiles)
    train, test = cut_tiles(tiles)
    progress(f"training on {len(train)} tiles, testing on {len(test)}")
    result = Evaluation(recipe_name(categorizer), train.classes, {})
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
