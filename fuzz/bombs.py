"""Small files that ask for much, read by several workers at once: what they hold together, and how long they take.

Every format has a picture of one colour as large as its budget of bytes lets it be, and one that is larger; JPEG also
one of thousands of scans.  The workers read all of them at the same time, each in an order of its own, while the
memory of all their processes is added up fifty times per second::

    python fuzz/bombs.py --jobs 4

It fails where the sum exceeds a gigabyte, where a picture takes more than 5 seconds of processor time, or where
something else than a picture or an ImageError comes of it.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import subprocess
import sys
import time
from pathlib import Path

# the side of the largest picture that a format decodes within its budget, and how it is saved
PICTURES = {
    "webp": ("RGB", 6700, {"lossless": True}),
    "avif": ("RGB", 8000, {"speed": 10}),
    "png": ("RGB", 12600, {"compress_level": 1}),
    "gif": ("P", 8800, {}),
    "tiff": ("RGB", 12600, {"compression": "tiff_adobe_deflate"}),
    "jpeg": ("RGB", 11000, {"progressive": True}),
    "heif": ("RGB", 8000, {}),
}
PEAK = 1000  # MB


def make() -> list[tuple[str, bytes]]:
    """Names and files."""
    from PIL import Image

    from patchbag.images.decoders import known_formats

    found = []
    for kind, (mode, side, options) in PICTURES.items():
        if kind.upper() not in known_formats() or kind.upper() not in Image.SAVE:
            continue
        for name, times in ((kind, 1.0), (f"{kind}, too large", 1.5)):
            file = io.BytesIO()
            size = (round(side * times),) * 2
            try:
                Image.new(mode, size, 7).save(file, kind.upper(), **options)
            except (OSError, ValueError):  # a format that has no larger ones
                continue
            found.append((name, file.getvalue()))
    return [*found, ("jpeg of many scans", many_scans(3000, 3000))]


def many_scans(side: int, times: int) -> bytes:
    """A progressive JPEG file whose last scan comes again and again."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("L", (side, side), 90).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    return data[:-2] + data[data.rindex(b"\xff\xda") : -2] * times + data[-2:]


def work(folder: Path, seed: int) -> None:
    """A worker: every file once; a line for each."""
    from patchbag.images import decoding
    from patchbag.images.loading import ImageError, load_image

    paths = sorted(folder.iterdir())
    random.Random(seed).shuffle(paths)
    for path in paths:
        start = time.process_time()
        try:
            said = "read {}×{}".format(*load_image(path, mode="rgb").original_size)
        except ImageError as error:
            said = str(error).partition(": ")[2][:60]
        took = time.process_time() - start
        print(f"{path.stem:22} {path.stat().st_size:9,} bytes: {took:5.2f} s here, {said}", flush=True)
    decoding._end_helpers()


def held(root: int) -> int:
    """Bytes of a process's descendants."""
    parents, sizes = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            parents[int(place.name)], sizes[int(place.name)] = int(fields[1]), int(fields[21])
        except OSError:
            continue
    ours = {root}
    while more := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(sizes[child] for child in ours - {root}) * os.sysconf("SC_PAGE_SIZE")


def run(folder: Path, jobs: int) -> tuple[int, list[str], list[int]]:
    """The most bytes held at once, the lines of the workers, and their exit statuses."""
    command = [sys.executable, __file__, "--work", str(folder)]
    workers = [subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True) for seed in range(jobs)]
    peak = 0
    while any(worker.poll() is None for worker in workers):
        peak = max(peak, held(os.getpid()))
        time.sleep(0.02)
    return peak, [worker.communicate()[0] for worker in workers], [worker.returncode for worker in workers]


def write(folder: Path) -> None:
    """The files, made in a process whose memory is not counted."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in make():
        (folder / f"{name}.bin").write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", help="for the other campaigns")
    parser.add_argument("--journal", help="for the other campaigns")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        write(options.make)
    elif options.work:
        work(Path(options.work[0]), int(options.work[1]))
    else:
        folder = Path(__file__).parents[1] / ".fuzz" / "bombs"
        if not folder.exists():
            subprocess.run([sys.executable, __file__, "--make", str(folder)], check=True)
        peak, said, codes = run(folder, options.jobs)
        print("\n".join(said))
        print(f"bombs: at most {peak / 1e6:.0f} MB in {options.jobs} workers together")
        sys.exit(any(codes) or peak > PEAK * 1e6)


if __name__ == "__main__":
    main()
