# SPDX-License-Identifier: BSD-3-Clause
"""Several datasets of the same images side by side: bags of orientations and bags of colours, say.

``Channels`` is cut like one dataset, so that ``GridSearchCV`` and ``train_test_split`` keep the kinds of features
together.  ``LateFusion`` and ``KernelUnion`` take from it what each of their branches works on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from patchbag.records import sample_index


class Channels:
    """Several datasets of the same n images, by name; indexing by samples cuts all of them.

    >>> channels = Channels(orh=bags, col=colour_bags)
    >>> channels[:10].names, channels["orh"] is bags
    (('orh', 'col'), True)
    """

    def __init__(self, datasets: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        self._datasets = {**(datasets or {}), **named}
        if not self._datasets:
            raise ValueError("Channels needs at least one dataset")
        sizes = {name: len(data) for name, data in self._datasets.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"the channels must describe the same images, got {sizes}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._datasets)

    def __len__(self) -> int:
        return len(next(iter(self._datasets.values())))

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    @property
    def ndim(self) -> int:
        return 1

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._datasets:
                raise KeyError(f"no channel {key!r}; there are {', '.join(self._datasets)}")
            return self._datasets[key]
        index = sample_index(key, len(self))
        return Channels({name: _take(data, index) for name, data in self._datasets.items()})

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Channels({', '.join(f'{name}={data!r:.60}' for name, data in self._datasets.items())})"


def _take(data: Any, index: Any) -> Any:
    if isinstance(data, list):
        return data[index] if isinstance(index, slice) else [data[i] for i in index]
    return data[index]
