# SPDX-License-Identifier: BSD-3-Clause
"""Threads over independent jobs, with BLAS held to one thread in each.

Work is cut into jobs by the data alone, never by the number of threads, and results come back in the order of the
jobs: the same numbers, bit for bit, on one thread and on many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

J = TypeVar("J")
R = TypeVar("R")


def count_threads(n_threads: int | None = None) -> int:
    """``n_threads``, or the number of cores this process may use."""
    if n_threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if n_threads < 1:
        raise ValueError(f"n_threads must be a positive number or None for all cores, got {n_threads}")
    return n_threads


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks at every loaded library: milliseconds, so once


def map_threads(function: Callable[[J], R], jobs: Iterable[J], n_threads: int | None = None) -> Iterator[R]:
    """``function`` of every job, in order, on a pool of threads; BLAS runs single-threaded meanwhile."""
    jobs = list(jobs)
    workers = min(count_threads(n_threads), len(jobs))
    with _controller().limit(limits=1, user_api="blas"):
        if workers <= 1:
            yield from map(function, jobs)
        else:
            with ThreadPoolExecutor(workers) as pool:
                yield from pool.map(function, jobs)
