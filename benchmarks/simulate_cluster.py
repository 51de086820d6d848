# SPDX-License-Identifier: BSD-3-Clause
"""How far a cluster helps: times of real jobs of this machine, replayed on 8 to 512 workers.

    python benchmarks/simulate_cluster.py DIR/scene15 [--images 1000000]

The jobs of every stage (describing a chunk of images, an EM step over 16,384 descriptors, statistics and Fisher vectors
of a chunk of bags, stochastic gradients on a part of the vectors) are run here, single-threaded, and timed.  Three ways
are compared: descriptors come back to the caller's store, and ``CORES`` of the caller encode them (``train
--cluster``); one job does both and vectors come back (``--stream``); the job writes its vectors to an address, and the
classifier learns on the workers (``--stream --vectors``).  In the first two the caller learns the classifier.  The
storage at the address is taken to give every worker ``STORAGE`` bytes per second, however many there are.  The
simulation hands jobs out one after the other: the scheduler takes ``dispatch`` seconds for each (measured on jobs that
do nothing, where Dask is installed), a free worker runs it for a time drawn from those measured, and its result comes
back through the one network card of the caller, which adds it up.
It knows nothing of broken disks, of other users and of images of other sizes.
"""

from __future__ import annotations

import argparse
import heapq
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from patchbag import (
    BagPCA,
    DenseSIFT,
    FisherVector,
    StochasticLinearClassifier,
    UniversalMixture,
    UniversalStatistics,
    open_collection,
    runtime_context,
)
from patchbag.classifiers.stochastic import PART
from patchbag.mixture.em import expectation

WORKERS = (8, 16, 32, 64, 128, 256, 512)
BANDWIDTH = 1.25e9  # bytes per second: 10 Gbit/s
CORES = 8  # of the caller
STORAGE = 1e8  # bytes per second of one worker to and from the shared storage
DISPATCH = 1e-3  # seconds, where it cannot be measured
CHUNK = 16  # images of a job that is timed
LARGER = 4  # such jobs that are one in the simulation
JOB = 16_384  # descriptors of a job of EM
ROWS = 2048  # vectors of stochastic gradients that are timed
EM_SAMPLE, EM_STEPS = 500_000, 30
EPOCHS, CLASSES = 2, 15  # of the classifier
SAMPLE = 2000  # images that the model is learned from where descriptors are not kept


class Stage(NamedTuple):
    """Jobs per repetition, their measured times, bytes that each sends back, repetitions with a wait in between, and
    bytes that each is sent."""

    name: str
    jobs: int
    times: np.ndarray
    size: float
    repeats: int = 1
    sent: float = 0.0


def simulate(stage: Stage, workers: int, dispatch: float, rng: np.random.Generator) -> float:
    """Seconds that a stage takes: jobs are handed out in order; they and their results go through one card."""
    free = [0.0] * workers
    dispatched = received = 0.0
    for seconds in rng.choice(stage.times, stage.jobs):
        dispatched += dispatch + stage.sent / BANDWIDTH
        done = max(heapq.heappop(free), dispatched) + seconds
        heapq.heappush(free, done)
        received = max(received, done) + stage.size / BANDWIDTH
    return received * stage.repeats


def measure_dispatch() -> float:
    """Seconds of the scheduler per job that does nothing."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        return DISPATCH
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.gather(client.map(int, range(100)))
        started = time.process_time()  # scheduler and caller are this process, the worker is not
        client.gather(client.map(int, range(1000, 3000)))
        return (time.process_time() - started) / 2000


def timed(function: Any, parts: list[Any]) -> np.ndarray:
    taken = []
    for part in parts:
        started = time.process_time()  # of this process alone: others on the machine do not count
        function(part)
        taken.append(time.process_time() - started)
    return np.array(taken)


def measure(folder: Path, n_images: int) -> dict[str, list[Stage]]:
    """The stages of every way."""
    images = open_collection(folder)
    paths = [str(path) for path in np.random.default_rng(0).permutation(images.paths)[: 20 * CHUNK]]
    parts = [paths[i : i + CHUNK] for i in range(0, len(paths), CHUNK)]
    feature = DenseSIFT(step=8, bin_sizes=(4, 6, 8, 10), root=True, dtype="uint8")
    describing = timed(feature.transform, parts)
    bags = feature.transform(paths)
    model = UniversalStatistics(UniversalMixture(128, max_samples=100_000, random_state=0), BagPCA(64)).fit(bags)
    values = model.projection_.transform(bags).values
    parameters = model.mixture_.parameters_
    rows = [values[i : i + JOB] for i in range(0, min(len(values), 20 * JOB), JOB)]
    stepping = timed(lambda part: expectation(part, parameters, None, 1), rows)
    encoder = FisherVector().fit(model.transform(bags[:CHUNK]))
    cuts = [bags[i : i + CHUNK] for i in range(0, len(bags), CHUNK)]
    encoding = timed(lambda part: encoder.transform(model.transform(part)), cuts)
    per_image = bags.values.nbytes / len(bags)
    width = 2 * 64 * 128
    print(f"{len(values) / len(bags):.0f} descriptors, {per_image / 1e3:.0f} kB per image; on one core:")
    for name, taken, count in (("describe", describing, CHUNK), ("Fisher vector", encoding, CHUNK)):
        print(f"  {name}: {1e3 * taken.mean() / count:.1f} ms per image")
    print(f"  EM, 128 Gaussians: {1e3 * stepping.mean():.1f} ms per {JOB:,} descriptors")
    chunks = -(-n_images // CHUNK)
    em = Stage("EM", -(-EM_SAMPLE // JOB), stepping, 8.0 * 128 * 129, EM_STEPS)
    described, encoded = CHUNK * per_image, CHUNK * width * 2.0
    part = timed(learn, [np.random.default_rng(i).normal(size=(ROWS, width)).astype(np.float16) for i in range(3)])
    print(f"  stochastic gradients, {CLASSES} classes: {1e3 * part.mean() / ROWS:.2f} ms per vector and epoch")
    n_parts, weights = max(1, round(n_images / PART)), 2 * 4.0 * CLASSES * (width + 1)
    caller = Stage("classifier", 1, part * (n_images / ROWS), 0.0, EPOCHS)
    parts = Stage(
        "classifier", n_parts, part * (PART / ROWS) + PART * width * 2 / STORAGE, weights, EPOCHS, sent=weights
    )
    apart = [
        Stage("describe", chunks, describing, described),
        em,
        Stage("Fisher vectors, by the caller", 1, np.array([chunks * encoding.mean() / CORES]), 0.0),
        caller,
    ]
    sample = Stage("describe a sample", -(-SAMPLE // CHUNK), describing, described)
    together = Stage("describe and encode", chunks, describing + encoding, encoded)
    written = together._replace(times=together.times + encoded / STORAGE, size=8.0 * CHUNK)
    return {
        "descriptors to the caller": apart,
        "vectors to the caller": [sample, em, together, caller],
        "vectors to the address": [sample, em, written, parts],
    }


def learn(rows: np.ndarray) -> None:
    """An epoch over some vectors; noise, for the time does not depend on what they are."""
    StochasticLinearClassifier(1e-5, epochs=1, random_state=0).fit(rows, np.arange(len(rows)) % CLASSES)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=1_000_000)
    given = parser.parse_args()
    with runtime_context(n_jobs=1, seed=0):
        ways = measure(given.folder, given.images)
    dispatch = measure_dispatch()
    rng = np.random.default_rng(0)
    print(f"scheduler: {1e3 * dispatch:.2f} ms per job; {given.images:,} images, jobs of {LARGER * CHUNK}")
    for way, stages in ways.items():
        print(f"{way}:")
        for stage in stages:
            work = stage.jobs * stage.repeats
            hours, moved = work * stage.times.mean() / 3600, work * (stage.size + stage.sent) / 1e9
            print(f"  {stage.name}: {hours:.2f} core hours, {moved:,.1f} GB through the caller's card")
        ideal = sum(stage.jobs * stage.repeats * stage.times.mean() for stage in stages)
        print("workers | " + " | ".join(stage.name for stage in stages) + " | in all, of the ideal")
        for workers in WORKERS:
            spent = [simulate(merge(stage), workers, dispatch, rng) for stage in stages]
            shown = " | ".join(f"{seconds:.0f} s" for seconds in spent)
            print(f"{workers} | {shown} | {sum(spent):.0f} s, {100 * ideal / workers / sum(spent):.0f} %")


def merge(stage: Stage) -> Stage:
    """The stage with ``LARGER`` of its jobs made one; EM's are few and stay as they are, and so do the caller's."""
    if stage.repeats > 1 or stage.jobs == 1:
        return stage
    size, sent = stage.size * LARGER, stage.sent * LARGER
    return stage._replace(jobs=-(-stage.jobs // LARGER), times=stage.times * LARGER, size=size, sent=sent)


if __name__ == "__main__":
    main()
