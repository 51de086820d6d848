# SPDX-License-Identifier: BSD-3-Clause
"""Images as a network takes them: squashed to a square, normalized."""

from typing import Any

import numpy as np
from PIL import Image

from patchbag.features.networks import Normalization, open_network
from patchbag.images.decoders import MAX_PIXELS
from patchbag.images.loading import MAX_SIDE, load_image

DEFAULT_MODEL = "efficientnet-lite2"


def prepare(image: np.ndarray, size: int, normalization: Normalization) -> np.ndarray:
    """An RGB image on the scale 0..255, squashed to (3, size, size), normalized; float32."""
    if image.dtype != np.uint8:
        image = np.clip(np.rint(image), 0, 255).astype(np.uint8)
    squashed = Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC)
    mean, std = (np.array(part, np.float32)[:, None, None] * 255 for part in normalization)
    planes = np.asarray(squashed).transpose(2, 0, 1).astype(np.float32, order="C")
    planes -= mean
    planes /= std
    return planes


def pooled_vector(source: Any, name: str | None = None) -> np.ndarray:
    """What ``DeepPatches(output="pooled")`` makes of one image, (d,), without waiting for scikit-learn's import.

    ``name`` is for errors, as in ``load_image``.
    """
    network = open_network(DEFAULT_MODEL, "pooled")
    image = load_image(source, mode="rgb", max_pixels=MAX_PIXELS, max_side=MAX_SIDE, name=name).array
    assert network.size is not None and network.normalization is not None
    batch = prepare(image, network.size, network.normalization)[None]
    return np.asarray(network.run(batch)["pooled"][0])
