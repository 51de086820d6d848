"""Forged folders of arrays and a forged store: a ValueError that says what is wrong, or an answer that is finite.

Bags and indices of neighbours are folders of ``.npy`` files and a manifest; the store of features is a SQLite file that
points into files of rows.  Arrays and numbers in them are changed as in ``models.py``.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests")]

import campaign  # noqa: E402
import models  # noqa: E402
import numpy as np  # noqa: E402


def forge_folder(folder: Path, manifest: str, rng: random.Random) -> None:
    """Change arrays of a folder, or its manifest."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.8:
            file = rng.choice(sorted(folder.glob("*.npy")))
            if rng.random() < 0.1:
                file.write_bytes(file.read_bytes()[: rng.randrange(200)])
                return
            np.save(file, models.forge_array(np.load(file), rng))
        else:
            tree = json.loads((folder / manifest).read_text())
            (folder / manifest).write_text(json.dumps(models.forge_tree(tree, [tree], rng)))


def forge_store(folder: Path, rng: random.Random) -> None:
    """Change where entries of a store point, or exchange them."""
    with sqlite3.connect(folder / "features-1.sqlite") as index:
        digests = [row[0] for row in index.execute("SELECT digest FROM entries ORDER BY digest")]
        one, other = rng.choice(digests), rng.choice(digests)
        column = rng.choice(("first", "size", "crc", "rows", "dimension", "swap"))
        if column == "swap":
            query = "SELECT first, size, crc FROM entries WHERE digest = ?"
            row = index.execute(query, (other,)).fetchone()
            index.execute("UPDATE entries SET first = ?, size = ?, crc = ? WHERE digest = ?", (*row, one))
        elif column in ("rows", "dimension"):
            index.execute(f"UPDATE shards SET {column} = ?", (rng.choice((0, 1, 2, 7, 10**6, -1)),))
        else:
            value = rng.choice((-1, 0, 1, 49, 10**6, 2**40, -(2**40)))
            index.execute(f"UPDATE entries SET {column} = ? WHERE digest = ?", (value, one))
    index.close()


def prepare() -> campaign.Case:
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(3000)
    import test_estimators
    from patchbag import Bags, BregmanNeighbors
    from patchbag.collection.store import Store

    place = campaign.folder()
    root = Path(place.name)
    X = np.abs(np.random.default_rng(0).normal(size=(300, 6))) + 0.1
    test_estimators.make_bags().save(root / "bags")
    for algorithm in ("ball", "graph", "vantage"):
        BregmanNeighbors(algorithm=algorithm, leaf_size=8, random_state=0).fit(X).save(root / algorithm)
    described = {f"{j}".encode(): [np.full((20 + j, 8), float(j)), np.zeros((20 + j, 2), np.float32)] for j in range(6)}
    with Store(root / "store").opened() as store:
        store.append("feature", described, {}, 0)

    def case(seed: int, place: Any = place) -> str:
        rng = random.Random(seed)
        kind = rng.choice(("bags", "ball", "graph", "vantage", "store"))
        folder = root / "forged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(root / kind, folder)
        if kind == "store":
            forge_store(folder, rng)
        else:
            forge_folder(folder, "bags.json" if kind == "bags" else "neighbors.json", rng)
        try:
            if kind == "bags":
                bags = Bags.load(folder)
                answer = np.concatenate([np.asarray(bag).ravel() for bag in bags[::2]])
                return "bags"  # any numbers are descriptors
            if kind != "store":
                model = BregmanNeighbors.load(folder)
                around = model.radius_neighbors(X[:5], 1.0)[0]
                answer = np.append(model.kneighbors(X[:20], 3)[0], np.concatenate(around))
            else:
                with Store(folder).opened() as opened:
                    shard, entries = opened.find("feature", described)
                    for digest, entry in entries.items():
                        found = entry.rows(shard.map())[0]
                        if not np.array_equal(found, described[digest][0]):
                            raise ArithmeticError("the descriptors of another image")
                return "store"
        except ValueError:
            return f"{kind} refused"
        if not np.isfinite(answer).all():
            raise ArithmeticError(f"{kind}: not finite")
        return f"{kind} answered"

    return case


if __name__ == "__main__":
    campaign.main(__file__, prepare)
