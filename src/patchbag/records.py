# SPDX-License-Identifier: BSD-3-Clause
"""Datasets held as parallel arrays: what lets ``Statistics`` and ``Mixtures`` travel through scikit-learn.

A ``Records`` is a frozen dataclass whose fields are arrays with one common first axis of n samples.  Indexing it
indexes every field, so ``GridSearchCV`` and ``train_test_split`` can cut it like a table.  A field declared with
``shared()`` belongs to the whole dataset (the universal model, say) and is handed on as it is.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array


def require_finite(a: Any, what: str, advice: str = "rescale the data") -> Any:
    """The array; ValueError names the first sample (first axis) with a value that is NaN or infinite.

    A sum can only be finite if its terms are: one pass over the numbers, and no mask of them.
    """
    if not is_numpy_array(a) or a.dtype.kind != "f" or not a.size:
        return a
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(a.sum(dtype=np.float64)):
            return a
    broken = np.flatnonzero(~np.isfinite(a.reshape(len(a), -1)).all(axis=1))
    if len(broken):
        raise ValueError(
            f"{what} of sample {broken[0]} of {len(a)} are NaN or infinite: numbers on the way are too large or too "
            f"small for their precision; {advice}"
        )
    return a


def as_floats(a: Any) -> Any:
    """Real numbers of any other type as float64."""
    if not is_numpy_array(a) or a.dtype in (np.float32, np.float64):
        return a
    if a.dtype.kind not in "biuf":
        raise ValueError(f"expected real numbers, got an array of {a.dtype}")
    return a.astype(np.float64)


def is_label(label: Any) -> bool:
    """Whether it is one; None, NaN and what pandas puts in their place stand for no label."""
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return False
    return isinstance(label, str) or np.ndim(label) > 0 or bool(label == label)


def label_list(labels: Any) -> list[Any]:
    """Labels (n,), some of which may be missing, as a list; ValueError for what iterates over something else."""
    if isinstance(labels, Mapping | Set) or hasattr(labels, "columns"):
        raise ValueError(
            f"expected a sequence of labels, one per image in the order of the images; got a {type(labels).__name__}"
        )
    return list(labels)


def shared(rule: Any, default: Any = None) -> Any:
    """A dataclass field that all samples of a dataset have in common, with what it has to be in a model file."""
    return field(default=default, metadata={"shared": True, "stored": rule})


def sample_index(key: Any, n: int) -> Any:
    """An index of n samples as a slice or an array of positions; a single number becomes a dataset of one."""
    if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:  # scikit-learn's X[key, ...]
        key = key[0]
    if isinstance(key, int | np.integer):
        if not -n <= key < n:
            raise IndexError(f"sample {key} of {n} does not exist")
        return slice(int(key) % n, int(key) % n + 1)
    return key if isinstance(key, slice) else np.arange(n)[key]


def _take(a: Any, index: slice | np.ndarray) -> Any:
    """Samples of an array, on whatever device it lies."""
    if isinstance(index, slice) or is_numpy_array(a):
        return a[index, ...]
    xp = array_namespace(a)
    return xp.take(a, xp.asarray(index, device=device(a)), axis=0)


class Samples:
    """A dataset with one axis, as scikit-learn asks for."""

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    @property
    def ndim(self) -> int:
        return 1


@dataclass(frozen=True, repr=False)
class Records(Samples):
    """Base of the array datasets; subclasses declare the array fields."""

    def arrays(self) -> dict[str, Any]:
        """The per-sample arrays by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if not f.metadata.get("shared")}

    def __len__(self) -> int:
        return int(next(iter(self.arrays().values())).shape[0])

    def __getitem__(self, key: Any) -> Self:
        index = sample_index(key, len(self))
        return replace(self, **{name: _take(a, index) for name, a in self.arrays().items()})

    def check_shared(self, other: Self) -> None:
        """Raise if both know what all their samples share (the universal model) and it is not the same."""
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            if f.metadata.get("shared") and mine is not None and theirs is not None and mine != theirs:
                raise ValueError(
                    f"these {type(self).__name__} do not belong together: they refer to different {f.name} models, "
                    f"whose components have nothing to do with each other; make all of them with one model"
                )

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}={tuple(a.shape)}" for name, a in self.arrays().items())
        return f"{type(self).__name__}({shapes})"

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """The samples of all parts, in order; shared fields come from the first part, and must be the same in all."""
        if not parts:
            raise ValueError(f"need at least one {cls.__name__} to concatenate")
        for part in parts[1:]:
            parts[0].check_shared(part)
        columns = [part.arrays() for part in parts]
        for i, column in enumerate(columns):
            for name, a in column.items():
                first = tuple(columns[0][name].shape[1:])
                if tuple(a.shape[1:]) != first:
                    raise ValueError(
                        f"these {cls.__name__} cannot be put together: the {name} of a sample have shape {first} in "
                        f"part 0 and {tuple(a.shape[1:])} in part {i}; make all of them with one model"
                    )
        xp = array_namespace(*columns[0].values())
        return replace(parts[0], **{name: xp.concat([c[name] for c in columns], axis=0) for name in columns[0]})
