# SPDX-License-Identifier: BSD-3-Clause
"""Several kinds of features of the same images: described once by each, however many kernels use it."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Any, ClassVar, Self

from sklearn.base import TransformerMixin, _fit_context

from patchbag.channels import Channels
from patchbag.parameters import Composition, estimator, parameter
from patchbag.storage.declared import Choice, Declared, Either, Many, Pair, Part


@estimator
class FeatureChannels(TransformerMixin, Composition):
    """Describe images by several features at once.

    Parameters
    ----------
    channels : list of (name, feature extractor); the extractor "drop" leaves a channel out
    use : names of the channels to describe images by; None for all of them

    >>> FeatureChannels([("sift", DenseSIFT()), ("gb", GeometricBlur())]).transform(paths)["gb"]  # doctest: +SKIP
    """

    _parts = "channels"
    channels: list[tuple[str, Any]] = parameter(list)
    _: KW_ONLY
    use: Sequence[str] | None = parameter("array-like", str, None, default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "channels": Many(Pair(Either((Part(methods=("describe",)), Choice(("drop",))))), low=1),
        "use": Either((Choice(), Many(Choice())), optional=True),
    }

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def chosen(self) -> list[tuple[str, Any]]:
        """(name, extractor) of the channels that images are described by."""
        names = [name for name, _ in self.channels]
        use = names if self.use is None else [self.use] if isinstance(self.use, str) else list(self.use)
        unknown = [name for name in use if name not in names]
        if unknown:
            raise ValueError(f"use must name some of the channels {', '.join(names)}; got {self.use!r}")
        active = [(name, feature) for name, feature in self.channels if feature != "drop" and name in use]
        if not active:
            raise ValueError("FeatureChannels needs at least one channel that is not 'drop'")
        return active

    def reads(self) -> tuple[int, tuple[int, ...] | None]:
        """Page and channels of image files that are read; all features are fitted in one context."""
        return self.chosen()[0][1].reads()

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the parameters; features learn nothing."""
        self._validate_names([name for name, _ in self.channels])
        for _, feature in self.chosen():
            feature.fit(X, y)
        return self

    def transform(self, X: Any) -> Channels:
        """``Channels`` with one ``Bags`` per feature; channels that were made before are returned as they are."""
        if isinstance(X, Channels):
            return X
        return Channels({name: feature.transform(X) for name, feature in self.chosen()})
