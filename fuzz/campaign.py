"""What the campaigns have in common: cases by number, run in a child process, whose death is counted.

A campaign is a function ``case(seed) -> outcome`` that makes one hostile input from the seed and hands it to patchbag.
It returns the name of an acceptable outcome ("answer", "ModelFileError", ...) and raises whatever is not acceptable.
The child tells of every case before it begins and after it ends; when it dies, hangs or grows too large, the parent
writes that down against the seed, starts another child behind it, and goes on until the time is over.

The journal has one line per share of the cases and one per finding; a campaign that is started again does what its
journal does not tell of::

    python fuzz/models.py --seconds 600 --jobs 2 --journal models.jsonl     # again and again
    python fuzz/models.py --only 1234                                       # one case, in this process
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

SLOW = 5.0  # seconds for one case
LARGE = 1 << 30  # bytes of one child, libraries included
HANGS = 90.0  # seconds of work without a word, compilation and the corpus included
SHARE = 1000  # cases of one child, and of a line of the journal

Case = Callable[[int], str]


def work(case: Case, first: int, end: int) -> None:
    """The child: cases from ``first`` to ``end``, a line before and after each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes = getattr(case, "processes", tuple)  # that the case has started, and that are still there
    say = sys.stdout.fileno()
    sys.stdout = sys.stderr
    for seed in range(first, end):
        os.write(say, f"{seed} begins\n".encode())
        outcome, seconds = attempt(case, seed)
        if seconds > SLOW:  # the first time something may have been compiled
            outcome, seconds = attempt(case, seed)
        size = largest_size() + sum(map(largest_size, processes()))
        os.write(say, f"{seed} {seconds:.3f} {size} {' '.join(outcome.split())[:300]}\n".encode())


def largest_size(process: str | int = "self") -> int:
    """Bytes that a process has held at most."""
    try:  # getrusage counts those of the process that started this one as well
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    except (OSError, StopIteration):
        return 0 if process != "self" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def attempt(case: Case, seed: int) -> tuple[str, float]:
    """What comes of a case, with a mark where it is not acceptable, and how long it takes."""
    start = time.process_time()  # of this process: the machine may be busy with others
    try:
        outcome = case(seed)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome = f"! {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    return outcome, time.process_time() - start


class Child:
    """A process that works, and what it says."""

    def __init__(self, script: str, first: int, end: int, more: list[str]) -> None:
        command = [sys.executable, script, "--work", str(first), str(end), *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        self.pipe, self.rest = self.process.stdout.fileno(), b""

    def line(self, timeout: float) -> str | None:
        """The next line; "" when it has ended, None when it says nothing."""
        while b"\n" not in self.rest:
            if not select.select([self.pipe], [], [], timeout)[0]:
                return None
            part = os.read(self.pipe, 1 << 16)
            if not part:
                return ""
            self.rest += part
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def seconds(self) -> float:
        """Processor time that it has used so far, where the system tells."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return math.inf
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> int:
        self.process.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return self.process.wait()


def run(
    script: str,
    seconds: float,
    first: int,
    journal: Path | None,
    more: list[str],
    most: int | None = None,
    jobs: int = 1,
) -> tuple[Counter[str], list[tuple[int, str]]]:
    """Cases from ``first`` on for so many seconds, or so many cases: outcomes, findings (seed, what).

    Each of the ``jobs`` takes a share of cases at a time, a process for each share; ``counts["MB"]`` is the most that
    they held together.
    """
    shares, lock = remaining(first, read(journal), most), threading.Lock()
    campaign = Campaign(script, time.monotonic() + seconds, journal, more)

    def take() -> None:
        while time.monotonic() < campaign.until:
            with lock:
                share = next(shares, None)
            if share is None:
                return
            campaign.run(*share)

    threads = [threading.Thread(target=take) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return campaign.counts, sorted(campaign.findings)


class Campaign:
    """What several shares of one campaign add to."""

    def __init__(self, script: str, until: float, journal: Path | None, more: list[str]) -> None:
        self.script, self.until, self.journal, self.more = script, until, journal, more
        self.counts: Counter[str] = Counter()
        self.findings: list[tuple[int, str]] = []
        self.sizes: dict[int, int] = {}  # bytes of each thread's child
        self._lock = threading.Lock()

    def write(self, **entry: object) -> None:
        if self.journal is not None:
            with self._lock, self.journal.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    def find(self, seed: int, what: str) -> None:
        with self._lock:
            self.findings.append((seed, what))
        self.write(seed=seed, finding=what)

    def count(self, outcome: str, size: int) -> None:
        with self._lock:
            self.counts[outcome] += 1
            self.sizes[threading.get_ident()] = size
            self.counts["MB"] = max(self.counts["MB"], sum(self.sizes.values()) >> 20)

    def run(self, first: int, end: int) -> None:
        """A share of the cases."""
        seed, begun, heard, counts = first, False, 0.0, Counter[str]()

        def child() -> Child:
            return Child(self.script, seed, end, self.more)

        worker = child()
        while seed < end and (begun or time.monotonic() < self.until):
            line = worker.line(HANGS)
            if line is None and worker.seconds() - heard < HANGS:
                continue  # the machine is busy with others
            heard = worker.seconds()
            if not line:
                code = worker.process.wait() if line == "" else None
                worker.end()
                self.find(seed, "hangs" if line is None else f"crash: the process ended with {code}")
                self.count("crash" if line == "" else "hang", 0)
                seed, begun, heard = seed + 1, False, 0.0
                worker = child()
                continue
            words = line.split(" ", 3)
            if words[1] == "begins":
                begun = True
                continue
            begun, outcome = False, words[3]
            kind = "finding" if outcome.startswith("!") else outcome
            counts[kind] += 1
            self.count(kind, int(words[2]))
            if outcome.startswith("!"):
                self.find(seed, outcome[2:])
            elif float(words[1]) > SLOW:
                self.find(seed, f"slow: {words[1]} s")
            if int(words[2]) > LARGE:
                self.find(seed, f"large: {int(words[2]) >> 20} MB")
                worker.end()
                seed, heard = seed + 1, 0.0
                worker = child()
            else:
                seed += 1
        worker.end()
        self.write(first=first, next=seed, counts=dict(counts))


def read(journal: Path | None) -> list[dict[str, Any]]:
    """The lines of a journal."""
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal and journal.exists() else []


def remaining(first: int, entries: list[dict[str, Any]], most: int | None = None) -> Iterator[tuple[int, int]]:
    """Shares (first, end) of the cases from ``first`` on that no line of a journal tells of.

    >>> next(remaining(0, [{"first": 0, "next": SHARE}, {"first": SHARE, "next": SHARE + 7}])) == (SHARE + 7, 2 * SHARE)
    True
    """
    done: dict[int, int] = {}
    for entry in entries:
        if "next" in entry:
            done[entry["first"] // SHARE] = max(entry["next"], done.get(entry["first"] // SHARE, 0))
    end = math.inf if most is None else first + most
    for share in count(first // SHARE):
        start = max(first, done.get(share, share * SHARE))
        stop = min((share + 1) * SHARE, end)
        if start < stop:
            yield start, int(stop)
        elif stop == end:
            return


def kept(name: str, make: Callable[[], Any], *sources: str) -> Any:
    """What is made once and kept for all children below the folder of the project, until one of the sources changes."""
    digest = hashlib.blake2b(b"".join(Path(source).read_bytes() for source in sources), digest_size=8).hexdigest()
    path = Path(__file__).parents[1] / ".fuzz" / f"{name}-{digest}.pickle"
    if path.exists():
        return pickle.loads(path.read_bytes())
    value = make()
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(pickle.dumps(value))
    partial.replace(path)
    return value


def main(script: str, prepare: Callable[[], Case]) -> None:
    """The command line of a campaign; ``prepare`` is called in the child and gives the function of a case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("FUZZ_SECONDS", 60)))
    parser.add_argument("--seed", type=int, default=0, help="first case, of those that the journal does not tell of")
    parser.add_argument("--cases", type=int, help="no more than so many")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--only", type=int, help="one case, in this process")
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(prepare(), *options.work)
    elif options.only is not None:
        print(prepare()(options.only))
    else:
        started = time.monotonic()
        counts, findings = run(
            script, options.seconds, options.seed, options.journal, [], most=options.cases, jobs=options.jobs
        )
        size = counts.pop("MB", 0)
        print(
            f"{Path(script).stem}: {counts.total():,} cases in {time.monotonic() - started:.0f} s, "
            f"at most {size} MB in {options.jobs} processes: {dict(counts.most_common())}"
        )
        for number, what in findings:
            print(f"  {number}: {what}")
        sys.exit(bool(findings))
