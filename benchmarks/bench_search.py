# SPDX-License-Identifier: BSD-3-Clause
"""How long a search takes from the shell, with 10,000 images in the index (fuzz/kills.py kills those who write it).

The images are small and made here; their vectors are random, of the network's 1,280 dimensions, since only the time is
asked for.  Times are the best of several runs of the whole command, the interpreter and all imports included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

IMAGES, DIMENSION, RUNS = 10_000, 1280, 7


def make_folder(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(IMAGES):
        place = folder / f"{i // 500:02d}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)).save(place / f"{i:05d}.png")
        os.utime(place / f"{i:05d}.png", (1e9, 1e9))


def make_index(folder: Path) -> None:
    """The index that the network would make, but with random vectors."""
    from patchbag.search import SearchIndex
    from patchbag.search.axes import Axes, unit
    from patchbag.search.encoder import Encoder

    index = SearchIndex(folder)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))
    status = np.array([[(folder / name).stat().st_size, (folder / name).stat().st_mtime_ns] for name in names])
    digests = np.frombuffer(b"".join(d or b"" for d in index._digest(names)), np.uint8).reshape(-1, 20)
    vectors = unit(np.random.default_rng(1).normal(size=(len(names), DIMENSION)))
    index._encoder = Encoder(index.representation, [Axes(np.zeros(DIMENSION, np.float32))])
    index._write(names, status, digests, vectors, {}, {"looked": time.time_ns(), "learned_from": len(names)})


def best(command: list[str], runs: int = RUNS) -> float:
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"PATCHBAG_CACHE": str(Path(place) / "cache"), "PYTHONPYCACHEPREFIX": str(Path(place) / "pyc")}
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        folder = Path(place) / "photos"
        make_folder(folder)
        make_index(folder)
        search = [sys.executable, "-m", "patchbag", "search", str(folder)]
        outside = Path(place) / "outside.png"
        Image.fromarray(np.random.default_rng(5).integers(0, 256, (256, 384, 3), np.uint8)).save(outside)
        best([*search, str(outside)], 1)  # writes the byte code and the network's file
        print(f"the interpreter and numpy alone       {best([sys.executable, '-c', 'import numpy']):.3f} s")
        print(f"{IMAGES:,} images, one of them searched   {best([*search, str(folder / '03' / '01500.png')]):.3f} s")
        print(f"{IMAGES:,} images, a new one searched     {best([*search, str(outside)]):.3f} s")
        times = []
        for i in range(3):
            Image.fromarray(np.random.default_rng(10 + i).integers(0, 256, (99, 99, 3), np.uint8)).save(
                folder / f"new{i}.png"
            )
            times.append(best([*search, str(folder / f"new{i}.png")], 1))
        print(f"one more file, to the result of a search  {min(times):.3f} s")


if __name__ == "__main__":
    main()
