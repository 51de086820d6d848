"""Forged models with a valid checksum: a ValueError that says what is wrong, or an answer that is finite.

The corpus is every public estimator as ``tests/test_estimators.py`` fits it, and recipes trained on small textures.  A
forgery takes one apart into its tree and arrays, changes one to four things that a forger would (an index, a shape, a
type, a size, a part of another model in place of one's own), puts it together again with the checksum that belongs to
it, loads it and lets it answer.  Compiled loops are bounds-checked here: what is written behind the end of an array
is an IndexError at once, not a crash some cases later.
"""

from __future__ import annotations

import copy
import json
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests")]

if not os.environ.get("FUZZ_FEW"):  # loops that look where they read and write, compiled into a place of their own
    place = Path(__file__).parents[1] / ".fuzz" / "compiled"
    os.environ |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(place)}

import campaign  # noqa: E402
import numpy as np  # noqa: E402

RECIPES = {
    "fisher": {"statistics__mixture__n_components": 3, "statistics__projection__n_components": 6},
    "lda-fisher": {"statistics__mixture__n_components": 6},
    "plsa-fisher": {"statistics__mixture__n_components": 6},
    "polya": {"statistics__mixture__n_components": 6},
    "latent-fisher": {"statistics__mixture__n_components": 3, "statistics__projection__n_components": 4},
    "words-addkpca": {"statistics__mixture__n_components": 6},
    "gmm-ppk": {"statistics__mixture__n_components": 3},
    "mom-kl": {"statistics__mixture__n_components": 3},
    "mlnn-fisher": {"statistics__mixture__n_components": 3},
    "gp-pmk": {"kernel__n_levels": 3},
    "gp-spm": {"kernel__n_words": 6},
    "gp-fisher": {"statistics__mixture__n_components": 2},
}
FEW = ("PyramidMatchKernel", "LDAFisherVector", "AdditiveKernelPCA", "SetKernel", "UniversalNearestNeighbors", "BagPCA")
INTEGERS = (-1, 0, 1, 2, 3, 7, 24, 25, 127, 255, 2**15, 2**31 - 1, 2**31, 2**62, -(2**62), 2**63 - 1)
FLOATS = (0.0, -1.0, 1.0, 1e-320, 1e-30, 1e30, 1e200, 1.7e308, -1e308, np.nan, np.inf, -np.inf)
TEXTS = ("", "1500x1500", "99999999x1", "auto", "precomputed", "similarity", "passthrough", "/etc/passwd", "a" * 5000)


def corpus(few: bool = False) -> list[tuple[str, dict[str, Any], dict[str, np.ndarray], Any]]:
    """Names, trees, tensors and what to ask of the models."""
    from safetensors import safe_open

    import test_estimators
    from conftest import ANGLES, texture
    from patchbag import Categorizer
    from patchbag.storage import models as storage

    found = []
    names = np.repeat(sorted(ANGLES), 4)
    images = [texture(name, seed, 40) for seed, name in enumerate(names)]
    chosen = FEW if few else [name for name in test_estimators.CASES if name != "DeepPatches"]
    models = [(name, *test_estimators.fitted(name)) for name in chosen]
    for name, settings in () if few else RECIPES.items():
        recipe = Categorizer(name, random_state=0).set_params(
            **{f"recipe__{key}": value for key, value in settings.items()}, recipe__features__step=12
        )
        models.append((name, recipe.fit(images, names), images[::4]))
    with tempfile.TemporaryDirectory() as folder:
        for name, model, question in models:
            path = storage.save(model, Path(folder) / "model")
            with safe_open(path, "numpy") as file:
                tree = json.loads(file.metadata()[storage.FORMAT])["model"]
                found.append((name, tree, {key: file.get_tensor(key) for key in file.keys()}, question))  # noqa: SIM118
    return found


def nodes(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values of a tree."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, value in inside for place in nodes(value, (*path, key)))]


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def forge_array(a: np.ndarray, rng: random.Random) -> np.ndarray:
    """The array with something about it changed."""
    a = np.array(a)
    extreme = FLOATS if a.dtype.kind == "f" else INTEGERS
    change = rng.randrange(9)
    with np.errstate(all="ignore"):
        if change <= 3 and a.size:
            for _ in range(rng.choice((1, 1, 2, a.size))):
                value = rng.choice(extreme)
                a.flat[rng.randrange(a.size)] = np.array(value).astype(a.dtype) if np.isfinite(value) else value
        elif change == 4 and a.ndim:
            axis = rng.randrange(a.ndim)
            a = np.concatenate([a, a], axis) if rng.random() < 0.5 else np.take(a, range(a.shape[axis] // 2), axis)
        elif change == 5:
            a = a.astype(rng.choice((np.float32, np.float64, np.float16, np.int8, np.int64, np.uint64, bool)))
        elif change == 6:
            a = a.reshape(rng.choice(((-1,), (1, -1), (-1, 1), a.shape[::-1]))) if a.size else a
        elif change == 7:
            a = (
                np.sort(a, axis=None)[::-1].reshape(a.shape)
                if rng.random() < 0.5
                else np.full_like(a, a.flat[0] if a.size else 0)
            )
        else:
            a = np.empty((0,) * rng.randrange(4), a.dtype)
    return np.ascontiguousarray(a)


def forge_tree(tree: Any, others: list[Any], rng: random.Random) -> Any:
    """The tree with one value changed."""
    places = nodes(tree)[1:]
    if not places:
        return rng.choice(others)
    path = rng.choice(places)
    parent, key = at(tree, path[:-1]), path[-1]
    value = parent[key]
    change = rng.randrange(8)
    if change == 0 and isinstance(parent, dict):
        del parent[key]
    elif change == 1:
        parent[key] = copy.deepcopy(at(tree, rng.choice(places)))
    elif change == 2:
        other = rng.choice(others)
        parent[key] = copy.deepcopy(at(other, rng.choice(nodes(other))))
    elif change == 3 and isinstance(value, list):
        parent[key] = value * rng.randrange(3)
    elif isinstance(value, bool):
        parent[key] = not value
    elif isinstance(value, int):
        parent[key] = rng.choice(INTEGERS)
    elif isinstance(value, float):
        number = rng.choice(FLOATS)
        parent[key] = number if np.isfinite(number) else {"$float": repr(float(number))}
    elif isinstance(value, str):
        parent[key] = rng.choice((*TEXTS, *(v for v in (at(tree, p) for p in places) if isinstance(v, str))))
    elif value is None:
        parent[key] = rng.choice((0, 1.5, "a", [], {"$tuple": []}, True))
    elif rng.random() < 0.1:
        for _ in range(rng.choice((50, 500))):
            parent[key] = [parent[key]]
    return tree


def write(path: Path, tree: Any, tensors: dict[str, np.ndarray]) -> None:
    """A model file with the checksum that belongs to it."""
    from safetensors.numpy import save_file

    from patchbag.storage import models as storage

    manifest = {"format": storage.FORMAT, "version": storage.VERSION, "model": tree}
    manifest["checksum"] = storage._checksum(tree, tensors)
    save_file(tensors, path, metadata={storage.FORMAT: json.dumps(manifest)})


def prepare() -> campaign.Case:
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(3000)
    from sklearn.exceptions import NotFittedError

    import test_estimators
    from patchbag import Categorizer
    from patchbag.storage import models as storage

    few = bool(os.environ.get("FUZZ_FEW"))
    known = corpus(few) if few else campaign.kept("models", corpus, __file__, test_estimators.__file__)
    folder = campaign.folder()
    path = Path(folder.name) / "forged"

    def case(seed: int, folder: Any = folder) -> str:
        rng = random.Random(seed)
        name, tree, tensors, question = known[rng.randrange(len(known))]
        tree, tensors = copy.deepcopy(tree), dict(tensors)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
            if tensors and rng.random() < 0.6:
                which = rng.choice(sorted(tensors))
                tensors[which] = forge_array(tensors[which], rng)
            else:
                tree = forge_tree(tree, [other for _, other, _, _ in known], rng)
        try:
            write(path, tree, tensors)
        except RecursionError:
            return "not written"
        try:
            model = storage.load(path)
        except storage.ModelFileError:
            return "ModelFileError"
        try:
            if isinstance(model, Categorizer):
                found = model.judge(question)
                answer = np.concatenate([found.probabilities.ravel(), found.typicality])
            else:
                answer = test_estimators.answer(model, question)
        except AssertionError:
            return "no answer"  # the root is another kind of object
        except (ValueError, NotFittedError):
            return "ValueError"
        if answer.dtype.kind == "f" and not np.isfinite(answer).all():
            raise ArithmeticError(f"{name}: not finite")
        return "answer"

    return case


if __name__ == "__main__":
    campaign.main(__file__, prepare)
