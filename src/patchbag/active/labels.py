# SPDX-License-Identifier: BSD-3-Clause
"""The labels of a pool as they come in: which images have one, which are free to be asked for, which classes there are.

``classes`` lists classes that are known before any label of them; a label outside a given list is an error, without a
list new labels open new classes.  ``skip(i)`` takes an image out of the queries without a label.  Unlabelled is
``missing_label`` (NaN, None or a value), as in scikit-activeml.
"""

from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from patchbag.active.stopping import ErrorEstimate, StoppingHint, judge, kappa
from patchbag.parameters import ONE_OR_MORE, SHARE, estimator, parameter
from patchbag.records import is_label, label_list


def is_missing(labels: Any, missing_label: Any = np.nan) -> np.ndarray:
    """(N,) which labels are ``missing_label``; NaN and None both match NaN or None."""
    empty = missing_label is None or (isinstance(missing_label, float) and np.isnan(missing_label))

    def missing(label: Any) -> bool:
        if empty:
            return not is_label(label)
        return bool(label == missing_label)

    return np.array([missing(label) for label in labels], dtype=bool)


@estimator
class LabelledPool(BaseEstimator):
    """What learners of a pool have in common."""

    _: KW_ONLY
    classes: Any = parameter("array-like", None, default=None)
    missing_label: Any = parameter(default=np.nan)
    window: int = parameter(ONE_OR_MORE, default=5)
    agreement: float = parameter(SHARE, default=0.99)
    random_state: Any = parameter("random_state", default=None)

    def _open_class(self) -> None:
        """There is a class more."""
        raise NotImplementedError

    def _learn(self, image: int, column: int) -> None:
        """``image`` belongs to ``classes_[column]``."""
        raise NotImplementedError

    def _leading(self) -> np.ndarray:
        """(N,) column of the class that every image of the pool is thought to belong to."""
        raise NotImplementedError

    def _error(self) -> ErrorEstimate:
        """Share of the images that can be asked for which the learner gets wrong."""
        raise NotImplementedError

    def _start(self, n: int, y: Any) -> None:
        """A pool of n images, with labels ``y (n,)``, some or all of them missing, or None."""
        self.classes_: list[Any] = []
        self.labels_: dict[int, Any] = {}
        self.available_ = np.ones(n, bool)
        self.kappas_: list[float] = []
        self._predicted: np.ndarray | None = None
        self.skipped_ = np.zeros(n, bool)
        for label in [] if self.classes is None else list(self.classes):
            self._column(label)
        if y is not None:
            y = label_list(y)
            if len(y) != n:
                raise ValueError(f"the pool has {n} images but y has {len(y)} labels")
            known = np.flatnonzero(~is_missing(y, self.missing_label))
            self.teach(known, [y[i] for i in known])

    def stopping_hint(self) -> StoppingHint:
        """Whether more labels are likely to change the predictions of the pool."""
        check_is_fitted(self, "available_")
        left = int(self.available_.sum())
        return judge(self.kappas_, self.window, self.agreement, len(self._seen()), left, self._error())

    @property
    def n_labels_(self) -> int:
        return len(self.labels_)

    def teach(self, indices: Any, labels: Any) -> Self:
        """Learn the labels of images of the pool."""
        check_is_fitted(self, "available_")
        indices, labels = np.atleast_1d(np.asarray(indices)), list(np.atleast_1d(np.asarray(labels, dtype=object)))
        if len(indices) != len(labels):
            raise ValueError(f"got {len(indices)} images and {len(labels)} labels")
        if np.any(is_missing(labels, self.missing_label)):
            raise ValueError("cannot teach a missing label; call skip for images that cannot be labelled")
        images = [self._image(index) for index in indices]
        # everything is checked before anything is learned: a bad label must not leave half a batch behind
        for i, (image, label) in enumerate(zip(images, labels)):
            if image in self.labels_ or image in images[:i]:
                known = self.labels_.get(image, labels[images.index(image)])
                raise ValueError(f"image {image} already has the label {known!r}; fit again to change it")
            if self.classes is not None and label not in self.classes_:
                raise ValueError(f"label {label!r} is not one of the classes {self.classes_}; add it to classes=")
        for image, label in zip(images, labels):
            self._learn(image, self._column(label))
            self.labels_[image] = label
            self.available_[image] = False
        if len(indices):
            predicted = self._leading()
            if self._predicted is not None:
                self.kappas_.append(kappa(predicted, self._predicted, len(self.classes_)))
            self._predicted = predicted
        return self

    def skip(self, indices: Any) -> Self:
        """Never ask for these images."""
        check_is_fitted(self, "available_")
        for index in np.atleast_1d(np.asarray(indices)):
            image = self._image(index)
            self.available_[image], self.skipped_[image] = False, True
        return self

    def _image(self, index: Any) -> int:
        n = len(self.available_)
        if not isinstance(index, int | np.integer) or not 0 <= index < n:
            raise ValueError(f"image {index} is not in the pool, which has images 0 to {n - 1}")
        return int(index)

    def _column(self, label: Any) -> int:
        if label not in self.classes_:
            self.classes_.append(label)
            self._open_class()
        return self.classes_.index(label)

    def _seen(self) -> np.ndarray:
        """Columns of the classes that have labels."""
        labels = set(self.labels_.values())
        return np.array([i for i, label in enumerate(self.classes_) if label in labels], dtype=int)

    def _argmax(self, value: np.ndarray) -> int:
        """The image of the largest value, one of them by chance where several have it."""
        best = np.flatnonzero(value == np.nanmax(value))
        return int(best[0] if len(best) == 1 else best[self.random_.randint(len(best))])

    def _free(self, candidates: Any, batch_size: int) -> np.ndarray:
        """(N,) which images can be asked for."""
        free = self.available_.copy()
        if candidates is not None:
            chosen = [self._image(index) for index in np.atleast_1d(np.asarray(candidates))]
            free[np.setdiff1d(np.arange(len(free)), chosen)] = False
        if not 1 <= batch_size <= free.sum():
            raise ValueError(
                f"batch_size must be between 1 and the {free.sum()} images left to label, got {batch_size}"
            )
        return free
