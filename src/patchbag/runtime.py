# SPDX-License-Identifier: BSD-3-Clause
"""What concerns the machine and not the model: workers, the device, the seed of a run, where features are stored.

    with runtime_context(n_jobs=-1, seed=7):
        model.fit(bags, labels)

**Workers** are joblib's.  An estimator's ``n_jobs=None`` asks the context, as everywhere in scikit-learn: one worker,
unless ``runtime_context`` or ``joblib.parallel_config`` says otherwise.  There is one seam, :func:`parallel_map`:
threads by default, and whatever backend the caller has configured (processes, Dask, Ray) without a line of ours.  Work
is cut into jobs by the data alone, results come back in the order of the jobs, and BLAS runs on one thread in each: the
same bits on any backend and any number of workers.  Loops that Numba runs in parallel are made by :func:`parallel_njit`
and use as many threads as there are workers, so that ``n_jobs=1`` means one thread everywhere.

**Seed.**  An estimator whose ``random_state`` is None takes the context's, by :func:`check_random_state`; where there
is none either, NumPy's global generator, as scikit-learn does.

**Device** is where steps that can choose put their arrays (:mod:`patchbag.device`), **store** the folder of described
features (:mod:`patchbag.collection.store`).

Nothing here is set on the steps of a pipeline: a fitted model does not know on which machine it runs.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

# joblib and scikit-learn are imported where they are used: a search in a built index needs neither, and they are slow

J = TypeVar("J")
R = TypeVar("R")

PACK = 8  # jobs that go to another process at once, at most
TURNS = 4  # packs per worker, at least, so that none waits long for the last
PATIENCE = 5.0  # seconds


@dataclass(frozen=True)
class Runtime:
    """What the present context says; workers are joblib's own affair."""

    device: str = "cpu"
    seed: Any = None
    store: Path | None = None
    max_pixels: int | None = None
    frame: int | None = None
    channels: tuple[int, ...] | None = None


_context: ContextVar[Runtime] = ContextVar("patchbag_runtime", default=Runtime())  # noqa: B039 - it is frozen


def current_runtime() -> Runtime:
    """Device, seed and store of the present context."""
    return _context.get()


def store_folder() -> Path:
    """Where features are kept: the context's folder, else ``$PATCHBAG_CACHE``, else the user's cache folder."""
    import platformdirs

    if (named := _context.get().store) is not None:
        return named
    chosen = os.environ.get("PATCHBAG_CACHE")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("patchbag", appauthor=False)


def allowed_pixels() -> int | None:
    """The limit of pixels that a person has set: the context's, else ``$PATCHBAG_MAX_PIXELS``."""
    if (named := _context.get().max_pixels) is not None:
        return named
    chosen = os.environ.get("PATCHBAG_MAX_PIXELS", "")
    return int(chosen) if chosen.isdecimal() else None


@contextmanager
def raised_pixels(number: int) -> Iterator[None]:
    """Set the limit of pixels for all threads, and for processes that are started inside."""
    before = os.environ.get("PATCHBAG_MAX_PIXELS")
    os.environ["PATCHBAG_MAX_PIXELS"] = str(number)
    try:
        with runtime_context(max_pixels=number):
            yield
    finally:
        del os.environ["PATCHBAG_MAX_PIXELS"]
        if before is not None:
            os.environ["PATCHBAG_MAX_PIXELS"] = before


@contextmanager
def runtime_context(
    *,
    n_jobs: int | None = None,
    device: str | None = None,
    tf32: bool = False,
    seed: Any = None,
    store: str | os.PathLike[str] | None = None,
    max_pixels: int | None = None,
    frame: int | None = None,
    channels: Iterable[int] | None = None,
) -> Iterator[Runtime]:
    """Workers, device, seed, store and limit for what is called inside; None leaves a setting as it is.

    Parameters
    ----------
    n_jobs : workers, -1 for all cores; also the number of threads of BLAS and of compiled loops
    device : "cpu", "cuda" or "cuda:1", ...: where arrays live in steps that can run on a GPU (:mod:`patchbag.device`)
    tf32 : matrix products of a GPU in TF32, twice as fast and with three digits
    seed : for every estimator whose ``random_state`` is None
    store : folder of described features
    max_pixels : of images, in place of the features' own limit and of that of the bytes which decoding takes
    frame : which page of image files that have several (TIFF), or frame of animations, is read; the first is 0
    channels : which channels of images are read, one for grey or three for red, green and blue

    >>> with runtime_context(seed=3):
    ...     current_runtime().seed
    3
    """
    device = None if device is None else check_device(device)
    named: dict[str, Any] = {"device": device, "seed": seed, "store": None if store is None else Path(store)}
    named |= {"max_pixels": max_pixels, "frame": frame, "channels": None if channels is None else tuple(channels)}
    token = _context.set(replace(_context.get(), **{k: v for k, v in named.items() if v is not None}))
    try:
        with ExitStack() as stack:
            if tf32:
                stack.enter_context(tensor_cores(True))
            if n_jobs is not None:
                from joblib import parallel_config

                stack.enter_context(parallel_config(n_jobs=n_jobs))
                stack.enter_context(_pools().limit(limits=count_workers()))
            yield _context.get()
    finally:
        _context.reset(token)


def check_device(name: str) -> str:
    """The name of a device that is there; else an error that says what to install."""
    if name == "cpu":
        return name
    if name != "torch" and not (name == "cuda" or (name.startswith("cuda:") and name[5:].isdigit())):
        raise ValueError(f'device must be "cpu", "cuda" or "cuda:1", "cuda:2", ...; got {name!r}')
    try:
        import torch
    except ImportError:
        raise ValueError(f'device "{name}" needs PyTorch: pip install "patchbag[gpu]"') from None
    if name == "torch":
        return name
    if not torch.cuda.is_available():
        raise ValueError(
            f'device "{name}": PyTorch {torch.__version__} sees no CUDA GPU; install the NVIDIA driver and a CUDA '
            'build of PyTorch, or use device "cpu"'
        )
    there = torch.cuda.device_count()
    if ":" in name and int(name[5:]) >= there:
        raise ValueError(f'there is no device "{name}": PyTorch sees {there}, the first is "cuda:0"')
    return name


@contextmanager
def tensor_cores(wanted: bool) -> Iterator[None]:
    """PyTorch's matrix products of float32 in TF32 (10 bits of mantissa) inside, or in full precision."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if wanted else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def check_random_state(random_state: Any) -> Any:
    """A generator from an estimator's ``random_state``; None asks the context for its seed."""
    import sklearn.utils

    return sklearn.utils.check_random_state(_context.get().seed if random_state is None else random_state)


def count_workers(n_jobs: int | None = None) -> int:
    """The number of workers that ``n_jobs`` means here."""
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))


@cache
def _pools() -> ThreadpoolController:
    # what has threads of its own must be there when it is looked for: a BLAS that came later would use all cores
    import scipy.linalg  # noqa: F401
    import sklearn.utils  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # looks at every loaded library: milliseconds, so once


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """One BLAS thread for what a model keeps: the number of threads changes the order of sums, and so the last bits."""
    with _pools().limit(limits=1, user_api="blas"):
        yield


@contextmanager
def one_worker() -> Iterator[None]:
    """One worker for everything called inside: for jobs that would otherwise start workers of their own."""
    from joblib import parallel_config

    with parallel_config(backend="sequential"):
        yield


def _call(function: Callable[[J], R], caller: int, runtime: Runtime, jobs: tuple[J, ...]) -> list[R]:
    token = _context.set(runtime)  # threads and processes start without it
    try:
        if os.getpid() == caller:
            return [function(job) for job in jobs]
        with _pools().limit(limits=1):  # the caller's limit does not reach another process
            return [function(job) for job in jobs]
    finally:
        _context.reset(token)


def _holding(lock: threading.Semaphore, function: Callable[[J], R], job: J) -> R:
    with lock:
        return function(job)


class SharedContext:
    """A setting that is global to the process, changed while any thread is inside.

    Threads that each saved and restored it would leave it changed: the first to come enters, the last to go leaves.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._context = self._make()
                self._context.__enter__()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._context.__exit__(None, None, None)


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


quiet = SharedContext(_without_warnings)


def parallel_map(
    function: Callable[[J], R],
    jobs: Iterable[J],
    n_jobs: int | None = None,
    *,
    near: bool = False,
    prefer: Literal["threads", "processes"] = "threads",
) -> Iterator[R]:
    """``function`` of every job, in order, on the workers of the context; BLAS runs single-threaded meanwhile.

    Parameters
    ----------
    function : whatever else it needs, and the jobs, are sent to workers in other processes: cut the data into the jobs
    n_jobs : workers, None for those of the context
    near : threads of the caller, whatever is configured: the function writes into its arrays, or sending what it needs
        would take longer than it does
    prefer : what the workers are unless the caller has configured a backend; processes for what holds Python's lock
    """
    jobs = list(jobs)
    workers = min(count_workers(n_jobs), len(jobs))
    with one_blas_thread():
        if workers <= 1:
            yield from map(function, jobs)
            return
        from joblib import Parallel, delayed
        from joblib.parallel import get_active_backend

        how: dict[str, Any] = {"require": "sharedmem"} if near else {"prefer": prefer}
        here = partial(_call, function, os.getpid(), _context.get())  # jobs may be sent off by a thread of joblib's
        # a message to another process takes milliseconds, so jobs go there several at a time, and all at once
        threads = getattr(get_active_backend(**how)[0], "supports_sharedmem", False)
        size = 1 if threads else min(PACK, -(-len(jobs) // (TURNS * workers)))
        free = threading.Semaphore(workers)
        work = partial(_holding, free, here) if threads else here  # a lock cannot be sent to another process
        pool = Parallel(n_jobs=workers, return_as="generator", pre_dispatch="2 * n_jobs" if threads else "all", **how)
        # in tuples, or joblib would leave large jobs in the memory of one Dask worker, and they would be lost with it
        results = pool(delayed(work)(tuple(jobs[start : start + size])) for start in range(0, len(jobs), size))
        try:
            for pack in results:
                yield from pack
        finally:
            with quiet:  # joblib warns of jobs that nobody waits for any more
                results.close()
            if threads:  # who leaves early waits for jobs that run: a thread in a library must not outlive Python
                all(free.acquire(timeout=PATIENCE) for _ in range(workers))


def parallel_njit(
    *, turns: Callable[..., int] | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``numba.njit(parallel=True, ...)`` whose loops take as many threads as there are workers in the context.

    ``turns`` of the parallel loop, from its arguments, where they may be fewer: a thread without work is waited for
    nevertheless, which takes milliseconds when BLAS has just used the core.
    """
    import numba

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = numba.njit(**{"cache": True, "nogil": True, **options}, parallel=True)(function)

        most = numba.get_num_threads()  # all that Numba was started with

        @wraps(function)
        def run(*arguments: Any) -> Any:
            before = numba.get_num_threads()
            numba.set_num_threads(min(count_workers(), most, max(1, turns(*arguments)) if turns else most))
            try:
                return compiled(*arguments)
            finally:
                numba.set_num_threads(before)

        return run

    return decorate
