"""What the campaigns have in common: cases by number, run in a child process, whose death is counted.

A campaign is a function ``case(seed) -> outcome`` that makes one hostile input from the seed and hands it to patchbag.
It returns the name of an acceptable outcome ("answer", "ModelFileError", ...) and raises whatever is not acceptable.
The child tells of every case before it begins and after it ends; when it dies, hangs or grows too large, the parent
writes that down against the seed, starts another child behind it, and goes on until the time is over.

The journal has one line per block of cases and one per finding; a campaign that is started again goes on behind it::

    python fuzz/models.py --seconds 600 --journal models.jsonl      # again and again
    python fuzz/models.py --only 1234                               # one case, in this process, with its traceback
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
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

SLOW = 5.0  # seconds for one case
LARGE = 1 << 30  # bytes of one child, libraries included
HANGS = 90.0  # seconds of work without a word, compilation and the corpus included
RECYCLED = 4000  # cases of one child
BLOCK = 500  # cases of a line of the journal

Case = Callable[[int], str]


def work(case: Case, first: int) -> None:
    """The child: cases from ``first`` on, a line before and after each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say = sys.stdout.fileno()
    sys.stdout = sys.stderr
    for seed in range(first, first + RECYCLED):
        os.write(say, f"{seed} begins\n".encode())
        outcome, seconds = attempt(case, seed)
        if seconds > SLOW:  # the first time something may have been compiled
            outcome, seconds = attempt(case, seed)
        size = largest_size()
        os.write(say, f"{seed} {seconds:.3f} {size} {' '.join(outcome.split())[:300]}\n".encode())


def largest_size() -> int:
    """Bytes that this process has held at most."""
    try:  # getrusage counts those of the process that started this one as well
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


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

    def __init__(self, script: str, first: int, more: list[str]) -> None:
        command = [sys.executable, script, "--work", str(first), *more]
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
    script: str, seconds: float, first: int, journal: Path | None, more: list[str], most: int | None = None
) -> tuple[int, Counter[str], list[tuple[int, str]]]:
    """Cases from ``first`` on for so many seconds, or so many cases: the next seed, outcomes, findings (seed, what)."""
    counts: Counter[str] = Counter()
    findings: list[tuple[int, str]] = []
    until, seed, child, written = time.monotonic() + seconds, first, Child(script, first, more), 0

    def write(**entry: object) -> None:
        if journal is not None:
            with journal.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    def find(what: str) -> None:
        findings.append((seed, what))
        write(seed=seed, finding=what)

    begun, heard = False, 0.0
    while (time.monotonic() < until and (most is None or seed < first + most)) or begun:
        line = child.line(HANGS)
        if line is None and child.seconds() - heard < HANGS:
            continue  # the machine is busy with others
        heard = child.seconds()
        if line is None or (line == "" and begun):
            code = child.process.wait() if line == "" else None
            child.end()
            find("hangs" if line is None else f"crash: the process ended with {code}")
            counts["crash" if line == "" else "hang"] += 1
            seed, begun, heard, child = seed + 1, False, 0.0, Child(script, seed + 1, more)
            continue
        if line == "":  # its share is done
            child.end()
            heard, child = 0.0, Child(script, seed, more)
            continue
        words = line.split(" ", 3)
        if words[1] == "begins":
            seed, begun = int(words[0]), True
            continue
        begun, outcome = False, words[3]
        counts["finding" if outcome.startswith("!") else outcome] += 1
        if outcome.startswith("!"):
            find(outcome[2:])
        elif float(words[1]) > SLOW:
            find(f"slow: {words[1]} s")
        if int(words[2]) > LARGE:
            find(f"large: {int(words[2]) >> 20} MB")
            child.end()
            heard, child = 0.0, Child(script, seed + 1, more)
        seed += 1
        if (seed - first) // BLOCK > written:
            written = (seed - first) // BLOCK
            write(next=seed, counts=dict(counts))
    child.end()
    write(next=seed, counts=dict(counts))
    return seed, counts, findings


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


def last_seed(journal: Path | None) -> int:
    """Where a journal ends."""
    if journal is None or not journal.exists():
        return 0
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    return max((entry.get("next", entry.get("seed", -1) + 1) for entry in lines), default=0)


def main(script: str, prepare: Callable[[], Case]) -> None:
    """The command line of a campaign; ``prepare`` is called in the child and gives the function of a case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("FUZZ_SECONDS", 60)))
    parser.add_argument("--seed", type=int, help="first case; else where the journal ends")
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--only", type=int, help="one case, in this process")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(prepare(), options.work)
    elif options.only is not None:
        print(prepare()(options.only))
    else:
        first = last_seed(options.journal) if options.seed is None else options.seed
        seed, counts, findings = run(script, options.seconds, first, options.journal, [])
        print(f"{Path(script).stem}: cases {first} to {seed - 1}: {dict(counts.most_common())}")
        for number, what in findings:
            print(f"  {number}: {what}")
        sys.exit(bool(findings))
