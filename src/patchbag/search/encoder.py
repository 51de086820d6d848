# SPDX-License-Identifier: BSD-3-Clause
"""Images to vectors under a representation, fitted on a collection.

What is learned (universal mixtures, principal axes) comes from at most ``FIT`` images, evenly spaced over the
collection.  Encodings are made ``CHUNK`` images at a time, so that long ones never lie in memory for all images.

A few images that only a network has to look at go straight to it (``QUICK``): importing scikit-learn takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from patchbag.images.decoders import ImageError
from patchbag.search.axes import Axes, unit
from patchbag.search.mixtures import flatten
from patchbag.search.representations import Part, Representation

FIT = 2000
CHUNK = 256
QUICK = 8
POOLED = "deep-pooled"
SMOOTHING = 0.1  # share of the collection's mean in a histogram (Jelinek & Mercer), so that no word is impossible

Progress = Callable[[int, int], None]


class Described(NamedTuple):
    """Bags (or pooled vectors) by part, the images that they belong to, and (index, name, message) of the others."""

    parts: list[Any]
    kept: np.ndarray
    failures: list[tuple[int, str, str]]


def describe(
    representation: Representation,
    sources: Sequence[Any],
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Described:
    """Describe images for every part; paths by way of the store, bytes, arrays and a few images directly."""
    paths = all(isinstance(source, str) for source in sources)
    if len(sources) <= QUICK and [part.features for part in representation.parts] == [POOLED]:
        return _look(sources, progress)
    from patchbag.collection.describe import describe as describe_files
    from patchbag.collection.store import Store
    from patchbag.stages import FEATURES

    found: list[Any] = []
    failures: dict[int, tuple[int, str, str]] = {}
    kept = np.arange(len(sources))
    for part in representation.parts:
        feature = FEATURES[part.features]().set_params(n_jobs=n_jobs)
        if paths:
            got = describe_files(feature, sources, Store(), on_error="skip", progress=progress)
        else:
            got = feature.extract(sources, on_error="skip", progress=progress)
        found.append(got)
        failures |= {failure.index: (failure.index, failure.name, failure.message) for failure in got.failures}
        kept = np.intersect1d(kept, got.kept)
    bags = [got.bags[np.searchsorted(got.kept, kept)] if len(kept) else got.bags for got in found]
    return Described(bags, kept, [failures[i] for i in sorted(failures)])


def _look(sources: Sequence[Any], progress: Progress | None) -> Described:
    from patchbag.features.networks.preparation import pooled_vector
    from patchbag.images.loading import source_name

    rows, kept, failures = [], [], []
    for index, source in enumerate(sources):
        name = source_name(source)
        try:
            rows.append(pooled_vector(source, name=name))
            kept.append(index)
        except ImageError as error:
            failures.append((index, name, str(error).removeprefix(f"{name}: ")))
        if progress is not None:
            progress(index + 1, len(sources))
    return Described([np.array(rows)], np.array(kept, dtype=np.int64), failures)


@dataclass
class Encoder:
    """The fitted parts of a representation: a pipeline each where something is learned, and axes."""

    representation: Representation
    axes: list[Axes]
    source: Path | None = None  # of the pipelines, which are read when first needed
    _pipelines: list[Any] = field(default_factory=list)

    @classmethod
    def fit(cls, representation: Representation, described: Sequence[Any]) -> tuple[Encoder, np.ndarray]:
        """Learn from the bags of every part; returns the vectors of the images as well."""
        encoder = cls(representation, [])
        if representation.metric == "smp":
            return encoder, encoder.encode(described)
        for part, bags in zip(representation.parts, described):
            chosen = np.linspace(0, len(bags) - 1, min(len(bags), FIT)).astype(int)
            encoder._pipelines.append(None if part.steps is None else _pipeline(part, bags[chosen]))
            raw = encoder._raw(len(encoder.axes), bags[chosen])
            if representation.metric != "cosine":
                encoder.axes.append(Axes(raw.mean(axis=0)))
            else:
                encoder.axes.append(Axes.fit(raw, part.dimension, part.power))
        return encoder, encoder.encode(described)

    def encode(self, described: Sequence[Any]) -> np.ndarray:
        """Vectors (n, d) of described images, float32: unit length, histograms, or mixtures."""
        if self.representation.metric == "smp":  # sets have no vectors
            return np.empty((len(described[0]), 0), np.float32)
        columns = []
        for i, bags in enumerate(described):
            starts = range(0, len(bags), CHUNK)
            columns.append(np.vstack([self._vectors(i, bags[start : start + CHUNK]) for start in starts]))
        joined = np.hstack(columns)
        return joined / np.float32(len(columns) ** 0.5) if len(columns) > 1 else joined

    def _vectors(self, i: int, bags: Any) -> np.ndarray:
        raw = self._raw(i, bags)
        if self.representation.metric == "kl":
            return ((1 - SMOOTHING) * raw + SMOOTHING * self.axes[i].mean).astype(np.float32)
        return self.axes[i].apply(raw) if self.representation.metric == "cosine" else raw

    def _raw(self, i: int, bags: Any) -> np.ndarray:
        """Encodings (n, D) before the axes."""
        if self.representation.parts[i].steps is None:
            pooled = bags if isinstance(bags, np.ndarray) else np.asarray(bags.values)[np.asarray(bags.offsets[:-1])]
            return np.copysign(np.sqrt(np.abs(pooled)), pooled).astype(np.float32)
        encoded = self.pipelines[i].transform(bags)
        if self.representation.metric in ("klk", "ppk"):
            return flatten(encoded)
        raw = np.asarray(encoded, dtype=np.float32).reshape(len(bags), -1)
        if self.representation.metric == "kl":
            return raw / np.maximum(raw.sum(axis=1, keepdims=True), 1e-12)
        return unit(raw)

    @property
    def pipelines(self) -> list[Any]:
        """One for each part, None where nothing is learned; read from their file when first asked for."""
        if not self._pipelines and self.source is not None:
            from patchbag.storage.models import load

            self._pipelines = list(load(self.source))
        return self._pipelines

    @property
    def learned(self) -> bool:
        """Whether there are pipelines to keep."""
        return any(part.steps is not None for part in self.representation.parts)

    def save_pipelines(self, path: Path) -> None:
        from patchbag.storage.models import save

        save(self.pipelines, path)
        self.source = path

    def arrays(self) -> dict[str, np.ndarray]:
        """The axes, for the file of an index."""
        found = {f"mean.{i}": axes.mean for i, axes in enumerate(self.axes)}
        return found | {f"axes.{i}": axes.matrix for i, axes in enumerate(self.axes) if axes.matrix is not None}

    @classmethod
    def from_arrays(cls, representation: Representation, arrays: dict[str, np.ndarray], source: Path | None) -> Encoder:
        count = range(0 if representation.metric == "smp" else len(representation.parts))
        return cls(representation, [Axes(arrays[f"mean.{i}"], arrays.get(f"axes.{i}")) for i in count], source)


def _pipeline(part: Part, bags: Any) -> Any:
    from sklearn.pipeline import Pipeline

    from patchbag.runtime import current_runtime, runtime_context

    assert part.steps is not None
    seed = current_runtime().seed
    with runtime_context(seed=0 if seed is None else seed):  # the same folder, the same index
        return Pipeline(part.steps()).fit(bags)
