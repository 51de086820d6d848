# SPDX-License-Identifier: BSD-3-Clause
"""Several datasets of the same images side by side: bags of orientations and bags of colours, say.

``Channels`` is cut like one dataset, so that ``GridSearchCV`` and ``train_test_split`` keep the kinds of features
together.  ``Channel`` picks one of them: the first step of a branch of ``LateFusionClassifier`` or ``KernelUnion``.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Self

from sklearn.base import BaseEstimator, TransformerMixin, _fit_context

from patchbag.parameters import estimator, parameter
from patchbag.records import Samples, sample_index


class Channels(Samples):
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
    def fingerprint(self) -> str | None:
        """What the contents are known by, where all datasets have such a key."""
        keys = [getattr(data, "fingerprint", None) for data in self._datasets.values()]
        return None if None in keys else "+".join(map(str, keys))

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


@estimator
class Channel(TransformerMixin, BaseEstimator):
    """One dataset out of ``Channels``: the first step of a branch.

    Parameters
    ----------
    name : of the channel
    """

    name: str = parameter(str)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Nothing to learn."""
        return self

    def transform(self, X: Any) -> Any:
        if not isinstance(X, Channels):
            raise ValueError(
                f"expected Channels with a dataset named {self.name!r}, got a {type(X).__name__}; "
                "give images to the whole recipe, or Channels(name=dataset, ...)"
            )
        if self.name not in X.names:
            raise ValueError(
                f"there is no channel {self.name!r} among {', '.join(X.names)}; "
                "describe images by it too (features.use), or leave the kernels on it out (kernels.use)"
            )
        return X[self.name]
