# SPDX-License-Identifier: BSD-3-Clause
"""Near-duplicates: precision and recall of each kind of change, beside imagededup's perceptual hashes.

Run with a folder of photographs: ``python benchmarks/bench_duplicates.py DATA/corel1000 [COPIES]``.  For each kind of
change a folder of the photographs and one changed copy of each is searched for copies; a pair counts as found if both
are in one group (ours) or listed for each other (hashes).  A photograph that the folder holds twice (``TWICE``) and
its copies are right to be found, and missed where they are not.  imagededup is given its best threshold for each kind
and hash in hindsight: that of the highest F1.  It is no dependency; without it only our figures are printed.
"""

from __future__ import annotations

import sys
import tempfile
import time
import types
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from made_copies import CHANGES, make_copies

from patchbag import SearchIndex
from patchbag.search.duplicates import find_duplicates

Pairs = set[tuple[str, str]]
TWICE = (("food/918.jpg", "food/924.jpg"),)  # of COREL-1000, seen with the eye: cut and coloured differently


class Absent(types.ModuleType):
    """Stands in for a module of torch that imagededup imports and its hashes do not use."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything


class _Meta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything


class _Anything(metaclass=_Meta):
    def __init__(self, *arguments: Any, **named: Any) -> None: ...


class AbsentFinder(MetaPathFinder, Loader):
    """Finds such modules."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in ("torch", "torchvision") else None

    def create_module(self, spec: ModuleSpec) -> Absent:
        return Absent(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


def pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def true_pairs(photographs: Path, made: list[tuple[str, str]]) -> Pairs:
    """Names, in the folder that is searched, of what shows the same picture."""
    names = {Path(a).relative_to(photographs).as_posix(): Path(b).name for a, b in made}
    both = {name: (f"originals/{name}", f"copies/{copy}") for name, copy in names.items()}
    twice = [(a, b) for one, other in TWICE if one in both and other in both for a in both[one] for b in both[other]]
    return {pair(a, b) for a, b in [*both.values(), *twice]}


def score(found: Pairs, truth: Pairs) -> tuple[float, float]:
    """Precision and recall."""
    right = len(found & truth)
    return right / max(len(found), 1), right / len(truth)


def ours(folder: Path) -> tuple[Pairs, float]:
    index = SearchIndex(folder, n_jobs=-1).update()
    started = time.perf_counter()
    groups, _ = find_duplicates(index)
    found = {pair(index.names[i], index.names[j]) for group in groups for i in group for j in group if i < j}
    return found, time.perf_counter() - started


def hashes(folder: Path, names: list[str]) -> dict[str, dict[int, Pairs]]:
    """Pairs by hash and threshold; empty where imagededup is not installed."""
    try:
        sys.meta_path.append(AbsentFinder())
        package = types.ModuleType("imagededup.methods")
        package.__path__ = [str(Path(find_spec("imagededup").submodule_search_locations[0]) / "methods")]  # type: ignore
        sys.modules["imagededup.methods"] = package  # its own __init__ imports the networks
        from imagededup.methods.hashing import AHash, DHash, PHash, WHash
    except (ImportError, AttributeError) as error:
        print(f"(imagededup: {error})")
        return {}
    import numpy as np

    result: dict[str, dict[int, Pairs]] = {}
    for method in (PHash, DHash, WHash, AHash):
        hasher = method(verbose=False)
        codes = [int(hasher.encode_image(image_file=str(folder / name)), 16) for name in names]
        bits = np.array([[(code >> b) & 1 for b in range(64)] for code in codes], np.float32)
        distance = bits @ (1 - bits).T
        distance += distance.T
        result[method.__name__] = {}
        for threshold in range(25):
            rows, columns = np.nonzero(np.triu(distance <= threshold, 1))
            result[method.__name__][threshold] = (
                {(names[i], names[j]) for i, j in zip(rows.tolist(), columns.tolist())}
                if len(rows) < 200_000
                else set()
            )
    return result


def main() -> None:
    photographs = Path(sys.argv[1]).resolve()
    output = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="patchbag-copies-"))
    made = make_copies(photographs, output)
    peer = "imagededup's best (hash, threshold): precision recall"
    print(f"{'change':12} {'ours: precision':>16} {'recall':>7} {'s':>6}   {peer}")
    for kind in CHANGES:
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "originals").symlink_to(photographs)
            (Path(place) / "copies").symlink_to((output / kind).resolve())
            truth = true_pairs(photographs, made[kind])
            found, seconds = ours(Path(place))
            precision, recall = score(found, truth)
            names = sorted({name for both in truth for name in both})
            best = ("not installed", 0, 0.0, 0.0)
            rank = -1.0
            for method, by_threshold in hashes(Path(place), names).items():
                for threshold, pairs in by_threshold.items():
                    p, r = score(pairs, truth)
                    f1 = 2 * p * r / max(p + r, 1e-9)
                    if f1 > rank:
                        rank, best = f1, (method, threshold, p, r)
        peer = f"{best[0]}, {best[1]}: {best[2]:.3f} {best[3]:.3f}"
        print(f"{kind:12} {precision:16.4f} {recall:7.4f} {seconds:6.1f}   {peer}", flush=True)


if __name__ == "__main__":
    main()
