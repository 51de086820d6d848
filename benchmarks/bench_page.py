# SPDX-License-Identifier: BSD-3-Clause
"""The page: time from an answer to the next question, through HTTP, with n images and 600 labels.

    python benchmarks/bench_page.py [--images 5000] [--labels 600] [--answers 100] [--people 0] [--data SCENE15]

Vectors are made (15 clusters in 1,280 dimensions), or with --data those of a folder of images with a sub-folder per
class, described by the default recipe.  With --people P, P persons answer once a second for 30 seconds instead.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

HOLDER = """
import sys, numpy as np, uvicorn
from pathlib import Path
from patchbag.page.app import create_app
from patchbag.page.session import Page
page = Page(Path(sys.argv[1]), vectors=np.load(sys.argv[2]), watch=False, store=Path(sys.argv[1]) / ".patchbag/store")
uvicorn.run(create_app(page), port=int(sys.argv[3]), log_level="warning")
"""


def made(n: int, classes: int = 15, d: int = 1280) -> tuple[np.ndarray, np.ndarray]:
    """Vectors (n, d) in clusters of unequal width, and their classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=n)
    centres = rng.normal(size=(4 * classes, d)).astype(np.float32)
    X = centres[4 * y + rng.integers(4, size=n)]
    for start in range(0, n, 10_000):
        X[start : start + 10_000] += 3 * rng.normal(size=X[start : start + 10_000].shape).astype(np.float32)
    return X, y


def described(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of a folder under the recipe that the page has by default, and its labels."""
    from patchbag import open_collection, runtime_context
    from patchbag.page.describing import make_categorizer

    with runtime_context(n_jobs=-1, seed=0):
        images = open_collection(folder).labelled()
        pipeline = make_categorizer("deep-pool", None, None, 0).pipeline()
        found = images.describe(pipeline["features"])
        X = pipeline[:-1].fit_transform(found.bags)
    return X, np.unique(images.labels[found.kept], return_inverse=True)[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--labels", type=int, default=600)
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--people", type=int, default=0)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--port", type=int, default=8199)
    given = parser.parse_args()
    X, y = made(given.images) if given.data is None else described(given.data)
    with tempfile.TemporaryDirectory() as root:
        from PIL import Image

        for i in range(len(X)):
            if i % 10_000 == 0:  # a file can have so many names, not all
                Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(f"{root}/{i:06d}.jpg")
            else:
                os.link(f"{root}/{i - i % 10_000:06d}.jpg", f"{root}/{i:06d}.jpg")
        os.makedirs(f"{root}/.patchbag")
        np.save(f"{root}/.patchbag/vectors.npy", X)
        command = [sys.executable, "-c", HOLDER, root, f"{root}/.patchbag/vectors.npy", str(given.port)]
        server = subprocess.Popen(command)
        try:
            run(given, y, server.pid)
        finally:
            server.kill()
            server.wait()


def cpu_seconds(process: int) -> float:
    """Time that a process has had so far, of all its threads (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(given: argparse.Namespace, y: np.ndarray, server: int) -> None:
    from patchbag.page.client import PageClient

    page = PageClient(f"http://127.0.0.1:{given.port}")
    started = time.perf_counter()
    while True:
        try:
            page.wait()
            break
        except OSError:
            time.sleep(0.1)
    print(f"{len(y)} images compared after {time.perf_counter() - started:.1f} s")
    first = np.random.default_rng(1).permutation(len(y))[: given.labels]
    for c in np.unique(y):
        page.label(first[y[first] == c].tolist(), f"class {c}")
    while page.state()["model"]["n_labels"] < given.labels:  # a large pool is made anew for labels beyond it
        time.sleep(0.5)
    time.sleep(5)
    if given.people:
        load(given, y)
        return
    question = page.ask()
    times, busy = [], []
    for _ in range(given.answers + 5):
        image = question["image"]["id"]
        begun, spent = time.perf_counter(), cpu_seconds(server)
        question = page.answer(image, f"class {y[image]}", wait=5.0)
        times.append(time.perf_counter() - begun)
        busy.append(cpu_seconds(server) - spent)
        time.sleep(0.7)  # a person looks at the image; what is not urgent is done meanwhile
    times = times[5:]
    print(f"processor time of the server per answer: median {1e3 * np.median(busy[5:]):.0f} ms")
    print(f"answer → next question, {given.labels} labels: median {1e3 * np.median(times):.0f} ms, "
          f"90 % {1e3 * np.quantile(times, 0.9):.0f} ms, best {1e3 * min(times):.0f} ms")  # fmt: skip


def load(given: argparse.Namespace, y: np.ndarray, seconds: float = 30.0) -> None:
    from patchbag.page.client import PageClient

    times: list[float] = []
    errors: list[str] = []
    asked: list[int] = []

    def person(k: int) -> None:
        page = PageClient(f"http://127.0.0.1:{given.port}", person=f"person {k}")
        time.sleep(k / given.people)
        question, end = page.ask(), time.time() + seconds
        while time.time() < end:
            image = question["image"]["id"]
            asked.append(image)
            begun = time.perf_counter()
            try:
                question = page.answer(image, f"class {y[image]}", wait=0.25)
            except Exception as error:
                errors.append(str(error))
            times.append(time.perf_counter() - begun)
            time.sleep(max(0.0, 1.0 - (time.perf_counter() - begun)))

    threads = [threading.Thread(target=person, args=(k,)) for k in range(given.people)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    twice = len(asked) - len(set(asked))
    print(f"{given.people} people, {len(times)} answers in {seconds:.0f} s: median {1e3 * np.median(times):.0f}, "
          f"99 % {1e3 * np.quantile(times, 0.99):.0f} ms; {len(errors)} errors, {twice} asked twice")  # fmt: skip


if __name__ == "__main__":
    main()
