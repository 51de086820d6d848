# SPDX-License-Identifier: BSD-3-Clause
"""Bags: a dataset whose samples are sets of vectors.

An image is an unordered, variable-size set of local descriptors.  ``Bags`` holds n of them without padding::

    values  (total, d)   all descriptors, bag after bag
    offsets (n + 1,)     bag i is values[offsets[i]:offsets[i + 1]]
    positions (total, 2) optional, where each patch is centred: (x, y) in [0, 1]

It has ``len``, ``shape == (n,)`` and the indexing of a 1-D array, which is all that scikit-learn asks of a dataset:
``Pipeline``, ``cross_val_score``, ``GridSearchCV`` and ``train_test_split`` take it and hand on a ``Bags``.

``Bags.save`` writes a folder of ``.npy`` files and ``Bags.load`` maps them into memory: a file larger than the memory
is opened, not read.  Bags that are picked out by an index array are a view: they remember where their rows lie, and
``chunks``, ``sample`` and indexing touch only what they need.  Asking for ``values`` or ``positions`` packs them all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, device

from patchbag.records import Samples, require_finite
from patchbag.runtime import check_random_state
from patchbag.storage.bag_files import open_bags, save_bags
from patchbag.storage.declared import Array, Declared, floats, integers


class Bags(Samples):
    """A batch of n bags of d-dimensional vectors.

    Parameters
    ----------
    values : (total, d) array
    offsets : (n + 1,) non-decreasing integers from 0 to total
    positions : (total, 2) array in [0, 1], optional

    >>> bags = Bags.from_list([np.zeros((3, 2)), np.ones((5, 2))])
    >>> bags.shape, bags.sizes, bags[1].shape, bags[[1, 0]].sizes
    ((2,), array([3, 5]), (5, 2), array([5, 3]))
    """

    _stored: ClassVar[dict[str, Declared]] = {
        "values": Array("numbers", ("total", "d")),
        "offsets": integers("n + 1", low=0, high="total", ascending=True),
        "positions": floats("total", 2, optional=True),
    }

    def __init__(self, values: Any, offsets: Any, positions: Any = None) -> None:
        if not hasattr(values, "shape"):
            values = np.asarray(values)
        if isinstance(values, np.ndarray) and values.dtype.kind not in "fiub":
            raise ValueError(f"descriptors must be real numbers, got an array of {values.dtype}")
        if isinstance(values, np.ndarray) and (values.dtype == bool or not values.dtype.isnative):
            values = values.astype(np.uint8 if values.dtype == bool else values.dtype.newbyteorder("="))
        if len(values.shape) != 2:
            raise ValueError(f"values must be 2-D (descriptors × dimensions), got shape {tuple(values.shape)}")
        offsets = np.asarray(offsets, dtype=np.int64)
        if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != values.shape[0]:
            raise ValueError(f"offsets must run from 0 to the {values.shape[0]} descriptors, got {_preview(offsets)}")
        if np.any(offsets[1:] < offsets[:-1]):  # differences can overflow
            raise ValueError(f"offsets must not decrease, got {_preview(offsets)}")
        if positions is not None and not hasattr(positions, "shape"):
            positions = np.asarray(positions)
        if positions is not None and tuple(positions.shape) != (values.shape[0], 2):
            raise ValueError(f"positions must have shape ({values.shape[0]}, 2), got {tuple(positions.shape)}")
        self.offsets = offsets
        self.fingerprint: str | None = None
        self._rows: tuple[Any, Any, np.ndarray | None] = (values, positions, None)

    @classmethod
    def from_ranges(cls, values: Any, starts: Any, sizes: Any, positions: Any = None) -> Bags:
        """A view of rows that lie elsewhere: bag i is ``values[starts[i] : starts[i] + sizes[i]]``.

        >>> Bags.from_ranges(np.arange(8.0).reshape(4, 2), [2, 0], [2, 1]).values[:, 0].tolist()
        [4.0, 6.0, 0.0]
        """
        starts, offsets = np.asarray(starts, dtype=np.int64), np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        bags = cls(values[:0, ...], [0], None if positions is None else positions[:0, ...])
        bags.offsets = offsets
        packed = bool(len(starts)) and np.array_equal(starts, starts[0] + offsets[:-1])
        if packed:  # they lie one after the other
            rows = slice(int(starts[0]), int(starts[0] + offsets[-1])), ...
            bags._rows = (values[rows], None if positions is None else positions[rows], None)
        else:
            bags._rows = (values, positions, starts)
        return bags

    def _packed(self) -> tuple[Any, Any]:
        """Values and positions bag after bag; a view is packed the first time they are asked for."""
        values, positions, starts = self._rows
        if starts is not None:
            values, positions = (_gather(a, starts, self.offsets) for a in (values, positions))
            self._rows = (values, positions, None)
        return values, positions

    @property
    def values(self) -> Any:
        """(total, d) all descriptors, bag after bag."""
        return self._packed()[0]

    @property
    def positions(self) -> Any:
        """(total, 2) where each patch is centred, or None."""
        return self._packed()[1]

    @property
    def has_positions(self) -> bool:
        return self._rows[1] is not None

    @property
    def total(self) -> int:
        """Number of descriptors in all bags together."""
        return int(self.offsets[-1])

    def _starts(self) -> np.ndarray:
        """(n,) row of ``self._rows`` at which each bag begins."""
        return self.offsets[:-1] if self._rows[2] is None else self._rows[2]

    def __getstate__(self) -> dict[str, Any]:
        self._packed()  # another process needs these rows, not all that they were picked from
        return self.__dict__

    @classmethod
    def from_list(cls, arrays: Iterable[Any], positions: Iterable[Any] | None = None) -> Bags:
        """Pack a list of (n_i, d) arrays, all with the same d, in the given order.

        ``positions`` are as many (n_i, 2) arrays, each with the rows of its bag.
        """
        arrays = [np.asarray(a) for a in arrays]
        where = None if positions is None else _check_positions(positions, [len(a) if a.ndim else 0 for a in arrays])
        if not arrays:
            return cls(np.empty((0, 0), np.float32), [0])
        d = next((a.shape[1] for a in arrays if a.ndim == 2 and a.size), None)
        if d is None:
            d = arrays[0].shape[1] if arrays[0].ndim == 2 else 0
        for i, a in enumerate(arrays):
            if a.ndim == 0:
                raise ValueError(
                    f"bag {i} of {len(arrays)} is {str(a)!r:.80}, not an array of descriptors; images are described "
                    "first, by DenseSIFT for example"
                )
            if a.ndim != 2 or (a.shape[1] != d and len(a)):
                raise ValueError(
                    f"bag {i} of {len(arrays)} has shape {a.shape}; every bag must be (number of descriptors, "
                    f"{d or 'dimensions'})"
                )
        offsets = np.concatenate([[0], np.cumsum([len(a) for a in arrays])])
        values = np.concatenate([a.reshape(-1, d) for a in arrays])
        return cls(values, offsets, None if where is None else np.concatenate(where))

    # --- what scikit-learn asks of a dataset ---------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def dtype(self) -> Any:
        return self._rows[0].dtype

    @property
    def dimension(self) -> int:
        """Number of dimensions d of each descriptor."""
        return int(self._rows[0].shape[1])

    @property
    def sizes(self) -> np.ndarray:
        """(n,) number of descriptors in each bag."""
        return np.diff(self.offsets)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):  # scikit-learn indexes samples as X[key, ...]
            if len(key) == 2 and key[1] is Ellipsis:
                key = key[0]
            else:
                raise IndexError(f"Bags has one axis, got the index {key!r}")
        if isinstance(key, int | np.integer):
            if not -len(self) <= key < len(self):
                raise IndexError(f"bag {key} of {len(self)} does not exist")
            start = int(self._starts()[key])
            return self._rows[0][start : start + int(self.sizes[key]), ...]
        return self._take(np.arange(len(self))[key])

    def _take(self, index: np.ndarray) -> Bags:
        if index.ndim != 1:
            raise IndexError(f"Bags has one axis, got an index of shape {index.shape}")
        values, positions, _ = self._rows
        taken = Bags.from_ranges(values, self._starts()[index], self.sizes[index], positions)
        if self.fingerprint is not None:
            taken.fingerprint = hashlib.blake2b(self.fingerprint.encode() + index.tobytes(), digest_size=20).hexdigest()
        return taken

    def __iter__(self) -> Iterator[Any]:
        for i in range(len(self)):
            yield self[i]

    def __repr__(self) -> str:
        where = ", with positions" if self.has_positions else ""
        return f"Bags({len(self)} bags, {self.total:,} descriptors × {self.dimension}, {self.dtype}{where})"

    # --- making new bags -----------------------------------------------------------------------------------------

    def __add__(self, other: Bags) -> Bags:
        return concatenate([self, other])

    def replace(self, values: Any) -> Bags:
        """The same bags with new descriptors, row for row (what a per-descriptor transform returns)."""
        return Bags(values, self.offsets, self.positions)

    def chunks(self, max_rows: int) -> Iterator[Bags]:
        """Consecutive groups of whole bags with at most ``max_rows`` descriptors each (one larger bag stands alone)."""
        start = 0
        while start < len(self):
            stop = int(np.searchsorted(self.offsets, self.offsets[start] + max_rows, side="right")) - 1
            stop = min(max(stop, start + 1), len(self))
            yield self[start:stop]
            start = stop

    def sample(self, size: int, random_state: Any = None) -> np.ndarray:
        """At most ``size`` descriptors drawn without replacement, uniformly over all descriptors: (size, d)."""
        if self.total <= size:
            return np.asarray(self.values)
        rows = np.sort(check_random_state(random_state).choice(self.total, size, replace=False))
        bag = np.searchsorted(self.offsets, rows, side="right") - 1
        return np.asarray(self._rows[0][rows + (self._starts() - self.offsets[:-1])[bag]])

    def check_not_empty(self) -> Bags:
        """Raise a clear error if a bag has no descriptors; return self.  The values are not looked at."""
        empty = np.flatnonzero(self.sizes == 0)
        if len(empty):
            raise ValueError(f"bag {empty[0]} of {len(self)} has no descriptors; drop it, or extract smaller patches")
        return self

    def stored_parameters(self) -> dict[str, Any]:
        """What a model file stores of bags (see storage)."""
        return {"values": np.asarray(self.values), "offsets": self.offsets, "positions": self.positions}

    # --- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the bags to the folder ``path``; see :mod:`patchbag.storage.bag_files`."""
        return save_bags(path, self.values, self.offsets, self.positions)

    @classmethod
    def load(cls, path: str | Path, memory_map: bool = True) -> Bags:
        """Bags written by :meth:`save`; the descriptors stay on disk unless ``memory_map=False``."""
        return cls(*open_bags(path, memory_map))

    open = load  # its name up to version 0.2


def as_bags(X: Any) -> Bags:
    """Coerce a ``Bags``, a list of 2-D arrays or a 3-D array (n bags of equal size) to ``Bags``."""
    if isinstance(X, Bags):
        return X
    if hasattr(X, "shape") and len(X.shape) == 3:
        n, m, d = X.shape
        return Bags(X.reshape(n * m, d), np.arange(n + 1) * m)
    if hasattr(X, "shape") and len(X.shape) == 2:
        raise ValueError(
            f"expected bags (a list of 2-D arrays), got one 2-D array {tuple(X.shape)}; for a single bag pass [X]"
        )
    try:
        arrays = list(X)
    except TypeError:
        raise TypeError(f"expected Bags or a list of 2-D arrays, got {type(X).__name__}") from None
    return Bags.from_list(arrays)


def concatenate(parts: Sequence[Bags]) -> Bags:
    """All bags of all parts, in order.  Positions are kept if every part has them."""
    parts = list(parts)
    if not parts:
        raise ValueError("need at least one Bags to concatenate")
    with_rows = [p for p in parts if p.values.shape[0]] or parts[:1]
    dimensions = {p.dimension for p in with_rows}
    if len(dimensions) > 1:
        raise ValueError(f"cannot concatenate bags of different dimensions {sorted(dimensions)}")
    shifts = np.cumsum([0] + [int(p.offsets[-1]) for p in parts])
    offsets = np.concatenate([[0]] + [p.offsets[1:] + shift for p, shift in zip(parts, shifts)])
    values = np.concatenate([p.values for p in with_rows])
    where = None
    if all(p.positions is not None for p in with_rows):
        where = np.concatenate([p.positions for p in with_rows])
    return Bags(values, offsets, where)


def map_values(bags: Bags, function: Callable[[np.ndarray], np.ndarray], max_rows: int = 65536) -> Bags:
    """Apply a per-descriptor function to the values in chunks, so that temporaries stay small."""
    result: np.ndarray | None = None
    stop = 0
    for chunk in bags.chunks(max_rows):
        for start in range(0, chunk.total, max_rows):  # a bag may be larger
            part = function(np.asarray(chunk.values[start : start + max_rows]))
            require_finite(part, "transformed descriptors")
            if result is None:
                result = np.empty((bags.total, part.shape[1]), part.dtype)
            result[stop : stop + len(part)] = part
            stop += len(part)
    if result is None:
        probe = function(np.zeros((1, bags.dimension), np.float32))
        result = np.empty((0, probe.shape[1]), probe.dtype)
    return bags.replace(result)


def _gather(rows: Any, starts: np.ndarray, offsets: np.ndarray) -> Any:
    """Ranges of rows one after the other; whole ranges are copied, which is faster than row by row."""
    if rows is None:
        return None
    if not isinstance(rows, np.ndarray):
        index = np.repeat(starts - offsets[:-1], np.diff(offsets)) + np.arange(offsets[-1])
        xp = array_namespace(rows)
        return xp.take(rows, xp.asarray(index, device=device(rows)), axis=0)
    packed = np.empty((int(offsets[-1]), *rows.shape[1:]), rows.dtype)
    for start, first, last in zip(starts, offsets[:-1], offsets[1:]):
        packed[first:last] = rows[start : start + last - first]
    return packed


def _check_positions(positions: Iterable[Any], sizes: list[int]) -> list[np.ndarray]:
    """The positions of every bag as (n_i, 2) arrays: a row too few here and too many there would shift them all."""
    where = [np.asarray(p) for p in positions]
    if len(where) != len(sizes):
        raise ValueError(f"got positions of {len(where)} bags for {len(sizes)} bags")
    for i, (p, size) in enumerate(zip(where, sizes)):
        if p.size == 0 and size == 0:
            where[i] = p.reshape(0, 2)
        elif p.shape != (size, 2):
            raise ValueError(f"the positions of bag {i} of {len(sizes)} have shape {p.shape}, expected ({size}, 2)")
    return where


def _preview(offsets: np.ndarray) -> str:
    return np.array2string(offsets, threshold=6, edgeitems=3)
