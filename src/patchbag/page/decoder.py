# SPDX-License-Identifier: BSD-3-Clause
"""A picture from outside is decoded in a process of its own, bounded in memory and time: it may die, the page not."""

import numpy as np

from patchbag.images.decoding import Request, Stopped, decode_elsewhere
from patchbag.images.loading import ImageError

MOST_BYTES = 20_000_000
MOST_PIXELS = 50_000_000
SIDE = 1024


def decode(data: bytes) -> np.ndarray:
    """The picture as (h, w, 3) bytes, no side longer than ``SIDE``; ImageError where it cannot be read."""
    if len(data) > MOST_BYTES:
        raise ImageError(f"the picture has {len(data):,} bytes; {MOST_BYTES:,} is most")
    if not data:
        raise ImageError("there are no bytes in the picture")
    try:
        answer, levels = decode_elsewhere(Request("the picture", "rgb", MOST_PIXELS, SIDE), data)
    except (Stopped, OSError) as error:
        raise ImageError(f"the picture {error}") from None
    if levels is None:
        raise ImageError(answer["error"])
    return np.clip(np.rint(levels), 0, 255).astype(np.uint8)
