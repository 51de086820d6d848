"""Accuracy and speed of every recipe on COREL-1000, for the table of ``patchbag recipes``.

10 training images per class, one split (seed 0), the other 900 images test; features from the store.  Speed is that of
describing 20 images anew and of classifying them; it and the time of training are of the processor, one worker.
Writes ``src/patchbag/cli/measured.json``::

    python benchmarks/measure_recipes.py FOLDER_OF_COREL_1000 [RECIPE ...]
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from patchbag import Categorizer, open_collection
from patchbag.protocol import PerClassSplit
from patchbag.recipes import RECIPES
from patchbag.runtime import runtime_context

OUT = Path(__file__).parents[1] / "src" / "patchbag" / "cli" / "measured.json"
SAMPLE = 20


def measure(images: Any, recipe: str) -> dict[str, float]:
    """Percent, seconds of training and images per second, both of processor time."""
    categorizer = Categorizer(recipe, random_state=0)
    features = categorizer.pipeline()["features"]
    bags = images.describe(features, on_error="raise").bags
    train, test = next(PerClassSplit(10, n_splits=1, random_state=0).split(images.labels, images.labels))
    started = time.process_time()
    model = categorizer.fit(bags[train], images.labels[train])
    training = time.process_time() - started
    right = model.predict(bags[test]) == images.labels[test]
    accuracy = np.mean([right[images.labels[test] == name].mean() for name in images.classes])
    some = list(images.paths[:: len(images) // SAMPLE][:SAMPLE])
    model.predict(some[:2])  # compiled
    started = time.process_time()
    model.predict(some)
    speed = len(some) / (time.process_time() - started)
    return {
        "accuracy": round(100 * float(accuracy), 1),
        "training": round(training, 1),
        "speed": float(f"{speed:.2g}"),
    }


def main(folder: str, *recipes: str) -> None:
    warnings.simplefilter("ignore")
    found = json.loads(OUT.read_text()) if OUT.exists() else {}
    with runtime_context(n_jobs=1, seed=0):
        images = open_collection(folder)
        for recipe in recipes or RECIPES:
            found[recipe] = measure(images, recipe)
            print(recipe, found[recipe], flush=True)
            OUT.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
