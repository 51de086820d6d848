# SPDX-License-Identifier: BSD-3-Clause
"""The page on a folder that nobody has described: from the command to the first question.

    python benchmarks/bench_page_start.py DIR [--images 5000] [--runs 3]

Images of DIR, whatever folders they are in, are copied into one folder; ``patchbag serve`` starts on it with an empty
cache, and is asked until it has a question.  Prints seconds on the clock and of processors (server and its process that
describes), and how many images were described by then.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_page import cpu_seconds

from patchbag.collection.folder import find_images
from patchbag.page import PageClient


def processes(first: int) -> list[int]:
    """A process and those that it has started (Linux)."""
    found = [first]
    for process in found:
        for task in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def start(root: Path, cache: Path, port: int) -> tuple[float, float, int]:
    """Seconds until the first question, seconds of processors, images described."""
    command = [sys.executable, "-m", "patchbag", "serve", str(root), "--port", str(port), "--no-open"]
    begun = time.perf_counter()
    server = subprocess.Popen(command, env={**os.environ, "PATCHBAG_CACHE": str(cache)}, stdout=subprocess.DEVNULL)
    page = PageClient(f"http://127.0.0.1:{port}")
    try:
        while True:
            try:
                if page.ask()["image"] is not None:
                    break
            except OSError:
                assert server.poll() is None, "the server has ended"
            time.sleep(0.05)
        seconds = time.perf_counter() - begun
        return seconds, sum(map(cpu_seconds, processes(server.pid))), page.state()["described"]
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--port", type=int, default=8195)
    given = parser.parse_args()
    paths = sorted(find_images([given.folder]))[: given.images]
    for _ in range(given.runs):
        with tempfile.TemporaryDirectory() as place:
            root = Path(place) / "photos"
            root.mkdir()
            for i, path in enumerate(paths):
                shutil.copyfile(path, root / f"{i:05d}{Path(path).suffix}")
            print("{:.1f} s, {:.1f} s of processors, {} images described".format(*start(root, Path(place), given.port)))


if __name__ == "__main__":
    main()
