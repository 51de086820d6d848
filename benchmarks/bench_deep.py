# SPDX-License-Identifier: BSD-3-Clause
"""Deep descriptors, JPEG file to pooled vector, and the same network in torch where that is installed.

Photographs of 384 × 256 pixels, squashed to 320 × 320.  The target is 30 images per second on two cores, everything
included.  The peer is the reference code (efficientnet-lite-pytorch) in torch on one thread, the network alone.
"""

from __future__ import annotations

import io
import time

import numpy as np
import skimage.data
from descriptors import best
from PIL import Image

from patchbag.features.deep import DeepPatches
from patchbag.features.networks import open_network
from patchbag.features.networks.efficientnet_lite import weight_file

NAME = "efficientnet-lite2"
IMAGES = 192  # more than the outputs that are kept: nothing is found again
TARGET = 30.0


def photographs() -> list[bytes]:
    rng = np.random.default_rng(0)
    sources = [Image.fromarray(photo) for photo in (skimage.data.astronaut(), skimage.data.coffee())]
    files = []
    for i in range(IMAGES):
        source = sources[i % 2]
        left, top = rng.integers(0, source.width - 384), rng.integers(0, source.height - 256)
        file = io.BytesIO()
        source.crop((left, top, left + 384, top + 256)).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def main() -> None:
    files = photographs()
    rate = 0.0
    for output in ("pooled", "map"):
        for workers in (1, 2):
            extractor = DeepPatches(output=output, n_jobs=workers)
            extractor.transform(files[:4])
            start, cpu = time.perf_counter(), time.process_time()
            extractor.transform(files)
            rate = IMAGES / (time.perf_counter() - start)
            cpu = 1e3 * (time.process_time() - cpu) / IMAGES
            print(f"{output:6s}  workers {workers}  {rate:6.1f} images/s   {cpu:5.1f} ms of CPU per image")
    print(f"two cores {rate:.1f} images/s, target {TARGET:.0f}: {'reached' if rate >= TARGET else 'MISSED'}")

    network = open_network(NAME, "pooled")
    image = np.random.default_rng(0).normal(size=(1, 3, network.size, network.size)).astype(np.float32)
    ours = 1e3 * best(lambda: network.run(image), 20)
    print(f"the network alone, one thread        {ours:6.1f} ms")
    try:
        import torch
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        print("torch and efficientnet-lite-pytorch are not installed: no peer")
        return
    torch.set_num_threads(1)
    module = EfficientNet.from_pretrained(NAME, weights_path=str(weight_file(NAME))).eval()
    with torch.inference_mode():
        theirs = 1e3 * best(lambda: module.extract_features(torch.from_numpy(image)), 20)
    print(f"the reference in torch, one thread   {theirs:6.1f} ms   ratio {theirs / ours:.2f}")


if __name__ == "__main__":
    main()
