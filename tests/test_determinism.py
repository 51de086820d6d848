"""The same seed, whatever the number of workers and the order of Python's sets: the same model file, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = """
import sys
from conftest import ANGLES, texture
from patchbag import Categorizer
names = [name for name in sorted(ANGLES) for _ in range(4)]
images = [texture(name, seed, 48) for seed, name in enumerate(names)]
model = Categorizer(sys.argv[1], n_jobs=int(sys.argv[4]), random_state=3).set_params(**eval(sys.argv[3]))
model.fit(images, names).save(sys.argv[2])
"""
RECIPES = {
    "fisher": {"recipe__statistics__mixture__n_components": 4, "recipe__statistics__projection__n_components": 8},
    "gp-pmk": {"recipe__kernel__n_levels": 3, "recipe__features__step": 12},
}


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_workers_and_hash_seeds_do_not_change_a_byte_of_the_model(recipe, tmp_path):
    files = []
    for workers, hash_seed in ((1, 0), (2, 1), (2, 4242)):
        path = tmp_path / f"{workers}-{hash_seed}"
        environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": _path()}
        arguments = [recipe, str(path), repr(RECIPES[recipe]), str(workers)]
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", TRAIN, *arguments], check=True, env=environment, cwd=tmp_path
        )
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]


def _path() -> str:
    given = [os.path.abspath(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join([str(Path(__file__).parent), *given])
