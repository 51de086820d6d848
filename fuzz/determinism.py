"""The same seed, other workers, other orders of Python's sets, loops just compiled or loaded: the same model file, byte
for byte, of every recipe.

::

    python fuzz/determinism.py                 # all recipes
    python fuzz/determinism.py fisher gp-pmk   # some
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

RUNS = ((1, 0), (2, 1), (2, 4242))  # workers, seed of Python's hashes
SMALL = {  # endings of parameters: models that are trained in a moment
    "mixture__n_components": 3,
    "projection__n_components": 6,
    "features__step": 12,
    "n_levels": 3,
    "n_words": 6,
}


def digests(recipes: list[str], workers: int) -> dict[str, str]:
    """What the model files of recipes hold, trained on small textures."""
    sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]
    from conftest import ANGLES, texture
    from patchbag import Categorizer

    warnings.simplefilter("ignore")
    names = [name for name in sorted(ANGLES) for _ in range(4)]
    images = [texture(name, seed, 72) for seed, name in enumerate(names)]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for recipe in recipes:
            model = Categorizer(recipe, n_jobs=workers, random_state=3)
            there = model.get_params()
            small = {name: value for name in there for ending, value in SMALL.items() if name.endswith(ending)}
            try:
                path = model.set_params(**small).fit(images, names).save(Path(folder) / "model")
                found[recipe] = hashlib.blake2b(path.read_bytes(), digest_size=12).hexdigest()
            except Exception as error:
                found[recipe] = f"{type(error).__name__}: {error}"
    return found


def compare(recipes: list[str]) -> dict[str, list[str]]:
    """Digests of each recipe in the runs."""
    runs = []
    for workers, seed in RUNS:
        command = [sys.executable, __file__, "--work", str(workers), *recipes]
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        runs.append(json.loads(subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE).stdout))
    return {recipe: [run[recipe] for run in runs] for recipe in recipes}


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--work"]:
        print(json.dumps(digests(arguments[2:], int(arguments[1]))))
        return 0
    from patchbag.recipes import RECIPES

    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder  # the first run compiles, the others load what it compiled
        found = compare(arguments or sorted(RECIPES))
    wrong = 0
    for recipe, given in found.items():
        what = "DIFFERENT" if len(set(given)) > 1 else "NOT TRAINED" if ":" in given[0] else "the same"
        wrong += what != "the same"
        print(f"{recipe:16} {what} {' '.join(sorted(set(given)))}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
