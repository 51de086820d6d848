# SPDX-License-Identifier: BSD-3-Clause
"""Sparse multiscale patches on a CUDA GPU: one image against 1,000, 4,224 patches each.

    python benchmarks/bench_smp_cuda.py

Patches of made images (blurred noise of 384 × 256 pixels).  Against the same divergences on the CPU, for 20 of the
images, in the same run.  Without PyTorch or a GPU it says so and ends.
"""

from __future__ import annotations

import time

import cv2
import numpy as np
from cuda import find_torch, seconds

from patchbag.features.laplacian import MultiscalePatches
from patchbag.runtime import runtime_context
from patchbag.similarity.smp import StackedPatches, divergences_to

IMAGES, MADE, CHECKED = 1000, 50, 20


def make_patches() -> list[np.ndarray]:
    """Patches of 50 images, repeated with a little noise: the work is the same."""
    rng = np.random.default_rng(0)
    images = []
    for i in range(MADE):
        smooth = cv2.GaussianBlur(rng.integers(0, 256, (256, 384, 3)).astype(np.float32), (0, 0), 1 + i % 5)
        images.append(np.clip(128 + 4 * (smooth - 128), 0, 255).astype(np.uint8))
    made = list(MultiscalePatches().transform(images))
    patches = []
    for i in range(IMAGES):
        one = made[i % MADE].copy()
        one[:, 1:] += rng.normal(0, 0.5, one[:, 1:].shape) * (one[:, 1:] != 0)
        patches.append(one.astype(np.float32))
    return patches


def main() -> None:
    if find_torch() is None:
        return
    patches = make_patches()
    divergences_to(patches[0], patches[:1])
    started = time.perf_counter()
    expected = divergences_to(patches[0], patches[:CHECKED])
    host = (time.perf_counter() - started) / CHECKED
    with runtime_context(device="cuda"):
        stack = StackedPatches.of(patches)
        taken = seconds(lambda: stack.divergences(patches[0])) / IMAGES
        found = stack.divergences(patches[0]).cpu().numpy()
    print(f"one against {IMAGES:,}: {1e3 * taken:.4f} ms per pair on the GPU, {1e3 * host:.1f} ms on the CPU")
    difference = np.abs(found[1:CHECKED] - expected[1:]).max()
    print(f"largest difference of {CHECKED}: {difference:.2e} (values to {expected.max():.1f})")


if __name__ == "__main__":
    main()
