# SPDX-License-Identifier: BSD-3-Clause
"""What several pipelines have in common is computed once, and the time that each step takes.

A table of results runs many pipelines on the same images: their features, universal model and statistics are often the
same.  :class:`StepMemory` hands out each pipeline with its steps wrapped: an ordinary scikit-learn ``Pipeline``, which
looks up in the memory what another one has made before.

A result is known by what it was made of: the parameters of all steps up to there (``joblib.hash``, so that no two
estimators with different parameters meet) and the content of the images (``fingerprint`` of described bags, else
``joblib.hash``).  Kept is only what a later pipeline of the same table needs, at most ``MOST`` bytes of it.

Figures and kernel matrices that are kept on disk are known by the code that made them as well (:func:`figure_key`):
after a change of it, old ones are not served.
"""

import hashlib
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

import joblib
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.pipeline import Pipeline

from patchbag.bags import Bags
from patchbag.parameters import estimator, parameter
from patchbag.records import Records

MOST = 6 << 30
# of the code, those that turn images into figures; texts, commands and reports do not change them
FOLDERS = (
    "images", "storage", "datasets", "features", "mixture", "encodings", "embeddings", "similarity", "neighbors",
    "classifiers", "active", "search", "experiments",
)  # fmt: skip


def content_key(data: Any) -> str:
    """A key of a dataset's content; described bags bring their own, so that gigabytes need not be read."""
    return getattr(data, "fingerprint", None) or joblib.hash(data)


@cache
def code_digest() -> str:
    """Digest of the source files of :data:`FOLDERS` and of the modules beside them."""
    root = Path(__file__).parent
    files = sorted([*root.glob("*.py"), *(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))])
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def figure_key(*origin: Any) -> str:
    """The key of a figure: all that it depends on, models, data, splits and seeds, and the code."""
    return str(joblib.hash((code_digest(), *origin)))


def chain_keys(pipeline: Pipeline) -> list[str]:
    """What the result of each step but the last depends on: two pipelines with equal keys have equal results there."""
    keys = [""]
    for _, step in pipeline.steps[:-1]:
        keys.append(joblib.hash((keys[-1], clone(step, safe=False))))
    return keys[1:]


def _bytes(result: Any) -> int:
    if isinstance(result, Bags):
        return int(result.total * result.dimension * result.dtype.itemsize)
    arrays = result.arrays().values() if isinstance(result, Records) else [result]
    return sum(int(getattr(a, "nbytes", MOST)) for a in arrays)


class StepMemory:
    """Results of the first steps of several pipelines, and the seconds spent in each step.

    Parameters
    ----------
    pipelines : {name: pipeline}; steps at the beginning that are equal are shared
    """

    def __init__(self, pipelines: Mapping[str, Pipeline]) -> None:
        self.pipelines = pipelines
        self.chains = {name: chain_keys(pipeline) for name, pipeline in pipelines.items()}
        self.awaited = Counter(key for keys in self.chains.values() for key in keys)
        self.results: dict[tuple[str, ...], Any] = {}
        self.used = 0
        self.seconds: dict[str, float] = {}
        self._keys: dict[int, tuple[Any, str]] = {}

    def order(self) -> list[str]:
        """The names, ordered so that pipelines with the same first steps follow each other: then little is kept."""
        first: dict[str, int] = {}
        for i, keys in enumerate(self.chains.values()):
            for key in keys:
                first.setdefault(key, i)
        names = list(self.chains)
        return sorted(names, key=lambda name: [first[key] for key in self.chains[name]] + [names.index(name)])

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline of that name, to be fitted."""
        *steps, last = clone(self.pipelines[name]).steps
        shared = [
            (label, SharedStep(step, label, chain, self))
            for (label, step), chain in zip(steps, self.chains[name])
            if step not in (None, "passthrough")
        ]
        return Pipeline([*shared, last])

    def release(self, name: str) -> None:
        """Forget results that only the pipeline of that name needed."""
        self.awaited.subtract(self.chains[name])
        for key in [key for key in self.results if self.awaited[key[0]] < 1]:
            self.used -= _bytes(self.results.pop(key)[1])

    def key_of(self, data: Any) -> str:
        """The key of a dataset: that of the step that made it, else of its content."""
        made, key = self._keys.get(id(data), (lambda: None, ""))
        return key if made() is data else content_key(data)

    def keep(self, key: tuple[str, ...], fitted: Any, result: Any) -> None:
        if self.awaited[key[0]] > 1 and key not in self.results and self.used + _bytes(result) <= MOST:
            self.results[key] = (fitted, result)
            self.used += _bytes(result)

    def mark(self, result: Any, key: tuple[str, ...]) -> Any:
        """Remember the key of a result as long as the result lives; returns the result."""
        if isinstance(result, Bags | Records | np.ndarray) and getattr(result, "fingerprint", None) is None:
            self._keys[id(result)] = (weakref.ref(result), "/".join(key))
        return result

    @contextmanager
    def steps_and_rest(self, rest: str) -> Iterator[dict[str, float]]:
        """The seconds of each step that works inside, and of all else under the name ``rest``."""
        self.seconds, spent, started = {}, dict[str, float](), time.perf_counter()
        yield spent
        spent |= self.seconds
        spent[rest] = time.perf_counter() - started - sum(spent.values())

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - started


@estimator
class SharedStep(TransformerMixin, BaseEstimator):
    """A step that looks its result up in the memory before computing it.

    Parameters
    ----------
    step : the transformer
    name : in the table of times
    chain : key of the step and of all before it
    memory : of all pipelines
    """

    step: Any = parameter()
    name: str = parameter()
    chain: str = parameter()
    memory: StepMemory = parameter()

    def fit(self, X: Any, y: Any = None) -> Self:
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        key = (self.chain, "fit", self.memory.key_of(X))
        with self.memory.timed(f"train {self.name}"):
            if key in self.memory.results:
                self.step_, made = self.memory.results[key]
            else:
                self.step_ = clone(self.step)
                if hasattr(self.step_, "fit_transform"):
                    made = self.step_.fit_transform(X, y)
                else:
                    made = self.step_.fit(X, y).transform(X)
                self.memory.keep(key, self.step_, made)
        self.key_ = key
        return self.memory.mark(made, key)

    def transform(self, X: Any) -> Any:
        key = (self.chain, *self.key_[1:], self.memory.key_of(X))
        with self.memory.timed(f"test {self.name}"):
            made = self.memory.results.get(key, (None, None))[1]
            if made is None:
                made = self.step_.transform(X)
                self.memory.keep(key, self.step_, made)
        return self.memory.mark(made, key)


CHUNK = 256  # images whose representations are in memory at a time


def predict_in_chunks(model: Any, method: str, X: Any, size: int = CHUNK) -> np.ndarray:
    """``method`` of a fitted model over a dataset of any length, so that memory does not grow with it."""
    starts = range(0, max(len(X), 1), size)
    return np.concatenate([np.asarray(getattr(model, method)(X[start : start + size])) for start in starts])
