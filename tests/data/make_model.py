"""How words-v1.patchbag was made; run it only when the format version changes, and under a new name."""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from conftest import ANGLES, texture
from patchbag import Categorizer

if __name__ == "__main__":
    labels = np.repeat(sorted(ANGLES), 12)
    images = [texture(name, seed) for seed, name in enumerate(labels)]
    small = {"recipe__statistics__mixture__n_components": 6, "recipe__statistics__projection__n_components": 8}
    categorizer = Categorizer("words").set_params(**small).fit(images[::2], labels[::2])
    path = categorizer.save(Path(__file__).parent / "words-v1.patchbag")
    expected = {
        "classes": categorizer.classes_.tolist(),
        "probabilities": categorizer.predict_proba(images[::6]).round(5).tolist(),
    }
    path.with_suffix(".json").write_text(json.dumps(expected))
