# SPDX-License-Identifier: BSD-3-Clause
"""A picture from outside is decoded in a process of its own, bounded in memory and time: it may die, the page not."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np

from patchbag.images import ImageError

MOST_BYTES = 20_000_000
MOST_PIXELS = 50_000_000
SIDE = 1024
SECONDS = 15
MEMORY = 2 * 2**30


def decode(data: bytes) -> np.ndarray:
    """The picture as (h, w, 3) bytes, no side longer than ``SIDE``; ImageError where it cannot be read."""
    if len(data) > MOST_BYTES:
        raise ImageError(f"the picture has {len(data):,} bytes; {MOST_BYTES:,} is most")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "patchbag.page.decoder"], input=data, capture_output=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ImageError(f"the picture could not be read in {SECONDS} seconds") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise ImageError(said[-300:] if done.returncode == 3 else "reading the picture ended the process that read it")
    return np.asarray(np.load(io.BytesIO(done.stdout), allow_pickle=False))


def main() -> int:
    """The child: bytes on standard input, an array on standard output."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    except (ImportError, ValueError, OSError):  # Windows; a limit that is lower already
        pass
    from patchbag.images import load_image

    try:
        data = sys.stdin.buffer.read()
        array = load_image(data, mode="rgb", max_pixels=MOST_PIXELS, max_side=SIDE, name="the picture").array
    except ImageError as error:
        print(error, file=sys.stderr)
        return 3
    out = io.BytesIO()
    np.save(out, np.clip(np.rint(array), 0, 255).astype(np.uint8))
    sys.stdout.buffer.write(out.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
