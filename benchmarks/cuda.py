# SPDX-License-Identifier: BSD-3-Clause
"""What the benchmarks on a GPU share: whether there is one, and a clock that waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def find_torch() -> Any:
    """PyTorch where it sees a CUDA GPU; else None, and a word why there is nothing to measure."""
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: nothing to measure")
        return None
    if not torch.cuda.is_available():
        print("no CUDA GPU: nothing to measure")
        return None
    return torch


def seconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """The best of several runs, after one that warms up."""
    import torch

    wait = torch.cuda.synchronize if torch.cuda.is_available() else int
    work()
    times = []
    for _ in range(repeats):
        wait()
        started = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - started)
    return min(times)
