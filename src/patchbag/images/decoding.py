# SPDX-License-Identifier: BSD-3-Clause
"""Pictures that are decoded in a process of their own, which may be stopped, or die, or run out of memory.

A thread inside of a decoder cannot be stopped; a process can.  What would take long or much
(:mod:`patchbag.images.decoders` says what does) is therefore handed to a helper,
``python -m patchbag.images.loading``, which is started once and kept: from the second large picture on this
costs no more than sending the small result back.  The system ends the helper when
one picture has taken ``seconds`` of processor time or when it holds more than ``memory`` bytes; the next large picture
starts another.

A request is a line of JSON and the bytes of the picture, if it is not a path; so is the answer with the levels.  None
of it is pickled.
"""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import IO, Any, Literal

import numpy as np

from patchbag.images.decoders import ImageError

Mode = Literal["grey", "rgb"]
SECONDS = 5  # of processor time for one picture
PATIENT = 60  # where a person has raised the limit of pixels
MEMORY = 4 << 30  # of addresses beside those of the libraries: the stacks of a decoder's threads are among them
# glibc gives the memory of a picture back when it is freed only where these are fixed
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_ARENA_MAX": "2", "OPENBLAS_NUM_THREADS": "1"}
READY = b"ready\n"


@dataclass(frozen=True)
class Request:
    """What ``load_image`` was asked for."""

    name: str
    mode: Mode
    max_pixels: int | None
    max_side: int | None
    raised: int | None = None
    seconds: int = SECONDS
    frame: int = 0
    channels: tuple[int, ...] | None = None
    path: str | None = None


class Stopped(Exception):
    """The helper ended; the message says why."""


class Helper:
    """A process that decodes."""

    def __init__(self) -> None:
        if not sys.executable:
            raise OSError("there is no Python to start")
        path = os.pathsep.join(place for place in sys.path if place)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "patchbag.images.loading"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, **ENVIRONMENT},
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != READY:
            self.end()
            raise OSError(f"{sys.executable} does not start")

    def ask(self, request: Request, data: bytes) -> tuple[dict[str, Any], bytes]:
        """The answer and its bytes."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            _send(self.process.stdin, asdict(request), data)
            answer = _receive(self.process.stdout)
        except (OSError, ValueError):
            answer = None
        if answer is not None:
            return answer
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)  # its pipe is closed: it is ending
        self.end()
        code = self.process.returncode
        if code == -getattr(signal, "SIGXCPU", 0):
            raise Stopped(f"takes more than {request.seconds} seconds to decode; save it anew, or raise --max-pixels")
        raise Stopped(f"ended the process that decoded it (status {code}); the file is damaged, or too large to decode")

    def end(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self.process.wait()


_idle: dict[int, list[Helper]] = {}  # by the number of our process: after a fork they are the other's
_lock = threading.Lock()


@atexit.register
def _end_helpers() -> None:
    for helper in _idle.get(os.getpid(), ()):
        helper.end()


def decode_elsewhere(request: Request, data: bytes = b"") -> tuple[dict[str, Any], np.ndarray | None]:
    """The answer of a helper, {"size": ..., "scale": ...} with levels, or {"error": message}.

    Raises
    ------
    Stopped : the helper was ended for its time or memory, or died
    OSError : no process can be started
    """
    with _lock:
        idle = _idle.setdefault(os.getpid(), [])
        idle[:] = [helper for helper in idle if helper.process.poll() is None]
        found = idle.pop() if idle else None
    helper = found or Helper()
    try:
        answer, levels = helper.ask(request, data)
    except BaseException:  # Ctrl-C too: half an answer is in the pipe
        helper.end()
        raise
    with _lock:
        idle.append(helper)
    if "error" in answer:
        return answer, None
    return answer, np.frombuffer(levels, answer["dtype"]).reshape(answer["shape"])


def processes() -> list[int]:
    """Numbers of the helpers that wait for work."""
    with _lock:
        return [helper.process.pid for helper in _idle.get(os.getpid(), ())]


def _send(pipe: IO[bytes], head: dict[str, Any], data: Any = b"") -> None:
    view = memoryview(data).cast("B") if len(data) else memoryview(b"")
    pipe.write(json.dumps({**head, "bytes": len(view)}).encode() + b"\n")
    pipe.write(view)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    line = pipe.readline()
    if not line.endswith(b"\n"):
        return None
    head = json.loads(line)
    data = pipe.read(head.pop("bytes"))
    return head, data


def _limit(seconds: int, memory: int | None) -> None:
    """So many seconds of processor time from now on, and so many bytes of addresses."""
    try:
        import resource
    except ImportError:  # Windows
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    limits = {
        resource.RLIMIT_CPU: int(used.ru_utime + used.ru_stime) + seconds,
        resource.RLIMIT_AS: resource.RLIM_INFINITY if memory is None else _addresses() + memory,
    }
    for kind, soft in limits.items():
        hard = resource.getrlimit(kind)[1]
        with contextlib.suppress(ValueError, OSError):  # a limit that is lower already
            resource.setrlimit(kind, (soft, hard))


def _addresses() -> int:
    """Bytes of addresses that this process has taken; 0 where the system does not tell."""
    with contextlib.suppress(OSError, AttributeError), open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def serve(load: Callable[[Request, bytes], Any]) -> None:
    """The helper: pictures until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the caller's affair
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # whatever a library prints
    answers.write(READY)
    answers.flush()
    while (received := _receive(requests)) is not None:
        head, data = received
        request = Request(**head)
        _limit(request.seconds, MEMORY if request.raised is None else None)
        try:
            loaded = load(request, data)
        except (ImageError, MemoryError) as error:
            _send(answers, {"error": str(error) or "takes too much memory to decode"})
            continue
        array = np.ascontiguousarray(loaded.array)
        answer = {"shape": array.shape, "dtype": array.dtype.str, "size": loaded.original_size, "scale": loaded.scale}
        _send(answers, answer, array)
