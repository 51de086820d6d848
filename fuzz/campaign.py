"""What the campaigns have in common: cases by number, run in a child process, whose death is counted.

A campaign is a function ``case(seed) -> outcome`` that makes one hostile input from the seed and hands it to patchbag.
It returns the name of an acceptable outcome ("answer", "ModelFileError", ...) and raises whatever is not acceptable.
The child tells of every case before it begins and after it ends, with its processor time and the most memory that it
took; when it dies, hangs or grows too large, the parent writes that down against the seed, starts another child behind
it, and goes on until the time is over.  A child that stays small lives as long as the campaign.

The journal has one line per share of the cases and one per finding; a campaign that is started again does what its
journal does not tell of, and says at its end what all of the journal comes to::

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
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

SLOW = 5.0  # seconds for one case
LARGE = 1 << 30  # bytes of one child, libraries included
HANGS = 90.0  # seconds of work without a word, compilation and the corpus included
SHARE = 1000  # cases of a line of the journal, unless a campaign has slow ones
GROWN = LARGE // 2  # bytes that a child holds when nothing goes on, beyond which another one goes on

Case = Callable[[int], str]


def work(case: Case) -> None:
    """The child: cases from one number to another, which it is told line by line, and a line before and after each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes = getattr(case, "processes", tuple)  # that the case has started, and that are still there
    say = sys.stdout.fileno()
    sys.stdout = sys.stderr
    for task in sys.stdin:
        for seed in range(*map(int, task.split())):
            os.write(say, f"{seed} begins\n".encode())
            for process in (os.getpid(), *processes()):
                forget_size(process)
            outcome, seconds = attempt(case, seed)
            if seconds > SLOW:  # the first time something may have been compiled
                outcome, seconds = attempt(case, seed)
            size = sum(size_of(process) for process in (os.getpid(), *processes()))
            os.write(say, f"{seed} {seconds:.3f} {size} {' '.join(outcome.split())[:300]}\n".encode())


def size_of(process: int, which: str = "VmHWM") -> int:
    """Bytes that a process has held at most since :func:`forget_size`, or holds now ("VmRSS")."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(which)) * 1024
    except (OSError, StopIteration):
        return 0 if process != os.getpid() else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_size(process: int) -> None:
    """Let the most that a process has held be what it holds now, where the system can; else it is of all its cases."""
    with suppress(OSError):
        Path(f"/proc/{process}/clear_refs").write_text("5")


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

    def __init__(self, script: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([sys.executable, script, "--work"], **pipes)
        self.pipe, self.rest = self.process.stdout.fileno(), b""

    def ask(self, first: int, end: int) -> None:
        """Set it to work on the cases from ``first`` to ``end``."""
        with suppress(BrokenPipeError):  # it has ended, as will be seen
            os.write(self.process.stdin.fileno(), f"{first} {end}\n".encode())

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
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()


def run(
    script: str,
    seconds: float,
    first: int,
    journal: Path | None,
    most: int | None = None,
    jobs: int = 1,
    share: int = SHARE,
) -> tuple[Counter[str], list[tuple[int, str]]]:
    """Cases from ``first`` on for so many seconds, or so many cases: outcomes, findings (seed, what).

    Each of the ``jobs`` takes a share of cases at a time; ``counts["MB"]`` is the most that they held together.
    """
    shares, lock = remaining(first, read(journal), most, share), threading.Lock()
    campaign = Campaign(script, time.monotonic() + seconds, journal)

    def take() -> None:
        worker = None
        while time.monotonic() < campaign.until:
            with lock:
                part = next(shares, None)
            if part is None:
                break
            worker = campaign.run(worker, *part)
        if worker is not None:
            worker.end()

    threads = [threading.Thread(target=take) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return campaign.counts, sorted(campaign.findings)


class Campaign:
    """What several shares of one campaign add to."""

    def __init__(self, script: str, until: float, journal: Path | None) -> None:
        self.script, self.until, self.journal = script, until, journal
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

    def run(self, worker: Child | None, first: int, end: int) -> Child | None:
        """A share of the cases, by this child or a new one; the child, if it can go on."""
        seed, asked, begun, counts, slowest, largest = first, False, False, Counter[str](), 0.0, 0
        heard = worker.seconds() if worker is not None else 0.0
        while seed < end and (begun or time.monotonic() < self.until):
            if worker is None:
                worker, asked, heard = Child(self.script), False, 0.0
            if not asked:
                worker.ask(seed, end)
                asked = True
            line = worker.line(HANGS)
            if line is None and worker.seconds() - heard < HANGS:
                continue  # the machine is busy with others
            heard = worker.seconds()
            if not line:
                code = worker.process.wait() if line == "" else None
                worker.end()
                self.find(seed, "hangs" if line is None else f"crash: the process ended with {code}")
                self.count("crash" if line == "" else "hang", 0)
                seed, begun, worker = seed + 1, False, None
                continue
            words = line.split(" ", 3)
            if words[1] == "begins":
                begun = True
                continue
            begun, outcome, seconds, size = False, words[3], float(words[1]), int(words[2])
            kind = "finding" if outcome.startswith("!") else outcome
            counts[kind] += 1
            slowest, largest = max(slowest, seconds), max(largest, size)
            self.count(kind, size)
            if outcome.startswith("!"):
                self.find(seed, outcome[2:])
            elif seconds > SLOW:
                self.find(seed, f"slow: {seconds} s")
            seed += 1
            if size > LARGE:
                self.find(seed - 1, f"large: {size >> 20} MB")
                worker.end()
                worker = None
        self.write(first=first, next=seed, counts=dict(counts), slowest=slowest, MB=largest >> 20)
        if worker is not None and (seed < end or size_of(worker.process.pid, "VmRSS") > GROWN):
            worker.end()
            return None
        return worker


def read(journal: Path | None) -> list[dict[str, Any]]:
    """The lines of a journal."""
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal and journal.exists() else []


def remaining(
    first: int, entries: list[dict[str, Any]], most: int | None = None, share: int = SHARE
) -> Iterator[tuple[int, int]]:
    """Shares (first, end) of the cases from ``first`` on that no line of a journal tells of.

    >>> next(remaining(0, [{"first": 0, "next": SHARE}, {"first": SHARE, "next": SHARE + 7}])) == (SHARE + 7, 2 * SHARE)
    True
    """
    end = math.inf if most is None else first + most
    done = sorted((entry["first"], entry["next"]) for entry in entries if "next" in entry)
    for begin, after in [*done, (end, end)]:
        while first < min(begin, end):
            stop = int(min(first + share - first % share, begin, end))
            yield first, stop
            first = stop
        first = max(first, after)


def summary(entries: list[dict[str, Any]]) -> str:
    """What all lines of a journal come to; the first lines of old ones do not tell of time and memory."""
    shares = [entry for entry in entries if "next" in entry]
    return (
        f"the journal: {sum(entry['next'] - entry['first'] for entry in shares):,} cases, "
        f"{sum('finding' in entry for entry in entries)} findings, the slowest case "
        f"{max((entry.get('slowest', 0.0) for entry in shares), default=0.0):.2f} s, the largest "
        f"{max((entry.get('MB', 0) for entry in shares), default=0)} MB"
    )


def folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for the files of cases, in memory where the system has such a place."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)


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


def main(script: str, prepare: Callable[[], Case], share: int = SHARE) -> None:
    """The command line of a campaign; ``prepare`` is called in the child and gives the function of a case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("FUZZ_SECONDS", 60)))
    parser.add_argument("--seed", type=int, default=0, help="first case, of those that the journal does not tell of")
    parser.add_argument("--cases", type=int, help="no more than so many")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--only", type=int, help="one case, in this process")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(prepare())
    elif options.only is not None:
        print(prepare()(options.only))
    else:
        started = time.monotonic()
        begin, journal = options.seed, options.journal
        counts, findings = run(script, options.seconds, begin, journal, options.cases, options.jobs, share)
        size = counts.pop("MB", 0)
        print(
            f"{Path(script).stem}: {counts.total():,} cases in {time.monotonic() - started:.0f} s, "
            f"at most {size} MB in {options.jobs} processes: {dict(counts.most_common())}"
        )
        for number, what in findings:
            print(f"  {number}: {what}")
        if journal is not None:
            print(summary(read(journal)))
        sys.exit(bool(findings))
